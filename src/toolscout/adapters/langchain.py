"""LangChain and LangGraph: middleware for `create_agent`, and a retriever for langgraph-bigtool.

`ToolScoutMiddleware` hides an agent's tools from the model and lets a call through if its tool was
found. The session lives in the graph's state under one key, so checkpointers, forks and subgraphs
treat it like the messages. Messages in the state are the same for every provider and name the tool
that runs, so that other middleware can ask a person about it. Only requests depend on the mode.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NotRequired, TypeGuard, Unpack, cast

from toolscout import Mode, Reply, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    RETRIEVE_DESCRIPTION,
    SEARCH,
    TOOLS_GONE,
    ApprovedCall,
    Dialect,
    Json,
    ShownTool,
    Toolkit,
    ToolkitOptions,
    add_notes,
    build_meta_tools,
    choose_anthropic_mode,
    choose_openai_mode,
    is_list,
    is_object,
    list_loaded,
    make_exposed_name,
    merge_states,
    refuse_several,
    report_outcome,
    run_sync,
    to_object,
    to_search,
    to_search_output,
)
from toolscout.errors import ApprovalNeeded, MissingExtra, UsageError

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
    from langchain_core.messages.tool import tool_call
    from langchain_core.tools import BaseTool, StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from langgraph.errors import GraphBubbleUp
    from langgraph.types import Command, interrupt
except ModuleNotFoundError as error:
    raise MissingExtra("langchain", extra="langchain") from error

KEY = "toolscout"
"""The key of the session in the state, and of our notes in messages."""
REMEMBERED = 256
"""How many sets of tool names are remembered between a request and its calls."""

Natives = dict[str, BaseTool]
Loader = Callable[[Any], Iterable[BaseTool]]
Result = ToolMessage | Command[Any]


def merge(before: Json, after: Json) -> Json:
    """Return the state after a step of the graph, in which parallel calls each add to it."""
    if not before or not after or after["step"] > before["step"]:
        return after
    return {**after, "session": merge_states(before["session"], after["session"])}


class ToolScoutState(AgentState[Any]):
    """The agent's state with the session, which runs accept and return like the messages."""

    toolscout: NotRequired[Annotated[dict[str, Any], merge]]


def choose_mode_for(model: BaseChatModel) -> Mode:
    """Return the mode that the middleware uses for a model by default.

    A provider that is not known to accept tools during a conversation gets found tools at the end
    of the list. That costs cache, but models call tools in the list best.
    """
    chat = cast("Any", model)
    # Compare the class itself: derived classes talk to clouds in the same format.
    match f"{type(model).__module__.partition('.')[0]}.{type(model).__name__}":
        case "langchain_anthropic.ChatAnthropic":
            mode = choose_anthropic_mode(str(chat.anthropic_api_url))
            return Mode.NATIVE if mode is Mode.BRIDGE else mode
        case "langchain_openai.ChatOpenAI" if chat.use_responses_api:
            return choose_openai_mode(chat.model_name, str(chat.root_client.base_url))
        case _:
            return Mode.NATIVE


