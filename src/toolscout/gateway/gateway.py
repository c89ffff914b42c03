"""`Gateway`: many servers behind one catalogue, and the tools that each client may list and call.

It owns the catalogue, the scout and the pool. The wire protocol is left to `server`; the pool
decides which server runs and when. A model that calls a tool of a server that is not available
learns why, unless the caller may not see that server (R77).
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from toolscout.catalog import Catalog
from toolscout.config.file import Config
from toolscout.config.gateway import (
    CallerRules,
    GatewayConfig,
    GatewayMode,
    IndexPlace,
    Profile,
)
from toolscout.config.redaction import SecretKind, redact_text
from toolscout.config.secrets import SecretMask
from toolscout.dialects import Dialect, to_definition
from toolscout.errors import (
    TRY_LATER,
    ModelError,
    NotPending,
    ServerUnavailable,
    ToolChanged,
    ToolscoutError,
    UnknownTool,
    UpstreamError,
    WrongVariant,
)
from toolscout.gateway.audit import DAY_SECONDS, AuditRecord
from toolscout.gateway.events import (
    ApprovalAnswered,
    DefinitionChanged,
    EntryRead,
    LoginChanged,
    LoginOutcome,
    LogLine,
    Reloaded,
    ServerChanged,
)
from toolscout.gateway.forward import (
    Context,
    ForwardedCall,
    join_results,
    mark_stored,
    result_from_reply,
    rewrite_addresses,
)
from toolscout.gateway.ledger import Ledger
from toolscout.gateway.middleware import ANONYMOUS, Principal, find_address, read_principal_name
from toolscout.gateway.pending import CallApprovals, CallKey, PendingCalls
from toolscout.gateway.resources import Resources
from toolscout.gateway.subscriptions import Subscriptions
from toolscout.gateway.tasks import (
    LONGEST_SECONDS,
    RunningTask,
    StoredTask,
    TaskParams,
    Tasks,
    TaskUpdateParams,
    Work,
)
from toolscout.hints.hints import HINTS_KIND, Hints
from toolscout.hints.requests import WriteRequests
from toolscout.lint.scanner import find_attack
from toolscout.names import make_exposed_name
from toolscout.policies import Decision, Permission, Policy
from toolscout.programs.saved import (
    SAVED_SERVER,
    SavedProgram,
    list_approved,
    publish_programs,
)
from toolscout.schemas import Json, is_object, to_canonical_json
from toolscout.scout import Scout
from toolscout.servers.approvals import Lock
from toolscout.servers.connection import INPUT_REQUIRED, Relay
from toolscout.servers.manifest import TOOL
from toolscout.servers.mcp import TASKS
from toolscout.servers.oauth.encrypted_logins import EncryptedLogins
from toolscout.servers.pool import Pool
from toolscout.servers.state import Caller, Phase, ServerState
from toolscout.sessions.call import LONGEST_NAME, Confirm
from toolscout.sessions.events import EventStream
from toolscout.sessions.metatools import (
    CALL,
    CALL_VARIANTS,
    DESCRIBE,
    RUN,
    SEARCH,
    CallRequest,
    build_meta_tools,
    build_run_tool,
    find_meta_tool,
    read_calls,
    to_meta_name,
)
from toolscout.sessions.replies import Reply, refuse
from toolscout.sessions.run import ProgramParts
from toolscout.sessions.session import Session
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.sessions.texts import (
    ASK_FOR_LOGIN,
    ASK_FOR_START,
    TASKS_NOT_DECLARED,
    TOOLS_NOT_KNOWN_YET,
)
from toolscout.sessions.usage import USAGE_KIND
from toolscout.settings import ProgramEffects, Programs, Settings
from toolscout.skills.skill import SKILL
from toolscout.stores.background import BackgroundStore
from toolscout.stores.store import Store
from toolscout.tokens import count_tokens
from toolscout.tools import Effect, Tool

if TYPE_CHECKING:
    from toolscout.search.postgres import PostgresIndex

NEWS_SECONDS = 15.0
"""How often a gateway reads what others with the same store have learned."""
SEPARATORS = ("__", ".", "/", ":")
"""What models write between the names of a server and a tool."""
GATHER_SECONDS = 0.1
"""How long changes that other gateways report are gathered."""
REFRESH_SECONDS = 1.0
"""How long a request waits for the newest state of its session."""
CONFIGURATION_KIND = "configuration"
KEPT_DAYS = {USAGE_KIND: 365, CONFIGURATION_KIND: 1}
"""How long what gateways tell each other is kept, in days."""
UNUSED_INDEX_DAYS = 7
"""After this time, the index of gateways with another configuration or version is dropped."""
FOLLOWED_KINDS = frozenset({USAGE_KIND, HINTS_KIND, CONFIGURATION_KIND})
HINTS_LOOK_SECONDS = 1.0
"""How often the gateway looks for hints that somebody has changed or wants in another process."""
ID_BYTES = 8
VARIANTS = {
    "tool_read": frozenset({Effect.READ}),
    "tool_write": frozenset({Effect.WRITE}),
    "tool_destroy": frozenset({Effect.DESTRUCTIVE, Effect.UNKNOWN}),
}
"""The variants of `tool_call`, and the effects that each admits."""

_log = logging.getLogger(__name__)
_Group = TypeVar("_Group", GatewayConfig, Settings)
_ABSENT: Mapping[Phase, tuple[str, str]] = {
    Phase.CONFIGURED: ("starting", TOOLS_NOT_KNOWN_YET),
    Phase.STARTING: ("starting", TOOLS_NOT_KNOWN_YET),
    Phase.FAILED: ("failed", TRY_LATER),
    Phase.NEEDS_LOGIN: ("waiting for a login", ASK_FOR_LOGIN),
    Phase.STOPPED: ("stopped", ASK_FOR_START),
}
"""The state and the remedy that a model reads about a server whose tools are unknown."""


class Gateway:
    """One gateway. Use it as an asynchronous context manager.

    `tokens` is the folder with the OAuth tokens of servers; without it, such servers need a login.
    With a `lock`, only the definitions that it names are used.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        policy: Policy | None = None,
        tokens: Path | None = None,
        lock: Lock | None = None,
    ) -> None:
        self.config = config
        self._id = secrets.token_hex(ID_BYTES)
        """Tells this gateway from others that share the store."""
        self.store = BackgroundStore(store)
        self.tokens = tokens
        self._is_locked = lock is not None
        self.news_seconds = NEWS_SECONDS
        self._changed: set[str] = set()
        """The kinds of which other gateways have changed something."""
        self._has_changes = asyncio.Event()
        self._stale: set[str] = set()
        """The sessions that another gateway has changed since they were read here."""
        self._other_version = ""
        self.on_other_version: Callable[[], None] = lambda: None
        """Called if another gateway with the same store has started with another configuration."""
        self.events = EventStream(_run_afterwards)
        self.ledger = Ledger(self.store)
        self.events.subscribe(self.ledger.on_event)
        self._secrets = set(config.list_secrets())
        self._mask = SecretMask(self._secrets)
        self._audit = self._open_audit() if config.gateway.audit else None
        settings = _build_settings(config)
        hints = Hints.from_settings(settings, self.store)
        self.catalog, self._stored_index = _open_catalog(config, hints, lock)
        self.encrypted_logins = EncryptedLogins(
            self.store,
            config.gateway.resolve_login_keys(),
            folder=tokens,
            is_shared=config.gateway.shares_logins,
        )
        self.login_path = ""
        """Where on this gateway users log in to servers, if they can."""
        self.waiting_path = ""
        """Where on this gateway people decide about waiting calls, if they can."""
        self.pool = Pool(
            config.servers,
            self.catalog,
            self.store,
            queue=config.gateway.queue,
            tokens=tokens,
            encrypted_logins=self.encrypted_logins,
            lock=lock,
        )
        self.pool.on_phase = lambda server: self.events.emit(
            ServerChanged(server=server.name, phase=server.phase, reason=server.reason)
        )
        self.pool.on_login = lambda server: self.events.emit(
            LoginChanged(server=server, outcome=LoginOutcome.NOTICED)
        )
        self.pool.on_decision = lambda decision: self.events.emit(
            DefinitionChanged.from_decision(decision)
        )
        self.pool.on_line = lambda server, line: self.events.emit(LogLine(server=server, line=line))
        self.on_access: Callable[[GatewayConfig], None] = lambda config: None
        """Called with new options; raises `UsageError` if they cannot be used."""
        self.take_slots: Callable[[str, int], AbstractContextManager[int]] = _take_all
        """Counts further calls of a request while it is entered, and returns how many of them its
        caller may make at the same time."""
        self.resources = Resources(self.pool)
        self.pending_calls = PendingCalls()
        self.tasks = Tasks(self.store)
        self.approvals = CallApprovals(self.store, mask=self._mask)
        self.approvals.on_answer = self._tell_answer
        self._folders: WeakKeyDictionary[Session, str] = WeakKeyDictionary()
        """Where the client of a session was started, if that is known."""
        self._first_searches: WeakKeyDictionary[Session, float] = WeakKeyDictionary()
        """Until when the searches of a session wait for servers that have yet to list."""
        self.subscriptions = Subscriptions(config, self.pool, self.resources)
        self.scout = Scout(
            self.catalog,
            settings=settings,
            policy=policy,
            store=self.store,
            index=self._stored_index,
            hints=hints,
            events=self.events,
            defer=_run_afterwards,
        )
        self.scout.shapes.is_secret = partial(_is_secret, self._mask)

    async def __aenter__(self) -> "Gateway":
        # Servers that start now would slow down the first search.
        self.pool.may_learn.clear()
        self._loop = asyncio.get_running_loop()
        await self.pool.__aenter__()
        self.subscriptions.open()
        self._warming = asyncio.create_task(self._warm())
        self._removing = asyncio.create_task(self._remove_old())
        self._watching = [
            asyncio.create_task(self._follow_others()),
            asyncio.create_task(self._watch_requests()),
            asyncio.create_task(self._watch_programs()),
        ]
        self.pool.hears_changes = self.store.listen(self._hear_changes)
        self._publish_version()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.subscriptions.close()
        await self.tasks.close(self.config.gateway.stop_seconds)
        await self.pending_calls.close()
        await self._warming
        await self.scout.close()
        self._removing.cancel()
        for watching in self._watching:
            watching.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await self.pool.__aexit__(*error)
        self.catalog.close()
        if self._audit is not None:
            await self.store.run_in_thread(self._audit.close)
        self.store.write(CONFIGURATION_KIND, self._id, None)
        await self.store.run_in_thread(self.store.flush)

    async def _warm(self) -> None:
        """Load the tokenizer and the encoder, so that the first search need not wait for them."""
        encoder = self.scout.index.encoder
        try:
            await asyncio.to_thread(count_tokens, "")
            if encoder is not None:
                await asyncio.to_thread(encoder.encode, ["warm"], kind="question")
        finally:
            self.pool.may_learn.set()

    def _hear_changes(self, changed: Mapping[str, Set[str]] | None) -> None:
        """Note in the thread of the event loop what other gateways have changed."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._note_changes, changed)

    def _note_changes(self, changed: Mapping[str, Set[str]] | None) -> None:
        """Note what other gateways have changed in the store; None is anything."""
        self.pool.follow(changed)
        if changed is None:
            self._stale.update(self.scout.list_live())
            self._changed.update(FOLLOWED_KINDS)
        else:
            named = changed.get(SESSION_KIND)
            if named is not None:
                self._stale.update(set(named or self.scout.list_live()))
            self._changed.update(changed.keys() & FOLLOWED_KINDS)
        if self._changed:
            self._has_changes.set()

    async def _follow_others(self) -> None:
        """Use what other gateways with the same store learn, write and configure.

        Those that report it are heard at once; otherwise this looks from time to time.
        """
        await self._warming
        read_at = -self.news_seconds
        while True:
            now = self._loop.time()
            changed = set(self._changed)
            self._changed.clear()
            self._has_changes.clear()
            hears = self.pool.hears_changes
            is_due = now - read_at >= self.news_seconds
            if is_due:
                read_at = now
            if USAGE_KIND in changed or is_due:
                await self._follow(self.scout.read_news)
            hints = self.scout.hints
            if hints is not None and (HINTS_KIND in changed or is_due or not hears):
                await self._follow(hints.refresh)
            if CONFIGURATION_KIND in changed:
                await self._follow(self._compare_versions)
            if hears:
                await asyncio.sleep(GATHER_SECONDS)  # a busy gateway reports many changes a second
            look = self.news_seconds if hears else min(self.news_seconds, HINTS_LOOK_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(look):
                    await self._has_changes.wait()

    async def _follow(self, work: Callable[[], object]) -> None:
        try:
            await self.store.run_in_thread(work)
        except Exception:  # any store may fail in its own way, and be back the next time
            _log.debug("Changes of other gateways cannot be read.", exc_info=True)

    async def refresh_session(self, session: Session) -> None:
        """Read a session again if another gateway has changed it; otherwise this does nothing.

        While the store does not answer, the session goes on as it is known here.
        """
        if session.id not in self._stale:
            return
        self._stale.discard(session.id)
        read = partial(self.store.read_stored, SESSION_KIND, session.id)
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                stored = await self.store.run_in_thread(read)
        except (ToolscoutError, TimeoutError):
            self._stale.add(session.id)
        else:
            if stored is not None:
                await asyncio.to_thread(session.adopt, stored)

    def _publish_version(self) -> None:
        """Store which configuration this gateway uses, so that others can compare theirs."""
        row = {"version": compute_version(self.config), "at": time.time()}
        self.store.write(CONFIGURATION_KIND, self._id, json.dumps(row).encode())

    def _compare_versions(self) -> None:
        """Call `on_other_version` if another gateway has begun to use another configuration."""
        own = compute_version(self.config)
        newest: tuple[float, str] = (0.0, own)
        for key in self.store.keys(CONFIGURATION_KIND):
            row: Any = json.loads(self.store.read(CONFIGURATION_KIND, key) or b"{}")
            newest = max(newest, (float(row.get("at", 0)), str(row.get("version", own))))
        if newest[1] not in (own, self._other_version):
            _log.warning(
                "Another gateway with the same store uses configuration %s; this one uses %s.",
                newest[1],
                own,
            )
            self._loop.call_soon_threadsafe(self.on_other_version)
        self._other_version = newest[1]

    def _open_audit(self) -> AuditRecord:
        record = AuditRecord.from_config(self.config, self.store, self._mask)
        self.events.subscribe(record.on_event)
        return record

    async def _remove_old(self) -> None:
        """Remove old entries of the audit record and the like, now and once a day."""
        await self._warming  # nobody waits for this
        while True:
            if self._audit is not None:
                remove = partial(self._audit.remove_old, self.config.gateway.audit_days)
                await self._follow(remove)
            if self._stored_index is not None:
                await self._follow(partial(self._stored_index.drop_unused, UNUSED_INDEX_DAYS))
            for kind, days in KEPT_DAYS.items():
                await self._follow(partial(self.store.expire, kind, days * DAY_SECONDS))
            await asyncio.sleep(DAY_SECONDS)

    async def _watch_programs(self) -> None:
        """Offer the saved programs that somebody has approved, unless a lock says what is used."""
        published = list[str]()
        # Those of an earlier run may be in a database, but also those of another gateway that runs
        # programs while this one does not. Sessions here see none that this gateway cannot run.
        if self.config.sessions.programs.enabled and SAVED_SERVER in self.catalog.servers:
            published = None
        while not self._is_locked:
            try:
                wants = self.config.sessions.programs.enabled
                is_free = SAVED_SERVER not in self.pool.servers
                approved: list[SavedProgram] = []
                if wants and is_free:
                    approved = await self.store.run_in_thread(partial(list_approved, self.store))
                digests = [program.digest for program in approved]
                if digests != published and is_free:
                    await asyncio.to_thread(publish_programs, self.catalog, approved)
                    published = digests
            except Exception:  # any store may fail in its own way, and be back the next time
                _log.debug("Saved programs cannot be read.", exc_info=True)
            await asyncio.sleep(HINTS_LOOK_SECONDS)

    async def _watch_requests(self) -> None:
        """Let the model of a client write hints when a person has asked for that."""
        hints = self.scout.hints
        requests = WriteRequests(self.store)
        while hints is not None:
            await asyncio.sleep(HINTS_LOOK_SECONDS)
            sampler = self.subscriptions.find_sampler()
            try:
                if sampler is None:
                    continue
                request = await self.store.run_in_thread(partial(requests.take, self._id))
                if request is not None:
                    await asyncio.sleep(HINTS_LOOK_SECONDS)  # until all claims are written
                    # A client must not read of tools that it may not see, not even this way.
                    tools = [t for t in self.catalog.tools if t.kind == TOOL]
                    seen = sampler.filter_visible(tools)
                    await requests.carry_out(
                        request, hints, seen, sampler.ask_model, find_attack=find_attack
                    )
            except Exception:  # any store may fail in its own way, and be back the next time
                _log.debug("A request for hints was not carried out.", exc_info=True)

    async def reload(self, config: Config) -> None:
        """Take over a configuration, and log which of its options need a restart.

        Raises `UsageError`, and changes nothing, if the rules of access cannot be used.
        """
        self._secrets.update(await asyncio.to_thread(config.list_secrets))
        self._mask.update(self._secrets)
        before = self.config
        if not self.catalog.is_local and name_catalog(before) != name_catalog(config):
            config = replace(config, servers=before.servers)
            _log.warning(
                "[servers] changed; restart the gateway to use them, because its index is in a "
                "database."
            )
        self.config = after = replace(
            config,
            gateway=_keep_started(before.gateway, config.gateway),
            sessions=_keep_started(before.sessions, config.sessions),
        )
        try:
            self.on_access(after.gateway)
        except ToolscoutError:
            self.config = before
            raise
        _log_late("gateway", after.gateway, config.gateway)
        _log_late("sessions", after.sessions, config.sessions)
        self.events.emit(Reloaded.from_configs(before, after))
        self._publish_version()
        if self._audit is not None:
            self._audit.with_arguments = after.gateway.audit_arguments
            self._audit.with_queries = after.gateway.audit_queries
        settings = _build_settings(after)
        if settings != self.scout.settings:
            self.scout.change_settings(settings)
        self.subscriptions.follow(after)
        await self.pool.reload(after.servers, queue=after.gateway.queue)

    def restrict_session(self, session: Session, principal: Principal) -> None:
        """Let a session see and call from now on what its principal may see and call."""
        session.restrict(self._build_policy(principal))
        self.subscriptions.restrict(session)

    def open_session(
        self, client: str, principal: Principal = ANONYMOUS, *, folder: str = ""
    ) -> Session:
        """Return the session of a client, which sees and calls what its principal may.

        `folder` is where the client was started, if that is known. This may read from the store,
        so an event loop should call it in a thread.
        """
        policy = self._build_policy(principal)
        name = "" if principal is ANONYMOUS else principal.name
        session = self.scout.session(client, allowed=policy.allowed, principal=name)
        if self.config.gateway.rules:
            session.restrict(policy)
        if folder:
            self._folders[session] = self.pool.folder = folder
        return session

    def end_session(self, client: str) -> None:
        """Forget the session of a client, and end the servers that only it uses; in a thread."""

        def is_gone(owner: Caller) -> bool:
            return owner.session == client

        self.scout.forget(client)
        self._loop.call_soon_threadsafe(self.pool.end_owned, is_gone)

    def identify(self, session: Session, context: Context) -> Caller:
        """Return on whose behalf a request is made."""
        return Caller(
            principal=read_principal_name(context.request),
            session=session.id,
            folder=self._folders.get(session, ""),
        )

    def _build_policy(self, principal: Principal) -> Policy:
        """Return what a principal may see and call, by its profile and the rules."""
        policy = self.scout.policy
        profile = principal.profile
        if profile is not None:
            policy = policy.narrow(filter_for(profile))
        if not self.config.gateway.rules:
            return policy
        rules = CallerRules(self.config.gateway.rules, principal.name, principal.profile_name)
        policy = policy.narrow(lambda tool: not rules.is_denied(tool))
        return replace(policy, permit=partial(self._decide, rules))

    async def _decide(self, rules: CallerRules, tool: Tool, arguments: Json) -> Decision:
        """Return the host's answer to a call, or what the first rule that matches it says."""
        decision = await self.scout.policy.decide(tool, arguments)
        found = rules.find(tool, arguments)
        if decision.permission is not Permission.ALLOW or found is None:
            return decision
        name, rule = found
        return Decision(permission=rule.permission, rule=name, reason=rule.reason)

    def has_growing_list(self, context: Context) -> bool:
        """Tell whether the tools that a client finds are added to its list of tools.

        MCP 2026-07-28 forbids lists that change as a side effect, so only older clients have one.
        """
        is_older = context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        return is_older and self.config.gateway.mode is GatewayMode.DYNAMIC

    def list_tools(
        self, session: Session, *, grows: bool = False, has_apps: bool = False
    ) -> list[Json]:
        """Return the definitions for `tools/list`; with `grows`, those of found tools follow.

        Clients that show apps get the tools that only apps may call, and hide them from the model.
        """
        if self.is_direct(session):
            visible = [tool for tool in session.list_visible() if tool.kind in (TOOL, SKILL)]
            listed = map(self._define, (*visible, *session.list_for_apps()))
            return [*listed, *self._define_programs()]
        meta_tools = build_meta_tools(session.get_listing(), runs_calls=True)
        meta = [to_definition(tool, Dialect.MCP) for tool in meta_tools]
        if self.config.gateway.split_calls:
            meta = [*meta[:2], *(_build_variant(meta[2], name) for name in VARIANTS)]
        meta += self._define_programs()
        own = filter(None, map(self.catalog.get, _list_own_names(session, grows=grows)))
        known = {tool.name: tool for tool in own if tool.kind in (TOOL, SKILL)}
        known |= {tool.name: tool for tool in session.list_for_apps() if has_apps}
        return [*meta, *map(self._define, known.values())]

    def _define(self, tool: Tool) -> Json:
        """Return the definition of a server's tool, with addresses that the client can read."""
        to_address = partial(self.resources.to_gateway_uri, tool.server)
        return rewrite_addresses(to_definition(tool, Dialect.MCP), to_address)

    async def call(
        self, session: Session, context: Context, params: types.CallToolRequestParams
    ) -> Json:
        """Answer `tools/call`: a meta-tool, or any permitted tool by its own name.

        A call that takes long goes on as a task if its client supports tasks.
        """
        config = self.config.gateway
        is_search = to_meta_name(params.name) in (SEARCH, DESCRIBE)
        if is_search or not self._has_tasks(context):
            return await self._call(session, context, params)
        asked = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        work = partial(self._call, session, context, params)
        return await self.tasks.run(session.id, asked, work, config.task_seconds, config.max_calls)

    async def get_task(self, session: Session, context: Context, params: TaskParams) -> Json:
        """Answer `tasks/get`."""
        self._check_tasks(context)

        def resume(stored: StoredTask) -> Work:
            asked = types.CallToolRequestParams.model_validate(stored.call, by_name=False)
            return partial(self._call, session, context, asked, upstream=stored.upstream)

        return await self.tasks.get(session.id, params.task_id, resume)

    async def update_task(
        self, session: Session, context: Context, params: TaskUpdateParams
    ) -> Json:
        """Answer `tasks/update`."""
        self._check_tasks(context)
        await self.tasks.update(session.id, params.task_id, params.input_responses)
        return {}

    async def cancel_task(self, session: Session, context: Context, params: TaskParams) -> Json:
        """Answer `tasks/cancel`."""
        self._check_tasks(context)
        await self.tasks.cancel(session.id, params.task_id)
        return {}

    def _has_tasks(self, context: Context) -> bool:
        """Tell whether a call of a client may be answered with a task."""
        declared = context.session.client_capabilities
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        is_declared = declared is not None and TASKS in (declared.extensions or ())
        return is_modern and is_declared and self.config.gateway.task_seconds > 0

    def _check_tasks(self, context: Context) -> None:
        """Raise `MCPError` for a client that asks about a task and cannot have any."""
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found")
        if not self._has_tasks(context):
            raise MCPError(
                code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                message=TASKS_NOT_DECLARED,
                data={"requiredCapabilities": {"extensions": {TASKS: {}}}},
            )

    async def _call(
        self,
        session: Session,
        context: Context,
        params: types.CallToolRequestParams,
        task: RunningTask | None = None,
        *,
        upstream: Json | None = None,
    ) -> Json:
        name = params.name
        arguments = params.arguments
        is_direct = await session.run_locked(partial(self.is_direct, session))
        session.offer_meta_tools(not is_direct)
        has_variants = self.config.gateway.split_calls and not is_direct
        asked = CALL if has_variants and name in VARIANTS else name
        if find_meta_tool(self.catalog, asked) == CALL:
            calls, notes = _read_several(arguments)
            if calls:
                variant = name if has_variants else ""
                return await self._call_each(session, context, params, calls, notes, variant, task)
        if find_meta_tool(self.catalog, asked) == RUN:
            return await self._run_program(session, context, params, asked, task)
        if has_variants:
            check = partial(self._check_variant, session, context, name, arguments)
            error = await session.run_locked(check)
            if error is not None:
                return result_from_reply(_refuse(session, error))
        name = asked
        if self.catalog.state(SAVED_SERVER) is not None:
            find = partial(session.find_target, name, arguments)
            tool, _ = await session.run_locked(find)
            if tool is not None and isinstance(tool.function, SavedProgram):
                return await self._run_program(session, context, params, name, task)
        if to_meta_name(name) == SEARCH:
            await self._wait_for_listings(session)
        forwarded = self.forward(session, context, params, task, upstream=upstream)
        handle = partial(
            session.handle,
            name,
            arguments,
            executor=forwarded,
            confirm=forwarded.confirm,
            **self._build_parts(session, context, params),
        )
        reply = await handle()
        if reply.code == ToolChanged.code and self.pool.hears_changes:
            # Another gateway may have shown the new definition a moment ago.
            self._stale.add(session.id)
            await self.refresh_session(session)
            reply = await handle()
        is_stored = await self.store.wait_written(SESSION_KIND, session.id)
        if reply.references and self.has_growing_list(context):
            await context.session.send_tool_list_changed()
        if reply.code == UnknownTool.code:
            reply = self._explain_unknown(session, _read_called_name(name, arguments), reply)
        return mark_stored(forwarded.build_result(reply), is_stored=is_stored)

    async def _run_program(
        self,
        session: Session,
        context: Context,
        params: types.CallToolRequestParams,
        name: str,
        task: RunningTask | None,
    ) -> Json:
        """Answer `tool_run`, or a call of a saved program.

        Each call of the program is forwarded like one of several calls.
        """
        await self._wait_for_listings(session)  # whose functions the program may use

        async def work(relay: Relay) -> Json:
            parts = self._build_parts(session, context, params, relay)
            confirm = self.forward(session, context, asked, is_alone=False, relay=relay).confirm
            reply = await session.handle(name, params.arguments, confirm=confirm, **parts)
            is_stored = await self.store.wait_written(SESSION_KIND, session.id)
            if reply.references and self.has_growing_list(context):
                await context.session.send_tool_list_changed()
            return mark_stored(result_from_reply(reply), is_stored=is_stored)

        asked = params.model_copy(update={"request_state": None, "input_responses": None})
        whole = self.forward(session, context, params)
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return await work(whole)  # such a client can be asked while its request is open
        key = CallKey(session=session.id, tool=name, arguments=params.arguments or {})
        state, answers = params.request_state, params.input_responses
        while True:
            try:
                result = await self.pending_calls.run(
                    key,
                    work,
                    relay=whole,
                    abilities=context.session.client_capabilities,
                    state=state,
                    answers=answers,
                    seconds=self.config.gateway.answer_seconds,
                )
            except NotPending as error:
                return result_from_reply(_refuse(session, error))
            is_question = result.get("resultType") == INPUT_REQUIRED
            if not is_question or task is None or not task.is_detached:
                return result
            wanted = types.InputRequiredResult.model_validate(result, by_name=False)
            state = wanted.request_state
            seconds = self.config.gateway.answer_seconds
            answers = await task.ask(wanted.input_requests or {}, seconds)

    def _build_parts(
        self,
        session: Session,
        context: Context,
        params: types.CallToolRequestParams,
        relay: Relay | None = None,
    ) -> ProgramParts:
        """Return how the calls of a program are made; the relay is asked what they ask."""

        def forward() -> tuple[ForwardedCall, Confirm]:
            # An answer to a question is for the program, which waits, and not for a server.
            update = {"request_state": None, "input_responses": None}
            asked = params.model_copy(update=update)
            forwarded = self.forward(session, context, asked, is_alone=False, relay=relay)
            return forwarded, forwarded.confirm

        return {
            "forward": forward,
            "programs": self._choose_programs(),
            "take_slots": partial(self.take_slots, read_principal_name(context.request)),
        }

    def _define_programs(self) -> list[Json]:
        """Return the definition of `tool_run` where programs are enabled."""
        programs = self._choose_programs()
        if not programs.enabled:
            return []
        return [to_definition(build_run_tool(programs.effects), Dialect.MCP)]

    def _choose_programs(self) -> Programs:
        """Return the options of programs, which only read where clients have rules by effect.

        A client's rules for `tool_write` and `tool_destroy` must hold for every way to call a tool.
        """
        programs = self.config.sessions.programs
        if self.config.gateway.split_calls:
            return replace(programs, effects=ProgramEffects.READ)
        return programs

    async def _call_each(
        self,
        session: Session,
        context: Context,
        params: types.CallToolRequestParams,
        calls: Sequence[CallRequest],
        notes: Sequence[str],
        variant: str,
        task: RunningTask | None,
    ) -> Json:
        """Answer a `tool_call` of several tools, or such a call of a variant of it.

        They may all become one task; then nobody hears how many have ended.
        """
        # An answer to a question belongs to a call that was made alone.
        update = {"request_state": None, "input_responses": None}
        params = params.model_copy(update=update)
        forwarded = [self.forward(session, context, params, is_alone=False) for _ in calls]
        done = 0

        async def make(call: CallRequest, forward: ForwardedCall, sharing: int) -> Reply:
            nonlocal done
            given = call.to_json()
            check = partial(self._check_variant, session, context, variant, given)
            error = await session.run_locked(check) if variant else None
            if error is not None:
                reply = _refuse(session, error)
            else:
                reply = await session.call(
                    call.name,
                    call.arguments,
                    executor=forward,
                    confirm=forward.confirm,
                    pick=call.pick,
                    sharing=sharing,
                    parts=self._build_parts(session, context, params),
                )
                if reply.code == UnknownTool.code:
                    reply = self._explain_unknown(session, call.name, reply)
            done += 1
            if task is None or not task.is_detached:
                await forward.report_done(done, len(calls))
            return reply

        made = [partial(make, *pair) for pair in zip(calls, forwarded, strict=True)]
        with self.take_slots(read_principal_name(context.request), len(calls) - 1) as more:
            replies = await session.call_each(made, at_once=1 + more)
        is_stored = await self.store.wait_written(SESSION_KIND, session.id)
        if any(reply.references for reply in replies) and self.has_growing_list(context):
            await context.session.send_tool_list_changed()
        results = [f.build_result(reply) for f, reply in zip(forwarded, replies, strict=True)]
        joined = join_results([call.name for call in calls], replies, results, notes)
        return mark_stored(joined, is_stored=is_stored)

    def _check_variant(
        self, session: Session, context: Context, name: str, arguments: object
    ) -> WrongVariant | None:
        """Return an error that names the variant to use, or None if the call may be made as it is.

        A client's rules for the variants must hold for every way to call a tool. A tool that is
        listed by its own name is there for rules of its own.
        """
        asked = CALL if name in VARIANTS else name
        if find_meta_tool(self.catalog, asked) in (SEARCH, DESCRIBE, RUN):
            return None  # programs only read where there are variants
        tool, _ = session.find_target(asked, arguments)
        if tool is None or tool.is_for_apps or tool.effect in VARIANTS.get(name, ()):
            return None
        if name in _list_own_names(session, grows=self.has_growing_list(context)):
            return None
        right = next(variant for variant, effects in VARIANTS.items() if tool.effect in effects)
        called = _read_called_name(asked, arguments)
        return WrongVariant(json.dumps(called), tool.effect.value, right)

    async def _wait_for_listings(self, session: Session) -> None:
        """Give servers that start for the first time some seconds before a first search."""
        now = asyncio.get_running_loop().time()
        until = self._first_searches.setdefault(
            session, now + self.config.gateway.first_search_seconds
        )
        if now < until:
            await self.pool.wait_for_listings(until, session.policy.sees_some)

    async def record_read(self, session: Session, name: str, answer: Awaitable[Json]) -> Json:
        """Return the answer to a client that reads a resource or a prompt, and report it."""
        started = time.perf_counter()
        outcome = "failed"
        try:
            result = await answer
            outcome = "ok"
            return result
        except MCPError as error:
            outcome = "refused" if error.code == types.INVALID_PARAMS else "failed"
            raise
        finally:
            self.events.emit(
                EntryRead(
                    session=session.id,
                    name=name,
                    outcome=outcome,
                    milliseconds=(time.perf_counter() - started) * 1000,
                )
            )

    def forward(
        self,
        session: Session,
        context: Context,
        params: types.InputResponseRequestParams,
        task: RunningTask | None = None,
        *,
        upstream: Json | None = None,
        is_alone: bool = True,
        relay: Relay | None = None,
    ) -> ForwardedCall:
        """Return the executor of one request at its server, or of one call of several in it.

        Questions of the call go to the relay, if there is one.
        """
        return ForwardedCall(
            self.pool,
            context,
            params,
            caller=self.identify(session, context),
            approvals=self.approvals,
            pending_calls=self.pending_calls,
            seconds=self.config.gateway.answer_seconds,
            login_page=self._find_page(context, self.login_path),
            waiting_page=self._find_page(context, self.waiting_path),
            sees=partial(self.resources.sees, session),
            to_address=self.resources.to_gateway_uri,
            is_alone=is_alone,
            relay=relay,
            task=task,
            upstream=upstream,
        )

    def _tell_answer(
        self, session: str, tool: Tool, decision: Decision, outcome: str, by: str
    ) -> None:
        self.events.emit(
            ApprovalAnswered(
                session=session,
                tool=tool.name,
                server=tool.server,
                rule=decision.rule,
                outcome=outcome,
                by=by,
            )
        )

    def _find_page(self, context: Context, path: str) -> str:
        if context.request is None or not path:
            return ""
        address = find_address(self.config.gateway.public_url, context.request.scope)
        return f"{address}{path}"

    def is_direct(self, session: Session) -> bool:
        """Tell whether a client lists all tools instead of the meta-tools."""
        mode = self.config.gateway.mode
        if mode is GatewayMode.AUTO:
            return len(session.list_visible()) <= self.config.sessions.auto_tools
        return mode is GatewayMode.DIRECT

    def _explain_unknown(self, session: Session, called: object, reply: Reply) -> Reply:
        """Replace the reply if the tool is unknown because its server is not available."""
        server = self._find_server(str(called))
        if server is None or server.phase not in _ABSENT:
            return reply
        # A server that stopped because it was idle is fine, and its tools are known.
        is_idle = server.phase is Phase.STOPPED and not server.is_held
        if is_idle or not session.policy.sees_some(server.name):
            return reply
        state, remedy = _ABSENT[server.phase]
        remedy = remedy.format(server.name)
        return _refuse(session, ServerUnavailable(server.name, state, server.reason, remedy=remedy))

    def _find_server(self, called: str) -> ServerState | None:
        """Return the server that a tool's name begins with; the longest if there are several."""
        text = (
            called[:LONGEST_NAME].strip().casefold().removeprefix("mcp__")
        )  # some clients put it before names
        found: list[str] = []
        for server in self.pool.servers:
            exposed = make_exposed_name(server, "x").removesuffix("__x")
            heads = (server.casefold(), exposed.casefold())
            if any(text.startswith(head + mark) for head in heads for mark in SEPARATORS):
                found.append(server)
        return self.pool.servers[max(found, key=len)] if found else None


