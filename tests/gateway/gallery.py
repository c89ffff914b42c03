"""A server whose tools, resources and results have all that MCP lets them have.

The first argument is the place in the addresses of its app and its skill; the second, if there is
one, is a text that only this server's resources hold.
"""

import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.apps import APP_MIME_TYPE, client_supports_apps
from mcp.server.stdio import stdio_server

PLACE = sys.argv[1]
MARK = sys.argv[2] if len(sys.argv) > 2 else ""
APP = f"ui://{PLACE}/app.html"
SKILL = f"skill://{PLACE}/SKILL.md"
NOTES = f"skill://{PLACE}/notes.md"
"""An address that no list has."""
WEB = "https://example.com/picture"
PIXEL = "data:image/png;base64,iVBORw0KGgo="
ICONS = [
    types.Icon(src="https://example.com/paint.png", mime_type="image/png", sizes=["48x48"]),
    types.Icon(src=PIXEL),
    types.Icon(src="javascript:alert(1)"),
    types.Icon(src="file:///etc/passwd"),
    types.Icon(src=f"data:text/html,{'x' * 50_000}"),
]
HINTS = types.ToolAnnotations(
    title="Pa\u200bint",
    read_only_hint=True,
    destructive_hint=False,
    idempotent_hint=True,
    open_world_hint=False,
)
FOR_USER = types.Annotations(audience=["user"], priority=0.5)
OUTPUT = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    empty: dict[str, Any] = {"type": "object"}
    shown = {"ui": {"resourceUri": APP}, "ui/resourceUri": APP}
    for_apps = {"ui": {"resourceUri": APP, "visibility": ["app"]}}
    tools = [
        types.Tool(
            name="paint",
            title="Pa\u200bint a picture",
            description="Paint a picture.",
            input_schema=empty,
            output_schema=OUTPUT,
            icons=ICONS,
            annotations=HINTS,
            _meta={"com.example/price": {"cents": 3}, "anthropic/alwaysLoad": True},
        ),
        types.Tool(name="show", description="Show.", input_schema=empty, _meta=shown),
        types.Tool(name="refresh", description="Refresh.", input_schema=empty, _meta=for_apps),
        types.Tool(
            name="write",
            description="Write a long text.",
            input_schema=empty,
            output_schema=OUTPUT,
        ),
        types.Tool(name="fail", description="Fail.", input_schema=empty),
        types.Tool(name="talk", description="Log and report progress.", input_schema=empty),
        types.Tool(name="negotiated", description="Tell what is known.", input_schema=empty),
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    match params.name:
        case "paint":
            return types.CallToolResult(
                content=[
                    types.TextContent(type="text", text="Painted.", annotations=FOR_USER),
                    types.ImageContent(type="image", data="aGk=", mime_type="image/png"),
                    types.AudioContent(
                        type="audio", data="aGk=", mime_type="audio/wav", annotations=FOR_USER
                    ),
                    *link(),
                ],
                structured_content={"size": 3},
                _meta={"com.example/took": 7},
            )
        case "write":
            text = types.TextContent(type="text", text="words and words " * 40_000)
            return types.CallToolResult(
                content=[text, *link()],
                structured_content={"size": 640_000},
                _meta={"com.example/took": 7},
            )
        case "fail":
            text = types.TextContent(type="text", text="No paint.")
            return types.CallToolResult(
                content=[text], is_error=True, structured_content={"left": 0}, _meta={"a/b": 1}
            )
        case "talk":
            for level in ("debug", "warning"):
                await ctx.session.send_log_message(level, {"said": level}, "gallery")
            await ctx.session.report_progress(1, 2, "half")
            return say("done")
        case "negotiated":
            return say(str(client_supports_apps(ctx)))
        case _:
            return say(f"{params.name} of {PLACE}")


def say(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def link() -> list[Any]:
    """Return links to resources of this server and one that holds its text."""
    held = types.TextResourceContents(uri="note://held", text="held", mime_type="text/plain")
    return [
        types.ResourceLink(type="resource_link", name="notes", uri=NOTES),
        types.ResourceLink(type="resource_link", name="plain", uri="note://plain"),
        types.EmbeddedResource(type="resource", resource=held, annotations=FOR_USER),
        types.ResourceLink(type="resource_link", name="web", uri=WEB),
    ]


async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    found = [
        types.Resource(uri=SKILL, name="painting"),
        types.Resource(uri=f"ui://{PLACE}/secret.html", name="secret"),
    ]
    return types.ListResourcesResult(resources=found)


async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
    found = [types.ResourceTemplate(uri_template="skill://{of}/any.md", name="any")]
    return types.ListResourceTemplatesResult(resource_templates=found)


async def read_resource(ctx: Any, params: types.ReadResourceRequestParams) -> Any:
    uri = str(params.uri)
    kind = APP_MIME_TYPE if uri.startswith("ui://") else "text/plain"
    meta = {"ui": {"csp": {"connectDomains": ["https://example.com"]}}}
    held = types.TextResourceContents(
        uri=uri, text=f"{uri} {MARK}".strip(), mime_type=kind, _meta=meta
    )
    return types.ReadResourceResult(contents=[held])


async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[types.Prompt(name="look")])


async def get_prompt(ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    messages = [types.PromptMessage(role="user", content=block) for block in link()]
    return types.GetPromptResult(messages=messages)


async def main() -> None:
    server: Server[Any] = Server(
        "gallery",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
