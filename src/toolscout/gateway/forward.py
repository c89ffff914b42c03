"""`ForwardedCall`: one call on its way to a server and back.

It runs a tool, reads a resource or gets a prompt at the server and keeps the server's answer.
Meanwhile it passes progress, questions and log messages on to the client that made the call.
Clients that cannot be asked during a call are left to `pending`.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from operator import is_not
from typing import Any
from urllib.parse import urlencode

import mcp_types as types
from mcp.server.connection import allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.uri_template import UriTemplate
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from toolscout.config.servers import Login
from toolscout.errors import (
    ApprovalNeeded,
    CallFailed,
    LoginRequired,
    NotAllowed,
    ToolHeld,
    ToolscoutError,
)
from toolscout.gateway.pending import (
    DENIED,
    RESULT_TYPES,
    SCOPES,
    ApprovalRequest,
    CallApprovals,
    CallKey,
    PendingCalls,
    Work,
    build_question,
    check_abilities,
    digest_call,
    format_arguments,
)
from toolscout.gateway.tasks import RunningTask
from toolscout.names import digest_session
from toolscout.policies import Decision, Permission
from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.connection import (
    CANCEL_TASK,
    INPUT_REQUIRED,
    USUAL_POLL_SECONDS,
    Relay,
    build_call,
    call_failed_from_error,
    find_task,
    follow_task,
)
from toolscout.servers.manifest import PROMPT, RESOURCE, TEMPLATE
from toolscout.servers.pool import Pool
from toolscout.servers.state import Caller
from toolscout.sessions.replies import Reply, choose_code, label_replies
from toolscout.sessions.session import Session
from toolscout.sessions.texts import (
    CALL_ALONE,
    ENDLESS_QUESTIONS,
    LOGIN_QUESTION,
    NOT_ANSWERED,
    SKILL_ASKS,
    USER_DECLINED,
)
from toolscout.skills.skill import SKILL, find_file, render_read, verify_read
from toolscout.tools import APP_KEYS, APP_URI, Tool

Context = ServerRequestContext[Any, Any]

ROUNDS = 10
"""How often a newer server may ask an older client for input during one call."""
ID_BYTES = 16
UNREAD_MAX = 16
"""Progress and log messages of one call that wait until the client reads; more are dropped."""

APPROVAL = "approval"
"""The key of the question whether a call may be made."""
CLIENT_USER = "the client's user"
LINKS_LIMIT = 100
"""Resources in a cut result whose addresses are kept."""
CANCEL_SECONDS = 5.0
"""How long a server may take to hear that its task was cancelled."""
HANDSHAKE_LOG_LEVEL = "info"
"""Earlier clients do not say with a call which log messages they want."""

STORED = "toolscout/stored"
"""False in the `_meta` of a result whose session is not stored yet."""

_OWN_META = ("progressToken", "progress_token")


class ForwardedCall:
    """Executes one call at its server; the client may take `seconds` for each answer.

    `sees` tells whether the client may read a resource of a server, and `to_address` returns the
    address by which it does.
    """

    def __init__(
        self,
        pool: Pool,
        context: Context,
        params: types.InputResponseRequestParams,
        *,
        caller: Caller,
        approvals: CallApprovals,
        pending_calls: PendingCalls,
        seconds: float,
        sees: Callable[[str, str], bool],
        to_address: Callable[[str, str], str],
        login_page: str = "",
        waiting_page: str = "",
        is_alone: bool = True,
        relay: Relay | None = None,
        task: RunningTask | None = None,
        upstream: Json | None = None,
    ) -> None:
        """`login_page` is where the client's user logs in to servers.

        `waiting_page` is where a person decides about waiting calls. Either is empty if there is
        no such page. A call that `is_alone` in its request may be answered with a question; others
        would be made twice if the client repeated the request. A `relay` is asked instead of the
        client where something else than the call waits for answers. The call may become a `task`;
        `upstream` is the server's own task for a call that was made before.
        """
        self.raw: Json | None = None
        """The server's answer; only addresses are changed."""
        self._tool: Tool | None = None
        self._verify: Callable[[Json], None] | None = None
        """Compares an answer with what was listed."""
        self._unread = 0
        self._pool = pool
        self._context = context
        self._params = params
        self._session = caller.session
        self._caller = caller
        self._approvals = approvals
        self._may_be_checked = False
        """Whether the client may compare structured content with a schema that it was sent."""
        self._digest = ""
        self._question: Json | None = None
        """What the client has to answer before the call is made."""
        self._pending_calls = pending_calls
        self._seconds = seconds
        self._sees = sees
        self._to_address = to_address
        self._login_page = login_page
        self._waiting_page = waiting_page
        self._task = task
        self._upstream = upstream
        self._is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._is_alone = is_alone
        self._relay = relay
        self._cannot_ask = self._is_modern and not is_alone and relay is None

    async def __call__(self, tool: Tool, arguments: Json) -> object:
        """Run a tool, and store the server's answer in `raw`."""
        self._tool = tool
        if tool.kind == SKILL:
            return await self._read_skill(tool, arguments)
        method, params = _build_request(tool, arguments)
        asked = self._params
        is_own_name = isinstance(asked, types.CallToolRequestParams) and asked.name == tool.name
        self._may_be_checked = is_own_name and tool.output_schema is not None
        # Arguments can make any address of a template, also that of a hidden resource.
        if tool.kind == TEMPLATE and not self._sees(tool.server, params["uri"]):
            raise NotAllowed(tool.name)
        try:
            self.raw = await self.send(tool.server, method, params, called=tool.name)
        except MCPError as error:
            raise call_failed_from_error(tool.name, error) from error
        if self.raw.get("resultType") == INPUT_REQUIRED:
            if not self._is_alone:
                self.raw = None
                raise CallFailed(tool.name, CALL_ALONE)
            return {"content": []}  # there is no result yet that could be cut or paged
        app = tool.app
        if app and method == "tools/call":
            # A client that calls it through `tool_call` has not seen its definition.
            app = _rewrite_meta(app, partial(self._to_address, tool.server))
            self.raw = {**self.raw, "_meta": app | _read_meta(self.raw)}
        return self.raw if method == "tools/call" else _read_content(self.raw)

    async def _read_skill(self, tool: Tool, arguments: Json) -> Json:
        """Return a file of a skill as it was listed; of a folder of the skill, a list of files."""
        uri, listed = find_file(tool, arguments)
        if listed:
            return {"content": [{"type": "text", "text": listed}]}
        self._verify = partial(_verify, tool, uri)
        try:
            raw = await self.send(tool.server, "resources/read", {"uri": uri}, called=tool.name)
        except MCPError as error:
            raise call_failed_from_error(tool.name, error) from error
        if raw.get("resultType") == INPUT_REQUIRED:
            raise CallFailed(tool.name, SKILL_ASKS)
        return render_read(tool, uri, raw)

    async def confirm(self, tool: Tool, arguments: Json, decision: Decision) -> bool:
        """Tell whether a person agreed to a call; ask the client if nobody was asked yet.

        Raises `NotAllowed` if the answer is no, and `ApprovalNeeded` if the client cannot ask.
        """
        if self._upstream is not None:
            return True  # somebody agreed when the call was made
        digest = digest_call(self._caller.principal, self._session, tool, arguments)
        given = self._params
        has_answers = given.input_responses is not None
        is_resumed = has_answers and self._approvals.take_open(digest, given.request_state)
        is_agreed = self._approvals.is_agreed(self._session, tool, decision)
        if not is_resumed and not is_agreed:
            question = build_question(tool, arguments, decision, self._approvals.mask)
            abilities = self._context.session.client_capabilities
            if check_abilities(question, abilities) is not None:
                await self._look_up_approval(digest, tool, arguments, decision)
            elif self._cannot_ask:
                raise ApprovalNeeded(tool.name, rule=decision.rule, alone=True)
            elif self._is_modern and not self._is_detached and self._relay is None:
                if not self._approvals.take_state(self._params.request_state, digest):
                    self._question = _build_input_required(
                        question, self._approvals.add_state(digest)
                    )
                    return False
                answers = self._params.input_responses or {}
                self._read_approval(answers.get(APPROVAL), tool, decision)
                # The rest is for the server, which has not asked anything yet.
                update = {"request_state": None, "input_responses": None}
                self._params = self._params.model_copy(update=update)
            else:
                self._read_approval(await self.ask(question), tool, decision)
        self._digest = digest
        return True

    async def read_entry(
        self, session: Session, tool: Tool, arguments: Json, method: str, params: Json, called: str
    ) -> Json:
        """Read a resource or get a prompt as `send` does, if the rules permit it.

        `tool` is its entry in the catalogue. Raises `NotAllowed`, or `ApprovalNeeded` if the client
        cannot ask.
        """
        decision = await session.policy.decide(tool, arguments)
        if decision.permission is Permission.ASK:
            if not await self.confirm(tool, arguments, decision) and self._question is not None:
                return self._question
            decision = await session.policy.decide(tool, arguments)
        # While a person is asked, rules may change.
        uri = params.get("uri")
        is_seen = self._sees(tool.server, uri) if uri else session.policy.sees(tool)
        if decision.permission is Permission.DENY or not is_seen:
            raise NotAllowed(tool.name, rule=decision.rule, reason=decision.reason)
        if tool.kind == SKILL and uri:
            self._verify = partial(_verify, tool, uri)
        raw = await self.send(tool.server, method, params, called=called)
        self._keep_approval(raw)
        return raw

    def _read_approval(self, answer: object, tool: Tool, decision: Decision) -> None:
        said = answer.content if isinstance(answer, types.ElicitResult) else None
        chosen = (said or {}).get("decision")
        is_yes = isinstance(answer, types.ElicitResult) and answer.action == "accept"
        if not is_yes or chosen not in SCOPES:
            self._approvals.tell(self._session, tool, decision, "declined", CLIENT_USER)
            raise NotAllowed(tool.name, rule=decision.rule, reason=USER_DECLINED)
        self._approvals.add(self._session, tool, decision, scope=chosen)
        self._approvals.tell(self._session, tool, decision, f"approved {chosen}", CLIENT_USER)

    async def _look_up_approval(
        self, digest: str, tool: Tool, arguments: Json, decision: Decision
    ) -> None:
        request = ApprovalRequest(
            principal=self._caller.principal,
            session=digest_session(self._session),
            tool=tool.name,
            server=tool.server,
            arguments=format_arguments(arguments, self._approvals.mask),
            rule=decision.rule,
            asked=time.time(),
        )
        found = await asyncio.to_thread(self._approvals.find_stored, digest, request)
        if found.scope == DENIED:
            raise NotAllowed(tool.name, rule=decision.rule, reason=USER_DECLINED)
        if found.scope not in SCOPES:
            raise ApprovalNeeded(
                tool.name, rule=decision.rule, waiting=digest, page=self._waiting_page
            )
        self._approvals.add(self._session, tool, decision, scope=found.scope)
        # Whoever decided has an entry of their own in the audit record.
        self._approvals.tell(self._session, tool, decision, "used", found.by)

    async def send(self, server: str, method: str, params: Json, *, called: str) -> Json:
        """Send a client's request to a server; return the answer, or the questions that precede it.

        `called` is the name or address that the client uses.
        """
        request = partial(self._request, server, method, params)
        key = CallKey(session=self._session, tool=called, arguments=params)
        while True:
            if self._upstream is not None:
                answer = self._upstream
                self._upstream = None
            elif self._may_suspend(server):
                answer = await self._suspend(key, request, self._params.request_state)
            else:
                answer = await request(self)
            task = find_task(answer) if method == "tools/call" else None
            if task is not None:
                if self._task is not None:
                    self._task.note_upstream(answer)
                answer = await self._suspend(key, partial(self._follow, server, task), None)
            if answer.get("resultType") != INPUT_REQUIRED or not self._is_detached:
                return rewrite_addresses(answer, partial(self._to_address, server))
            await self._ask_in_task(answer)

    @property
    def _is_detached(self) -> bool:
        """Whether the client's request has been answered with a task."""
        return self._task is not None and self._task.is_detached

    async def _suspend(self, key: CallKey, work: Work, state: str | None) -> Json:
        """Do work, or go on with it, that may have to wait until the client repeats its call."""
        return await self._pending_calls.run(
            key,
            work,
            relay=self,
            abilities=self._context.session.client_capabilities,
            state=state,
            answers=self._params.input_responses,
            seconds=self._seconds,
        )

    async def _follow(self, server: str, task: Json, relay: Relay) -> Json:
        """Wait for the result of a server's task; if the call is cancelled, so is the task."""
        send = partial(self._pool.request, server, caller=self._caller)
        member = self._pool.servers.get(server)
        idle_stop = member.config.idle_stop if member is not None else 0.0
        # Earlier clients can be asked while their request is open.
        relay = relay if self._is_modern else self
        try:
            return await follow_task(send, task, relay, idle_stop=idle_stop)
        except (asyncio.CancelledError, MCPError):
            if self._task is None or not self._task.is_suspended:
                with contextlib.suppress(MCPError, ToolscoutError, TimeoutError):
                    async with asyncio.timeout(CANCEL_SECONDS):
                        await send(CANCEL_TASK, {"taskId": task["taskId"]})
            raise

    async def _ask_in_task(self, answer: Json) -> None:
        """Ask the client what a server wants to know, and have the answers sent with the call."""
        assert self._task is not None
        wanted = types.InputRequiredResult.model_validate(answer, by_name=False)
        if not wanted.input_requests:  # the server only wants the call again, later
            await asyncio.sleep(USUAL_POLL_SECONDS)
        answers = await self._task.ask(wanted.input_requests or {}, self._seconds)
        update = {"request_state": wanted.request_state, "input_responses": answers}
        self._params = self._params.model_copy(update=update)

    def _may_suspend(self, server: str) -> bool:
        """Tell whether the server may ask for input that the client can only give in a new call."""
        if not self._is_modern or not self._is_alone:
            return False
        abilities = self._context.session.client_capabilities
        can_answer = abilities is not None and (
            abilities.sampling or abilities.elicitation or abilities.roots
        )
        state = self._params.request_state
        if state in self._pending_calls.waiting:
            return True
        if state is None and not can_answer:
            return False
        member = self._pool.servers.get(server)
        if member is None or member.manifest is None:
            return False
        if member.manifest.protocol in HANDSHAKE_PROTOCOL_VERSIONS:
            return True
        # The gateway may have to ask for a login. A state that it did not give is the server's.
        return member.config.login == Login.USER and bool(self._caller.principal) and state is None

    async def _request(self, server: str, method: str, params: Json, relay: Relay) -> Json:
        params = {**params, **self._build_extra_params()}
        send = partial(
            self._pool.request,
            server,
            method,
            params,
            caller=self._caller,
            check=self._check_tool,
            verify=self._verify,
        )
        try:
            raw = await send(relay)
        except LoginRequired as error:
            await self._ask_for_login(error, relay)
            raw = await send(relay)
        if raw.get("resultType") != INPUT_REQUIRED or self._is_modern:
            return raw
        # A newer server wants input that this client cannot send with a call: ask, and repeat it.
        for _ in range(ROUNDS):
            wanted = types.InputRequiredResult.model_validate(raw, by_name=False)
            answers: Json = {}
            for key, request in (wanted.input_requests or {}).items():
                answer = await self.ask(request)
                if isinstance(answer, types.ErrorData):
                    raise MCPError(code=answer.code, message=answer.message)
                answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
            params["inputResponses"] = answers
            if wanted.request_state is not None:
                params["requestState"] = wanted.request_state
            raw = await send(self)
            if raw.get("resultType") != INPUT_REQUIRED:
                return raw
        raise MCPError(code=types.INTERNAL_ERROR, message=ENDLESS_QUESTIONS.format(rounds=ROUNDS))

    def _check_tool(self) -> None:
        """Raise `ToolHeld` if the definition of the tool has changed while the call waited."""
        tool = self._tool
        if tool is not None and self._pool.catalog.get_held(tool.name) is not None:
            known = self._pool.catalog.get_known(tool.name)
            if known is None or known.fingerprint != tool.fingerprint:
                raise ToolHeld(tool.name)

    async def _ask_for_login(self, error: LoginRequired, relay: Relay) -> None:
        """Ask the user to log in to a server, and wait for it; raises `LoginRequired` otherwise."""
        if not self._login_page:
            raise error
        page = f"{self._login_page}?{urlencode({'server': error.server})}"
        refusal = LoginRequired(error.server, error.principal, error.command, page)
        if self._is_modern and relay is self:
            raise refusal  # such a client is asked in the answer to a call
        former = await self._pool.read_login(error.server, error.principal)
        text = LOGIN_QUESTION.format(server=error.server)
        asked = types.ElicitRequestURLParams(
            message=text, url=page, elicitation_id=secrets.token_urlsafe(ID_BYTES)
        )
        answer = await relay.ask(types.ElicitRequest(params=asked))
        is_agreed = isinstance(answer, types.ElicitResult) and answer.action == "accept"
        wait = self._pool.wait_for_login
        if not is_agreed or not await wait(error.server, error.principal, former, self._seconds):
            raise refusal

    def build_result(self, reply: Reply) -> Json:
        """Return the result for the client: the server's own answer wherever that is possible."""
        if self._question is not None and reply.code == ApprovalNeeded.code:
            return self._question
        raw = self.raw
        if raw is not None:
            self._keep_approval(raw)
        details = reply.details
        if raw is None or reply.code not in ("ok", "tool_error"):
            return result_from_reply(reply)
        if details.get("picked") or details.get("handle"):
            result = result_from_reply(reply)
            result["_meta"] = _read_meta(raw) | result["_meta"]
            if not details.get("picked"):
                result["content"] += _list_held_links(raw)
                if self._may_be_checked and "structuredContent" in raw:
                    result["structuredContent"] = raw["structuredContent"]
            return result
        if raw.get("resultType") == INPUT_REQUIRED:
            return raw
        if "content" not in raw:
            return result_from_reply(reply)
        repairs = [{"type": "text", "text": f"({text})"} for text in details.get("repairs", ())]
        return {**raw, "content": [*repairs, *raw["content"]]} if repairs else raw

    def _keep_approval(self, raw: Json) -> None:
        """Let the answers to the questions of a server go there without another approval."""
        if raw.get("resultType") == INPUT_REQUIRED and self._digest:
            self._approvals.keep_open(self._digest, raw.get("requestState"))

    def _build_extra_params(self) -> Json:
        """Return the parameters that belong to the call, not to the tool: answers, state, meta."""
        asked = self._params
        params: Json = {}
        if asked.input_responses is not None:
            params |= asked.model_dump(by_alias=True, mode="json", include={"input_responses"})
        if asked.request_state is not None:
            params["requestState"] = asked.request_state
        # Protocol members of `_meta` are valid for one hop only; each hop writes its own.
        meta = {
            key: value
            for key, value in dict(asked.meta or {}).items()
            if not key.startswith("io.modelcontextprotocol/") and key not in _OWN_META
        }
        level = asked.meta.get(types.LOG_LEVEL_META_KEY) if asked.meta else None
        if level is not None or not self._is_modern:
            meta[types.LOG_LEVEL_META_KEY] = level or HANDSHAKE_LOG_LEVEL
        return params | ({"_meta": meta} if meta else {})

    # The methods of `Relay`, which the server's requests and notifications arrive at.

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Pass progress on to the client, unless it reads too slowly.

        Of several calls, each would begin to count anew; `report_done` counts them instead.
        """
        if self._task is not None:
            self._task.note(message or "")
        if self._is_alone and not self._is_detached:
            await self._notify(self._context.session.report_progress(progress, total, message))

    async def report_done(self, done: int, total: int) -> None:
        """Tell the client how many calls of its request have ended."""
        await self._notify(self._context.session.report_progress(done, total, None))

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Pass a log message on, if the client wants such messages and reads fast enough."""
        context = self._context
        if self._is_detached or params.level not in allowed_log_levels(
            context.protocol_version, context.meta
        ):
            return
        note = types.LoggingMessageNotification(params=params)
        await self._notify(context.session.send_notification(note, context.request_id))

    async def _notify(self, sending: Coroutine[Any, Any, None]) -> None:
        if self._unread >= UNREAD_MAX:
            sending.close()
            return
        self._unread += 1
        try:
            await sending
        finally:
            self._unread -= 1

    async def ask(self, request: types.InputRequest) -> Any:
        """Ask the client, and wait for its answer."""
        if self._relay is not None:
            return await self._relay.ask(request)
        session = self._context.session
        refusal = check_abilities(request, session.client_capabilities)
        if self._cannot_ask:
            refusal = types.ErrorData(code=types.INVALID_REQUEST, message=CALL_ALONE)
        if refusal is not None:
            return refusal
        # Over HTTP, a request that names the call travels on the call's own stream.
        metadata = ServerMessageMetadata(related_request_id=self._context.request_id)
        try:
            if self._task is not None and self._task.is_detached:
                return (await self._task.ask({APPROVAL: request}, self._seconds))[APPROVAL]
            async with asyncio.timeout(self._seconds):
                result_type = RESULT_TYPES[type(request)][0]
                return await session.send_request(request, result_type, metadata=metadata)
        except TimeoutError:
            text = NOT_ANSWERED.format(seconds=self._seconds)
            return types.ErrorData(code=types.INTERNAL_ERROR, message=text)
        except MCPError as error:
            return error.error


