"""An OpenAPI 3.x document as a server: its operations are tools, called over HTTP.

All calls go to one base URL, which the configuration fixes and which no document, argument or
redirect can change. Documents are not trusted: size, depth and work are bounded, references out
of the document resolve to nothing, and content of the wrong type is ignored.
"""
