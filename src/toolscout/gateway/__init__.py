"""The gateway: one MCP server that stands in front of many others."""
