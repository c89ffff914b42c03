"""smolagents: its two agents, with their tools hidden.

`ToolScoutAgent` is a `ToolCallingAgent` whose requests found tools join. `ToolScoutCodeAgent` is a
`CodeAgent` whose code may call found tools as functions; its prompt never changes. Like the
agent's memory, the session is one conversation and ends with `run(reset=True)`.
"""

# The SDK ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast
from uuid import uuid4

from toolscout import Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    ApprovedCall,
    Json,
    Toolkit,
    add_notes,
    build_meta_tools,
    is_list,
    report_outcome,
)
from toolscout.errors import MissingExtra, UsageError

try:
    from smolagents import CodeAgent, Model, MultiStepAgent, ToolCallingAgent
    from smolagents import Tool as AgentTool
    from smolagents.models import get_tool_json_schema
except ModuleNotFoundError as error:
    raise MissingExtra("smolagents", extra="smolagents") from error

REMOTE = "Code that runs elsewhere cannot reach the session. Use executor_type='local'."
_ANYTHING = ("any", "image", "audio")
"""Input types that JSON lacks; in code they may be any object."""


class _HiddenTools:
    """The tools that an agent has to find, and the session of its conversation."""

    def __init__(
        self,
        tools: Iterable[AgentTool],
        scout: Scout | None,
        settings: Settings | None,
        session: Json | None,
    ) -> None:
        self.toolkit = Toolkit[AgentTool].create_growing(
            tools, _define, scout=scout, settings=settings
        )
        self.session = self.toolkit.open_session(uuid4().hex, session)
        self.meta = {tool.name: _OwnTool(tool, self) for tool in build_meta_tools()}

    def begin(self, task: str, *, reset: bool) -> None:
        """Begin a run, with a new session after a reset."""
        if reset:
            self.session = self.toolkit.open_session(uuid4().hex)
        self.session.user_message(task)

    def handle(self, name: str, given: object) -> ApprovedCall | Reply | None:
        return self.toolkit.handle_sync(self.session, name, given)

    def list_tools(self) -> list[AgentTool]:
        """Return the meta-tools and what was found, for a request."""
        return [self._get_tool(one.tool) for one in self.session.list_shown()]

    def _get_tool(self, tool: Tool) -> AgentTool:
        return self.toolkit.get(tool.name) or self.meta.get(tool.name) or _OwnTool(tool, self)

    def create_functions(self) -> dict[str, Callable[..., object]]:
        """Return a function per tool that asks the session when code calls it."""
        return {tool.name: _create_function(tool, self) for tool in self.session.list_visible()}

    def call(self, name: str, given: Json) -> object:
        """Make a call from code: return the tool's result, or raise if the call is refused."""
        # Code has objects that no schema knows; only inputs of any type accept them.
        odd = {key: value for key, value in given.items() if name != CALL and not _is_json(value)}
        verdict = self.handle(name, {**given, **dict.fromkeys(odd, "")})
        if isinstance(verdict, ApprovedCall):
            with report_outcome(self.session, verdict):
                return self.toolkit.get_native(verdict)(**{**verdict.arguments, **odd})
        if verdict is None or (verdict.is_error and not verdict.references):
            raise ToolRefused(verdict.text if verdict is not None else f"No tool {name!r}.")
        return verdict.text


class ToolRefused(Exception):
    """A call from code was refused; the message tells the model why."""


class _Conversation(MultiStepAgent):
    """The session of an agent, which ends when the agent's memory is reset."""

    _hidden: _HiddenTools

    @property
    def session(self) -> Session:
        """The session of the conversation."""
        return self._hidden.session

    def run(
        self, task: str, stream: bool = False, reset: bool = True, *more: Any, **options: Any
    ) -> Any:
        """Run a task; with `reset=False` tools that were found before stay callable."""
        self._hidden.begin(task, reset=reset)
        return super().run(task, stream, reset, *more, **options)


