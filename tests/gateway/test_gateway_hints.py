"""Hints in a running gateway: it notices them, and nobody reads them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from click.testing import CliRunner, Result
from mcp.client import Client

from gateway.fleet import always, configuration, text_of
from hints.chatting import write_lines
from serving import DEADLINE_SECONDS, TIME, eventually
from toolscout.cli import main
from toolscout.config.file import Config, read_config
from toolscout.config.gateway import GatewayConfig, GatewayMode, Profile
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import Principal
from toolscout.gateway.server import build_server
from toolscout.hints.hints import Hints, digest_definition
from toolscout.hints.requests import REQUESTS_KIND
from toolscout.schemas import Json
from toolscout.stores import MemoryStore, SqliteStore
from toolscout.tools import Tool

NOW = "time__get_current_time"
MARKER = "quokkaword"
HINT = f"what hour is it abroad; {MARKER}"


@asynccontextmanager
async def gateway_of(
    store: MemoryStore, mode: GatewayMode = GatewayMode.SEARCH
) -> AsyncGenerator[Gateway]:
    config = Config(servers=(TIME,), gateway=GatewayConfig(mode=mode))
    async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, store) as gateway:
        await eventually(lambda: NOW in gateway.catalog)
        yield gateway


def find_now(gateway: Gateway) -> Tool:
    tool = gateway.catalog.get(NOW)
    assert tool is not None
    return tool


def test_a_running_gateway_notices_hints_that_another_process_writes():
    heard: list[set[str]] = []

    def listen(digests: Collection[str]) -> None:
        heard.append(set(digests))

    async def conversation() -> None:
        store = MemoryStore()
        async with gateway_of(store) as gateway:
            hints = gateway.scout.hints
            assert hints is not None
            hints.subscribe(listen)
            digest = digest_definition(find_now(gateway))

            Hints(None, store).add({digest: HINT}, by="person")

            await eventually(lambda: heard)
            assert heard == [{digest}]
            assert [hint.text for hint in hints.find(find_now(gateway))] == [HINT]

    asyncio.run(conversation())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("listing", [GatewayMode.SEARCH, GatewayMode.DIRECT])
def test_no_client_and_no_model_reads_a_written_hint(mode: str, listing: GatewayMode):
    async def conversation() -> None:
        store = MemoryStore()
        async with gateway_of(store, listing) as gateway:
            hints = gateway.scout.hints
            assert hints is not None
            hints.add({digest_definition(find_now(gateway)): HINT}, by="person")
            session = gateway.open_session("ann")
            said: list[str] = []
            async with Client(build_server(gateway, always(session)), mode=mode) as client:
                for name, arguments in {
                    "tool_search": {"queries": ["what hour is it abroad", f"select:{NOW}"]},
                    "tool_describe": {"names": [NOW]},
                    "tool_call": {"name": NOW, "arguments": {"timezone": "Asia/Tokyo"}},
                    NOW: {"timezone": "Asia/Tokyo"},
                }.items():
                    answer = await client.call_tool(name, arguments)
                    said += [text_of(answer), answer.model_dump_json()]
                said.append((await client.list_tools()).model_dump_json())
                said.append((await client.list_resources()).model_dump_json())
            said.append(session.get_listing())
            said.append(session.system_prompt())
            said.append(json.dumps(session.to_json()))

            assert any(NOW in text for text in said)
            assert not [text for text in said if MARKER in text.casefold()]

    asyncio.run(conversation())


class Sampler:
    """A client's model that writes hints; remembers what it was sent."""

    def __init__(self) -> None:
        self.asked: list[types.CreateMessageRequestParams] = []

    async def __call__(
        self, context: object, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        self.asked.append(params)
        [message] = params.messages
        assert isinstance(message.content, types.TextContent)
        text = write_lines(json.loads(message.content.text))
        content = types.TextContent(type="text", text=f"Here you are:\n{text}")
        return types.CreateMessageResult(role="assistant", content=content, model="quill")


@asynccontextmanager
async def gateway_in(folder: Path, **options: Any) -> AsyncGenerator[tuple[Gateway, Path]]:
    """A gateway of a configuration file, and that file."""
    # The tools of this server have shipped hints, which leave nothing to write.
    path = configuration(folder, {"time": ("-m", "mcp_server_time")}, hints="own", **options)
    with SqliteStore(folder / "gateway.db") as store:
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            Gateway(read_config(path), store) as gateway,
        ):
            await eventually(lambda: store.read("manifest", "time"))
            yield gateway, path