@dataclass
class _Turn:
    """One request or call: the tools that it may use, and the state that it started from."""

    session: Session
    natives: Natives
    before: Json
    digest: str
    """Stands for the names of the tools that exist for the request."""

    def __post_init__(self) -> None:
        self._loaded = self.session.loaded

    def state(self) -> Json:
        """Return the state after this request or call."""
        return {
            "step": self.before.get("step", 0) + 1,
            "mode": str(self.session.settings.mode),
            "tools": self.digest,
            "session": self.session.to_json(),
        }

    async def handle(self, request: ToolCallRequest) -> ApprovedCall | Command[Any]:
        """Return a call that the agent may make, or the result that answers or refuses it."""
        call = request.tool_call
        refusal = refuse_several(call["args"]) if call["name"] == CALL else None
        if refusal is not None:
            return self._answer(call, refusal)
        tool, given = self.session.find_target(call["name"], call["args"])
        native = self.natives.get(tool.name) if tool is not None else None
        if tool is None or native is None:
            return self._answer(call, await self.session.handle(call["name"], call["args"]))
        name = tool.name if call["name"] == CALL else call["name"]
        verdict = await self.session.admit(name, given)
        if isinstance(verdict, Reply) and verdict.code == ApprovalNeeded.code:
            runtime = cast("Any", request.runtime)  # pyright: ignore[reportUnknownMemberType]  # of any state
            # Without a thread, the run could not wait for a person.
            if _find_thread_id(runtime) and _ask_person(native.name, given):
                verdict = await self.session.admit(name, given, approved=True)
        return self._answer(call, verdict) if isinstance(verdict, Reply) else verdict

    def to_request(self, request: ToolCallRequest, approved: ApprovedCall) -> ToolCallRequest:
        """Return the request for the agent's own tool, also of a call through `tool_call`."""
        native = self.natives[approved.tool.name]
        id_ = request.tool_call["id"]
        call = tool_call(name=native.name, args=approved.arguments, id=id_)
        return request.override(tool_call=call, tool=native)

    def _answer(self, call: ToolCall, reply: Reply) -> Command[Any]:
        """Return a reply as the result of a call.

        Its artifact has what a later request, of whatever mode, needs to repeat what was found.
        """
        loaded = self.session.loaded
        known = [hit.tool.name for hit in reply.known if hit.tool.name in loaded]
        names = list(dict.fromkeys([*reply.references, *known]))
        found: Json = {"references": names} if names else {}
        if reply.definitions:
            found["output"] = reply.to_message(Dialect.OPENAI_RESPONSES, call["id"] or "")
        images = [
            {"type": "image", "base64": block.get("data"), "mime_type": block.get("mimeType")}
            for block in reply.images
        ]
        message = ToolMessage(
            content=[{"type": "text", "text": reply.text}, *images] if images else reply.text,
            artifact={KEY: found} if found else None,
            name=call["name"],
            tool_call_id=call["id"] or "",
            status="error" if reply.is_error else "success",
        )
        return Command(update={"messages": [message], KEY: self.state()})

    def finish(self, approved: ApprovedCall, result: Result) -> Result:
        """Return the result of the agent's own tool, with the state if the call loaded the tool."""
        if not isinstance(result, ToolMessage):
            return result
        if approved.repairs:
            content = add_notes(approved, cast("object", result.content))
            result = result.model_copy(update={"content": content})
        if self.session.loaded == self._loaded:
            return result
        return Command(update={"messages": [result], KEY: self.state()})


