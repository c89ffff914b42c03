"""What servers say passes through the gateway: definitions, addresses, results and messages."""

import asyncio
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter

from gateway.fleet import always, text_of
from serving import DEADLINE_SECONDS, TIME, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, GatewayMode, Profile
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import Principal
from toolscout.gateway.server import build_server
from toolscout.sessions.metatools import CALL
from toolscout.stores import MemoryStore
from toolscout.tools import Effect

PACKAGES = Path(__file__).parents[2] / ".npm-servers/node_modules/@modelcontextprotocol"
needs_node = pytest.mark.skipif(
    not (PACKAGES / "server-system-monitor").exists() or shutil.which("node") is None,
    reason="needs Node and `make .npm-servers/.installed`",
)
pytestmark = pytest.mark.timeout(300)
ERAS = pytest.mark.parametrize("era", ["auto", "legacy"])
WAYS = pytest.mark.parametrize(
    ("way", "era"),
    [
        ("direct", "auto"),
        ("direct", "legacy"),
        ("pinned", "auto"),
        ("pinned", "legacy"),
        ("dynamic", "legacy"),
    ],
)
APP_TYPE = "text/html;profile=mcp-app"
POLL = "monitor__poll-system-stats"
"""A tool that is there for the app of its server only."""
_RAW: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


def gallery(name: str, place: str, mark: str = "", **options: Any) -> ServerConfig:
    """Return a server that has everything, with addresses in a place."""
    path = str(Path(__file__).with_name("gallery.py"))
    return ServerConfig(
        name=name,
        transport=Transport.STDIO,
        command=sys.executable,
        args=(path, place, mark),
        **options,
    )


def package(name: str, of: str, *args: str) -> ServerConfig:
    """Return a server of an npm package."""
    path = str(PACKAGES / of / "dist/index.js")
    return ServerConfig(name=name, transport=Transport.STDIO, command="node", args=(path, *args))


MONITOR = package("monitor", "server-system-monitor", "--stdio")


@asynccontextmanager
async def client_of(
    *servers: ServerConfig,
    era: str = "auto",
    profile: Profile | None = None,
    gateway: GatewayConfig | None = None,
    **settings: Any,
) -> AsyncGenerator[Client]:
    """Give a client of a gateway that knows what some servers offer."""
    config = Config(servers=servers, gateway=gateway or GatewayConfig())
    async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as opened:
        queries = [f"server:{server.name}" for server in servers]
        await eventually(lambda: all(opened.scout.preview(query).hits for query in queries))
        principal = Principal(name="ann", profile=profile)
        session = opened.open_session("ann", principal)
        async with Client(build_server(opened, always(session)), mode=era, **settings) as client:
            yield client


async def call(client: Client, name: str, **arguments: Any) -> Any:
    return await client.call_tool("tool_call", {"name": name, "arguments": arguments})


async def read(client: Client, uri: str) -> str:
    held: Any = (await client.read_resource(uri)).contents[0]
    assert held.uri == uri
    return held.text


# Definitions.


@WAYS
def test_a_definition_keeps_its_meta_icons_titles_and_hints(way: str, era: str):
    mode = {"direct": GatewayMode.DIRECT, "dynamic": GatewayMode.DYNAMIC}.get(way)
    pins = ("paint",) if way == "pinned" else ()
    server = gallery("art", "art", pins=pins, trust_effects=True)
    options = GatewayConfig(mode=mode) if mode else GatewayConfig()

    async def conversation() -> types.Tool:
        async with client_of(server, era=era, gateway=options) as client:
            if way == "dynamic":
                await client.call_tool("tool_search", {"queries": ["select:art__paint"]})
            listed = (await client.list_tools()).tools
            return next(tool for tool in listed if tool.name == "art__paint")

    tool = asyncio.run(conversation())

    assert tool.title == "Paint a picture"
    assert tool.annotations == types.ToolAnnotations(
        title="Paint",
        read_only_hint=True,
        destructive_hint=False,
        idempotent_hint=True,
        open_world_hint=False,
    )
    assert [icon.src for icon in tool.icons or ()] == [
        "https://example.com/paint.png",
        "data:image/png;base64,iVBORw0KGgo=",
    ]
    assert (tool.icons or [])[0].sizes == ["48x48"]
    pinned = {"anthropic/alwaysLoad": True} if way == "pinned" else {}
    assert tool.meta == {"com.example/price": {"cents": 3}, **pinned}