def _verify(tool: Tool, uri: str, answer: Json) -> None:
    """Raise `SkillChanged` for a file that is not the one that was listed; a question is none."""
    if answer.get("resultType") != INPUT_REQUIRED:
        verify_read(tool, uri, answer)


def _build_input_required(question: types.ElicitRequest, state: str) -> Json:
    asked = question.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {
        "resultType": INPUT_REQUIRED,
        "inputRequests": {APPROVAL: asked},
        "requestState": state,
    }


def result_from_reply(reply: Reply) -> Json:
    """Return a reply as an MCP result."""
    result = reply.to_message("mcp")
    result["_meta"] = {"toolscout/code": reply.code}
    return result


def mark_stored(result: Json, *, is_stored: bool) -> Json:
    """Return a result that says so if the session is not stored yet.

    If the gateway is killed before that, the session is at another gateway what it was before.
    """
    return result if is_stored else {**result, "_meta": _read_meta(result) | {STORED: False}}


def join_results(
    names: Sequence[object], replies: Sequence[Reply], results: Sequence[Json], notes: Sequence[str]
) -> Json:
    """Return the results of several calls as one: their content in order, each with a label."""
    content: list[Json] = []
    rows: list[Json] = []
    for label, reply, result in zip(label_replies(names, replies), replies, results, strict=True):
        blocks: list[Any] = result.get("content") or []
        content.append({"type": "text", "text": label})
        if not any(is_object(block) and block.get("type") == "text" for block in blocks):
            # Structured content has no other place here.
            content.append({"type": "text", "text": reply.text})
        content += blocks
        rows.append({key: value for key, value in result.items() if key != "content"})
    content += [{"type": "text", "text": note} for note in notes]
    meta = {"toolscout/code": choose_code(replies), "toolscout/results": rows}
    failed = {"isError": True} if all(reply.is_error for reply in replies) else {}
    return {"content": content, "_meta": meta} | failed


