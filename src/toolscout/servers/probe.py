"""Check, list and call configured servers for a person at a terminal.

`probe_server` starts a server, reports what it offers or what went wrong, and stops it again.
`list_servers` summarizes the configuration without starting anything. `call_tool` makes one call.
A gateway finds the manifests saved here, so its next search knows the tools.
"""

import asyncio
import json
import shlex
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

from mcp.shared.exceptions import MCPError

from toolscout.catalog import Catalog
from toolscout.config.file import Config
from toolscout.config.references import expand
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig, ServerUnavailable, ToolscoutError, UsageError
from toolscout.schemas import Json, is_object, list_parameters
from toolscout.scout import Scout
from toolscout.servers.approvals import Approvals, Checked
from toolscout.servers.connection import (
    NEEDS_LOGIN,
    ConnectionFactory,
    build_call,
    call_failed_from_error,
    find_task,
    follow_task,
    make_unavailable_error,
)
from toolscout.servers.diagnosis import choose_error_lines, diagnose
from toolscout.servers.listings import (
    build_entries,
    list_unused_overrides,
    read_stored_manifest,
    save_manifest,
)
from toolscout.servers.manifest import TOOL, Manifest
from toolscout.servers.oauth.login import (
    LoginState,
    find_login_state,
    format_login_command,
    has_own_token,
)
from toolscout.servers.pool import Pool
from toolscout.servers.state import LOG_LINES
from toolscout.sessions.replies import Reply
from toolscout.settings import Settings
from toolscout.skills.skill import SKILL, find_file, render_read, verify_read
from toolscout.stores.store import Store
from toolscout.tools import Tool

LINES_SHOWN = 3
MISSING = "not found"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The outcome of probing one server."""

    server: str
    seconds: float
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many tools, resources and prompts clients see, by kind."""
    protocol: str = ""
    notes: tuple[str, ...] = ()
    """The entries that cannot be used, or the lines written before a failure that say most."""
    problem: str = ""
    remedy: str = ""
    held: int = 0
    """How many definitions may not be used until a person approves them."""

    @property
    def is_ok(self) -> bool:
        """Whether the server works."""
        return not self.problem


async def probe_server(
    config: ServerConfig, dial: ConnectionFactory, store: Store | None = None
) -> ProbeResult:
    """Start a server, read its manifest and stop it; save the manifest if there is a store."""
    started = time.monotonic()
    lines = deque[str](maxlen=LOG_LINES)
    try:
        manifest = await _read_manifest(config, dial, lines)
    except (ToolscoutError, MCPError) as error:
        problem, remedy = _explain(config, error, lines)
        return ProbeResult(
            server=config.name,
            seconds=time.monotonic() - started,
            notes=tuple(choose_error_lines(lines, LINES_SHOWN)),
            problem=problem,
            remedy=remedy,
        )
    seconds = time.monotonic() - started
    checked = Checked(manifest=manifest)
    if store is not None:
        approvals = Approvals(store)
        checked = approvals.check(config, manifest)
        approvals.save(config)
        save_manifest(store, config, replace(manifest, is_checked=True))
    tools, problems = build_entries(config, checked.manifest)
    return ProbeResult(
        server=config.name,
        seconds=seconds,
        counts=Counter(tool.kind for tool in tools),
        protocol=manifest.protocol,
        notes=(*problems, *checked.problems, *list_unused_overrides(config, manifest)),
        held=len(checked.held),
    )


async def _read_manifest(
    config: ServerConfig, dial: ConnectionFactory, lines: deque[str]
) -> Manifest:
    plain = await asyncio.to_thread(config.resolve)
    connection = dial(plain, on_change=lambda: None, on_line=lines.append)
    try:
        await connection.open()
        async with asyncio.timeout(config.start_seconds):
            return await connection.read_manifest()
    except TimeoutError:
        reason = f"no lists within {config.start_seconds:g} s"
        raise make_unavailable_error(config, reason) from None
    finally:
        await connection.close()


def _explain(config: ServerConfig, error: Exception, lines: Iterable[str]) -> tuple[str, str]:
    """Return the problem and its remedy."""
    if isinstance(error, MCPError):
        return f"it refused to list its tools: {error.error.message}", "Ask its operator."
    if not isinstance(error, ServerUnavailable):
        return str(error), ""
    reason = error.reason or error.state
    if error.state == NEEDS_LOGIN and not has_own_token(config):
        return "it needs a login", f"Run `{format_login_command(config.name)}`."
    if error.state == NEEDS_LOGIN:
        return reason, "Put a valid token into its configuration."
    known = diagnose([reason, *lines])
    if known is not None:
        return f"{reason}: {known.problem}", known.remedy
    if config.transport is Transport.SKILLS:
        return reason, "Check its folders."
    if config.transport is not Transport.STDIO:
        return reason, "Check its address and whether it is running."
    if MISSING in reason:
        return reason, f"Install {shlex.quote(config.command)}, or name another command."
    return reason, "Run its command by hand to see more."


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSummary:
    """One configured server, and what is known about it without starting it."""

    server: ServerConfig
    file: Path
    """The file that configures it."""
    tools: int | None
    """How many tools clients see; None if the tools are not known yet."""
    login: LoginState

    @property
    def state(self) -> str:
        """Whether its tools are known."""
        if self.server.disabled:
            return "disabled"
        return "unknown" if self.tools is None else "known"


