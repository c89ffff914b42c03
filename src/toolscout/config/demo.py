"""A configuration to try the gateway with: real servers that need no account and no network."""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import MissingExtra

SERVERS = {"time": "mcp_server_time", "git": "mcp_server_git", "fetch": "mcp_server_fetch"}
"""Servers of the MCP project, by the module that runs each."""


def demo_config(cache: Path | None = None) -> Config:
    """Return a configuration of those demo servers that this environment has."""
    found = {name: module for name, module in SERVERS.items() if find_spec(module) is not None}
    if not found:
        raise MissingExtra("mcp-server-time", extra="demo")
    folder = Path(tempfile.mkdtemp(prefix="toolscout-")) if cache is None else cache
    return Config(
        servers=tuple(
            ServerConfig(
                name=name, transport=Transport.STDIO, command=sys.executable, args=("-m", module)
            )
            for name, module in found.items()
        ),
        gateway=GatewayConfig(cache=str(folder / "gateway.db")),
    )
