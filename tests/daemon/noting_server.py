"""A server whose tools note calls in a file, wait, log, and ask for roots."""

from pathlib import Path

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import InputRequiredResult, ListRootsRequest, ListRootsResult

server = MCPServer("noting")


def write(path: str, line: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


@server.tool()
async def note(path: str) -> str:
    """Note the call in a file, and wait for ever."""
    write(path, "called")
    await anyio.sleep_forever()
    return ""


@server.tool()
async def wait(path: str, name: str, context: Context) -> str:
    """Tell of progress, and wait until somebody cancels the call or ends the file."""
    await context.report_progress(1, 2, name)
    write(path, f"{name} waits")
    try:
        while "end" not in Path(path).read_text(encoding="utf-8"):  # noqa: ASYNC110, ASYNC240  # a test writes it
            await anyio.sleep(0.01)
    except anyio.get_cancelled_exc_class():
        write(path, f"{name} was cancelled")
        raise
    return name


@server.tool()
async def log(name: str, context: Context) -> str:
    """Log a name."""
    await context.warning(name)  # pyright: ignore[reportDeprecated]  # clients still hear it
    return name


@server.tool()
def look(context: Context) -> str | InputRequiredResult:
    """Look at the folder of whoever calls."""
    if context.input_responses is None:
        return InputRequiredResult(input_requests={"roots": ListRootsRequest()})
    answer = context.input_responses["roots"]
    assert isinstance(answer, ListRootsResult)
    return str(answer.roots[0].uri)


if __name__ == "__main__":
    server.run()