def test_a_server_that_is_not_trusted_cannot_reassure_a_client():
    async def conversation() -> types.Tool:
        options = GatewayConfig(mode=GatewayMode.DIRECT)
        async with client_of(gallery("art", "art"), gateway=options) as client:
            listed = (await client.list_tools()).tools
            return next(tool for tool in listed if tool.name == "art__paint")

    hints = asyncio.run(conversation()).annotations

    assert hints == types.ToolAnnotations(title="Paint")


@needs_node
@ERAS
def test_hints_of_a_public_server_reach_the_client(era: str):
    options = GatewayConfig(mode=GatewayMode.DIRECT)

    async def conversation() -> types.Tool:
        server = package("all", "server-everything")
        async with client_of(server, era=era, gateway=options) as client:
            listed = (await client.list_tools()).tools
            return next(tool for tool in listed if tool.name == "all__gzip-file-as-resource")

    tool = asyncio.run(conversation())

    assert tool.title == "GZip File as Resource Tool"
    assert tool.annotations == types.ToolAnnotations(read_only_hint=False, open_world_hint=True)


@needs_node
@WAYS
def test_the_definition_of_a_public_app_keeps_its_title_schemas_and_meta(way: str, era: str):
    mode = {"direct": GatewayMode.DIRECT, "dynamic": GatewayMode.DYNAMIC}.get(way)
    server = package("clock", "server-basic-vanillajs", "--stdio")
    server = replace(server, pins=("get-time",) if way == "pinned" else ())

    async def conversation() -> types.Tool:
        options = GatewayConfig(mode=mode) if mode else GatewayConfig()
        async with client_of(server, era=era, gateway=options) as client:
            if way == "dynamic":
                await client.call_tool("tool_search", {"queries": ["select:clock__get-time"]})
            listed = (await client.list_tools()).tools
            return next(tool for tool in listed if tool.name == "clock__get-time")

    tool = asyncio.run(conversation())

    address = "ui://get-time/mcp-app.html"
    assert tool.title == "Get Time"
    assert set((tool.output_schema or {})["properties"]) == {"time"}
    assert (tool.meta or {})["ui"] == {"resourceUri": address}
    assert (tool.meta or {})["ui/resourceUri"] == address


# Tools that only apps may call.


@needs_node
@ERAS
def test_the_model_does_not_find_describe_or_call_a_tool_for_apps_of_a_public_server(era: str):
    async def conversation() -> None:
        async with client_of(MONITOR, era=era) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
            shown = (await client.list_tools()).tools[0].description or ""
            found = [
                text_of(await client.call_tool("tool_search", {"queries": [query]}))
                for query in ("server:monitor", "poll system stats", "monitor__*", "/stats/")
            ]
            selected = await client.call_tool("tool_search", {"queries": [f"select:{POLL}"]})
            described = await client.call_tool("tool_describe", {"names": [POLL]})
            refused = [await call(client, name) for name in (POLL, "poll-system-stats")]
            called = await client.call_tool(POLL, {})

        assert listed == ["tool_search", "tool_describe", "tool_call"]
        assert "monitor" in shown
        assert not [text for text in (shown, *found) if POLL in text or "Poll System" in text]
        assert "monitor__get-system-info(" in found[0]
        for reply in (selected, described, *refused):
            assert "here is no tool" in text_of(reply)
        # The app's own call, by the tool's own name.
        assert "uptime" in called.structured_content

    asyncio.run(conversation())


@needs_node
@pytest.mark.parametrize("split", [False, True])
@ERAS
def test_a_client_that_shows_apps_lists_the_tools_for_apps_and_can_call_them(era: str, split: bool):
    async def conversation() -> None:
        options = GatewayConfig(split_calls=split)
        apps = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": [APP_TYPE]})]
        async with client_of(MONITOR, era=era, gateway=options, extensions=apps) as client:
            tools = (await client.list_tools()).tools
            called = await client.call_tool(POLL, {})

        assert [tool.name for tool in tools if not tool.name.startswith("tool_")] == [POLL]
        assert (tools[-1].meta or {})["ui"] == {"visibility": ["app"]}
        assert "uptime" in (called.structured_content or {})

    asyncio.run(conversation())


