"""A gateway with a small server behind it, which a client of any SDK can start or reach.

The gateway runs in an environment that has mcp 2, whatever the client has.
"""

import json
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from adapters.tables import ROOT

MAIN_PYTHON = ROOT / ".venv" / "bin" / "python"
META = ["tool_search", "tool_describe", "tool_call"]
FIND = {"queries": ["select:shop__refund_order"]}
REFUND = {"name": "shop__refund_order", "arguments": {"order": "A-7"}}
REFUNDED = "A-7 is refunded."
_SHOP = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")


@server.tool()
def refund_order(order: str) -> str:
    """Pay the money for an order back to the customer."""
    return f"{order} is refunded."


server.run()
'''


def configured(folder: Path, python: Path = MAIN_PYTHON) -> Path:
    """Write a server and the configuration of a gateway before it; return the latter's path."""
    shop, path = folder / "shop.py", folder / "toolscout.toml"
    shop.write_text(_SHOP, encoding="utf-8")
    lines = ["[servers.shop]", f"command = {json.dumps(str(python))}"]
    lines += [f"args = {json.dumps([str(shop)])}"]
    lines += ["[gateway]", f"cache = {json.dumps(str(folder / 'gateway.db'))}"]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def words(config: Path, *options: str) -> list[str]:
    """Return the arguments with which Python starts a gateway."""
    return ["-m", "toolscout", "serve", "--config", str(config), "--no-daemon", *options]


@contextmanager
def serving(config: Path, python: Path = MAIN_PYTHON) -> Generator[str]:
    """Serve a gateway over HTTP, and give its address."""
    command = [str(python), *words(config, "--http", "--port", "0")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield _address(cast("IO[str]", process.stderr))
        finally:
            process.terminate()


def _address(log: IO[str]) -> str:
    said: list[str] = []
    for line in log:
        said.append(line)
        if "Serving MCP at" in line:
            return line.split()[-1].removesuffix(".")
    raise AssertionError(f"The gateway ended before it served:\n{''.join(said)}")
