"""LangChain and LangGraph: middleware for `create_agent`, and a retriever for langgraph-bigtool.

`ToolScoutMiddleware` hides an agent's tools from the model and lets a call through once its tool
was found. The session lives in the graph's state under one key, so checkpointers, forks and
subgraphs treat it like the messages. Messages in the state are the same for every provider and
name the tool that is run, so that people are asked about it; only requests take a mode's shape.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NotRequired, cast
from uuid import uuid4

from toolscout import Mode, Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    GROWING,
    SEARCH,
    Admission,
    Capabilities,
    Dialect,
    Json,
    Shown,
    Toolkit,
    choose_mode,
    detect_anthropic,
    detect_openai,
    is_list,
    is_object,
    list_loaded,
    make_exposed_name,
    merge_states,
    meta_tools,
    note_used,
    to_object,
    to_search,
    to_search_output,
)
from toolscout.adapters.anthropic.definitions import GONE
from toolscout.errors import MissingExtra, UsageError

try:
    from langchain.agents.middleware.types import (
        AgentMiddleware,
        AgentState,
        ExtendedModelResponse,
        ModelRequest,
        ModelResponse,
        ToolCallRequest,
    )
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import (
        AIMessage,
        AnyMessage,
        HumanMessage,
        SystemMessage,
        ToolCall,
        ToolMessage,
    )
    from langchain_core.tools import BaseTool, StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.errors import GraphBubbleUp
    from langgraph.types import Command, interrupt
except ModuleNotFoundError as error:
    raise MissingExtra("langchain", extra="langchain") from error

KEY = "toolscout"
"""The session's key in the state, and in what messages carry for it."""
REMEMBERED = 256
"""Sets of tools of which the names are remembered between a request and its calls."""
_UNDEFERRABLE = ("cache_control", "input_examples")

Natives = dict[str, BaseTool]
Loader = Callable[[Any], Iterable[BaseTool]]
Result = ToolMessage | Command[Any]


def merge(before: Json, after: Json) -> Json:
    """Return the state after a step of the graph; calls side by side each add to the same one."""
    if not before or not after or after["step"] > before["step"]:
        return after
    return {**after, "session": merge_states(before["session"], after["session"])}


class ToolScoutState(AgentState[Any]):
    """The agent's state with the session, which may be given and taken like the messages."""

    toolscout: NotRequired[Annotated[dict[str, Any], merge]]


def mode_for(model: BaseChatModel) -> Mode:
    """Return how found tools become callable with a model: what the middleware does by itself.

    A provider that is not known to show tools in mid-conversation gets them at the end of the
    list. That costs cache, but models call what is in the list best.
    """
    mode = choose_mode(_capabilities(model))
    return Mode.NATIVE if mode is Mode.BRIDGE else mode


def _capabilities(model: Any) -> Capabilities:
    # By the very class: those derived from it talk to clouds, in the same words.
    match f"{type(model).__module__.partition('.')[0]}.{type(model).__name__}":
        case "langchain_anthropic.ChatAnthropic":
            return detect_anthropic(str(model.anthropic_api_url))
        case "langchain_openai.ChatOpenAI" if model.use_responses_api:
            return detect_openai(model.model_name, str(model.root_client.base_url))
        case _:
            return GROWING


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One request or call: what it may use, and the state that it started from."""

    toolkit: Toolkit[BaseTool]
    session: Session
    natives: Natives
    before: Json
    tools: str
    """A digest of the names that exist for this request."""

    @property
    def mode(self) -> Mode:
        return self.session.settings.mode

    def state(self) -> Json:
        """Return the state after it."""
        kept = {"mode": str(self.mode), "tools": self.tools, "session": self.session.to_json()}
        return {"step": self.before.get("step", 0) + 1, **kept}

    def target(self, call: ToolCall) -> tuple[Tool | None, object]:
        """Return the tool that a call is for, also through `tool_call`, and what it is given."""
        return self.toolkit.find_target(self.session, call["name"], call["args"])

    def native(self, call: ToolCall) -> tuple[BaseTool | None, str, object]:
        """Return the agent's own tool that a call is for, the name to admit, and arguments."""
        tool, given = self.target(call)
        name = tool.name if tool is not None and call["name"] == CALL else call["name"]
        return self.natives.get(tool.name if tool is not None else ""), name, given

    def told(self, call: ToolCall, reply: Reply) -> Command[Any]:
        """Return a reply as the result of a call."""
        images = [_image(block) for block in reply.blocks if block.get("type") == "image"]
        message = ToolMessage(
            content=[{"type": "text", "text": reply.text}, *images] if images else reply.text,
            artifact=_artifact(self, reply, call["id"] or ""),
            name=call["name"],
            tool_call_id=call["id"] or "",
            status="error" if reply.is_error else "success",
        )
        return Command(update={"messages": [message], KEY: self.state()})

    def ran(self, admission: Admission, result: Result) -> Result:
        """Return what the agent's own tool gave, with the state if the call loaded the tool."""
        loaded = self.session.loaded
        failed = isinstance(result, ToolMessage) and result.status == "error"
        self.session.settle(admission, failed=failed)
        if not isinstance(result, ToolMessage):
            return result
        if admission.repairs and isinstance(result.content, str):
            lines = [*(f"({repair})" for repair in admission.repairs), result.content]
            result = result.model_copy(update={"content": "\n".join(lines)})
        if self.session.loaded == loaded:
            return result
        return Command(update={"messages": [result], KEY: self.state()})


