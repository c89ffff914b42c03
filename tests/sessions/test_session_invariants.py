"""What holds for a session whatever happens to it, in any order and in every mode."""

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from toolscout import (
    Catalog,
    Index,
    Mode,
    Policy,
    Reply,
    Scout,
    Session,
    Settings,
    Tool,
)
from toolscout.schemas import Json
from toolscout.sessions.record import Record
from toolscout.stores import SqliteStore

SERVERS = {
    "github": ("create_issue", "list_issues", "merge_branch", "delete_branch"),
    "slack": ("send_message", "list_channels", "create_channel"),
    "files": ("copy_folder", "delete_folder"),
    "secret": ("send_money", "list_accounts", "create_account"),
}
BUDGET_TOKENS = 120
PINS = ("files__copy_folder",)
DIALECT = "openai-responses"


def define(server: str, leaf: str, text: str = "") -> Tool:
    verb, _, noun = leaf.partition("_")
    described = f"{verb} a {noun} of the team in {server}. {text}"
    return Tool.define(leaf, server=server, description=described)


def tools_of(server: str) -> list[Tool]:
    return [define(server, leaf) for leaf in SERVERS[server]]


def make_catalog() -> tuple[Catalog, Index]:
    catalog = Catalog({server: tools_of(server) for server in SERVERS})
    return catalog, Index(catalog)


CONSTANT = cache(make_catalog)
"""For all conversations in which no server changes; made when the first of them begins."""
NAMES = sorted(tool.name for server in SERVERS for tool in tools_of(server))
WORDS = [
    *("create an issue", "send a message to the team", "list channels", "delete", "account"),
    *("weather forecast for the channel team", "zebra", "server:github", "server:secret", "git*"),
    *("/list/", "money", "select:nothing", "", "+team -slack list"),
]
QUERIES = st.sampled_from([*WORDS, *(f"select:{name}" for name in NAMES)])
SOME_NAMES = st.lists(st.sampled_from(NAMES), max_size=3)


def is_open(tool: Tool) -> bool:
    return tool.server != "secret"


def state_of(session: Session) -> str:
    return json.dumps(session.to_json())


def names_of(definitions: list[Json]) -> list[str]:
    return [definition.get("name") or definition["type"] for definition in definitions]


