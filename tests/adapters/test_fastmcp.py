"""FastMCP keeps the contract: a server with the transform, and a model that has it as tools."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.request import Request as Post
from urllib.request import urlopen

import pytest
import uvicorn
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastmcp import Client, FastMCP
from fastmcp.client.client import CallToolResult
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import AuthContext
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.middleware import Middleware
from fastmcp.server.transforms.search import (
    BM25SearchTransform,
    serialize_tools_for_output_markdown,
)
from fastmcp.server.transforms.search.base import BaseSearchTransform
from fastmcp.tools.base import Tool as ServerTool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.types import Image
from key_value.aio.stores.memory import MemoryStore

import toolscout
from adapters.contract import (
    Agent,
    Ledger,
    Spec,
    check_async,
    check_concurrent_conversations,
    check_contract,
    check_two_conversations_do_not_share,
)
from adapters.scripts import is_on_page
from adapters.tables import EXAMPLES
from toolscout import Catalog, Scout, Settings
from toolscout.adapters.fastmcp import ToolScoutSearchTransform, ToolScoutTransform
from toolscout.errors import UsageError

Json = dict[str, Any]
STORED = "fastmcp_state"
"""Where FastMCP puts the state of sessions."""
META = ["tool_search", "tool_describe", "tool_call"]


class SpecTool(ServerTool):
    """A spec as a tool of the server."""

    spec: Any
    ledger: Any

    async def run(self, arguments: Json) -> ToolResult:
        return ToolResult(self.ledger.run(self.spec.name, arguments))


def server_of(specs: Sequence[Spec], ledger: Ledger) -> FastMCP:
    server = FastMCP("shop")
    for spec in specs:
        made = SpecTool(
            name=spec.name,
            description=spec.description,
            parameters=spec.schema,
            spec=spec,
            ledger=ledger,
        )
        server.add_tool(made)
    server.add_transform(ToolScoutTransform())
    return server


@dataclass
class Hosts:
    """Makes hosts that stay connected to their servers until the test is over."""

    portal: BlockingPortal
    stack: ExitStack
    clients: list["Client[Any]"] = field(default_factory=list["Client[Any]"])

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> Agent:
        if saved is not None:
            # A host that is started again finds its MCP session where it was.
            kept = cast("Json", saved)
            client = cast("Client[Any]", self.clients[kept["client"]])
            return Host(self, client, base_url, kept["messages"])
        return self.connected(server_of(specs, ledger), base_url)

    def connected(self, server: FastMCP, base_url: str) -> "Host":
        client = cast("Client[Any]", Client(server, mode="legacy"))
        self.clients.append(
            self.stack.enter_context(self.portal.wrap_async_context_manager(client))
        )
        return Host(self, client, base_url, server=server)


@dataclass
class Host:
    """A loop between a model that speaks Chat Completions and a server's tools."""

    hosts: Hosts
    client: "Client[Any]"
    base_url: str
    messages: list[Json] = field(default_factory=list[Json])
    server: FastMCP | None = None

    def ask(self, message: str) -> str:
        return self.hosts.portal.call(self._ask, message)

    async def ask_async(self, message: str) -> str:
        # The client lives in the portal's loop.
        return await asyncio.wrap_future(self.hosts.portal.start_task_soon(self._ask, message))

    def another(self) -> Agent:
        assert self.server is not None
        return self.hosts.connected(self.server, self.base_url)

    def saved(self) -> object:
        client = self.hosts.clients.index(self.client)
        return json.loads(json.dumps({"client": client, "messages": self.messages}))

    async def _ask(self, message: str) -> str:
        self.messages.append({"role": "user", "content": message})
        while True:
            tools = [_definition(tool) for tool in await self.client.list_tools()]
            body = {"model": "gpt-5.5", "messages": self.messages, "tools": tools}
            said = (await asyncio.to_thread(self._post, body))["choices"][0]["message"]
            self.messages.append(said)
            if not said.get("tool_calls"):
                return str(said["content"])
            self.messages += await asyncio.gather(*map(self._result, said["tool_calls"]))

    async def _result(self, made: Json) -> Json:
        function = made["function"]
        result = await self.client.call_tool(
            function["name"], json.loads(function["arguments"]), raise_on_error=False
        )
        return {"role": "tool", "tool_call_id": made["id"], "content": text_of(result)}

    def _post(self, body: Json) -> Json:
        url = f"{self.base_url}/chat/completions"
        with urlopen(Post(url, json.dumps(body).encode(), method="POST")) as answer:
            return json.load(answer)


