"""A server whose work takes as long as a test wants: until a file appears in a folder.

The first argument is the folder, the second the era. The result of a tool is the text of the file
that its argument names. `wait` waits for it; `wait_and_ask` then asks who is there. `job` answers
with a task (SEP-2663), whose state is in the folder, so that it outlives the server: `NAME.ask`
makes it ask who is there, the answer goes into `NAME.answer`. A call or a task that is cancelled
leaves `NAME.cancelled`. A file `lazy`
makes the server ask for few requests about tasks, and `pid` holds the id of its process.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server

FOLDER = Path(sys.argv[1])
IS_MODERN = sys.argv[2] == "modern"
TASKS = "io.modelcontextprotocol/tasks"
FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTION = types.ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)


class TaskParams(types.RequestParams):
    task_id: str


class TaskUpdateParams(TaskParams):
    input_responses: dict[str, Any]


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
    names = ["wait", "wait_and_ask", *(["job"] if IS_MODERN else [])]
    return types.ListToolsResult(
        tools=[types.Tool(name=name, description=name, input_schema=schema) for name in names]
    )


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
    name = str((params.arguments or {})["name"])
    if params.name == "job":
        declared = ctx.session.client_capabilities
        assert TASKS in declared.extensions
        return {**describe(name), "resultType": "task"}
    (FOLDER / f"{name}.begun").touch()
    await ctx.session.report_progress(1, 2, "half of it")
    try:
        while not has_text(name):  # noqa: ASYNC110  # nothing announces it
            await anyio.sleep(0.01)
    except anyio.get_cancelled_exc_class():
        (FOLDER / f"{name}.cancelled").touch()
        raise
    text = (FOLDER / name).read_text(encoding="utf-8")
    if params.name == "wait_and_ask":
        answer = await ctx.session.elicit_form(QUESTION.message, FORM, ctx.request_id)
        text = f"{text} {answer.content['name']}"
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def has_text(name: str) -> bool:
    """Tell whether somebody has written the file of a task; it is empty for a moment."""
    file = FOLDER / name
    return file.exists() and file.stat().st_size > 0


def describe(name: str) -> dict[str, Any]:
    """Return the state of a task."""
    state: dict[str, Any] = {"status": "working", "statusMessage": f"{name} is in progress"}
    if (FOLDER / f"{name}.cancelled").exists():
        state = {"status": "cancelled"}
    elif has_text(name):
        text = (FOLDER / name).read_text(encoding="utf-8")
        result = {"content": [{"type": "text", "text": text}]}
        state = {"status": "completed", "result": result}
    elif (FOLDER / f"{name}.ask").exists() and not (FOLDER / f"{name}.answer").exists():
        asked = types.ElicitRequest(params=QUESTION)
        wanted = asked.model_dump(by_alias=True, mode="json", exclude_none=True)
        state = {"status": "input_required", "inputRequests": {"who": wanted}}
    now = "2026-11-01T10:00:00Z"
    task = {"taskId": name, "createdAt": now, "lastUpdatedAt": now, "ttlMs": None}
    pause = 60_000 if (FOLDER / "lazy").exists() else 20
    return {**task, "pollIntervalMs": pause, **state}


async def get_task(ctx: Any, params: TaskParams) -> Any:
    return describe(params.task_id)


async def update_task(ctx: Any, params: TaskUpdateParams) -> Any:
    told = json.dumps(params.input_responses)
    (FOLDER / f"{params.task_id}.answer").write_text(told, encoding="utf-8")
    return {}


async def cancel_task(ctx: Any, params: TaskParams) -> Any:
    (FOLDER / f"{params.task_id}.cancelled").touch()
    return {}


async def main() -> None:
    (FOLDER / "pid").write_text(str(os.getpid()), encoding="utf-8")
    server: Server[Any] = Server("worker", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        if IS_MODERN:
            server.extensions[TASKS] = {}
            server.add_request_handler("tasks/get", TaskParams, get_task)
            server.add_request_handler("tasks/update", TaskUpdateParams, update_task)
            server.add_request_handler("tasks/cancel", TaskParams, cancel_task)
            await server.run(read, write, server.create_initialization_options())
        else:
            options = server.create_initialization_options()
            await serve_loop(server, read, write, lifespan_state={}, init_options=options)


if __name__ == "__main__":
    anyio.run(main)