def compute_version(config: Config) -> str:
    """Return a short digest of what gateways with one store should have in common."""
    gateway = replace(config.gateway, host="", port=1, cache="")
    servers = [replace(server, withheld=frozenset()) for server in config.servers]
    text = repr((servers, gateway, config.sessions))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]


def name_catalog(config: Config) -> str:
    """Return a digest of all options of the servers of a configuration.

    Gateways whose servers differ may list other tools, so they must not share an index.
    """
    servers = [replace(server, withheld=frozenset()) for server in config.servers]
    text = repr(sorted(servers, key=lambda server: server.name))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _open_catalog(
    config: Config, hints: Hints | None, lock: Lock | None
) -> tuple[Catalog, "PostgresIndex | None"]:
    """Return the catalogue that a configuration asks for, and its index if it is not in memory."""
    if config.gateway.index is IndexPlace.MEMORY:
        return Catalog(), None
    from toolscout.search.postgres import name_schema
    from toolscout.search.postgres_catalog import PostgresCatalog

    encoder = config.sessions.encoder.value
    # What a lock keeps away from this gateway, another one may offer.
    locked = to_canonical_json(lock).decode() if lock is not None else ""
    schema = name_schema(encoder, name_catalog(config), config.sessions.hints.value, locked)
    url = config.gateway.resolve_store()
    catalog = PostgresCatalog(url, schema=schema, encoder=encoder, hints=hints)
    return catalog, catalog.index