@needs_node
def test_a_direct_list_has_the_tools_for_apps_and_a_profile_may_forbid_them():
    options = GatewayConfig(mode=GatewayMode.DIRECT)

    async def conversation(profile: Profile | None) -> tuple[list[str], bool]:
        async with client_of(MONITOR, gateway=options, profile=profile) as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]
            return listed, (await client.call_tool(POLL, {})).is_error

    everything = asyncio.run(conversation(None))
    limited = asyncio.run(conversation(Profile(tools=("monitor__get-system-info",))))

    assert everything == (["monitor__get-system-info", POLL], False)
    assert limited == (["monitor__get-system-info"], True)


# Addresses.


@needs_node
@ERAS
def test_the_app_of_a_public_server_keeps_its_address_everywhere(era: str):
    address = "ui://get-time/mcp-app.html"

    async def conversation() -> None:
        server = package("clock", "server-basic-vanillajs", "--stdio")
        async with client_of(server, era=era) as client:
            listed = [resource.uri for resource in (await client.list_resources()).resources]
            result = await call(client, "clock__get-time")
            held: Any = (await client.read_resource(address)).contents[0]

        assert listed == [address]
        assert result.meta["ui"] == {"resourceUri": address}
        assert set(result.structured_content) == {"time"}
        assert (held.uri, held.mime_type) == (address, APP_TYPE)
        assert "<html" in held.text

    asyncio.run(conversation())


@needs_node
def test_two_accounts_of_one_public_server_have_apps_of_their_own():
    servers = [package(name, "server-basic-vanillajs", "--stdio") for name in ("home", "work")]
    options = GatewayConfig(mode=GatewayMode.DIRECT)

    async def conversation() -> None:
        async with client_of(*servers, gateway=options) as client:
            listed = {resource.uri for resource in (await client.list_resources()).resources}
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            result = await client.call_tool("home__get-time", {})
            pages = [await read(client, uri) for uri in sorted(listed)]

        home = "ui://toolscout/home/get-time/mcp-app.html"
        assert listed == {home, home.replace("home", "work")}
        meta = tools["home__get-time"].meta or {}
        assert meta == {"ui": {"resourceUri": home}, "ui/resourceUri": home}
        assert (result.meta or {})["ui"] == {"resourceUri": home}
        assert all("<html" in page for page in pages)

    asyncio.run(conversation())


@ERAS
def test_a_skill_and_what_it_refers_to_keep_their_addresses(era: str):
    async def conversation() -> None:
        async with client_of(gallery("art", "painting"), era=era) as client:
            listed = [resource.uri for resource in (await client.list_resources()).resources]
            found = (await client.list_resource_templates()).resource_templates
            pages = [await read(client, uri) for uri in listed]
            beside = await read(client, "skill://painting/notes.md")
            filled = await read(client, "skill://toolscout/art/x/any.md")

        assert listed == ["skill://painting/SKILL.md", "ui://painting/secret.html"]
        assert pages == listed
        assert beside == "skill://painting/notes.md"
        # It could mean an address of any server.
        assert [one.uri_template for one in found] == ["skill://toolscout/art/{of}/any.md"]
        assert filled == "skill://x/any.md"

    asyncio.run(conversation())


@ERAS
def test_a_server_never_answers_for_an_address_of_another(era: str):
    servers = [gallery("honest", "bank", "honest"), gallery("rogue", "bank", "rogue")]

    async def conversation() -> None:
        async with client_of(*servers, era=era) as client:
            shown = {name: await call(client, f"{name}__show") for name in ("honest", "rogue")}
            pages = {
                name: await read(client, result.meta["ui"]["resourceUri"])
                for name, result in shown.items()
            }
            with pytest.raises(MCPError) as refused:
                await client.read_resource("ui://bank/app.html")

        assert pages == {
            "honest": "ui://bank/app.html honest",
            "rogue": "ui://bank/app.html rogue",
        }
        said = str(refused.value)
        assert "'ui://toolscout/honest/bank/app.html'" in said
        assert "'ui://toolscout/rogue/bank/app.html'" in said

    asyncio.run(conversation())


@pytest.mark.parametrize("place", ["BANK", "b%61nk", "toolscout/honest/bank"])
def test_no_spelling_of_an_address_takes_it_from_its_server(place: str):
    servers = [gallery("honest", "bank", "honest"), gallery("rogue", place, "rogue")]

    async def conversation() -> None:
        async with client_of(*servers) as client:
            shown = [await call(client, f"{name}__show") for name in ("honest", "rogue")]
            uris = [result.meta["ui"]["resourceUri"] for result in shown]
            pages = [await read(client, uri) for uri in uris]

        assert pages[0].endswith("honest")
        assert pages[1].endswith("rogue")

    asyncio.run(conversation())