class ToolScoutMiddleware(AgentMiddleware[ToolScoutState, Any, Any]):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Without `tools`, all tools of the agent are hidden, as far as other middleware lets them
    through; with `tools`, these are, and the agent's own stay as they are. A function gives the
    tools of a run: it gets the runtime of each request and call. `listing` tells the model in
    the system prompt what exists. Stands last among the middleware.
    """

    state_schema = ToolScoutState

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]] | Loader | None = None,
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
        listing: bool = False,
    ) -> None:
        super().__init__()
        self._load: Loader | None = tools if callable(tools) else None
        given = [] if tools is None or callable(tools) else [*map(_as_tool, tools)]
        self._names = None if tools is None else {tool.name for tool in given}
        self._meta = {tool.name: _stub(tool) for tool in meta_tools()}
        self.tools = [*self._meta.values(), *given]
        self._listing = listing
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._kits: dict[Mode, Toolkit[BaseTool]] = {}
        self._mode: Mode | None = None
        if scout is not None or settings is not None:
            toolkit = Toolkit[BaseTool]((), _define, scout=scout, settings=settings)
            self._mode = toolkit.scout.settings.mode
            self._kits[self._mode] = toolkit

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Show the model what its session has found."""
        turn, shown = self._request(request)
        return _heard(turn, handler(shown))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Show the model what its session has found."""
        turn, shown = self._request(request)
        return _heard(turn, await handler(shown))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Answer a meta-tool, or let a call of a found tool through."""
        turn, call = self._call(request), request.tool_call
        if turn is None:
            return handler(request)
        native, name, given = turn.native(call)
        if native is None:
            return turn.told(call, turn.session.handle_sync(call["name"], call["args"]))
        admitted = turn.session.admit_sync(name, given)
        if _asks(admitted, request) and _agreed(native.name, given):
            admitted = turn.session.admit_sync(name, given, approved=True)
        if isinstance(admitted, Reply):
            return turn.told(call, admitted)
        try:
            return turn.ran(admitted, handler(_admitted(request, native, admitted)))
        except Exception as error:
            _settle_failure(turn, admitted, error)
            raise

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Answer a meta-tool, or let a call of a found tool through."""
        turn, call = self._call(request), request.tool_call
        if turn is None:
            return await handler(request)
        native, name, given = turn.native(call)
        if native is None:
            return turn.told(call, await turn.session.handle(call["name"], call["args"]))
        admitted = await turn.session.admit(name, given)
        if _asks(admitted, request) and _agreed(native.name, given):
            admitted = await turn.session.admit(name, given, approved=True)
        if isinstance(admitted, Reply):
            return turn.told(call, admitted)
        try:
            return turn.ran(admitted, await handler(_admitted(request, native, admitted)))
        except Exception as error:
            _settle_failure(turn, admitted, error)
            raise

    def _toolkit(self, mode: Mode) -> Toolkit[BaseTool]:
        with self._lock:
            if mode not in self._kits:
                self._kits[mode] = Toolkit((), _define, settings=Settings(mode=mode))
            return self._kits[mode]

    def _natives(self, tools: Iterable[object], runtime: object) -> Natives:
        """Return the tools to hide, by exposed name."""
        found = [tool for tool in tools if isinstance(tool, BaseTool) and self._hides(tool)]
        loaded = self._load(runtime) if self._load is not None else ()
        return {make_exposed_name("", tool.name): tool for tool in (*found, *loaded)}

    def _hides(self, tool: BaseTool) -> bool:
        if tool.name in self._meta or "provider_tool_definition" in (tool.extras or {}):
            return False
        return self._names is None or tool.name in self._names

    def _request(self, request: ModelRequest[Any]) -> tuple[_Turn, ModelRequest[Any]]:
        toolkit = self._toolkit(self._mode or mode_for(request.model))
        natives = self._natives(request.tools, request.runtime)
        only = toolkit.register(natives)
        before = _state_in(request.state)
        session = toolkit.open_session(
            _thread_id(request.runtime) or uuid4().hex, before.get("session"), only=only
        )
        _take_notice(session, request.messages)
        tools = self._remember(only)
        turn = _Turn(toolkit=toolkit, session=session, natives=natives, before=before, tools=tools)
        others = [tool for tool in request.tools if not self._is_mine(tool, natives)]
        points = [(tool.extras or {}).get("cache_control") for tool in natives.values()]
        point = next(filter(None, reversed(points)), None)
        shown = [self._shaped(turn, entry, point) for entry in session.shown()]
        return turn, request.override(
            tools=[*others, *shown],
            messages=_sent(request.messages, turn.mode, only),
            system_message=self._prompt(request, session),
        )

    def _call(self, request: ToolCallRequest) -> _Turn | None:
        """Return what a call may use; nothing where its tool is none of the hidden ones."""
        before = _state_in(request.state)
        toolkit = self._toolkit(self._mode or Mode(before.get("mode", Mode.NATIVE)))
        runtime = cast("Any", request.runtime)  # pyright: ignore[reportUnknownMemberType]  # of any state
        # What other middleware brings for this very call is nearer than what the agent has.
        natives = self._natives([*runtime.tools, request.tool], runtime)
        if request.tool is not None and not self._is_mine(request.tool, natives):
            return None
        only = self._existing(before, toolkit.register(natives))
        session = toolkit.open_session(
            _thread_id(runtime) or uuid4().hex, before.get("session"), only=only
        )
        tools = before.get("tools", "")
        return _Turn(toolkit=toolkit, session=session, natives=natives, before=before, tools=tools)

    def _is_mine(self, tool: object, natives: Natives) -> bool:
        return isinstance(tool, BaseTool) and (
            tool.name in self._meta or make_exposed_name("", tool.name) in natives
        )

    def _remember(self, names: frozenset[str]) -> str:
        """Remember what existed for a request, because its calls see all tools of the agent."""
        digest = _digest(names)
        with self._lock:
            self._seen[digest] = names
            self._seen.move_to_end(digest)
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        return digest

    def _existing(self, before: Json, bound: frozenset[str]) -> frozenset[str]:
        """Return what existed for the request that made a call."""
        digest = before.get("tools")
        if digest is None or digest == _digest(bound):
            return bound
        with self._lock:
            seen = self._seen.get(digest)
        # Another process made the request. What it may have kept back is not to be found here.
        return seen if seen is not None else bound.intersection(list_loaded(before["session"]))

    def _shaped(self, turn: _Turn, shown: Shown, point: object) -> BaseTool | Json:
        """Return a tool as the agent's model takes it."""
        name = shown.tool.name
        if turn.mode is Mode.DEFINITIONS and name == SEARCH:
            return to_search(shown.tool, Dialect.OPENAI_RESPONSES)
        tool = self._meta.get(name) or turn.natives.get(name) or _stub(shown.tool)
        unwanted = _UNDEFERRABLE if shown.deferred else _UNDEFERRABLE[:1]
        extras = {k: v for k, v in (tool.extras or {}).items() if k not in unwanted}
        if shown.deferred:
            extras["defer_loading"] = True
        elif name == CALL and point:
            # The end of what never changes; on a hidden tool it would be refused or lost.
            extras["cache_control"] = point
        return tool if extras == (tool.extras or {}) else tool.model_copy(update={"extras": extras})

    def _prompt(self, request: ModelRequest[Any], session: Session) -> SystemMessage | None:
        """Return the system prompt, with what exists if that is to be told."""
        section = session.section() if self._listing else ""
        if not section or request.system_message is None:
            return SystemMessage(section) if section else request.system_message
        told = request.system_message.content
        if isinstance(told, str):
            return SystemMessage(f"{told}\n\n{section}")
        return SystemMessage([*told, {"type": "text", "text": section}])


