"""A configuration that changes while the gateway runs: what holds at once, and what is logged."""

import asyncio
import re
from dataclasses import replace
from enum import StrEnum
from typing import Any

import pytest
from mcp.client import Client

from gateway.fleet import always
from serving import DEADLINE_SECONDS, TIME, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import Changes, ServerConfig, Transport
from toolscout.gateway.audit import read_entries
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.server import build_server
from toolscout.options import Option, list_options
from toolscout.schemas import Json
from toolscout.settings import Settings
from toolscout.stores import MemoryStore

NOW = "time__get_current_time"
ISSUER = {"issuer": "https://i.example", "audience": "a", "jwks_url": "https://i.example/keys"}
OTHERS: dict[str, object] = {
    "tokens": {"ci": {"token": "a token of some length"}},
    "issuers": {"i": {**ISSUER, "profile": "*"}},
    "profiles": {"p": {"servers": ["a"]}},
    "rules": {"r": {"permission": "deny", "servers": ["a"]}},
    "routes": {"a": {"keywords": ["word"]}},
    "programs": {"enabled": True},
    "store": "postgresql://localhost/x",
}
"""Values for options whose declaration alone does not say what another value may be."""

NEEDED = {"index": {"store": "postgresql://localhost/x"}}
"""Options without which another cannot be set."""


def other(declared: Option) -> object:
    """Return a value of an option that is not its default."""
    default: Any = declared.default
    if declared.name in OTHERS:
        return OTHERS[declared.name]
    if isinstance(default, bool):
        return not default
    if isinstance(default, StrEnum):
        return next(member for member in type(default) if member is not default)
    if declared.check.bounds is not None:
        most = declared.check.bounds[1]
        return default + 1 if default + 1 <= most else default - 1
    return ("x",) if isinstance(default, tuple) else "x"


def list_searches(gateway: Gateway) -> list[Json]:
    """Return the entries of searches in the audit record."""
    return [entry for entry in read_entries(gateway.store) if entry.get("event") == "search"]


@pytest.mark.parametrize("table", ["gateway", "sessions"])
def test_every_option_holds_after_a_reload_or_the_log_says_that_it_needs_a_restart(
    table: str, caplog: pytest.LogCaptureFixture
):
    kind: Any = {"gateway": GatewayConfig, "sessions": Settings}[table]
    start = Config()

    async def work() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(start, MemoryStore()) as gateway:
            for declared in list_options(kind):
                wanted = kind(**NEEDED.get(declared.name, {}), **{declared.name: other(declared)})
                caplog.clear()
                await gateway.reload(replace(start, **{table: wanted}))

                said = [record.getMessage() for record in caplog.records]
                late = re.compile(
                    rf"\[{table}\] (\w+ and )?{declared.name} changed; restart the gateway to use"
                )
                is_late = any(map(late.match, said))
                used = getattr(gateway.config, table)
                is_used = getattr(used, declared.name) == getattr(wanted, declared.name)
                assert is_used is not is_late, (declared.name, said)
                assert is_late is declared.needs_restart
            await gateway.reload(start)

    asyncio.run(work())


def test_the_log_names_all_options_that_need_a_restart(caplog: pytest.LogCaptureFixture):
    wanted = Config(gateway=GatewayConfig(port=1, store="postgresql://x", host="x", queue=1))

    async def work() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(Config(), MemoryStore()) as gateway:
            await gateway.reload(wanted)
            assert gateway.config.gateway == GatewayConfig(queue=1)

    asyncio.run(work())

    said = "[gateway] host, port and store changed; restart the gateway to use them."
    assert said in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_a_connected_client_is_told_of_another_mode_and_gets_other_tools(era: str):
    told = asyncio.Event()

    async def listen(message: Any) -> None:
        if "ToolListChanged" in type(message).__name__:
            told.set()

    async def work() -> None:
        config = Config(servers=(TIME,))
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: gateway.catalog.get(NOW))
            server = build_server(gateway, always(gateway.open_session("ann")))
            async with Client(server, mode=era, message_handler=listen) as client:
                assert NOW not in [tool.name for tool in (await client.list_tools()).tools]
                direct = replace(config, gateway=GatewayConfig(mode="direct"))  # pyright: ignore[reportArgumentType]  # checked by the class
                await gateway.reload(direct)
                if era == "legacy":  # a client of today has to subscribe for that
                    await told.wait()
                fresh = await client.list_tools(cache_mode="bypass")
                assert NOW in [tool.name for tool in fresh.tools]

    asyncio.run(work())


def test_sessions_that_exist_follow_new_limits():
    async def work() -> None:
        config = Config(servers=(TIME,), gateway=GatewayConfig(audit_queries=True))
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: len(gateway.scout.preview("server:time").hits) == 2)
            session = gateway.open_session("ann")
            assert len(session.search("time").hits) == 2
            await eventually(lambda: list(list_searches(gateway)))
            new = replace(
                config,
                sessions=Settings(limit=1, pins=(NOW,)),
                gateway=GatewayConfig(max_result_tokens=100),
            )
            await gateway.reload(new)

            assert len(session.search("time").hits) == 1
            assert session.pinned == (NOW,)
            assert session.settings.result_tokens == 100
            assert gateway.open_session("bob").settings == session.settings
        before, after = list_searches(gateway)
        assert "queries" in before
        assert "queries" not in after

    asyncio.run(work())


def test_servers_follow_what_the_gateway_sets_for_all_of_them():
    server = ServerConfig(name="a", transport=Transport.STDIO, command="none")

    async def work() -> None:
        config = Config(servers=(server,))
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            options = GatewayConfig(changes=Changes.DENY, inherit_env=("LANG",))
            await gateway.reload(Config(servers=(server,), gateway=options))
            now = gateway.pool.servers["a"].config
            assert (now.changes, now.inherit_env) == ("deny", ("LANG",))

    asyncio.run(work())