def _list_held_links(raw: Json) -> list[Json]:
    """Return links to the resources whose text is a part of a result's text."""
    blocks = filter(is_object, raw.get("content") or ())
    held = [block.get("resource") for block in blocks if block.get("type") == "resource"]
    return [
        {"type": "resource_link", "name": part.get("uri")}
        | {key: value for key, value in part.items() if key != "text"}
        for part in held[:LINKS_LIMIT]
        if is_object(part) and "text" in part
    ]


def rewrite_addresses(value: Json, to_address: Callable[[str], str]) -> Json:
    """Return a result or a definition of a server with the addresses that clients can read."""
    change: Json = {}
    for key, rewrite in _REWRITES.items():
        parts: object = value.get(key)
        if is_list(parts):
            changed = [rewrite(part, to_address) for part in parts]
            if any(map(is_not, changed, parts)):
                change[key] = changed
    meta = _read_meta(value)
    if not meta.keys().isdisjoint(APP_KEYS):
        change["_meta"] = _rewrite_meta(meta, to_address)
    return {**value, **change} if change else value


def _rewrite_message(message: Any, to_address: Callable[[str], str]) -> Any:
    content: Any = message.get("content") if is_object(message) else None
    if is_list(content):
        return {**message, "content": [_rewrite_block(block, to_address) for block in content]}
    return {**message, "content": _rewrite_block(content, to_address)} if content else message