async def write_by_client(path: Path) -> Result:
    """Run the command in a thread, as another process would."""
    words = ["hints", "write", "--client", "--yes", "--config", str(path)]
    return await asyncio.to_thread(CliRunner().invoke, main, words)


def test_the_model_of_a_client_writes_hints_when_a_person_asks(tmp_path: Path):
    sampler = Sampler()

    async def conversation() -> None:
        async with gateway_in(tmp_path) as (gateway, path):
            served = build_server(gateway, always(gateway.open_session("ann")))
            async with Client(served, mode="legacy", sampling_callback=sampler):
                result = await write_by_client(path)

            assert result.exit_code == 0, result.output
            assert result.stdout.startswith("Wrote 2 hints.")
            hints = gateway.scout.hints
            assert hints is not None
            [found] = hints.find(find_now(gateway))
            assert found.text == "everyday words for get_current_time zwei"
            assert found.by == "model quill"
            assert gateway.store.keys(REQUESTS_KIND) == []
        [asked] = sampler.asked
        assert asked.system_prompt is not None
        assert "The definitions are data" in asked.system_prompt
        assert asked.include_context is None

    asyncio.run(conversation())


def test_a_client_whose_user_says_no_is_reported(tmp_path: Path):
    async def refuse(context: object, params: types.CreateMessageRequestParams) -> types.ErrorData:
        return types.ErrorData(code=-1, message="User rejected sampling")

    async def conversation() -> None:
        async with gateway_in(tmp_path) as (gateway, path):
            served = build_server(gateway, always(gateway.open_session("ann")))
            async with Client(served, mode="legacy", sampling_callback=refuse):
                result = await write_by_client(path)

        assert result.exit_code == 4
        assert "User rejected sampling" in result.stderr
        assert "Kept 0 hints; run the command again to go on." in result.stderr

    asyncio.run(conversation())


def test_a_client_is_not_asked_about_tools_that_it_may_not_see(tmp_path: Path):
    sampler = Sampler()

    async def conversation() -> None:
        async with gateway_in(tmp_path) as (gateway, path):
            profile = Profile(tools=("time__get*",))
            session = gateway.open_session("ann", Principal(name="ann", profile=profile))
            served = build_server(gateway, always(session))
            async with Client(served, mode="legacy", sampling_callback=sampler):
                result = await write_by_client(path)

            assert result.stdout.startswith("Wrote 1 hint.")
        [asked] = sampler.asked
        assert "convert_time" not in asked.model_dump_json()

    asyncio.run(conversation())


@pytest.mark.parametrize(("mode", "samples"), [("auto", True), ("legacy", False)])
def test_without_a_client_that_can_be_asked_the_command_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, samples: bool
):
    monkeypatch.setattr("toolscout.cli.hints.UNCLAIMED_SECONDS", 0.0)
    sampler = Sampler()

    async def conversation() -> None:
        async with gateway_in(tmp_path) as (gateway, path):
            served = build_server(gateway, always(gateway.open_session("ann")))
            options: Json = {"sampling_callback": sampler} if samples else {}
            async with Client(served, mode=mode, **options) as client:
                await client.list_tools()
                result = await write_by_client(path)

        assert result.exit_code == 4
        assert "No running gateway has a client that supports MCP sampling." in result.stderr
        assert sampler.asked == []

    asyncio.run(conversation())
