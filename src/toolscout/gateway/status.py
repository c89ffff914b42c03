"""The readiness and status of a gateway and its servers, as plain values for JSON.

Reasons, problems and log lines of servers are quoted with the values of their variables, headers
and tokens masked.
"""

import platform
from collections import Counter
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

from toolscout.config.servers import ServerConfig
from toolscout.gateway.gateway import Gateway
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.servers.pool import Phase, ServerState

REASON_CHARS = 300
LINES_SHOWN = 10

_UNDECIDED = (Phase.CONFIGURED, Phase.STARTING)


def build_readiness(gateway: Gateway) -> Json:
    """Return whether the gateway is ready: whether searches cover the tools of all servers.

    A server is pending until its first start has succeeded or failed. A server that failed does
    not make the gateway unready, however often it is started again.
    """
    members = gateway.pool.servers.values()
    pending = sum(
        member.manifest is None and not member.failures and member.phase in _UNDECIDED
        for member in members
    )
    return {
        "ready": pending == 0,
        "servers": len(members),
        "pending": pending,
        "failed": sum(member.phase is Phase.FAILED for member in members),
        "tools": len(gateway.catalog.tools),
    }


def build_status(gateway: Gateway, totals: Json, *, now: float, wall: datetime) -> Json:
    """Return all servers and totals; `now` is the event loop's time and `wall` the date."""
    tools = Counter(tool.server for tool in gateway.catalog.tools)
    members = gateway.pool.servers
    return {
        "ready": build_readiness(gateway)["ready"],
        "mode": gateway.config.gateway.mode.value,
        "servers": [
            _describe_server(
                members[name], tools[name], wall - timedelta(seconds=now - members[name].since)
            )
            for name in sorted(members)
        ],
        "totals": {"tools": tools.total(), **totals},
        "versions": {
            "toolscout": version("toolscout"),
            "mcp": version("mcp"),
            "python": platform.python_version(),
        },
    }


def _describe_server(member: ServerState, tools: int, since: datetime) -> Json:
    config = member.config
    return {
        "name": config.name,
        "transport": config.transport.value,
        "phase": member.phase.value,
        # A server that was never started has not entered a phase at any time.
        "since": since.astimezone(UTC).isoformat(timespec="seconds") if member.since else None,
        "reason": mask_secrets(member.reason, config),
        "starts": member.starts,
        "failures": member.failures,
        "running": member.running,
        "waiting": member.waiting,
        "tools": tools,
        "problems": [mask_secrets(problem, config) for problem in member.problems],
        "lines": [mask_secrets(line, config) for line in list(member.lines)[-LINES_SHOWN:]],
    }


def mask_secrets(text: str, config: ServerConfig) -> str:
    """Return a text from a server on one line, with the server's secrets masked."""
    return to_one_line(config.build_mask().apply(text), REASON_CHARS)
