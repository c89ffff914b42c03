"""CrewAI: an agent's tools behind the three meta-tools.

`hide_tools(agent)` replaces the tools of an agent, or of a task, by the meta-tools. Hidden tools
run as CrewAI runs its own, with its hooks, cache, events and limits. Each run of an agent has its
own session. If several runs are one conversation, as in a flow, the session is kept in a mapping of
the caller's, such as the flow's state.
"""

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TypeVar, Unpack, cast

from toolscout import Reply, Session, Tool
from toolscout.adapters._toolkit import (
    ARGUMENTS_AS_TEXT,
    CALL,
    NO_CONTENT,
    ApprovedCall,
    Bridge,
    Json,
    ToolkitOptions,
    add_notes,
    merge_state,
    report_outcome,
)
from toolscout.errors import MissingExtra, UsageError

try:
    from crewai import Agent, Task
    from crewai.context import capture_execution_context
    from crewai.tools import BaseTool
    from crewai.utilities.agent_utils import execute_single_native_tool_call
    from crewai.utilities.string_utils import sanitize_tool_name
    from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, PrivateAttr
    from pydantic_core import CoreSchema
except ModuleNotFoundError as error:
    raise MissingExtra("crewai", extra="crewai") from error

STATE = "toolscout"
"""The key of the session in a mapping of the caller's."""
RUNS_KEPT = 256
"""How many runs of an agent keep their sessions; the oldest leave first."""
RUN_EVENTS = ("agent_execution_started", "lite_agent_execution_started")
_Owner = TypeVar("_Owner", Agent, Task)


def hide_tools(
    owner: _Owner,
    *,
    state: MutableMapping[str, Any] | None = None,
    **options: Unpack[ToolkitOptions],
) -> _Owner:
    """Replace the tools of an agent or a task by the meta-tools, and return it.

    With `state`, all its runs share the session that is kept there. Tools whose result is the
    final answer stay visible: CrewAI recognizes them by their names.
    """
    if not owner.tools:
        raise UsageError("There are no tools to hide. Give them to the agent or task first.")
    bridge = Bridge(owner.tools, _define, by_name=lambda tool: tool.result_as_answer, **options)
    handler = _Handler(bridge, owner, state)
    owner.tools = [native or _MetaTool.create(t, handler) for t, native in bridge.list_declared()]
    return owner


class _Handler:
    """Answers the meta-tools of an agent or a task.

    The sessions of its runs are in memory, unless all runs share one in a mapping of the caller's.
    """

    def __init__(
        self, bridge: Bridge[BaseTool], owner: Agent | Task, state: MutableMapping[str, Any] | None
    ) -> None:
        self._bridge = bridge
        self._owner = owner
        self._state = state
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def answer(self, name: str, given: Json) -> object:
        if self._state is None:
            return self._handle(self._get_session(), name, given)
        before = self._state.get(STATE)
        session = self._bridge.open_session(STATE, before)
        try:
            return self._handle(session, name, given)
        finally:
            with self._lock:
                self._state[STATE] = merge_state(session, before, self._state.get(STATE))

    def _get_session(self) -> Session:
        """Return the session of the agent's run: CrewAI keeps the events that began it."""
        begun = capture_execution_context().event_id_stack
        run = next((id_ for id_, kind in reversed(begun) if kind in RUN_EVENTS), "")
        with self._lock:
            session = self._sessions.pop(run, None) or self._bridge.open_session(run)
            self._sessions[run] = session
            while len(self._sessions) > RUNS_KEPT:
                self._sessions.popitem(last=False)
            return session

    def _handle(self, session: Session, name: str, given: Json) -> object:
        verdict = self._bridge.handle_sync(session, name, given)
        if not isinstance(verdict, ApprovedCall):
            return cast("Reply", verdict).text
        with report_outcome(session, verdict):
            return add_notes(verdict, self._run_native(verdict))

    def _run_native(self, call: ApprovedCall) -> str:
        """Make a call as CrewAI makes a model's own calls."""
        native = self._bridge.get_native(call)
        name = call.tool.name
        arguments = json.dumps(call.arguments)
        agent = self._owner if isinstance(self._owner, Agent) else self._owner.agent
        executor = cast("Any", agent and agent.agent_executor)
        done = execute_single_native_tool_call(
            {"id": name, "function": {"name": name, "arguments": arguments}},
            available_functions={name: native.run},
            original_tools=[native],
            structured_tools=[native.to_structured_tool()],
            tools_handler=agent.tools_handler if agent else None,
            agent=agent,
            task=self._owner if isinstance(self._owner, Task) else getattr(executor, "task", None),
            crew=agent.crew if agent else None,
            event_source=agent or self,
        )
        return done.result or NO_CONTENT


def refuse_cache(arguments: object = None, result: object = None) -> bool:
    """Keep replies out of the crew's cache: the reply to one run is wrong for another."""
    return False


class _MetaTool(BaseTool):
    """A meta-tool as an agent has it."""

    _handler: _Handler = PrivateAttr()

    @classmethod
    def create(cls, tool: Tool, handler: _Handler) -> "_MetaTool":
        made = cls(
            name=tool.name,
            description=tool.description,
            args_schema=_create_model(tool),
            cache_function=refuse_cache,
        )
        made._handler = handler
        return made

    def _run(self, **given: Any) -> object:
        arguments = {key: value for key, value in given.items() if value is not None}
        text = arguments.get("arguments")
        if self.name == CALL and isinstance(text, str):
            # The schema asks for text, so this is no mistake of the model's.
            with suppress(ValueError):
                arguments["arguments"] = json.loads(text)
        return self._handler.answer(self.name, arguments)

    async def _arun(self, **given: Any) -> object:
        return await asyncio.to_thread(self._run, **given)


def _create_model(tool: Tool) -> type[BaseModel]:
    """Return a model that accepts any arguments and has the schema of a meta-tool."""

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow")

        @classmethod
        def __get_pydantic_json_schema__(
            cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
        ) -> Json:
            return _prepare_schema(tool)

    Arguments.__name__ = tool.name
    return Arguments


def _prepare_schema(tool: Tool) -> Json:
    """Return a schema that keeps its meaning when CrewAI makes it strict.

    A strict schema requires every parameter and keeps an object without properties empty.
    """
    schema: Json = json.loads(json.dumps(tool.input_schema))
    properties = cast("dict[str, Json]", schema.get("properties", {}))
    if tool.name == CALL:
        rest = properties["arguments"]["description"].partition(". ")[2]
        properties["arguments"] = {"type": "string", "description": f"{ARGUMENTS_AS_TEXT} {rest}"}
    for name in properties.keys() - set(schema.get("required", ())):
        description = properties[name].pop("description", "")
        either: Json = {"anyOf": [properties[name], {"type": "null"}]}
        properties[name] = either | {"description": description}
    return schema


def _define(tool: BaseTool) -> Tool:
    name = sanitize_tool_name(tool.name)
    schema = tool.args_schema.model_json_schema()
    return Tool.define(name, description=tool.description, input_schema=schema)
