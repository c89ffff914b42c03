"""What a model reads through a gateway that lists all tools and therefore no meta-tools."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client import Client

from gateway.fleet import always, text_of
from serving import DEADLINE_SECONDS, MISSING, TIME, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, GatewayMode
from toolscout.gateway.gateway import VARIANTS, Gateway
from toolscout.gateway.server import build_server
from toolscout.policies import Permission, Policy
from toolscout.settings import Settings
from toolscout.stores import MemoryStore

pytestmark = pytest.mark.timeout(300)
META_TOOLS = ("tool_search", "tool_describe", "tool_call", *VARIANTS)
POLICY = Policy(
    disabled={"time__convert_time": "not today"},
    permit=lambda tool, arguments: (
        Permission.DENY if arguments.get("timezone") == "Europe/Paris" else Permission.ALLOW
    ),
)


@asynccontextmanager
async def direct_client(
    mode: GatewayMode = GatewayMode.DIRECT, *, protocol: str = "auto", **options: Any
) -> AsyncGenerator[Client]:
    """A client of a gateway that knows the tools of one server, and that another has failed."""
    config = Config(
        servers=(TIME, MISSING),
        gateway=GatewayConfig(mode=mode, **options),
        sessions=Settings(describe_tokens=500),
    )
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        Gateway(config, MemoryStore(), policy=POLICY) as gateway,
    ):
        await eventually(lambda: gateway.scout.preview("select:time__get_current_time").hits)
        await eventually(lambda: gateway.pool.servers["missing"].reason)
        served = build_server(gateway, always(gateway.open_session("ann")))
        async with Client(served, mode=protocol) as client:
            yield client


@pytest.mark.parametrize("mode", [GatewayMode.DIRECT, GatewayMode.AUTO])
def test_no_refusal_names_a_tool_that_is_not_offered(mode: GatewayMode):
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "unknown": ("nothing_of_the_kind", {}),
        "misspelt": ("time__get_currant_time", {}),
        "missing": ("missing__send", {}),
        "disabled": ("time__convert_time", {}),
        "denied": ("time__get_current_time", {"timezone": "Europe/Paris"}),
        "invalid": ("time__get_current_time", {"timezone": ["x"]}),
        "variant": ("tool_read", {"name": "nothing_of_the_kind"}),
        "inner": ("tool_call", {"name": "nothing_of_the_kind"}),
        "described": ("tool_describe", {"names": ["nothing_of_the_kind"]}),
    }

    async def conversation() -> None:
        async with direct_client(mode, split_calls=True) as client:
            offered = {tool.name for tool in (await client.list_tools()).tools}
            refusals = {
                case: await client.call_tool(name, arguments)
                for case, (name, arguments) in calls.items()
            }

        assert offered == {"time__get_current_time"}
        assert all(refusal.is_error for refusal in refusals.values())
        texts = {case: text_of(refusal) for case, refusal in refusals.items()}
        own = "tool_read"  # a refusal repeats the name that was called
        assert {
            case: name
            for case, text in texts.items()
            for name in META_TOOLS
            if name in text and name != own
        } == {}
        assert texts["unknown"].endswith("Use the name of one of your tools.")
        assert "'tool_read'" in texts["variant"]

    asyncio.run(conversation())


def test_a_search_that_nobody_offered_ends_with_a_step_that_the_client_can_take():
    async def conversation() -> None:
        async with direct_client() as client:
            name = "time__get_current_time"
            found = await client.call_tool("tool_search", {"queries": [f"select:{name}"]})
            missed = await client.call_tool("tool_search", {"queries": ["qwzx vbnmk"]})

        assert text_of(found).endswith("Next: call it by its own name.")
        assert text_of(missed).endswith("No tool is hidden: all that exist are among your tools.")

    asyncio.run(conversation())


def test_a_long_result_is_cut_without_naming_a_tool_to_read_on_with():
    async def conversation() -> None:
        async with direct_client(max_result_tokens=100) as client:
            zones = await client.call_tool(
                "time__get_current_time", {"timezone": "Nowhere/" + "far_away " * 400}
            )

        assert "ask the tool for less" in text_of(zones)
        assert not any(name in text_of(zones) for name in META_TOOLS)

    asyncio.run(conversation())


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
def test_only_a_gateway_that_hides_tools_tells_its_clients_to_search(protocol: str):
    async def read_instructions(mode: GatewayMode) -> str:
        async with direct_client(mode, protocol=protocol) as client:
            return client.instructions or ""

    assert "tool_search" not in asyncio.run(read_instructions(GatewayMode.DIRECT))
    assert "tool_search" not in asyncio.run(read_instructions(GatewayMode.AUTO))
    assert "tool_search" in asyncio.run(read_instructions(GatewayMode.SEARCH))