def _take_notice(session: Session, messages: Sequence[AnyMessage]) -> None:
    """Tell a session of a user message, or of the tools that were used since the last request."""
    last = messages[-1] if messages else None
    if isinstance(last, HumanMessage):
        session.begin_turn(last.text)
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        note_used(session, message.name or "")


def _heard(turn: _Turn, response: ModelResponse[Any]) -> ExtendedModelResponse[Any]:
    """Return what the model said, in the names of the tools that it means, and the state."""
    said = [_meant(turn, m) if isinstance(m, AIMessage) else m for m in response.result]
    changed = {**turn.state(), "step": turn.before.get("step")} != turn.before
    command: Command[Any] | None = Command(update={KEY: turn.state()}) if changed else None
    return ExtendedModelResponse(model_response=replace(response, result=said), command=command)


def _meant(turn: _Turn, message: AIMessage) -> AIMessage:
    """Return a message whose calls name the tools that are run, and a note of what was said.

    `HumanInTheLoopMiddleware` and others go by the names of calls. A search that the provider
    asks its client for is an item of the content; here it becomes a call.
    """
    calls, bridged = list[ToolCall](), list[str]()
    for call in message.tool_calls:
        tool, given = turn.target(call) if call["name"] == CALL else (None, None)
        arguments = to_object(given)
        if tool is not None and (arguments or not given):
            bridged.append(call["id"] or "")
            call = _renamed(call, tool.name, arguments)
        calls.append(call)
    searches = [_search_call(item) for item in _items(message) if _is_search(item)]
    if not bridged and not searches:
        return message
    searched = [call["id"] for call in searches]
    noted = {**message.response_metadata, KEY: {"bridged": bridged, "searched": searched}}
    update = {"tool_calls": [*searches, *calls], "response_metadata": noted}
    return message.model_copy(update=update)