def _build_settings(config: Config) -> Settings:
    """Return the settings of a gateway's sessions."""
    return replace(
        config.sessions,
        calls_by_name=True,
        shared=True,
        result_tokens=config.gateway.max_result_tokens,
        call_seconds=LONGEST_SECONDS,  # every server has a limit of its own
    )


def _keep_started(old: _Group, new: _Group) -> _Group:
    """Return new options, but with the old values of those that take effect at a start."""
    late = [declared.name for declared in old.list_changes(new) if declared.needs_restart]
    return replace(cast("Any", new), **{name: getattr(old, name) for name in late})


def _log_late(table: str, used: _Group, wanted: _Group) -> None:
    """Log the options that the gateway follows only after a restart."""
    names = [declared.name for declared in used.list_changes(wanted)]
    if names:
        text = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        use = "them" if len(names) > 1 else "it"
        _log.warning("[%s] %s changed; restart the gateway to use %s.", table, text, use)


def _list_own_names(session: Session, *, grows: bool) -> list[str]:
    """Return the tools that are listed besides the meta-tools."""
    return [*session.pinned, *(session.loaded if grows else ())]


def _refuse(session: Session, error: ModelError | UpstreamError) -> Reply:
    return refuse(error, code=error.code, budget=session.settings.describe_tokens)