def test_an_address_is_whole_again_when_the_other_server_has_gone():
    servers = (gallery("art", "art"), gallery("more", "art"))

    async def conversation() -> list[list[str]]:
        config = Config(servers=servers)
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as opened:
            names = [f"{server.name}__show" for server in servers]
            await eventually(lambda: all(map(opened.catalog.get, names)))
            session = opened.open_session("ann")
            before = [row["uri"] for row in opened.resources.list_entries(session, "resource")]
            await opened.pool.reload(servers[:1])
            after = [row["uri"] for row in opened.resources.list_entries(session, "resource")]
            return [before, after]

    before, after = asyncio.run(conversation())

    assert before == [
        "skill://toolscout/art/art/SKILL.md",
        "ui://toolscout/art/art/secret.html",
        "skill://toolscout/more/art/SKILL.md",
        "ui://toolscout/more/art/secret.html",
    ]
    assert after == ["skill://art/SKILL.md", "ui://art/secret.html"]


def test_an_address_stays_the_same_when_the_gateway_starts_again():
    store = MemoryStore()
    config = Config(servers=(gallery("art", "art"),))

    async def list_addresses() -> list[str]:
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, store) as opened:
            await eventually(lambda: opened.catalog.get("art__show"))
            rows = opened.resources.list_entries(opened.open_session("ann"), "resource")
            return [row["uri"] for row in rows]

    first = asyncio.run(list_addresses())

    assert first == ["skill://art/SKILL.md", "ui://art/secret.html"]
    assert asyncio.run(list_addresses()) == first


def test_a_denied_resource_is_not_read_by_any_address_that_keeps_its_scheme():
    server = gallery("art", "art", deny=("secret",))

    async def conversation() -> None:
        async with client_of(server) as client:
            listed = [resource.uri for resource in (await client.list_resources()).resources]
            shown = await call(client, "art__show")
            app = await read(client, shown.meta["ui"]["resourceUri"])
            refused: list[str] = []
            for uri in (
                "ui://art/secret.html",
                "ui://art/./secret.html",
                "ui://art/%73ecret.html",
                "ui://toolscout/art/art/secret.html",
                "toolscout://art/ui://art/secret.html",
                "skill://art/notes.md",
            ):
                with pytest.raises(MCPError, match="No resource"):
                    await client.read_resource(uri)
                refused.append(uri)

        assert listed == ["skill://art/SKILL.md"]
        assert app == "ui://art/app.html"
        assert len(refused) == 6

    asyncio.run(conversation())


def test_a_profile_reads_the_apps_of_its_own_tools_and_no_others():
    servers = [gallery("art", "art"), gallery("bank", "bank")]
    profile = Profile(tools=("art__show",))

    async def conversation() -> None:
        async with client_of(*servers, profile=profile) as client:
            shown = await call(client, "art__show")
            app = await read(client, shown.meta["ui"]["resourceUri"])
            for uri in ("ui://bank/app.html", "ui://art/secret.html", "skill://art/notes.md"):
                with pytest.raises(MCPError, match="No resource") as refused:
                    await client.read_resource(uri)
                assert "ui://toolscout" not in str(refused.value)

        assert app == "ui://art/app.html"

    asyncio.run(conversation())


# Results.


