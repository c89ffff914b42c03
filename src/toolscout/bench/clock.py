"""`mcp-server-time` over streamable HTTP, which it does not speak by itself.

Run it as `python -m toolscout.bench.clock --port 9000`. Its own server object is served by the
SDK's own application, so that a call over HTTP is the same call as over stdio.
"""

import argparse
from importlib import import_module
from typing import Any

ZONE = "Europe/Berlin"


def main() -> None:
    """Serve until the process is ended."""
    import uvicorn

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    made: Any = import_module("mcp_server_time.server").create_server(ZONE)
    uvicorn.run(made.streamable_http_app(), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
