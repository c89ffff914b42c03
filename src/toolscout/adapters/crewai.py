"""CrewAI: an agent's tools behind the three meta-tools.

`hide_tools(agent)` takes the tools of an agent, or of a task, and gives it the meta-tools instead.
Hidden tools run as CrewAI runs its own, with its hooks, cache, events and limits. Each run of an
agent has a session of its own; where several runs are one conversation, as in a flow, the session
is kept in a mapping that the caller has, such as the flow's state.
"""

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar, cast

from toolscout import Reply, Scout, Session, Settings, Tool
from toolscout.adapters._toolkit import (
    CALL,
    NO_CONTENT,
    Admission,
    Bridge,
    Json,
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
"""Runs of an agent whose sessions are remembered, the newest."""
RUN_EVENTS = ("agent_execution_started", "lite_agent_execution_started")
_ARGUMENTS_TEXT = 'The tool\'s arguments, as the text of a JSON object: \'{"city": "Bonn"}\'. '
_Owner = TypeVar("_Owner", Agent, Task)


def hide_tools(
    owner: _Owner,
    *,
    state: MutableMapping[str, Any] | None = None,
    scout: Scout | None = None,
    settings: Settings | None = None,
) -> _Owner:
    """Give an agent or a task the meta-tools in place of its tools, and return it.

    With `state`, all its runs go on with the one session that is kept there. Tools whose result
    is the answer stay as they are: CrewAI goes by their names.
    """
    if not owner.tools:
        raise UsageError("There are no tools to hide. Give them to the agent or task first.")
    bridge = Bridge(
        owner.tools,
        _tool,
        by_name=lambda tool: tool.result_as_answer,
        scout=scout,
        settings=settings,
    )
    desk = _Desk(bridge, owner, _Runs(bridge) if state is None else _Kept(bridge, state))
    owner.tools = [native or _MetaTool.of(tool, desk) for tool, native in bridge.list_tools()]
    return owner


class _Runs:
    """Sessions by the run that they belong to, in memory."""

    def __init__(self, bridge: Bridge[BaseTool]) -> None:
        self._bridge, self._lock = bridge, threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def answered(self, answer: Callable[[Session], object]) -> object:
        return answer(self._session(_run_id()))

    def _session(self, run: str) -> Session:
        with self._lock:
            session = self._sessions.pop(run, None) or self._bridge.open_session(run)
            self._sessions[run] = session
            while len(self._sessions) > RUNS_KEPT:
                self._sessions.popitem(last=False)
            return session


class _Kept:
    """One session, in a mapping of the caller's."""

    def __init__(self, bridge: Bridge[BaseTool], state: MutableMapping[str, Any]) -> None:
        self._bridge, self._state, self._lock = bridge, state, threading.Lock()

    def answered(self, answer: Callable[[Session], object]) -> object:
        before = self._state.get(STATE)
        session = self._bridge.open_session(STATE, before)
        try:
            return answer(session)
        finally:
            with self._lock:
                self._state[STATE] = merge_state(session, before, self._state.get(STATE))


class _Desk:
    """Answers the meta-tools of an agent or a task."""

    def __init__(
        self, bridge: Bridge[BaseTool], owner: Agent | Task, sessions: _Runs | _Kept
    ) -> None:
        self._bridge, self._owner, self._sessions = bridge, owner, sessions

    def answer(self, name: str, given: Json) -> object:
        return self._sessions.answered(lambda session: self._answered(session, name, given))

    def _answered(self, session: Session, name: str, given: Json) -> object:
        verdict = self._bridge.toolkit.handle_sync(session, name, given)
        if not isinstance(verdict, Admission):
            return cast("Reply", verdict).text
        with report_outcome(session, verdict):
            return add_notes(verdict, self._run(verdict))

    def _run(self, admitted: Admission) -> str:
        """Make a call as CrewAI makes those of a model."""
        native = cast("BaseTool", self._bridge.toolkit.get(admitted.tool.name))
        name, arguments = admitted.tool.name, json.dumps(admitted.arguments)
        agent = self._owner if isinstance(self._owner, Agent) else self._owner.agent
        executor = cast("Any", agent and agent.agent_executor)
        done = execute_single_native_tool_call(
            {"id": name, "function": {"name": name, "arguments": arguments}},
            available_functions={name: native.run},
            original_tools=[native],
            structured_tools=[native.to_structured_tool()],
            tools_handler=agent.tools_handler if agent else None,
            agent=agent,
            task=self._owner if isinstance(self._owner, Task) else _task_of(executor),
            crew=agent.crew if agent else None,
            event_source=agent or self,
        )
        return done.result or NO_CONTENT


def never_cached(arguments: object = None, result: object = None) -> bool:
    """Keep the cache of a crew out: what one run was answered says nothing of another."""
    return False


class _MetaTool(BaseTool):
    """A meta-tool as an agent has it."""

    _desk: _Desk = PrivateAttr()

    @classmethod
    def of(cls, tool: Tool, desk: _Desk) -> "_MetaTool":
        made = cls(
            name=tool.name,
            description=tool.description,
            args_schema=_model(tool),
            cache_function=never_cached,
        )
        made._desk = desk
        return made

    def _run(self, **given: Any) -> object:
        return self._desk.answer(self.name, _read(self.name, given))

    async def _arun(self, **given: Any) -> object:
        return await asyncio.to_thread(self._run, **given)


def _model(tool: Tool) -> type[BaseModel]:
    """Return a model that any arguments fit, and whose schema is that of a meta-tool."""
    schema = _strict(tool)

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow")

        @classmethod
        def __get_pydantic_json_schema__(
            cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
        ) -> Json:
            return json.loads(json.dumps(schema))

    Arguments.__name__ = tool.name
    return Arguments


def _strict(tool: Tool) -> Json:
    """Return a schema that still means the same when CrewAI has made it strict.

    Then every parameter is required, and an object without properties stays empty.
    """
    schema: Json = json.loads(json.dumps(tool.input_schema))
    properties = cast("dict[str, Json]", schema.get("properties", {}))
    if tool.name == CALL:
        rest = properties["arguments"]["description"].partition(". ")[2]
        properties["arguments"] = {"type": "string", "description": f"{_ARGUMENTS_TEXT}{rest}"}
    for name in properties.keys() - set(schema.get("required", ())):
        description = properties[name].pop("description", "")
        either: Json = {"anyOf": [properties[name], {"type": "null"}]}
        properties[name] = either | {"description": description}
    return schema


def _read(name: str, given: Json) -> Json:
    told = {key: value for key, value in given.items() if value is not None}
    text = told.get("arguments")
    if name == CALL and isinstance(text, str):
        # Text is how they were asked for, so it is no slip of the model's.
        with suppress(ValueError):
            told["arguments"] = json.loads(text)
    return told


def _tool(tool: BaseTool) -> Tool:
    name, schema = sanitize_tool_name(tool.name), tool.args_schema.model_json_schema()
    return Tool.define(name, description=tool.description, input_schema=schema)


def _run_id() -> str:
    """Return which run of an agent this is: CrewAI keeps the events that began it at hand."""
    begun = capture_execution_context().event_id_stack
    return next((id_ for id_, kind in reversed(begun) if kind in RUN_EVENTS), "")


def _task_of(executor: Any) -> Task | None:
    return getattr(executor, "task", None)