class ToolScoutMiddleware(AgentMiddleware[ToolScoutState, Any, Any]):
    """Hides tools behind `tool_search`, `tool_describe` and `tool_call`.

    Without `tools`, it hides all tools of the agent that other middleware lets through. With
    `tools`, it hides these, and the agent's own stay visible. `tools` may be a function that
    returns the tools of a run and takes the runtime of each request and call. `listing` moves the
    list of what exists from `tool_search` to the system prompt. This must be the last middleware.
    """

    state_schema = ToolScoutState

    def __init__(
        self,
        tools: Sequence[BaseTool | Callable[..., Any]] | Loader | None = None,
        *,
        listing: bool = False,
        **options: Unpack[ToolkitOptions],
    ) -> None:
        super().__init__()
        self._load: Loader | None = tools if callable(tools) else None
        given = [] if tools is None or callable(tools) else [*map(_to_tool, tools)]
        self._names = None if tools is None else {tool.name for tool in given}
        self._meta = {tool.name: _create_stub(tool) for tool in build_meta_tools()}
        self.tools = [*self._meta.values(), *given]
        self._listing = listing
        self._lock = threading.Lock()
        self._seen: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._kits: dict[Mode, Toolkit[BaseTool]] = {}
        self._mode: Mode | None = None
        if any(options.values()):
            toolkit = Toolkit[BaseTool]((), _define, **options)
            self._mode = toolkit.mode
            self._kits[self._mode] = toolkit

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Replace the hidden tools of a request by the meta-tools and what was found."""
        turn, shown = self._prepare_request(request)
        return _read_response(turn, handler(shown))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Do the same in an asynchronous run."""
        turn, shown = self._prepare_request(request)
        return _read_response(turn, await handler(shown))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Answer a meta-tool, or let a call through if its tool was found."""
        turn = self._begin_call(request)
        if turn is None:
            return handler(request)
        call = run_sync(lambda: turn.handle(request))
        if not isinstance(call, ApprovedCall):
            return call
        # An interrupt is no failure: the run repeats the call when it resumes.
        with report_outcome(turn.session, call, postponed=(GraphBubbleUp,)) as outcome:
            result = handler(turn.to_request(request, call))
            outcome.failed = isinstance(result, ToolMessage) and result.status == "error"
        return turn.finish(call, result)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Do the same in an asynchronous run."""
        turn = self._begin_call(request)
        if turn is None:
            return await handler(request)
        call = await turn.handle(request)
        if not isinstance(call, ApprovedCall):
            return call
        with report_outcome(turn.session, call, postponed=(GraphBubbleUp,)) as outcome:
            result = await handler(turn.to_request(request, call))
            outcome.failed = isinstance(result, ToolMessage) and result.status == "error"
        return turn.finish(call, result)

    def _get_toolkit(self, mode: Mode) -> Toolkit[BaseTool]:
        with self._lock:
            if mode not in self._kits:
                self._kits[mode] = Toolkit((), _define, settings=Settings(mode=mode))
            return self._kits[mode]

    def _list_natives(self, tools: Iterable[object], runtime: object) -> Natives:
        """Return the tools to hide, by exposed name."""
        found = [tool for tool in tools if isinstance(tool, BaseTool) and self._is_hidden(tool)]
        loaded = self._load(runtime) if self._load is not None else ()
        return {make_exposed_name("", tool.name): tool for tool in (*found, *loaded)}

    def _is_hidden(self, tool: BaseTool) -> bool:
        if tool.name in self._meta or "provider_tool_definition" in (tool.extras or {}):
            return False
        return self._names is None or tool.name in self._names

    def _prepare_request(self, request: ModelRequest[Any]) -> tuple[_Turn, ModelRequest[Any]]:
        toolkit = self._get_toolkit(self._mode or choose_mode_for(request.model))
        natives = self._list_natives(request.tools, request.runtime)
        only = toolkit.register(natives)
        before = _read_state(request.state)
        id_ = _find_thread_id(request.runtime)
        session = toolkit.open_session(id_, before.get("session"), only=only)
        messages = request.messages
        last = messages[-1] if messages else None
        if isinstance(last, HumanMessage):
            session.user_message(last.text)
        for message in reversed(messages):
            if not isinstance(message, ToolMessage):
                break
            session.touch(message.name or "")
        turn = _Turn(session, natives, before, self._remember(only))
        others = [tool for tool in request.tools if not self._is_mine(tool, natives)]
        points = [(tool.extras or {}).get("cache_control") for tool in natives.values()]
        point = next(filter(None, reversed(points)), None)
        entries = session.list_shown(listing=not self._listing)
        shown = [self._to_model_tool(turn, entry, point) for entry in entries]
        return turn, request.override(
            tools=[*others, *shown],
            messages=_to_model_messages(request.messages, toolkit.mode, only),
            system_message=self._build_prompt(request, session),
        )

    def _begin_call(self, request: ToolCallRequest) -> _Turn | None:
        """Return what a call may use, or None if its tool is not a hidden one."""
        before = _read_state(request.state)
        toolkit = self._get_toolkit(self._mode or Mode(before.get("mode", Mode.NATIVE)))
        runtime = cast("Any", request.runtime)  # pyright: ignore[reportUnknownMemberType]  # of any state
        # A tool that other middleware adds for this call replaces the agent's own.
        natives = self._list_natives([*runtime.tools, request.tool], runtime)
        if request.tool is not None and not self._is_mine(request.tool, natives):
            return None
        only = self._recall(before, toolkit.register(natives))
        id_ = _find_thread_id(runtime)
        session = toolkit.open_session(id_, before.get("session"), only=only)
        return _Turn(session, natives, before, before.get("tools", ""))

    def _is_mine(self, tool: object, natives: Natives) -> bool:
        return isinstance(tool, BaseTool) and (
            tool.name in self._meta or make_exposed_name("", tool.name) in natives
        )

    def _remember(self, names: frozenset[str]) -> str:
        """Remember the tool names of a request: its calls see all tools of the agent."""
        digest = _hash_names(names)
        with self._lock:
            self._seen[digest] = names
            self._seen.move_to_end(digest)
            if len(self._seen) > REMEMBERED:
                self._seen.popitem(last=False)
        return digest

    def _recall(self, before: Json, bound: frozenset[str]) -> frozenset[str]:
        """Return the tool names that existed for the request that made a call."""
        digest = before.get("tools")
        if digest is None or digest == _hash_names(bound):
            return bound
        with self._lock:
            seen = self._seen.get(digest)
        # Another process made the request, so only tools that are loaded surely existed for it.
        return seen if seen is not None else bound.intersection(list_loaded(before["session"]))

    def _to_model_tool(self, turn: _Turn, shown: ShownTool, point: object) -> BaseTool | Json:
        """Return a tool in the form that the model takes."""
        name = shown.tool.name
        if turn.session.settings.mode is Mode.DEFINITIONS and name == SEARCH:
            return to_search(shown.tool, Dialect.OPENAI_RESPONSES)
        known = self._meta.get(name) if name != SEARCH else None
        tool = known or turn.natives.get(name) or _create_stub(shown.tool)
        extras = {k: v for k, v in (tool.extras or {}).items() if k != "cache_control"}
        if shown.deferred:
            extras.pop("input_examples", None)
            extras["defer_loading"] = True
        elif name == CALL and point:
            # This is where the unchanging part ends; a hidden tool must not have the mark.
            extras["cache_control"] = point
        return tool if extras == (tool.extras or {}) else tool.model_copy(update={"extras": extras})

    def _build_prompt(self, request: ModelRequest[Any], session: Session) -> SystemMessage | None:
        """Return the system prompt, with the listing if there is one."""
        section = session.system_prompt(listing=True) if self._listing else ""
        if not section:
            return request.system_message
        if request.system_message is None:
            return SystemMessage(section)
        content = request.system_message.content
        if isinstance(content, str):
            return SystemMessage(f"{content}\n\n{section}")
        return SystemMessage([*content, {"type": "text", "text": section}])