class SessionMachine(RuleBasedStateMachine):
    """One conversation over a store in a file; `ran` is what executors were asked to run."""

    mode: ClassVar[Mode] = Mode.BRIDGE
    catalog_changes: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = SqliteStore(Path(self.folder.name) / "store.db")
        self.catalog, self.index = make_catalog() if self.catalog_changes else CONSTANT()
        self.ran: list[str] = []
        self.forks = 0
        self.scout = self.new_scout()
        self.session = self.scout.session("a", pins=PINS)
        self.parents: list[tuple[Session, str]] = []

    def new_scout(self) -> Scout:
        async def run(tool: Tool, arguments: Json) -> str:
            self.ran.append(tool.name)
            return "done"

        return Scout(
            self.catalog,
            index=self.index,
            executors=run,
            store=self.store,
            policy=Policy(allowed=is_open),
            settings=Settings(
                mode=self.mode, loaded_tokens=BUDGET_TOKENS, pins=PINS, fruitless=100
            ),
        )

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @initialize()
    def first_request(self) -> None:
        self.array = self.session.tools(DIALECT)

    # What the model does

    @rule(queries=st.lists(QUERIES, min_size=1, max_size=3), limit=st.integers(1, 4))
    def search(self, queries: list[str], limit: int) -> None:
        before = state_of(self.session)
        reply = self.session.search(queries, limit=limit)
        self.keeps_promises(reply)
        self.watch_the_answer(reply)
        assert all(is_open(hit.tool) for hit in reply.hits)
        near = [
            n for q in reply.details.get("queries", []) for m in q["missing"] for n in m["near"]
        ]
        assert not any(name.startswith("secret") for name in near)
        if not (reply.hits or reply.described or reply.definitions or self.catalog_changes):
            assert state_of(self.session) == before
        self.accepts_what_it_showed(reply)

    def accepts_what_it_showed(self, reply: Reply) -> None:
        """What search shows, call may run: also what is not loaded, being weak or too much."""
        for hit in reply.hits[:1] + reply.hits[1:][-1:]:
            self.runs(hit.tool)

    def runs(self, tool: Tool) -> None:
        state = self.catalog.state(tool.server)
        failed = state is not None and state.status == "failed"
        probe = self.session.fork("probe")
        assert probe.call_sync(tool.name, {}).code == ("server_unavailable" if failed else "ok")
        assert failed or self.ran[-1] == tool.name
        self.scout.forget("probe")

    @rule(query=QUERIES)
    def search_until_nothing_is_new(self, query: str) -> None:
        for _ in NAMES:
            reply = self.session.search(query)
            self.watch_the_array()
            if not (reply.references or reply.described):
                break
        self.session.search(query)
        self.watch_the_array()
        before = state_of(self.session)
        reply = self.session.search(query)
        # Where the budget makes them take turns, there is always something new.
        if not (reply.references or reply.described):
            assert state_of(self.session) == before
            assert (
                self.store.read("session", self.session.id)
                == Record.from_json(self.session.to_json()).to_bytes()
            )

    @rule(query=QUERIES)
    def look_without_loading(self, query: str) -> None:
        loaded = self.session.loaded
        self.session.search(f"discover: {query}")
        assert self.session.loaded == loaded

    @rule(names=SOME_NAMES.filter(bool))
    def describe(self, names: list[str]) -> None:
        reply = self.session.describe(names)
        self.keeps_promises(reply)
        assert not any(name.startswith("secret") for name in reply.described)
        assert "of the team in secret" not in reply.text

    @rule(name=st.sampled_from(NAMES))
    def call(self, name: str) -> None:
        count = len(self.ran)
        reply = self.session.call_sync(name, {})
        if name.startswith("secret"):
            assert reply.code == "unknown_tool"
        assert self.ran[count:] == ([name] if reply.code == "ok" else [])

    # What the host does

    @rule(names=SOME_NAMES)
    def unload(self, names: list[str]) -> None:
        gone = self.session.unload(*names)
        assert not set(gone) & {*self.session.loaded, *self.session.pinned}
        open_names = {tool.name for tool in self.catalog if is_open(tool)}
        for name in {*(names or gone)} & open_names - {*self.session.pinned}:
            assert self.session.call_sync(name, {}).code == "not_loaded"

    @rule()
    def user_message(self) -> None:
        self.keeps_promises(self.session.user_message("and now something else"))

    @rule(again=st.booleans())
    def prompt(self, again: bool) -> None:
        self.session.system_prompt()
        self.session.announce_changes(again=again)

    @rule()
    def compact(self) -> None:
        loaded = self.session.loaded
        self.session.compact()
        assert self.session.loaded == loaded

    @rule(query=QUERIES)
    def save_and_restore(self, query: str) -> None:
        self.session.search("discover: zebra")  # takes the news, which are told only once
        state = self.session.to_json()
        saved = json.dumps(state)
        restored = self.new_scout().restore(json.loads(saved))
        restored.search("discover: zebra")
        assert state_of(restored) == saved
        self.behaves_alike(self.session, restored, query)
        self.session = self.scout.restore(state)
        assert state_of(self.session) == saved

    def behaves_alike(self, one: Session, two: Session, query: str) -> None:
        for ask in self.questions(query):
            a, b = ask(one), ask(two)
            assert (a.text, a.details, a.references) == (b.text, b.details, b.references)
        assert state_of(one) == state_of(two)
        assert one.tools(DIALECT) == two.tools(DIALECT)

    def questions(self, query: str) -> list[Callable[[Session], Any]]:
        return [
            lambda session: session.search(query),
            lambda session: session.call_sync(NAMES[0], {}),
            lambda session: session.describe(NAMES[-1]),
        ]

    @rule()
    def reopen_the_store(self) -> None:
        state = state_of(self.session)
        self.store.close()
        self.store = SqliteStore(Path(self.folder.name) / "store.db")
        self.scout = self.new_scout()
        self.session = self.scout.session(self.session.id, pins=PINS)
        self.parents.clear()
        if not self.catalog_changes:
            assert state_of(self.session) == state

    @rule(go_there=st.booleans(), inherit=st.booleans())
    def fork(self, go_there: bool, inherit: bool) -> None:
        self.forks += 1
        before = state_of(self.session)
        fork = self.session.fork(f"fork {self.forks}", inherit=inherit, names=NAMES[:3])
        fork.search("select:slack__list_channels")
        fork.describe(NAMES[:4])
        fork.unload()
        assert state_of(self.session) == before
        if go_there:
            self.parents.append((self.session, before))
            self.session = fork
            if not inherit:  # it begins a conversation, which reads what exists now
                self.array = fork.tools(DIALECT)

    # What servers do

    @precondition(lambda self: self.catalog_changes)
    @rule(
        server=st.sampled_from(sorted(SERVERS)),
        kept=st.integers(0, 4),
        text=st.text("ab", max_size=2),
    )
    def replace_tools(self, server: str, kept: int, text: str) -> None:
        leaves = SERVERS[server][:kept]
        self.catalog.replace(server, [define(server, leaf, text) for leaf in leaves])

    @precondition(lambda self: self.catalog_changes)
    @rule(server=st.sampled_from(sorted(SERVERS)), how=st.sampled_from(["gone", "fail", "wait"]))
    def lose_a_server(self, server: str, how: str) -> None:
        if how == "gone":
            self.catalog.remove(server)
        elif how == "fail":
            self.catalog.set_failed(server, "it fell over")
        else:
            self.catalog.set_pending(server)

    # What always holds

    def keeps_promises(self, reply: Reply) -> None:
        declared = names_of(self.session.tools(DIALECT))
        for name in reply.references:
            assert name in (*self.session.loaded, *self.session.pinned)
            constant = self.mode in (Mode.BRIDGE, Mode.DEFINITIONS)
            assert constant or name in declared
        for name in reply.references[:1]:
            tool = self.catalog.get(name)
            assert tool is not None and is_open(tool)
            self.runs(tool)

    @invariant()
    def watch_the_array(self) -> None:
        """Hold the next request against `array`, which was the one before or the first."""

    def watch_the_answer(self, reply: Reply) -> None:
        """Hold the answer to a search against what the provider takes."""

    @invariant()
    def nothing_forbidden_ran_or_is_shown(self) -> None:
        seen = {*self.session.loaded, *self.session.pinned, *names_of(self.session.tools(DIALECT))}
        assert not any(name.startswith("secret") for name in {*self.ran, *seen})

    @invariant()
    def pins_are_there(self) -> None:
        for name in PINS:
            assert (name in self.session.pinned) is (name in self.catalog)

    @invariant()
    def loaded_tools_fit_the_budget(self) -> None:
        record = Record.from_json(self.session.to_json())
        tokens = sum(entry.tokens for entry in record.loaded)
        assert tokens <= BUDGET_TOKENS or len(record.loaded) == 1

    @invariant()
    def the_store_has_what_the_session_has(self) -> None:
        if self.catalog_changes:
            self.session.save()  # looking at it has brought it in step with the catalogue
        assert (
            self.store.read("session", self.session.id)
            == Record.from_json(self.session.to_json()).to_bytes()
        )

    @invariant()
    def parents_stay_as_they_were(self) -> None:
        if not self.catalog_changes:
            assert all(state_of(parent) == state for parent, state in self.parents)


