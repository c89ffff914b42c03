"""Several calls in one `tool_call` to a gateway."""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from gateway.fleet import always, text_of
from serving import DEADLINE_SECONDS, TIME, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.audit import read_entries
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.stores import MemoryStore
from toolscout.tokens import count_tokens
from toolscout.tools import Effect

EVERYTHING = (
    Path(__file__).parents[2]
    / ".npm-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)
needs_node = pytest.mark.skipif(
    not EVERYTHING.exists() or shutil.which("node") is None,
    reason="needs Node and `make .npm-servers/.installed`",
)
pytestmark = pytest.mark.timeout(300)
ERAS = pytest.mark.parametrize("era", ["auto", "legacy"])


def gallery(**options: Any) -> ServerConfig:
    path = str(Path(__file__).with_name("gallery.py"))
    return ServerConfig(
        name="art",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(path, "art"),
        **options,
    )


def everything(**options: Any) -> ServerConfig:
    place = (str(EVERYTHING),)
    return ServerConfig(
        name="all", transport=Transport.STDIO, command="node", args=place, **options
    )


@asynccontextmanager
async def opened(
    *servers: ServerConfig, era: str = "auto", store: MemoryStore | None = None, **options: Any
) -> AsyncGenerator[tuple[Gateway, Client]]:
    config = Config(servers=servers, gateway=GatewayConfig(**options))
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        Gateway(config, MemoryStore() if store is None else store) as gateway,
    ):
        queries = [f"server:{server.name}" for server in servers]
        await eventually(lambda: all(gateway.scout.preview(query).hits for query in queries))
        session = gateway.open_session("ann")
        async with Client(build_server(gateway, always(session)), mode=era) as client:
            yield gateway, client


def zone(name: str) -> dict[str, object]:
    return {"name": "time__get_current_time", "arguments": {"timezone": name}}


def labels_of(result: Any) -> list[str]:
    texts = [block.text for block in result.content if block.type == "text"]
    return [text.partition("), ")[2] for text in texts if text.startswith("Result ")]


