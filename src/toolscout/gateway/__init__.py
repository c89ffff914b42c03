"""One MCP server in front of all the others."""