class BridgeMachine(SessionMachine):
    """The tools array never changes, whatever is loaded."""

    @invariant()
    def watch_the_array(self) -> None:
        assert json.dumps(self.session.tools(DIALECT)) == json.dumps(self.array)


class NativeMachine(SessionMachine):
    """The tools array grows at its end, unless something was unloaded or evicted."""

    mode = Mode.NATIVE

    @invariant()
    def watch_the_array(self) -> None:
        array = self.session.tools(DIALECT)
        kept = [shown for shown in self.array if shown in array]
        assert array[: len(kept)] == kept
        assert len(names_of(array)) == len(set(names_of(array)))
        self.array = array


class ReferenceMachine(SessionMachine):
    """Every tool is declared, so the array never changes either."""

    mode = Mode.REFERENCE

    @invariant()
    def watch_the_array(self) -> None:
        assert json.dumps(self.session.tools(DIALECT)) == json.dumps(self.array)


class DefinitionsMachine(SessionMachine):
    """The array never changes, and every search is answered in one shape."""

    mode = Mode.DEFINITIONS

    def watch_the_answer(self, reply: Reply) -> None:
        answer = reply.to_message(DIALECT, "c1")
        told = names_of(answer["tools"])
        declared = names_of(self.session.tools(DIALECT))
        assert answer["type"] == "tool_search_output"
        assert told and len(told) == len({*told, *declared}) - len(declared)
        assert {definition["type"] for definition in answer["tools"]} == {"function"}
        assert all(definition["description"] for definition in answer["tools"])
        assert set(reply.references) <= set(told)
        assert all(name in self.session.loaded or "search_note_" in name for name in told)

    @invariant()
    def watch_the_array(self) -> None:
        assert json.dumps(self.session.tools(DIALECT)) == json.dumps(self.array)


class ChangingBridgeMachine(SessionMachine):
    """Servers come, go and change their tools; the meta-tools do not change."""

    catalog_changes = True

    @invariant()
    def watch_the_array(self) -> None:
        assert self.session.tools(DIALECT)[:3] == self.array[:3]


class ChangingNativeMachine(ChangingBridgeMachine):
    """As before, with tools that join the array; no name is ever in it twice."""

    mode = Mode.NATIVE

    @invariant()
    def names_are_unique(self) -> None:
        names = names_of(self.session.tools(DIALECT))
        assert len(names) == len(set(names))


class ChangingReferenceMachine(ChangingNativeMachine):
    """As before, with every tool in the array."""

    mode = Mode.REFERENCE


class ChangingDefinitionsMachine(ChangingBridgeMachine, DefinitionsMachine):
    """As before, with definitions in the answers to searches."""

    mode = Mode.DEFINITIONS

    @invariant()
    def watch_the_array(self) -> None:
        assert self.session.tools(DIALECT)[:3] == self.array[:3]


@pytest.mark.parametrize(
    "machine",
    [
        *(BridgeMachine, NativeMachine, ReferenceMachine, DefinitionsMachine),
        *(ChangingBridgeMachine, ChangingNativeMachine, ChangingReferenceMachine),
        ChangingDefinitionsMachine,
    ],
)
@pytest.mark.requirement("R57")
def test_any_sequence_keeps_the_invariants(machine: type[SessionMachine]):
    """R56, R57, R58, R60, R61, R67, R70, R72: in every mode, with servers that change or not."""
    examples = min(25, hypothesis_settings().max_examples)  # fewer in `make quick`
    run_state_machine_as_test(
        machine, settings=hypothesis_settings(max_examples=examples, stateful_step_count=25)
    )