def _sent(messages: Iterable[AnyMessage], mode: Mode, names: frozenset[str]) -> list[AnyMessage]:
    """Return messages as the model said and reads them; those without a note are the same."""
    bridged, searched = set[str](), set[str]()
    sent: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, AIMessage) and KEY in message.response_metadata:
            note = message.response_metadata[KEY]
            bridged.update(note["bridged"])
            searched.update(note["searched"] if mode is Mode.DEFINITIONS else ())
            message = _said(message, bridged, searched)
        elif isinstance(message, ToolMessage):
            if message.tool_call_id in bridged:
                message = message.model_copy(update={"name": CALL})
            message = _answer(message, mode, names, message.tool_call_id in searched)
        sent.append(message)
    return sent


def _said(message: AIMessage, bridged: set[str], searched: set[str]) -> AIMessage:
    """Return a message with its calls as the model made them.

    A search is either an item of the content, where the provider knows such, or a call.
    """
    calls = [call for call in message.tool_calls if call["id"] not in searched]
    told = [_through(call) if call["id"] in bridged else call for call in calls]
    content = message.content
    if not isinstance(content, str) and not searched:
        content = [item for item in content if not (is_object(item) and _is_search(item))]
    return message.model_copy(update={"tool_calls": told, "content": content})


def _through(call: ToolCall) -> ToolCall:
    return _renamed(call, CALL, {"name": call["name"], "arguments": call["args"]})


def _renamed(call: ToolCall, name: str, arguments: Json) -> ToolCall:
    return ToolCall(name=name, args=arguments, id=call["id"], type="tool_call")


def _answer(
    message: ToolMessage, mode: Mode, names: frozenset[str], searched: bool
) -> ToolMessage | HumanMessage:
    """Return a search's answer in the shape of the mode; a tool that is gone is not referred to."""
    found = to_object(to_object(message.artifact).get(KEY))
    if searched:
        output = found.get("output") or to_search_output(
            Dialect.OPENAI_RESPONSES, message.tool_call_id, ()
        )
        return HumanMessage([output])
    if mode is Mode.REFERENCE and found.get("references"):
        live = [name for name in found["references"] if name in names]
        blocks = [{"type": "tool_reference", "tool_name": name} for name in live]
        return message.model_copy(update={"content": blocks or GONE})
    return message


