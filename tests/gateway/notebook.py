"""A server of notes that change, of the era that the first argument names.

What it is asked to tell by itself is written to the file of the second argument, line by line, and
so is each start. A third one is a port for HTTP; without it, the server speaks over stdio. A note,
a prompt and a tool ask who is there before they answer. Its instructions are in the environment.
"""

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

IS_MODERN = sys.argv[1] == "modern"
LEDGER = Path(sys.argv[2])
FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
ASKED = types.ElicitRequestFormParams(message="Who are you?", requested_schema=FORM)
CHANGES = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)

bus = InMemorySubscriptionBus()
handler = ListenHandler(bus)
subscribed: set[str] = set()
notes = ["note://a", "note://b", "note://guarded"]


def note(line: str) -> None:
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(line + "\n")


async def who(ctx: Any, params: types.InputResponseRequestParams) -> Any:
    """Return the name of the client's user, or the question."""
    if not IS_MODERN:
        result: Any = await ctx.session.elicit_form(ASKED.message, FORM, ctx.request_id)
        return result.content["name"]
    if params.input_responses is None:
        wanted: types.InputRequests = {"who": types.ElicitRequest(params=ASKED)}
        return types.InputRequiredResult(input_requests=wanted, request_state="at the door")
    answer: Any = params.input_responses["who"]
    return f"{answer.content['name']} {params.request_state}"


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    names = ["touch", "crash", "grow", "ask", "hang", "echo", *(n[7:] for n in notes[3:])]
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
    return types.ListToolsResult(tools=tools)


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
    given = params.arguments or {}
    match params.name:
        case "crash":
            os._exit(7)
        case "hang":
            await anyio.sleep_forever()
        case "touch":
            await touch(ctx, given["uri"])
        case "grow":
            notes.append(given["uri"])
            await grow(ctx)
        case "echo" if given.get("of") == "trace":
            meta: dict[str, Any] = ctx.meta or {}
            return told(str(meta.get("traceparent", "none")))
        case "ask":
            name = await who(ctx, params)
            return name if isinstance(name, types.InputRequiredResult) else told(f"Hello, {name}.")
        case _:
            pass
    return told("done")


def told(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def touch(ctx: Any, uri: str) -> None:
    if IS_MODERN:
        await bus.publish(ResourceUpdated(uri=uri))
    elif uri in subscribed:
        await ctx.session.send_resource_updated(uri)


async def grow(ctx: Any) -> None:
    if IS_MODERN:
        for event in (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()):
            await bus.publish(event)
    else:
        await ctx.session.send_resource_list_changed()


async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    found = [types.Resource(uri=uri, name=uri.removeprefix("note://")) for uri in notes]
    return types.ListResourcesResult(resources=found)


async def read_resource(ctx: Any, params: types.ReadResourceRequestParams) -> Any:
    text = "milk"
    if params.uri == "note://guarded":
        text = await who(ctx, params)
    if isinstance(text, types.InputRequiredResult):
        return text
    held = types.TextResourceContents(uri=params.uri, text=text)
    return types.ReadResourceResult(contents=[held])


async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    names = ["greet", *(n[7:] + "_prompt" for n in notes[3:])]
    return types.ListPromptsResult(prompts=[types.Prompt(name=name) for name in names])


async def get_prompt(ctx: Any, params: types.GetPromptRequestParams) -> Any:
    name = await who(ctx, params)
    if isinstance(name, types.InputRequiredResult):
        return name
    said = types.TextContent(type="text", text=f"Greet {name}.")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=said)])


async def subscribe(ctx: Any, params: types.SubscribeRequestParams) -> types.EmptyResult:
    note(f"subscribe {params.uri}")
    subscribed.add(params.uri)
    return types.EmptyResult()


async def unsubscribe(ctx: Any, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    note(f"unsubscribe {params.uri}")
    subscribed.discard(params.uri)
    return types.EmptyResult()


async def listen(ctx: Any, params: types.SubscriptionsListenRequestParams) -> Any:
    uris = " ".join(params.notifications.resource_subscriptions or ())
    if uris:
        note(f"listen {uris}")
    try:
        return await handler(ctx, params)
    finally:
        if uris:
            note(f"end {uris}")


def server() -> Server[Any]:
    return Server(
        "notebook",
        instructions=os.environ.get("INSTRUCTIONS"),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=listen,
    )


async def main() -> None:
    note("start")
    async with stdio_server() as (read, write):
        made = server()
        options = made.create_initialization_options(CHANGES)
        if IS_MODERN:
            await made.run(read, write, options)
        else:
            await serve_loop(made, read, write, lifespan_state={}, init_options=options)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        note("start")
        app = server().streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[3]), log_level="warning")
    else:
        anyio.run(main)
