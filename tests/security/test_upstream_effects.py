"""A server says what its tools do: nothing may run because it lied."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult

from gateway.fleet import always
from serving import DEADLINE_SECONDS, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, GatewayMode, Profile
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import Principal
from toolscout.gateway.server import build_server
from toolscout.stores.memory import MemoryStore
from toolscout.tools import Effect

READERS = Profile(effects=(Effect.READ,))
ERASE: Mapping[str, object] = {"name": "liar__erase", "arguments": {}}


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.touch()
    return path


def call(
    disk: Path,
    name: str,
    arguments: Mapping[str, object],
    *,
    profile: Profile | None = None,
    gateway: GatewayConfig | None = None,
    until: str = "",
    **options: object,
) -> CallToolResult:
    """Return what a client hears that calls something of the server that lies.

    It calls again until it hears some text: a search covers a new server a little later.
    """
    hostile = str(Path(__file__).with_name("hostile_server.py"))
    liar = ServerConfig(
        name="liar",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(hostile, "liar", str(disk)),
        **options,  # pyright: ignore[reportArgumentType]  # checked by the class
    )
    config = Config(servers=(liar,), gateway=gateway or GatewayConfig())

    async def talk() -> CallToolResult:
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as running:
            await eventually(lambda: len(running.catalog))
            session = running.open_session("ann", Principal(name="ann", profile=profile))
            async with Client(build_server(running, always(session))) as client:
                while True:
                    reply = await client.call_tool(name, dict(arguments))
                    if until in reply.model_dump_json():
                        return reply
                    await asyncio.sleep(0.02)  # the index needs the processor more

    return asyncio.run(talk())


SPLIT = GatewayConfig(split_calls=True)


@pytest.mark.parametrize(
    ("name", "arguments"), [("tool_call", ERASE), ("liar__erase", {})], ids=["tool_call", "own"]
)
def test_a_profile_that_only_reads_does_not_run_what_a_server_calls_reading(
    name: str, arguments: Mapping[str, object], disk: Path
):
    reply = call(disk, name, arguments, profile=READERS)

    assert disk.exists()
    assert reply.is_error


@pytest.mark.parametrize("name", ["tool_read", "tool_write", "tool_call", "mcp__x__tool_call"])
@pytest.mark.parametrize("tool", ["erase", "drop"])
def test_a_split_call_of_what_a_server_calls_harmless_counts_as_destroying(
    name: str, tool: str, disk: Path
):
    reply = call(disk, name, {"name": f"liar__{tool}"}, gateway=SPLIT)

    assert disk.exists()
    assert reply.is_error
    assert "Call it with tool_destroy." in reply.model_dump_json()


def test_a_split_call_is_not_made_by_the_name_of_the_tool(disk: Path):
    reply = call(disk, "liar__erase", {}, gateway=SPLIT)

    assert disk.exists()
    assert "Call it with tool_destroy." in reply.model_dump_json()


def test_the_variant_for_what_destroys_runs_it(disk: Path):
    reply = call(disk, "tool_destroy", ERASE, gateway=SPLIT)

    assert not reply.is_error
    assert not disk.exists()


def test_a_pinned_tool_is_listed_and_keeps_its_own_name_where_calls_are_split(disk: Path):
    reply = call(disk, "liar__erase", {}, gateway=SPLIT, pins=("erase",))

    assert not reply.is_error
    assert not disk.exists()


@pytest.mark.parametrize(
    "options", [{"trust_effects": True}, {"effects": {"erase": Effect.READ}}], ids=str
)
@pytest.mark.parametrize("profile", [READERS, None], ids=["profile", "split"])
def test_effects_that_the_operator_trusts_or_sets_count(
    profile: Profile | None, options: dict[str, Any], disk: Path
):
    gateway = GatewayConfig(split_calls=profile is None)
    name = "tool_call" if profile else "tool_read"

    reply = call(disk, name, ERASE, profile=profile, gateway=gateway, **options)

    assert not reply.is_error
    assert not disk.exists()


def test_a_search_may_still_filter_by_what_a_server_says(disk: Path):
    request = {"queries": ["effect:read erase the whole disk"]}

    reply = call(disk, "tool_search", request, until="liar__erase")

    assert "liar__drop" not in reply.model_dump_json()


def test_a_client_is_not_told_that_an_untrusted_tool_only_reads(disk: Path):
    async def list_annotations(**options: object) -> list[object]:
        hostile = str(Path(__file__).with_name("hostile_server.py"))
        liar = ServerConfig(
            name="liar",
            transport=Transport.STDIO,
            command=sys.executable,
            args=(hostile, "liar", str(disk)),
            **options,  # pyright: ignore[reportArgumentType]  # checked by the class
        )
        config = Config(servers=(liar,), gateway=GatewayConfig(mode=GatewayMode.DIRECT))
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as running:
            await eventually(lambda: len(running.catalog))
            tools = running.list_tools(running.open_session("ann"))
            return [tool["annotations"]["readOnlyHint"] for tool in tools if "annotations" in tool]

    # That a tool changes something is believed.
    assert asyncio.run(list_annotations()) == [False]
    assert asyncio.run(list_annotations(trust_effects=True)) == [False, True]
