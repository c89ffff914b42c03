"""An OpenAPI 3.x document as a server: its operations are tools, called over HTTP.

`tools_from_openapi` makes one tool of each operation and puts its route into the tool's `extras`.
`OpenApi` makes the calls, all to one base URL that the configuration fixes and that no document,
argument or redirect can change. Results have the shape of MCP's. Documents are not trusted: size,
depth and work are bounded, references out of the document resolve to nothing, and content of the
wrong type is ignored.
"""

from toolscout.servers.openapi.document import is_openapi_file, read_document
from toolscout.servers.openapi.executor import OpenApi
from toolscout.servers.openapi.parameters import tools_from_openapi

__all__ = ["OpenApi", "is_openapi_file", "read_document", "tools_from_openapi"]