def list_servers(
    config: Config, store: Store | None, tokens: Path, *, env: Mapping[str, str], now: float
) -> tuple[ServerSummary, ...]:
    """Return a summary of every server, in the order of the configuration.

    `store` is the gateway's store, `tokens` its folder of tokens.
    """
    found: list[ServerSummary] = []
    for server in config.servers:
        manifest = None if store is None else read_stored_manifest(store, server)
        if store is not None and manifest is not None:
            manifest = Approvals(store).check(server, manifest).manifest
        entries = None if manifest is None else build_entries(server, manifest)[0]
        summary = ServerSummary(
            server=server,
            file=config.origins.get(server.name, config.source),
            tools=None if entries is None else sum(entry.kind == TOOL for entry in entries),
            login=_find_login(server, tokens, env, now),
        )
        found.append(summary)
    return tuple(found)


def _find_login(
    server: ServerConfig, tokens: Path, env: Mapping[str, str], now: float
) -> LoginState:
    if server.transport in (Transport.STDIO, Transport.SKILLS):
        return LoginState.NONE
    try:
        url = expand(server.url, env)
    except InvalidConfig:  # nobody can have logged in at an unknown address
        url = server.url
    return find_login_state(replace(server, url=url), tokens, now)


WHOLE_RESULT_TOKENS = 1_000_000
LONGEST_SECONDS = 86_400.0
"""The pool applies the server's own limits, so the scout should add none."""


def arguments_from_words(tool: Tool, words: Sequence[str]) -> Json:
    """Return arguments written as one JSON object or as `key=value` words.

    A value stays text if the tool accepts text; otherwise it is parsed as JSON if possible.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        try:
            value = cast("object", json.loads(words[0]))
        except (ValueError, RecursionError) as error:
            problem = f"The arguments are not JSON ({error}). Quote them for your shell."
            raise UsageError(problem) from None
        if not is_object(value):
            remedy = 'Write them as \'{"key": "value"}\'.'
            raise UsageError(f"The arguments are not a JSON object. {remedy}")
        return value
    types = {p.name: p.type for p in list_parameters(tool.input_schema, max_depth=1)}
    found: Json = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not sign or not key:
            remedy = "Write key=value, or one JSON object for all."
            raise UsageError(f"{word!r} is not an argument. {remedy}")
        found[key] = text
        if "string" not in types.get(key, "any").split("|"):
            with suppress(ValueError, RecursionError):
                found[key] = json.loads(text)
    return found


async def _read_skill(send: Callable[..., Awaitable[Json]], tool: Tool, arguments: Json) -> Json:
    uri, listed = find_file(tool, arguments)
    if listed:
        return {"content": [{"type": "text", "text": listed}]}
    answer = await send("resources/read", {"uri": uri}, verify=partial(verify_read, tool, uri))
    return render_read(tool, uri, answer)


async def call_tool(
    config: ServerConfig, store: Store, tool: Tool, arguments: Json, *, tokens: Path
) -> Reply:
    """Call a tool for a person: start its server, check the arguments, call, and stop the server.

    `tokens` is the folder that holds the tokens of servers.
    """
    if tool.kind not in (TOOL, SKILL):
        raise UsageError(f"{tool.name!r} is a {tool.kind}, which cannot be called. Name a tool.")
    settings = Settings(
        calls_by_name=True, result_tokens=WHOLE_RESULT_TOKENS, call_seconds=LONGEST_SECONDS
    )
    async with Pool([config], Catalog(), store, tokens=tokens) as pool:

        async def execute(tool: Tool, arguments: Json) -> object:
            send = partial(pool.request, tool.server)
            try:
                if tool.kind == SKILL:
                    return await _read_skill(send, tool, arguments)
                answer = await send("tools/call", build_call(tool, arguments))
                task = find_task(answer)
                return answer if task is None else await follow_task(send, task, None)
            except MCPError as error:
                raise call_failed_from_error(tool.name, error) from error

        if tool.kind == SKILL:
            await pool.start(tool.server)  # folders are read, not remembered
        session = Scout(pool.catalog, encoder=None, settings=settings).session("call")
        return await session.call(tool.name, arguments, approved=True, executor=execute)