def _artifact(turn: _Turn, reply: Reply, call_id: str) -> Json | None:
    """Return what a later request, of whatever mode, needs to tell what a reply found."""
    loaded = turn.session.loaded
    names = [*reply.references, *(hit.tool.name for hit in reply.known if hit.tool.name in loaded)]
    found: Json = {"references": list(dict.fromkeys(names))} if names else {}
    if reply.definitions:
        found["output"] = reply.to_message(Dialect.OPENAI_RESPONSES, call_id)
    return {KEY: found} if found else None


def _items(message: AIMessage) -> list[Json]:
    return [item for item in message.content if is_object(item)]


def _is_search(item: Json) -> bool:
    return item.get("type") == "tool_search_call" and item.get("execution") == "client"


def _search_call(item: Json) -> ToolCall:
    arguments = to_object(item.get("arguments"))
    return ToolCall(name=SEARCH, args=arguments, id=item["call_id"], type="tool_call")


def _asks(admitted: Admission | Reply, request: Any) -> bool:
    """Tell whether the scout's policy wants a person to agree, and the run can wait for one."""
    asks = isinstance(admitted, Reply) and admitted.code == "approval_needed"
    return asks and bool(_thread_id(request.runtime))


def _agreed(name: str, arguments: object) -> bool:
    """Ask as `HumanInTheLoopMiddleware` does, and return whether the person agreed."""
    asked = {"name": name, "args": to_object(arguments), "description": f"Run {name}?"}
    config = {"action_name": name, "allowed_decisions": ["approve", "reject"]}
    answer: object = interrupt({"action_requests": [asked], "review_configs": [config]})
    decisions = to_object(answer).get("decisions")
    return is_list(decisions) and [to_object(each).get("type") for each in decisions] == ["approve"]


def _admitted(request: ToolCallRequest, native: BaseTool, admission: Admission) -> ToolCallRequest:
    call = _renamed(request.tool_call, native.name, admission.arguments)
    return request.override(tool_call=call, tool=native)


def _settle_failure(turn: _Turn, admission: Admission, error: Exception) -> None:
    # An interrupt is no failure: the call is made again when the run resumes.
    if not isinstance(error, GraphBubbleUp):
        turn.session.settle(admission, failed=True)


def _state_in(state: object) -> Json:
    return to_object(to_object(state).get(KEY))


def _thread_id(runtime: Any) -> str:
    return getattr(getattr(runtime, "execution_info", None), "thread_id", None) or ""


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def _image(block: Json) -> Json:
    return {"type": "image", "base64": block.get("data"), "mime_type": block.get("mimeType")}


def _define(native: BaseTool) -> Tool:
    """Return a tool with the very schema that a model is sent, without injected arguments."""
    function = convert_to_openai_tool(native)["function"]
    said = native.metadata or {}  # where tools of MCP servers have their annotations
    row = {"name": native.name, "description": native.description, "annotations": said}
    schema = function.get("parameters")
    return Tool.from_mcp({**row, "inputSchema": schema, "_meta": said.get("_meta")})


def _as_tool(native: BaseTool | Callable[..., Any]) -> BaseTool:
    return native if isinstance(native, BaseTool) else StructuredTool.from_function(native)


def _stub(tool: Tool) -> BaseTool:
    """Return a tool to be shown to a model; the middleware answers its calls."""

    def run(**_: object) -> str:
        raise UsageError(f"{tool.name} runs in an agent with ToolScoutMiddleware alone.")

    description = tool.description or tool.title or tool.name
    schema = {**tool.input_schema, "type": "object"}
    return StructuredTool(name=tool.name, description=description, args_schema=schema, func=run)


def retrieve_tools(
    registry: Mapping[str, BaseTool | Callable[..., Any]],
    *,
    limit: int = 5,
    scout: Scout | None = None,
    settings: Settings | None = None,
) -> tuple[Callable[[str], list[str]], Callable[[str], Awaitable[list[str]]]]:
    """Return what langgraph-bigtool searches its registry with: a function and a coroutine."""
    tools = [(id_, _as_tool(native)) for id_, native in registry.items()]
    toolkit = Toolkit(tools, lambda entry: _define(entry[1]), scout=scout, settings=settings)

    def retrieve_tools(query: str) -> list[str]:
        """Find tools by what they do. Describe one need in the words of a tool's description."""
        return [id_ for id_, _ in toolkit.rank([query], limit)]

    async def aretrieve_tools(query: str) -> list[str]:
        """Find tools by what they do. Describe one need in the words of a tool's description."""
        return retrieve_tools(query)

    return retrieve_tools, aretrieve_tools