def _definition(tool: Any) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def text_of(result: CallToolResult) -> str:
    return "\n".join(getattr(block, "text", "") for block in result.content)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with start_blocking_portal() as portal, ExitStack() as stack:
        yield Hosts(portal, stack)


def test_a_server_keeps_the_contract(hosts: Hosts):
    check_contract(hosts, mode="bridge", dialect="openai-chat")


def test_sessions_of_one_server_share_nothing(hosts: Hosts):
    check_two_conversations_do_not_share(hosts, mode="bridge", dialect="openai-chat")
    check_concurrent_conversations(hosts, mode="bridge", dialect="openai-chat")


def test_an_asynchronous_host_is_answered_the_same(hosts: Hosts):
    check_async(hosts, mode="bridge", dialect="openai-chat")


def shop(*transforms: Any, **options: Any) -> FastMCP:
    server = FastMCP("shop", **options)

    @server.tool
    def refund_order(order: str, cents: int = 0) -> dict[str, Any]:  # pyright: ignore[reportUnusedFunction]
        """Pay the money for an order back to the customer."""
        return {"order": order, "cents": cents}

    @server.tool
    def draw_label(text: str) -> Image:  # pyright: ignore[reportUnusedFunction]
        """Draw a label as a picture."""
        return Image(data=text.encode(), format="png")

    @server.tool
    def open_safe(code: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Open the safe with a code."""
        raise ToolError(f"The safe does not open with {code}.")

    for transform in transforms:
        server.add_transform(transform)
    return server


async def asked(client: "Client[Any]", tool: str, /, **arguments: Any) -> CallToolResult:
    return await client.call_tool(tool, arguments, raise_on_error=False)


async def found(client: "Client[Any]", *queries: str) -> str:
    return text_of(await asked(client, "tool_search", queries=list(queries)))


async def called(client: "Client[Any]", name: str, /, **arguments: Any) -> CallToolResult:
    return await asked(client, "tool_call", name=name, arguments=arguments)


def test_results_come_through_as_the_tool_gave_them():
    async def work() -> list[CallToolResult]:
        async with Client(shop(ToolScoutTransform()), mode="legacy") as client:
            await found(client, "refund an order", "draw a label", "open the safe")
            return [
                await called(client, "refund_order", order="A-7", cents="5"),
                await called(client, "draw_label", text="Hello"),
                await called(client, "open_safe", code="123"),
                await called(client, "refund_order", cents=[]),
            ]

    refunded, drawn, failed, wrong = asyncio.run(work())

    assert refunded.structured_content == {"order": "A-7", "cents": 5}
    assert drawn.content[0].type == "image"
    assert failed.is_error
    assert text_of(failed) == "The safe does not open with 123."
    assert wrong.is_error
    assert "order" in text_of(wrong)


def test_without_a_session_a_name_is_enough_and_nothing_is_stored():
    store = MemoryStore()

    async def work() -> list[CallToolResult]:
        server = shop(ToolScoutTransform(), session_state_store=store)
        async with Client(server, mode="2026-07-28") as client:
            before = [tool.name for tool in await client.list_tools()]
            answers = [
                await called(client, "refund_order", order="A-7"),
                await called(client, "refund_oder", order="A-7"),
                await asked(client, "tool_search", queries=["refund an order"]),
            ]
            assert [tool.name for tool in await client.list_tools()] == before == META
            return answers

    refunded, unknown, _ = asyncio.run(work())

    assert refunded.structured_content == {"order": "A-7", "cents": 0}
    assert unknown.is_error
    assert asyncio.run(store.keys(STORED)) == []


def test_a_session_lives_in_the_state_of_the_server():
    store = MemoryStore()

    async def work() -> tuple[CallToolResult, CallToolResult]:
        server = shop(ToolScoutTransform(), session_state_store=store)
        async with Client(server, mode="legacy") as client:
            hidden = await called(client, "refund_order", order="A-7")
            await found(client, "refund an order")
            return hidden, await called(client, "refund_order", order="A-7")

    hidden, refunded = asyncio.run(work())

    assert hidden.is_error
    assert "tool_search" in text_of(hidden)
    assert not refunded.is_error
    [key] = asyncio.run(store.keys(STORED))
    assert key.endswith("toolscout")


def test_what_is_found_during_a_long_call_is_not_lost_when_it_ends():
    async def work() -> tuple[str, CallToolResult]:
        server, begun, ending = shop(ToolScoutTransform()), asyncio.Event(), asyncio.Event()

        @server.tool
        async def bake_bread() -> str:  # pyright: ignore[reportUnusedFunction]
            """Bake bread in the oven."""
            begun.set()
            await ending.wait()
            return "Baked."

        async with Client(server, mode="legacy") as client:
            await found(client, "bake bread in the oven")
            baking = asyncio.create_task(called(client, "bake_bread"))
            await begun.wait()
            await found(client, "refund an order")
            ending.set()
            return text_of(await baking), await called(client, "refund_order", order="A-7")

    baked, refunded = asyncio.run(work())

    assert baked == "Baked."
    assert not refunded.is_error


@asynccontextmanager
async def served(server: FastMCP) -> AsyncGenerator[str]:
    """Serve over HTTP; the socket listens from the start, so nobody has to wait."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = uvicorn.Server(uvicorn.Config(server.http_app(), log_level="warning"))
        serving = asyncio.create_task(running.serve([listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        running.should_exit = True
        await serving


def is_admin(context: AuthContext) -> bool:
    return context.token is not None and "admin" in context.token.scopes


@pytest.mark.parametrize("drop_in", [False, True])
def test_what_a_caller_may_not_see_is_neither_found_nor_called(drop_in: bool):
    transform = ToolScoutSearchTransform() if drop_in else ToolScoutTransform()
    tokens = {
        "ada-token": {"client_id": "ada", "scopes": ["admin"]},
        "bob-token": {"client_id": "bob", "scopes": list[str]()},
    }
    server = shop(transform, auth=StaticTokenVerifier(tokens))

    @server.tool(auth=is_admin)
    def erase_ledger(year: int) -> str:  # pyright: ignore[reportUnusedFunction]
        """Erase the ledger of a year."""
        return f"{year} is erased."

    async def work(url: str, token: str) -> tuple[str, CallToolResult]:
        async with Client(url, auth=token) as client:
            if drop_in:
                search = await asked(client, "search_tools", query="erase the ledger")
                use = await asked(
                    client, "call_tool", name="erase_ledger", arguments={"year": 1999}
                )
                return text_of(search), use
            seen = await found(client, "erase the ledger", "select:erase_ledger")
            return seen, await called(client, "erase_ledger", year=1999)

    async def callers() -> list[tuple[str, CallToolResult]]:
        async with served(server) as url:
            return [await work(url, token) for token in ("bob-token", "ada-token", "bob-token")]

    bob, ada, bob_again = asyncio.run(callers())

    assert "erase_ledger(" in ada[0] or '"erase_ledger"' in ada[0]
    assert text_of(ada[1]) == "1999 is erased."
    for seen, use in (bob, bob_again):
        assert "Erase the ledger" not in seen
        assert use.is_error
        assert "erased" not in text_of(use)


class Lists(Middleware):
    """Counts how often the tools are listed, and hides some."""

    def __init__(self, *hidden: str) -> None:
        self.hidden, self.count = hidden, 0

    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        self.count += 1
        return [tool for tool in await call_next(context) if tool.name not in self.hidden]


def test_what_middleware_hides_from_the_list_is_neither_found_nor_called():
    async def work() -> tuple[str, CallToolResult]:
        server = shop(ToolScoutTransform(), middleware=[Lists("open_safe")])
        async with Client(server) as client:
            return await found(client, "open the safe"), await called(client, "open_safe", code="1")

    seen, use = asyncio.run(work())

    assert "open_safe" not in seen
    assert use.is_error
    assert "there is no tool 'open_safe'" in text_of(use)


@pytest.mark.parametrize(("seconds", "listed"), [(0.0, 4), (3600.0, 1)])
def test_a_list_is_used_again_only_where_that_is_asked_for(seconds: float, listed: int):
    lists = Lists()

    async def work() -> None:
        server = shop(ToolScoutTransform(listing_seconds=seconds), middleware=[lists])
        async with Client(server, mode="legacy") as client:
            await client.list_tools()
            lists.count = 0
            for query in ("refund an order", "draw a label", "open the safe"):
                await found(client, query)
            await asked(client, "tool_describe", names=["refund_order"])

    asyncio.run(work())

    assert lists.count == listed


def test_tools_are_indexed_only_when_they_are_new_or_have_changed():
    scout = Scout(Catalog(), settings=Settings(shared=True))
    server = shop(ToolScoutTransform(scout=scout))
    versions: list[int] = []

    async def search(client: "Client[Any]", query: str) -> str:
        text = await found(client, query)
        versions.append(scout.catalog.version)
        return text

    async def work() -> list[str]:
        async with Client(server) as client:
            texts = [await search(client, "sing a song"), await search(client, "refund an order")]
            await client.list_tools()

            @server.tool
            def sing_song(title: str) -> str:  # pyright: ignore[reportUnusedFunction]
                """Sing a song."""
                return title

            texts.append(await search(client, "sing a song"))
            server.local_provider.remove_tool("sing_song")
            return [*texts, await search(client, "sing a song")]

    before, _, during, after = asyncio.run(work())

    assert "sing_song" not in before
    assert "sing_song(title*)" in during
    assert "sing_song" not in after
    assert versions[0] == versions[1] < versions[2] == versions[3]


def test_pinned_tools_are_listed_behind_the_three_and_a_small_server_may_show_all():
    async def names(transform: ToolScoutTransform) -> list[str]:
        async with Client(shop(transform)) as client:
            return [tool.name for tool in await client.list_tools()]

    pinned = asyncio.run(names(ToolScoutTransform(always_visible=["open_safe"])))
    small = asyncio.run(names(ToolScoutTransform(settings=Settings(mode="auto"))))  # pyright: ignore[reportArgumentType]  # texts are read

    assert pinned == [*META, "open_safe"]
    assert sorted(small) == ["draw_label", "open_safe", "refund_order"]


def test_tools_of_the_scouts_other_servers_are_found_and_run_by_their_executors():
    far = toolscout.Tool.define("count_stars", server="sky", description="Count the stars.")
    scout = Scout(
        Catalog({"sky": [far]}), executors={"sky": lambda tool, arguments: f"{tool.leaf}: 7"}
    )

    async def work() -> CallToolResult:
        async with Client(shop(ToolScoutTransform(scout=scout)), mode="legacy") as client:
            await found(client, "count the stars")
            return await called(client, "sky__count_stars")

    assert text_of(asyncio.run(work())) == "count_stars: 7"


def test_settings_that_a_server_cannot_follow_are_refused():
    with pytest.raises(UsageError, match="mode='bridge'"):
        ToolScoutTransform(settings=Settings(mode=toolscout.Mode.NATIVE))
    with pytest.raises(UsageError, match="`limit` and `pins`"):
        ToolScoutTransform(always_visible=["open_safe"], settings=Settings())


@pytest.mark.parametrize("made", [BM25SearchTransform, ToolScoutSearchTransform])
def test_the_drop_in_has_the_options_tools_and_replies_of_the_original(made: Any):
    transform = made(
        max_results=1,
        always_visible=["open_safe"],
        search_tool_name="find",
        call_tool_name="use",
        search_result_serializer=serialize_tools_for_output_markdown,
    )

    async def work() -> list[Any]:
        async with Client(shop(transform)) as client:
            return [
                [tool.name for tool in await client.list_tools()],
                text_of(await asked(client, "find", query="refund order money")),
                (await asked(client, "use", name="refund_order", arguments={"order": "A-7"})).data,
                text_of(await asked(client, "find", query="open safe code")),
            ]

    names, text, used, pinned = asyncio.run(work())

    assert names == ["open_safe", "find", "use"]
    assert text.startswith("### refund_order\n\nPay the money for an order back")
    assert "### draw_label" not in text
    assert used == {"order": "A-7", "cents": 0}
    assert "open_safe" not in pinned


def test_the_private_names_of_fastmcp_on_which_the_drop_in_rests_are_there():
    needed = {"_make_search_tool", "_search", "_get_visible_tools", "_render_results"}
    missing = needed - set(dir(BaseSearchTransform))
    missing |= {"_max_results", "_search_tool_name"} - vars(BM25SearchTransform()).keys()

    assert not missing, f"FastMCP has changed; the adapter needs another way for {missing}."


def test_the_example_serves_as_the_page_shows_it():
    async def work() -> tuple[list[str], str]:
        async with Client(EXAMPLES / "fastmcp_server.py") as client:
            names = [tool.name for tool in await client.list_tools()]
            await found(client, "refund an order")
            return names, text_of(await called(client, "refund_order", order="A-7"))

    assert asyncio.run(work()) == (META, "A-7 is refunded.")
    assert is_on_page("fastmcp_server.py", "fastmcp.md")
