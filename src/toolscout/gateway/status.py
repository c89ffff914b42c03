"""What a gateway tells of itself to an operator: whether it is ready, and how its servers are.

Gives plain values for JSON. What servers said is quoted without any value of their variables,
headers and tokens.
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
    """Return whether searches see all there is to see.

    A server counts as pending until its first start has ended, well or badly; one that failed
    holds nothing up, however often it is tried again.
    """
    members = gateway.pool.servers.values()
    pending = sum(map(_is_pending, members))
    return {
        "ready": pending == 0,
        "servers": len(members),
        "pending": pending,
        "failed": sum(member.phase is Phase.FAILED for member in members),
        "tools": len(gateway.catalog.tools),
    }


def build_status(gateway: Gateway, totals: Json, *, now: float, wall: datetime) -> Json:
    """Return all servers and figures; `now` is the pool's time and `wall` the world's."""
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
        # A server that was never tried has no time at which that began.
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
    """Return what a server said on one line, with a mask for each secret that it was given."""
    return to_one_line(config.build_mask().apply(text), REASON_CHARS)


def _is_pending(member: ServerState) -> bool:
    return member.manifest is None and not member.failures and member.phase in _UNDECIDED