@needs_node
@ERAS
def test_results_progress_prompts_and_completions_of_a_public_server_arrive_whole(era: str):
    reported: list[tuple[float, float | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total))

    async def conversation() -> None:
        async with client_of(package("all", "server-everything"), era=era) as client:
            noted = await call(
                client, "all__get-annotated-message", messageType="success", includeImage=True
            )
            weather = await call(client, "all__get-structured-content", location="Chicago")
            failed = await call(
                client, "all__get-resource-reference", resourceType="Text", resourceId=-1
            )
            long = {
                "name": "all__trigger-long-running-operation",
                "arguments": {"duration": 0.1, "steps": 2},
            }
            await client.call_tool("tool_call", long, progress_callback=report)
            named = {"resourceType": "Text", "resourceId": "1"}
            prompt = await client.get_prompt("all__resource-prompt", named)
            reference = types.PromptReference(type="ref/prompt", name="all__completable-prompt")
            completed = await client.complete(reference, {"name": "department", "value": "S"})
            held: Any = prompt.messages[1].content
            page = await client.read_resource(held.resource.uri)
            await eventually(lambda: len(reported) == 2)

        assert [block.type for block in noted.content] == ["text", "image"]
        assert [(b.annotations.priority, b.annotations.audience) for b in noted.content] == [
            (0.7, ["user"]),
            (0.5, ["user"]),
        ]
        assert weather.structured_content["conditions"] == "Light rain / drizzle"
        assert failed.is_error
        assert reported == [(1, 2), (2, 2)]
        assert held.resource.uri == page.contents[0].uri
        assert completed.completion.values == ["Sales", "Support"]

    asyncio.run(conversation())


@ERAS
def test_a_result_arrives_whole(era: str):
    async def conversation() -> None:
        async with client_of(gallery("art", "art"), era=era) as client:
            painted = await call(client, "art__paint")
            failed = await call(client, "art__fail")

        user = types.Annotations(audience=["user"], priority=0.5)
        kinds = ["text", "image", "audio", "resource_link", "resource_link", "resource"]
        assert [block.type for block in painted.content] == [*kinds, "resource_link"]
        assert [painted.content[at].annotations for at in (0, 2, 5)] == [user, user, user]
        assert (painted.content[2].data, painted.content[2].mime_type) == ("aGk=", "audio/wav")
        assert painted.structured_content == {"size": 3}
        assert painted.meta["com.example/took"] == 7
        assert (failed.is_error, failed.structured_content) == (True, {"left": 0})
        assert failed.meta["a/b"] == 1

    asyncio.run(conversation())


@ERAS
def test_what_a_result_or_a_prompt_links_to_can_be_read(era: str):
    async def conversation() -> None:
        async with client_of(gallery("art", "art"), era=era) as client:
            painted = await call(client, "art__paint")
            prompt = await client.get_prompt("art__look")
            linked: list[Any] = [*painted.content[3:], *(m.content for m in prompt.messages)]
            uris = [b.uri if b.type == "resource_link" else b.resource.uri for b in linked]
            pages = [await read(client, uri) for uri in uris[:3]]

        assert uris[:4] == uris[4:]
        assert pages == ["skill://art/notes.md", "note://plain", "note://held"]
        # Clients fetch this one themselves.
        assert uris[3] == "https://example.com/picture"

    asyncio.run(conversation())


@needs_node
@ERAS
def test_links_of_a_public_server_can_be_read(era: str):
    async def conversation() -> None:
        async with client_of(package("all", "server-everything"), era=era) as client:
            links = await call(client, "all__get-resource-links", count=2)
            reference = await call(
                client, "all__get-resource-reference", resourceType="Text", resourceId=1
            )
            uris = [block.uri for block in links.content if block.type == "resource_link"]
            uris += [b.resource.uri for b in reference.content if b.type == "resource"]
            held = [(await client.read_resource(uri)).contents[0] for uri in uris]

        assert [one.uri for one in held] == uris
        assert len(uris) == 3

    asyncio.run(conversation())


@ERAS
def test_a_cut_result_keeps_its_links_and_its_meta(era: str):
    async def conversation() -> None:
        async with client_of(gallery("art", "art"), era=era) as client:
            written = await call(client, "art__write")
            links = [block.uri for block in written.content if block.type == "resource_link"]
            web = links.pop(2)
            pages = [await read(client, link) for link in links]

        assert "result_" in text_of(written)
        assert written.structured_content is None
        assert web == "https://example.com/picture"
        assert pages == ["skill://art/notes.md", "note://plain", "note://held"]
        assert written.meta["com.example/took"] == 7
        assert written.meta["toolscout/code"] == "ok"

    asyncio.run(conversation())


@ERAS
def test_a_cut_result_still_fits_the_schema_that_the_client_was_sent(era: str):
    async def conversation() -> Any:
        server = gallery("art", "art", pins=("write",))
        async with client_of(server, era=era) as client:
            await client.list_tools()
            return await client.call_tool("art__write", {})

    written = asyncio.run(conversation())

    assert "result_" in text_of(written)
    assert written.structured_content == {"size": 640_000}


# Messages.


