"""An OpenAPI 3.x document as a server: its operations are tools, called over HTTP.

`tools_from_openapi` gives one tool for each operation; what a call needs to know travels in the
tool's `extras`. `OpenApi` makes the calls: to one base URL, which the configuration fixes and no
document, argument or redirect can change. Answers have the shape of MCP's results.
Documents are other people's: size, depth and work are bounded, references that lead out of the
document lead nowhere, and content of a wrong type is passed over.
"""

from toolscout.servers.openapi.document import is_openapi_file, read_document
from toolscout.servers.openapi.executor import OpenApi
from toolscout.servers.openapi.parameters import tools_from_openapi

__all__ = ["OpenApi", "is_openapi_file", "read_document", "tools_from_openapi"]