def _read_response(turn: _Turn, response: ModelResponse[Any]) -> ExtendedModelResponse[Any]:
    """Return the response with calls by the names of the tools that run, and the state."""
    result = [_rename_calls(turn, m) if isinstance(m, AIMessage) else m for m in response.result]
    state = turn.state()
    changed = {**state, "step": turn.before.get("step")} != turn.before
    command: Command[Any] | None = Command(update={KEY: state}) if changed else None
    return ExtendedModelResponse(model_response=replace(response, result=result), command=command)


def _rename_calls(turn: _Turn, message: AIMessage) -> AIMessage:
    """Return a message whose calls name the tools that run, with a note of the original calls.

    `HumanInTheLoopMiddleware` and others look at the names of calls. A search that the provider
    leaves to its client is an item of the content; here it becomes a call.
    """
    calls, bridged = list[ToolCall](), list[str]()
    for call in message.tool_calls:
        if call["name"] == CALL:
            tool, given = turn.session.find_target(CALL, call["args"])
            arguments = to_object(given)
            if tool is not None and (arguments or not given):
                bridged.append(call["id"] or "")
                call = tool_call(name=tool.name, args=arguments, id=call["id"])
        calls.append(call)
    searches = [
        tool_call(name=SEARCH, args=to_object(item.get("arguments")), id=item["call_id"])
        for item in message.content
        if _is_search(item)
    ]
    if not bridged and not searches:
        return message
    searched = [call["id"] for call in searches]
    noted = {**message.response_metadata, KEY: {"bridged": bridged, "searched": searched}}
    update = {"tool_calls": [*searches, *calls], "response_metadata": noted}
    return message.model_copy(update=update)


def _to_model_messages(
    messages: Iterable[AnyMessage], mode: Mode, names: frozenset[str]
) -> list[AnyMessage]:
    """Return messages as the model wrote and reads them; those without a note are unchanged."""
    bridged, searched = set[str](), set[str]()
    sent: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, AIMessage) and KEY in message.response_metadata:
            note = message.response_metadata[KEY]
            bridged.update(note["bridged"])
            searched.update(note["searched"] if mode is Mode.DEFINITIONS else ())
            message = _restore_calls(message, bridged, searched)
        elif isinstance(message, ToolMessage):
            if message.tool_call_id in bridged:
                message = message.model_copy(update={"name": CALL})
            message = _to_answer(message, mode, names, message.tool_call_id in searched)
        sent.append(message)
    return sent


