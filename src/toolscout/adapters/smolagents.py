"""smolagents: its two agents, with their tools hidden.

`ToolScoutAgent` is a `ToolCallingAgent`; found tools join its requests. `ToolScoutCodeAgent` is a
`CodeAgent` whose code may call found tools as functions; its prompt never changes. Like the
agent's memory, the session is one conversation and ends with `run(reset=True)`.
"""

# The SDK ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from toolscout import Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    RESERVED_NAMES,
    ApprovedCall,
    Json,
    Toolkit,
    add_notes,
    is_list,
    report_outcome,
)
from toolscout.errors import MissingExtra, UsageError

try:
    from smolagents import CodeAgent, Model, MultiStepAgent, PythonExecutor, ToolCallingAgent
    from smolagents import Tool as AgentTool
    from smolagents.models import get_tool_json_schema
except ModuleNotFoundError as error:
    raise MissingExtra("smolagents", extra="smolagents") from error

REMOTE = "Code that runs elsewhere cannot reach the session. Use executor_type='local'."
_ANYTHING = ("any", "image", "audio")
"""Input types that JSON lacks; in code they may be any object."""
_Call = Callable[[str, Json], object]


class ToolRefused(Exception):
    """A call from code was refused; the message tells the model why."""


class _Conversation(MultiStepAgent):
    """The tools that an agent has to find, and its session, which ends when its memory is reset."""

    session: Session
    """The session of the conversation."""

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
        self._toolkit = Toolkit[AgentTool].create_growing(
            tools, _define, scout=scout, settings=settings
        )
        self.session = self._toolkit.open_session("", session)
        # Code agents read definitions in the system prompt only, others in every request.
        is_code = isinstance(self, CodeAgent)
        shown = [each.tool for each in self._toolkit.open_session().list_shown(listing=is_code)]
        declared = [tool for tool in shown if is_code or self._toolkit.get(tool.name) is None]
        own: list[AgentTool] = [_OwnTool(tool, self._call) for tool in declared]
        super().__init__(tools=own, model=model, **options)

    def run(
        self, task: str, stream: bool = False, reset: bool = True, *more: Any, **options: Any
    ) -> Any:
        """Run a task; with `reset=False` tools that were found before stay callable."""
        if reset:
            self.session = self._toolkit.open_session()
        self.session.user_message(task)
        return super().run(task, stream, reset, *more, **options)

    def _call(self, name: str, given: Json) -> object:
        """Make a call from code: return the tool's result, or raise if the call is refused."""
        # Code has objects that no schema knows; only inputs of any type accept them.
        odd = {key: value for key, value in given.items() if name != CALL and not _is_json(value)}
        arguments = {**given, **dict.fromkeys(odd, "")}
        verdict = self._toolkit.handle_sync(self.session, name, arguments)
        if isinstance(verdict, ApprovedCall):
            with report_outcome(self.session, verdict):
                return self._toolkit.get_native(verdict)(**{**verdict.arguments, **odd})
        reply = verdict or self.session.handle_sync(name, arguments)
        if reply.is_error and not reply.references:
            raise ToolRefused(reply.text)
        return reply.text


class ToolScoutAgent(_Conversation, ToolCallingAgent):
    """A `ToolCallingAgent` whose tools are found by `tool_search`.

    By default found tools join the request at its end. `final_answer`, base tools and managed
    agents stay visible. `session` is a session from `agent.session.to_json()`.
    """

    tools: dict[str, AgentTool]
    managed_agents: dict[str, Any]

    @property
    def tools_and_managed_agents(self) -> list[Any]:
        """The tools of the next request: those never hidden, the meta-tools, and what was found."""
        known = {tool.name for tool in self.session.list_visible()} | RESERVED_NAMES
        passed = [tool for name, tool in self.tools.items() if name not in known]
        shown = self._toolkit.list_tools(self.session, lambda tool: _OwnTool(tool, self._call))
        return [*passed, *self.managed_agents.values(), *shown]

    def initialize_system_prompt(self) -> str:
        """Return a prompt that names the meta-tools only, whatever was found."""
        tools = self.tools
        self.tools = {n: tool for n, tool in tools.items() if self._toolkit.get(n) is None}
        try:
            return super().initialize_system_prompt()
        finally:
            self.tools = tools

    def execute_tool_call(self, tool_name: str, arguments: dict[str, str] | str) -> Any:
        """Answer a meta-tool, or run a found tool like any other."""
        verdict = None
        if tool_name not in self.managed_agents:
            verdict = self._toolkit.handle_sync(self.session, tool_name, arguments)
        if isinstance(verdict, Reply):
            return verdict.text
        if verdict is None:
            return super().execute_tool_call(tool_name, arguments)
        native = self._toolkit.get_native(verdict)
        self.tools.setdefault(native.name, native)
        with report_outcome(self.session, verdict):
            result = super().execute_tool_call(native.name, verdict.arguments)
        return add_notes(verdict, result)


class ToolScoutCodeAgent(_Conversation, CodeAgent):
    """A `CodeAgent` whose tools are found by `tool_search`.

    Code may call a found tool as a function or through `tool_call`. Other calls raise
    `ToolRefused`.
    """

    def __init__(self, tools: Sequence[AgentTool], model: Model, **options: Any) -> None:
        if "executor" in options or options.get("executor_type", "local") != "local":
            raise UsageError(REMOTE)
        super().__init__(tools, model, **options)

    def create_python_executor(self) -> PythonExecutor:
        """Return an executor in which every hidden tool is a function."""
        visible = self.session.list_visible()
        functions = {tool.name: _create_function(tool, self._call) for tool in visible}
        functions |= self.executor_kwargs.get("additional_functions", {})
        self.executor_kwargs = {**self.executor_kwargs, "additional_functions": functions}
        return super().create_python_executor()


class _OwnTool(AgentTool):
    """A meta-tool, or a tool of another server of the scout; the session answers its calls."""

    skip_forward_signature_validation = True
    output_type = "any"

    def __init__(self, tool: Tool, call: _Call) -> None:
        self.name = tool.name
        self.description = tool.description
        required = tool.input_schema.get("required", [])
        properties = cast("dict[str, Json]", tool.input_schema.get("properties", {}))
        least = {"type": "any", "description": ""}
        optional = {name: {} if name in required else {"nullable": True} for name in properties}
        self.inputs = {name: least | schema | optional[name] for name, schema in properties.items()}
        self._call = _create_function(tool, call)
        super().__init__()

    def forward(self, *given: object, **named: object) -> object:
        """Answer a call from code."""
        return self._call(*given, **named)


def _create_function(tool: Tool, call: _Call) -> Callable[..., object]:
    """Return a function that makes a call with the arguments that code passes to it."""
    names = [*tool.input_schema.get("properties", {})]

    def run(*given: object, **named: object) -> object:
        return call(tool.name, {**dict(zip(names, given, strict=False)), **named})

    return run


def _is_json(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _define(tool: AgentTool) -> Tool:
    schema = cast("Json", get_tool_json_schema(tool)["function"]["parameters"])
    # The SDK's own types become JSON Schema, so that calls can be checked.
    for name, declared in tool.inputs.items():
        one = schema["properties"][name]
        if cast("Json", declared).get("type") in _ANYTHING:
            del one["type"]
        elif one.pop("nullable", False):
            kinds = one["type"]
            one["type"] = [*(kinds if is_list(kinds) else [kinds]), "null"]
    return Tool.define(tool.name, description=tool.description, input_schema=schema)
