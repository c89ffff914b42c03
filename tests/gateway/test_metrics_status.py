"""What a gateway tells of itself, and what it keeps back."""

import asyncio
from datetime import UTC, datetime

import pytest

from toolscout.config.file import Config
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.metrics import build_readiness, build_status
from toolscout.servers.state import Phase, ServerState
from toolscout.stores.memory import MemoryStore
from toolscout.tools import Tool

NEAR = ServerConfig(name="near", transport=Transport.STDIO, command="near")
FAR = ServerConfig(
    name="far",
    transport=Transport.HTTP,
    url="https://ann:pw@far.example/mcp?key=hunter2",
    headers={"X-Key": "${FAR_KEY}", "X-Short": "on"},
    token="literal-token",
)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def gateway_of(*servers: ServerConfig) -> Gateway:
    return Gateway(Config(servers=servers), MemoryStore())


def test_a_server_is_pending_until_its_first_start_has_ended():
    gateway = gateway_of(NEAR)
    member = gateway.pool.servers["near"]
    told: list[tuple[bool, int, int]] = []

    for phase, failures in (
        *((Phase.CONFIGURED, 0), (Phase.STARTING, 0), (Phase.FAILED, 1)),
        *((Phase.STARTING, 1), (Phase.NEEDS_LOGIN, 0), (Phase.READY, 0)),
    ):
        member.phase, member.failures = phase, failures
        now = build_readiness(gateway, now=1.0)
        told.append((now["ready"], now["pending"], now["failed"]))

    assert told[:2] == [(False, 1, 0), (False, 1, 0)]
    assert told[2:] == [(True, 0, 1), (True, 0, 0), (True, 0, 0), (True, 0, 0)]


def test_an_installation_does_not_keep_a_gateway_from_being_ready_for_long():
    gateway = gateway_of(NEAR)
    member = gateway.pool.servers["near"]
    member.phase = Phase.STARTING
    member.since = 100.0
    limit = 100.0 + NEAR.start_seconds

    early = build_readiness(gateway, now=limit - 1)
    late = build_readiness(gateway, now=limit)

    assert (early["ready"], early["pending"]) == (False, 1)
    assert (late["ready"], late["pending"]) == (True, 1)


def test_a_gateway_without_servers_is_ready():
    assert build_readiness(gateway_of(), now=1.0) == {
        "ready": True,
        "servers": 0,
        "pending": 0,
        "failed": 0,
        "tools": 0,
    }


def test_resources_are_not_counted_as_tools():
    gateway = gateway_of(NEAR)
    page = Tool(name="near__page", server="near", leaf="page", kind="resource")
    gateway.catalog.replace("near", [Tool(name="near__go", server="near", leaf="go"), page])

    told = build_status(gateway, {}, now=160.0, wall=NOON)

    assert build_readiness(gateway, now=160.0)["tools"] == 1
    assert (told["servers"][0]["tools"], told["totals"]["tools"]) == (1, 1)


def test_the_status_says_when_a_phase_began_and_why():
    gateway = gateway_of(NEAR, FAR)
    failed(gateway.pool.servers["far"], "no answer")
    gateway.pool.servers["far"].lines.extend(f"line {n}" for n in range(30))

    told = build_status(gateway, {"searches": 3}, now=160.0, wall=NOON)

    far, near = told["servers"]
    assert (far["name"], far["since"], far["reason"]) == (
        "far",
        "2026-11-15T11:59:00+00:00",
        "no answer",
    )
    assert (near["phase"], near["since"], near["tools"]) == ("configured", None, 0)
    assert far["lines"] == [f"line {n}" for n in range(20, 30)]
    assert told["totals"] == {"tools": 0, "searches": 3}
    assert (told["ready"], told["mode"]) == (True, "search")


@pytest.mark.requirement("R108")
def test_what_a_server_was_given_is_never_quoted(monkeypatch: pytest.MonkeyPatch):
    """R108"""
    monkeypatch.setenv("FAR_KEY", "from-the-environment")
    said = f"401 on for {FAR.url} with from-the-environment and literal-token\nagain"

    assert FAR.quote(said) == "401 on for https://far.example/… with … and … again"


@pytest.mark.requirement("R108")
def test_a_reference_that_leads_nowhere_hides_what_it_can(monkeypatch: pytest.MonkeyPatch):
    """R108"""
    monkeypatch.delenv("FAR_KEY", raising=False)

    assert FAR.quote("bad literal-token") == "bad …"


def failed(member: ServerState, reason: str) -> None:
    member.phase, member.reason, member.since, member.failures = Phase.FAILED, reason, 100.0, 1


def test_a_gateway_that_has_started_nothing_reports_too():
    async def told() -> bool:
        async with gateway_of() as gateway:
            return build_readiness(gateway, now=1.0)["ready"]

    assert asyncio.run(told())