def _rewrite_block(block: Any, to_address: Callable[[str], str]) -> Any:
    kind = block.get("type") if is_object(block) else None
    link = block.get("resource") if kind == "resource" else block
    if kind not in ("resource", "resource_link") or not is_object(link):
        return block
    if str(link.get("uri")).startswith(("https://", "http://")):
        return block  # clients fetch it themselves
    changed = _rewrite_link(link, to_address)
    return {**block, "resource": changed} if kind == "resource" else changed


def _rewrite_link(link: Any, to_address: Callable[[str], str]) -> Any:
    if not is_object(link) or not isinstance(link.get("uri"), str):
        return link
    return {**link, "uri": to_address(link["uri"])}


def _rewrite_meta(meta: Json, to_address: Callable[[str], str]) -> Json:
    changed = dict(meta)
    for key in APP_KEYS:
        given: object = meta.get(key)
        if isinstance(given, str):
            changed[key] = to_address(given)
        elif is_object(given) and isinstance(given.get(APP_URI), str):
            changed[key] = {**given, APP_URI: to_address(given[APP_URI])}
    return changed


_REWRITES = {"content": _rewrite_block, "contents": _rewrite_link, "messages": _rewrite_message}
"""How to rewrite each item of the lists that a result may have."""


def _read_meta(members: Json) -> Json:
    meta = members.get("_meta")
    return meta if is_object(meta) else {}


def _build_request(tool: Tool, arguments: Json) -> tuple[str, Json]:
    """Return the method and the parameters that run a tool at its server."""
    extras = tool.extras
    if tool.kind == RESOURCE:
        return "resources/read", {"uri": extras["uri"]}
    if tool.kind == TEMPLATE:
        uri = UriTemplate.parse(extras["uriTemplate"]).expand(arguments)
        return "resources/read", {"uri": uri}
    if tool.kind == PROMPT:
        return "prompts/get", {"name": extras["prompt"], "arguments": arguments}
    return "tools/call", build_call(tool, arguments)


def _read_content(raw: Json) -> Json:
    """Return the content of a resource or a prompt in the form of a tool's result."""
    blocks = [{"type": "resource", "resource": entry} for entry in raw.get("contents", ())]
    for message in raw.get("messages", ()):
        content = message.get("content")
        blocks += content if isinstance(content, list) else [content]
    return {"content": blocks}