@pytest.mark.parametrize(
    ("era", "level", "heard"),
    [
        ("legacy", None, ["warning"]),
        ("auto", None, []),
        ("auto", "warning", ["warning"]),
        ("auto", "debug", ["debug", "warning"]),
    ],
)
def test_log_messages_and_progress_of_a_call_arrive(
    era: str, level: types.LoggingLevel | None, heard: list[str]
):
    logged: list[str] = []
    reported: list[tuple[float, float | None, str | None]] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        assert params.data == {"said": params.level}
        logged.append(params.level)

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total, message))

    async def conversation() -> None:
        options: dict[str, Any] = {"logging_callback": log, "log_level": level}
        async with client_of(gallery("art", "art"), era=era, **options) as client:
            asked = {"name": "art__talk"}
            await client.call_tool("tool_call", asked, progress_callback=report)
            await eventually(lambda: reported)

    asyncio.run(conversation())

    assert logged == heard
    assert reported == [(1, 2, "half")]


def test_servers_are_told_that_clients_may_show_apps():
    async def conversation() -> str:
        async with client_of(gallery("art", "art")) as client:
            return text_of(await call(client, "art__negotiated"))

    assert asyncio.run(conversation()) == "True"


# Arguments.


SPELLINGS: list[Any] = [
    {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}},
    {"name": "time__get_current_time", "arguments": '{"timezone": "UTC"}'},
    {"tool_name": "time__get_current_time", "args": {"timezone": "UTC"}},
    {"tool": "time__get_current_time", "params": {"timezone": "UTC"}},
    {"name": "time__get_current_time", "parameters": {"timezone": "UTC"}},
    {"name": "time__get_current_time", "input": {"timezone": "UTC"}},
    {"name": "time__get_current_time", "arguments": {"arguments": {"timezone": "UTC"}}},
    '{"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}',
    '{"name": "time__get_current_time", "arguments": "{\\"timezone\\": \\"UTC\\"}"}',
]


@pytest.mark.parametrize("name", [CALL, "tool_read"])
@ERAS
def test_a_call_may_be_spelt_as_a_session_accepts_it(era: str, name: str):
    server = replace(TIME, effects={"get_current_time": Effect.READ})
    options = GatewayConfig(split_calls=name != CALL)

    async def conversation() -> list[Any]:
        async with client_of(server, era=era, gateway=options) as client:
            return [await send(client, name, arguments) for arguments in SPELLINGS]

    results = asyncio.run(conversation())

    assert len(results) == len(SPELLINGS)
    for result in results:
        assert result.get("isError") is not True
        assert '"timezone": "UTC"' in result["content"][-1]["text"]


@pytest.mark.parametrize("mode", ["direct", "dynamic", "auto"])
@ERAS
def test_a_tool_called_by_its_own_name_takes_arguments_as_text_in_every_mode(mode: str, era: str):
    async def conversation() -> Any:
        options = GatewayConfig(mode=GatewayMode(mode))
        async with client_of(TIME, era=era, gateway=options) as client:
            return await send(client, "time__get_current_time", '{"timezone": "UTC"}')

    result = asyncio.run(conversation())

    assert '"timezone": "UTC"' in result["content"][-1]["text"]


async def send(client: Client, name: str, arguments: object) -> Any:
    """Call a tool with arguments that a client would not send."""
    params = {"name": name, "arguments": arguments}
    request = types.Request[Any, Any](method="tools/call", params=params)
    return await client.session.send_request(request, _RAW)


# Parts of results.


@ERAS
def test_a_client_gets_the_part_of_a_result_that_was_picked(era: str):
    async def conversation() -> None:
        async with client_of(TIME, gallery("art", "art"), era=era) as client:
            now = {"name": "time__get_current_time", "arguments": {"timezone": "UTC"}}
            zone = await client.call_tool("tool_call", now | {"pick": "$.timezone"})
            size = await client.call_tool("tool_call", {"name": "art__paint", "pick": "$.size"})
            missed = await client.call_tool("tool_call", now | {"pick": "$.zone"})

        assert text_of(zone) == '"UTC"'
        assert [block.type for block in size.content] == ["text"]
        assert (text_of(size), size.structured_content) == ("3", None)
        assert (size.meta or {})["com.example/took"] == 7
        assert "Keys there: timezone" in text_of(missed)
        assert '"timezone": "UTC"' in text_of(missed)

    asyncio.run(conversation())
