"""`ForwardedCall`: one call on its way to a server and back.

It runs a tool, reads a resource or gets a prompt at the server and keeps the server's answer.
Meanwhile it passes progress, questions and log messages on to the client that made the call.
Clients that cannot be asked during a call are left to `pending`.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.uri_template import UriTemplate
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from toolscout.gateway.pending import (
    INPUT_REQUIRED,
    CallKey,
    ClientRequest,
    PendingCalls,
    check_abilities,
)
from toolscout.schemas import Json
from toolscout.servers.connection import Relay, call_failed_from_error
from toolscout.servers.manifest import PROMPT, RESOURCE, TEMPLATE
from toolscout.servers.pool import Pool
from toolscout.sessions.replies import Reply
from toolscout.tools import Tool

Context = ServerRequestContext[Any, Any]

ROUNDS = 10
"""How often a newer server may ask an older client for input during one call."""

_OWN_META = ("progressToken", "progress_token")
_RESULTS: dict[type[Any], type[Any]] = {
    types.CreateMessageRequest: types.CreateMessageResult,
    types.ElicitRequest: types.ElicitResult,
    types.ListRootsRequest: types.ListRootsResult,
}


class ForwardedCall:
    """Executes one call at its server.

    `seconds` is how long the client may take for each answer.
    """

    def __init__(
        self,
        pool: Pool,
        context: Context,
        params: types.InputResponseRequestParams,
        *,
        session: str,
        pending_calls: PendingCalls,
        seconds: float,
    ) -> None:
        self.raw: Json | None = None
        """The server's answer, unchanged."""
        self._pool = pool
        self._context = context
        self._params = params
        self._session = session
        self._pending_calls = pending_calls
        self._seconds = seconds

    async def __call__(self, tool: Tool, arguments: Json) -> object:
        """Run a tool, and store the server's answer in `raw`."""
        method, params = _REQUESTS.get(tool.kind, _build_tool_request)(tool, arguments)
        try:
            self.raw = await self.ask(tool.server, method, params, called=tool.name)
        except MCPError as error:
            raise call_failed_from_error(tool.name, error) from error
        if self.raw.get("resultType") == INPUT_REQUIRED:
            return {"content": []}  # there is no result yet that could be cut or paged
        reader = _READERS.get(tool.kind)
        return self.raw if reader is None else reader(self.raw)

    async def ask(self, server: str, method: str, params: Json, *, called: str) -> Json:
        """Send a client's request to a server; return the answer, or the questions that precede it.

        `called` is the name or address that the client uses.
        """
        asked = self._params
        if not self._may_suspend(server):
            return await self._request(server, method, params, self)
        return await self._pending_calls.run(
            CallKey(session=self._session, tool=called, arguments=params),
            ClientRequest(
                relay=self,
                abilities=self._context.session.client_capabilities,
                state=asked.request_state,
                answers=asked.input_responses,
            ),
            lambda relay: self._request(server, method, params, relay),
            seconds=self._seconds,
        )

    def _may_suspend(self, server: str) -> bool:
        """Tell whether the server may ask for input that the client can only give in a new call."""
        if not self._is_modern:
            return False
        abilities = self._context.session.client_capabilities
        can_answer = abilities is not None and (
            abilities.sampling or abilities.elicitation or abilities.roots
        )
        if self._params.request_state is None and not can_answer:
            return False
        member = self._pool.servers.get(server)
        manifest = member.manifest if member is not None else None
        return manifest is not None and manifest.protocol in HANDSHAKE_PROTOCOL_VERSIONS

    async def _request(self, server: str, method: str, params: Json, relay: Relay) -> Json:
        params = {**params, **self._build_extra_params()}
        raw = await self._pool.request(server, method, params, relay)
        if raw.get("resultType") != INPUT_REQUIRED or self._is_modern:
            return raw
        return await self._answer_questions(raw, server, method, params)

    async def _answer_questions(self, raw: Json, server: str, method: str, params: Json) -> Json:
        """Ask a handshake-era client for the input that a newer server wants; repeat the call."""
        for _ in range(ROUNDS):
            params |= await self._collect_answers(raw)
            raw = await self._pool.request(server, method, params, self)
            if raw.get("resultType") != INPUT_REQUIRED:
                return raw
        text = f"The server asked for more input after {ROUNDS} answers"
        raise MCPError(code=types.INTERNAL_ERROR, message=text)

    async def _collect_answers(self, raw: Json) -> Json:
        wanted = types.InputRequiredResult.model_validate(raw, by_name=False)
        answers: Json = {}
        for key, request in (wanted.input_requests or {}).items():
            answer = await self._ask_client(request, _RESULTS[type(request)])
            if isinstance(answer, types.ErrorData):
                raise MCPError(code=answer.code, message=answer.message)
            answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        state = {} if wanted.request_state is None else {"requestState": wanted.request_state}
        return {"inputResponses": answers} | state

    @property
    def _is_modern(self) -> bool:
        return self._context.protocol_version in MODERN_PROTOCOL_VERSIONS

    def build_result(self, reply: Reply) -> Json:
        """Return the result for the client: the server's own answer wherever that is possible."""
        raw = self.raw
        details = reply.details
        if raw is None or reply.code not in ("ok", "tool_error") or details.get("handle"):
            return result_from_reply(reply)
        if raw.get("resultType") == INPUT_REQUIRED:
            return raw
        if "content" not in raw:
            return result_from_reply(reply)
        repairs = [{"type": "text", "text": f"({text})"} for text in details.get("repairs", ())]
        return {**raw, "content": [*repairs, *raw["content"]]} if repairs else raw

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
        return params | ({"_meta": meta} if meta else {})

    # The methods of `Relay`, which the server's requests and notifications arrive at.

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Pass progress on to the client."""
        await self._context.session.report_progress(progress, total, message)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Pass a log message on to the client."""
        note = types.LoggingMessageNotification(params=params)
        await self._context.session.send_notification(note, self._context.request_id)

    async def sample(self, params: types.CreateMessageRequestParams) -> Any:
        """Have the client's model complete a message."""
        return await self._ask_client(
            types.CreateMessageRequest(params=params), types.CreateMessageResult
        )

    async def elicit(self, params: types.ElicitRequestParams) -> Any:
        """Ask the client's user."""
        return await self._ask_client(types.ElicitRequest(params=params), types.ElicitResult)

    async def list_roots(self) -> Any:
        """Ask for the client's roots."""
        return await self._ask_client(types.ListRootsRequest(), types.ListRootsResult)

    async def _ask_client(self, request: Any, result: Any) -> Any:
        session = self._context.session
        refusal = check_abilities(request, session.client_capabilities)
        if refusal is not None:
            return refusal
        # Over HTTP, a request that names the call travels on the call's own stream.
        metadata = ServerMessageMetadata(related_request_id=self._context.request_id)
        try:
            async with asyncio.timeout(self._seconds):
                return await session.send_request(request, result, metadata=metadata)
        except TimeoutError:
            text = f"The client has not answered within {self._seconds:g} s."
            return types.ErrorData(code=types.INTERNAL_ERROR, message=text)
        except MCPError as error:
            return error.error