def _run_afterwards(work: Callable[[], None]) -> None:
    """Run work once an answer over HTTP is sent, which takes the event loop two turns at most.

    In a thread without an event loop no client is waiting, so the work runs at once.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        work()
    else:
        loop.call_soon(loop.call_soon, work)


def _read_several(arguments: object) -> tuple[tuple[CallRequest, ...], tuple[str, ...]]:
    """Return the calls of a `tool_call` and notes on them, nothing if it is a single one."""
    if is_object(arguments) and "calls" in arguments:
        with contextlib.suppress(ModelError):  # which the session reports
            calls, notes = read_calls(arguments)
            return (calls, notes) if len(calls) > 1 else ((), ())
    return (), ()


def _is_secret(mask: SecretMask, name: str) -> bool:
    """Tell whether a name contains a secret of the configuration, or what looks like one."""
    return mask.apply(name) != name or redact_text(name, SecretKind) != name


def _take_all(caller: str, wanted: int) -> AbstractContextManager[int]:
    """Let a request make all its calls at once, where nothing limits them."""
    return contextlib.nullcontext(wanted)


def _read_called_name(name: str, arguments: object) -> object:
    """Return the name of the tool that a request calls; None if `tool_call` names none."""
    if to_meta_name(name) != CALL:
        return name
    with contextlib.suppress(ModelError):
        return read_calls(arguments)[0][0].name
    return None


def _build_variant(definition: Json, name: str) -> Json:
    annotations = {
        "readOnlyHint": name == "tool_read",
        "destructiveHint": name == "tool_destroy",
    }
    text = f"{CALL_VARIANTS[name]} {definition['description']}"
    return {**definition, "name": name, "description": text, "annotations": annotations}


def filter_for(profile: Profile) -> Callable[[Tool], bool]:
    """Return a predicate for the tools that a profile admits."""
    return lambda tool: profile.admits(tool.server, tool.name, tool.effect)