class ToolScoutAgent(_Conversation, ToolCallingAgent):
    """A `ToolCallingAgent` whose tools are found by `tool_search`.

    By default found tools join the request at its end. `final_answer`, base tools and managed
    agents stay visible. `session` is a session from `agent.session.to_json()`.
    """

    tools: dict[str, AgentTool]
    managed_agents: dict[str, Any]

    def __init__(
        self,
        tools: Sequence[AgentTool],
        model: Model,
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
        session: Json | None = None,
        **options: Any,
    ) -> None:
        self._hidden = _HiddenTools(tools, scout, settings, session)
        super().__init__(tools=[*self._hidden.meta.values()], model=model, **options)

    @property
    def tools_and_managed_agents(self) -> list[Any]:
        """The tools of the next request: those never hidden, the meta-tools, and what was found."""
        hidden = self._hidden
        known = {*hidden.meta, *(tool.name for tool in hidden.session.list_visible())}
        passed = [tool for name, tool in self.tools.items() if name not in known]
        return [*passed, *self.managed_agents.values(), *hidden.list_tools()]

    def initialize_system_prompt(self) -> str:
        """Return a prompt that names the meta-tools only, whatever was found."""
        tools = self.tools
        toolkit = self._hidden.toolkit
        self.tools = {name: tool for name, tool in tools.items() if toolkit.get(name) is None}
        try:
            return super().initialize_system_prompt()
        finally:
            self.tools = tools

    def execute_tool_call(self, tool_name: str, arguments: dict[str, str] | str) -> Any:
        """Answer a meta-tool, or run a found tool like any other."""
        is_agent = tool_name in self.managed_agents
        verdict = None if is_agent else self._hidden.handle(tool_name, arguments)
        if isinstance(verdict, Reply):
            return verdict.text
        if verdict is None:
            return super().execute_tool_call(tool_name, arguments)
        native = self._hidden.toolkit.get_native(verdict)
        self.tools.setdefault(native.name, native)
        with report_outcome(self.session, verdict):
            result = super().execute_tool_call(native.name, verdict.arguments)
        return add_notes(verdict, result)


class ToolScoutCodeAgent(_Conversation, CodeAgent):
    """A `CodeAgent` whose tools are found by `tool_search`.

    Code may call a found tool as a function or through `tool_call`. Other calls raise
    `ToolRefused`.
    """

    def __init__(
        self,
        tools: Sequence[AgentTool],
        model: Model,
        *,
        scout: Scout | None = None,
        settings: Settings | None = None,
        session: Json | None = None,
        executor_kwargs: Json | None = None,
        **options: Any,
    ) -> None:
        if "executor" in options or options.get("executor_type", "local") != "local":
            raise UsageError(REMOTE)
        self._hidden = _HiddenTools(tools, scout, settings, session)
        given = executor_kwargs or {}
        functions = {**self._hidden.create_functions(), **given.get("additional_functions", {})}
        super().__init__(
            tools=[*self._hidden.meta.values()],
            model=model,
            executor_kwargs={**given, "additional_functions": functions},
            **options,
        )


class _OwnTool(AgentTool):
    """A meta-tool, or a tool of another server of the scout; the session answers its calls."""

    skip_forward_signature_validation = True
    output_type = "any"

    def __init__(self, tool: Tool, hidden: _HiddenTools) -> None:
        self.name = tool.name
        self.description = tool.description
        self.inputs = _to_inputs(tool)
        self._call = _create_function(tool, hidden)
        super().__init__()

    def forward(self, *given: object, **named: object) -> object:
        """Answer a call from code."""
        return self._call(*given, **named)


def _create_function(tool: Tool, hidden: _HiddenTools) -> Callable[..., object]:
    names = [*tool.input_schema.get("properties", {})]

    def call(*given: object, **named: object) -> object:
        return hidden.call(tool.name, {**dict(zip(names, given, strict=False)), **named})

    return call


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _to_inputs(tool: Tool) -> dict[str, Json]:
    """Return a schema in the SDK's form: each input with a type and a description."""
    required = tool.input_schema.get("required", [])
    properties = cast("dict[str, Json]", tool.input_schema.get("properties", {}))
    least = {"type": "any", "description": ""}
    optional = {name: {} if name in required else {"nullable": True} for name in properties}
    return {name: least | schema | optional[name] for name, schema in properties.items()}


def _define(tool: AgentTool) -> Tool:
    schema = cast("Json", get_tool_json_schema(tool)["function"]["parameters"])
    for name, declared in tool.inputs.items():
        _loosen(schema["properties"][name], cast("Json", declared))
    return Tool.define(tool.name, description=tool.description, input_schema=schema)


def _loosen(schema: Json, declared: Json) -> None:
    """Translate the SDK's own types to JSON Schema, so that calls can be checked."""
    if declared.get("type") in _ANYTHING:
        del schema["type"]
    elif schema.pop("nullable", False):
        kinds = schema["type"]
        schema["type"] = [*(kinds if is_list(kinds) else [kinds]), "null"]