@ERAS
def test_one_of_three_calls_fails_and_the_others_are_answered_in_order(era: str):
    heard: list[tuple[float, float | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    store = MemoryStore()

    async def conversation() -> Any:
        async with opened(TIME, era=era, store=store) as (_, client):
            calls = [zone("Asia/Tokyo"), zone("Mars/Olympus"), zone("UTC") | {"pick": "$.timezone"}]
            return await client.call_tool("tool_call", {"calls": calls}, progress_callback=note)

    result = asyncio.run(conversation())

    name = "time__get_current_time"
    assert labels_of(result) == [f"{name}:", f"{name}, failed:", f"{name}:"]
    _, tokyo, _, mars, _, utc = [block.text for block in result.content]
    assert json.loads(tokyo)["timezone"] == "Asia/Tokyo"
    assert "Mars/Olympus" in mars
    assert utc == '"UTC"'
    assert not result.is_error
    meta = result.meta
    assert meta["toolscout/code"] == "some_failed"
    assert [row.get("isError", False) for row in meta["toolscout/results"]] == [False, True, False]
    assert heard == [(1, 3), (2, 3), (3, 3)]
    entries = [entry for entry in read_entries(store) if entry["event"] == "call"]
    assert sorted(entry["outcome"] for entry in entries) == ["ok", "ok", "tool_error"]


@ERAS
def test_images_links_and_structured_content_stay_in_order_behind_their_label(era: str):
    async def conversation() -> Any:
        async with opened(gallery(), TIME, era=era) as (_, client):
            calls = [{"name": "art__paint"}, zone("UTC"), {"name": "art__paint"}]
            return await client.call_tool("tool_call", {"calls": calls})

    result = asyncio.run(conversation())

    kinds = [block.type for block in result.content]
    painted = ["text", "text", "image", "audio", "resource_link", "resource_link", "resource"]
    assert kinds == [*painted, "resource_link", "text", "text", *painted, "resource_link"]
    assert labels_of(result) == ["art__paint:", "time__get_current_time:", "art__paint:"]
    first, _, last = result.meta["toolscout/results"]
    assert first == last
    assert first["structuredContent"] == {"size": 3}
    assert first["_meta"]["com.example/took"] == 7
    assert result.structured_content is None


@needs_node
def test_a_public_server_answers_with_an_image_and_structured_content_at_once():
    async def conversation() -> Any:
        async with opened(everything()) as (_, client):
            weather = {"location": "New York"}
            calls = [
                {"name": "all__get-tiny-image"},
                {"name": "all__get-structured-content", "arguments": weather, "pick": "$.humidity"},
                {"name": "all__echo", "arguments": {"message": "hello"}},
            ]
            return await client.call_tool("tool_call", {"calls": calls})

    result = asyncio.run(conversation())

    image = next(at for at, block in enumerate(result.content) if block.type == "image")
    second = next(at for at, b in enumerate(result.content) if "Result 2" in getattr(b, "text", ""))
    assert image < second
    assert float(result.content[second + 1].text) > 0
    assert result.content[-1].text == "Echo: hello"


def test_long_results_are_cut_to_share_one_reply_and_can_be_read_on():
    async def conversation() -> None:
        async with opened(gallery(), TIME, max_result_tokens=2_000) as (_, client):
            calls = [{"name": "art__write"}, zone("UTC"), {"name": "art__write"}]
            result = await client.call_tool("tool_call", {"calls": calls})
            texts = [block.text for block in result.content if block.type == "text"]
            handle = texts[1].partition('name="')[2].partition('"')[0]
            further = await client.call_tool("tool_call", {"name": handle})

        assert sum(map(count_tokens, texts)) < 2_200
        assert json.loads(texts[3])["timezone"] == "UTC"
        assert text_of(further).startswith(("words", "and"))

    asyncio.run(conversation())


@pytest.mark.parametrize(
    ("variant", "refused"),
    [("tool_read", ["write", "fail"]), ("tool_destroy", ["show", "write"]), ("tool_call", None)],
)
def test_each_call_is_held_against_the_variant(variant: str, refused: list[str] | None):
    effects = {"show": Effect.READ, "write": Effect.WRITE, "fail": Effect.DESTRUCTIVE}
    leaves = list(effects)

    async def conversation() -> Any:
        async with opened(gallery(effects=effects), split_calls=True) as (_, client):
            *_, listed = (await client.list_tools()).tools
            assert {"pick", "calls"} <= listed.input_schema["properties"].keys()
            calls = [{"name": f"art__{leaf}"} for leaf in leaves]
            return await client.call_tool(variant, {"calls": calls})

    result = asyncio.run(conversation())

    codes = [row["_meta"].get("toolscout/code") for row in result.meta["toolscout/results"]]
    wrong = [leaf for leaf, code in zip(leaves, codes, strict=True) if code == "wrong_variant"]
    assert wrong == (leaves if refused is None else refused)


def test_a_client_that_cancels_its_request_cancels_all_its_calls():
    slow = Path(__file__).parents[1] / "security/slow_server.py"
    server = ServerConfig(
        name="slow", transport=Transport.STDIO, command=sys.executable, args=(str(slow),)
    )

    async def conversation() -> None:
        async with opened(server) as (gateway, client):
            calls = {"calls": [{"name": "slow__wait"}, {"name": "slow__wait"}]}
            task = asyncio.create_task(client.call_tool("tool_call", calls))
            state = gateway.pool.servers["slow"]
            await eventually(lambda: state.running == 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await eventually(lambda: state.running + state.waiting == 0)
            assert "echo" in text_of(await client.call_tool("tool_call", {"name": "slow__echo"}))

    asyncio.run(conversation())


# What results look like.


@needs_node
def test_a_description_shows_the_fields_of_a_public_server_also_after_a_restart():
    store = MemoryStore()
    token = "ghp_" + "aB3dE5fG7h" * 4
    server = everything(env={"GREETING": "hello there", token: "1"})

    async def describe(*calls: dict[str, object]) -> str:
        async with opened(server, store=store) as (_, client):
            for call in calls:
                await client.call_tool("tool_call", call)
            return text_of(await client.call_tool("tool_describe", {"names": ["all__get-env"]}))

    first = asyncio.run(describe({"name": "all__get-env"}))
    later = asyncio.run(describe())

    [line] = [line for line in first.splitlines() if line.startswith("Seen in results")]
    assert "GREETING" in line
    assert "hello there" not in line
    assert token not in line
    assert line in later