def _restore_calls(message: AIMessage, bridged: set[str], searched: set[str]) -> AIMessage:
    """Return a message with its calls as the model made them.

    A search is an item of the content if the provider knows such items, and a call otherwise.
    """
    calls = [call for call in message.tool_calls if call["id"] not in searched]
    for at, call in enumerate(calls):
        if call["id"] in bridged:
            arguments = {"name": call["name"], "arguments": call["args"]}
            calls[at] = tool_call(name=CALL, args=arguments, id=call["id"])
    content = message.content
    if not isinstance(content, str) and not searched:
        content = [item for item in content if not _is_search(item)]
    return message.model_copy(update={"tool_calls": calls, "content": content})


def _to_answer(
    message: ToolMessage, mode: Mode, names: frozenset[str], searched: bool
) -> ToolMessage | HumanMessage:
    """Return the answer to a search in the form of the mode, without tools that are gone."""
    found = to_object(to_object(message.artifact).get(KEY))
    if searched:
        nothing = to_search_output(Dialect.OPENAI_RESPONSES, message.tool_call_id, ())
        return HumanMessage([found.get("output") or nothing])
    if mode is Mode.REFERENCE and found.get("references"):
        live = [name for name in found["references"] if name in names]
        blocks = [{"type": "tool_reference", "tool_name": name} for name in live]
        return message.model_copy(update={"content": blocks or TOOLS_GONE})
    return message


def _is_search(item: object) -> TypeGuard[Json]:
    """Tell whether an item of a message is a search that the provider leaves to its client."""
    kind = (item.get("type"), item.get("execution")) if is_object(item) else ()
    return kind == ("tool_search_call", "client")


def _ask_person(name: str, arguments: object) -> bool:
    """Ask as `HumanInTheLoopMiddleware` does, and return whether the person approved."""
    asked = {"name": name, "args": to_object(arguments), "description": f"Run {name}?"}
    config = {"action_name": name, "allowed_decisions": ["approve", "reject"]}
    answer: object = interrupt({"action_requests": [asked], "review_configs": [config]})
    decisions = to_object(answer).get("decisions")
    return is_list(decisions) and [to_object(each).get("type") for each in decisions] == ["approve"]


def _read_state(state: object) -> Json:
    return to_object(to_object(state).get(KEY))


def _find_thread_id(runtime: Any) -> str:
    return getattr(getattr(runtime, "execution_info", None), "thread_id", None) or ""


def _hash_names(names: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()[:16]


def _define(native: BaseTool) -> Tool:
    """Return a tool with the schema that the model gets, which lacks injected arguments."""
    function = convert_to_openai_tool(native)["function"]
    metadata = native.metadata or {}  # with the annotations of MCP servers
    return Tool.from_mcp(
        {
            "name": native.name,
            "description": native.description,
            "annotations": metadata,
            "inputSchema": function.get("parameters"),
            "_meta": metadata.get("_meta"),
        }
    )


def _to_tool(native: BaseTool | Callable[..., Any]) -> BaseTool:
    return native if isinstance(native, BaseTool) else StructuredTool.from_function(native)


def _create_stub(tool: Tool) -> BaseTool:
    """Return a tool that only shows its definition; the middleware answers its calls."""

    def run(**_: object) -> str:
        raise UsageError(f"{tool.name} runs only in an agent with ToolScoutMiddleware.")

    description = tool.description or tool.title or tool.name
    schema = {**tool.input_schema, "type": "object"}
    return StructuredTool(name=tool.name, description=description, args_schema=schema, func=run)


def retrieve_tools(
    registry: Mapping[str, BaseTool | Callable[..., Any]],
    *,
    limit: int = 5,
    **options: Unpack[ToolkitOptions],
) -> tuple[Callable[[str], list[str]], Callable[[str], Awaitable[list[str]]]]:
    """Return the retrieval function of langgraph-bigtool, synchronous and asynchronous."""
    tools = [(id_, _to_tool(native)) for id_, native in registry.items()]
    toolkit = Toolkit(tools, lambda entry: _define(entry[1]), **options)

    def retrieve_tools(query: str) -> list[str]:
        return [id_ for id_, _ in toolkit.rank([query], limit)]

    async def aretrieve_tools(query: str) -> list[str]:
        return retrieve_tools(query)

    # langgraph-bigtool describes the tools to the model by these docstrings.
    retrieve_tools.__doc__ = RETRIEVE_DESCRIPTION
    aretrieve_tools.__doc__ = RETRIEVE_DESCRIPTION
    return retrieve_tools, aretrieve_tools