def result_from_reply(reply: Reply) -> Json:
    """Return a reply as an MCP result."""
    result = reply.to_message("mcp")
    result["_meta"] = {"toolscout/code": reply.code}
    return result


def _build_tool_request(tool: Tool, arguments: Json) -> tuple[str, Json]:
    leaf = tool.extras.get("leaf", tool.leaf)
    return "tools/call", {"name": leaf, "arguments": arguments}


def _build_resource_request(tool: Tool, arguments: Json) -> tuple[str, Json]:
    return "resources/read", {"uri": tool.extras["uri"]}


def _build_template_request(tool: Tool, arguments: Json) -> tuple[str, Json]:
    template = UriTemplate.parse(tool.extras["uriTemplate"])
    return "resources/read", {"uri": template.expand(arguments)}


def _build_prompt_request(tool: Tool, arguments: Json) -> tuple[str, Json]:
    return "prompts/get", {"name": tool.extras["prompt"], "arguments": arguments}


def _from_resource(raw: Json) -> object:
    blocks = [{"type": "resource", "resource": entry} for entry in raw.get("contents", ())]
    return {"content": blocks}


def _from_prompt(raw: Json) -> object:
    blocks: list[Json] = []
    for message in raw.get("messages", ()):
        content = message.get("content")
        blocks += content if isinstance(content, list) else [content]
    return {"content": blocks}


_REQUESTS: dict[str, Callable[[Tool, Json], tuple[str, Json]]] = {
    RESOURCE: _build_resource_request,
    TEMPLATE: _build_template_request,
    PROMPT: _build_prompt_request,
}
_READERS: dict[str, Callable[[Json], object]] = {
    RESOURCE: _from_resource,
    TEMPLATE: _from_resource,
    PROMPT: _from_prompt,
}
