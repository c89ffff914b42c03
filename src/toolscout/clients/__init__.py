"""The configuration files of other MCP clients: find, rewrite and restore them."""
