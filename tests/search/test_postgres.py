"""What an index in PostgreSQL does besides the contract of every index, see `test_index`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from toolscout.catalog import Catalog
from toolscout.demo import load_demo_catalog
from toolscout.errors import DuplicateTool, StoreUnavailable, UsageError
from toolscout.hints.hints import Hints, digest_definition
from toolscout.search import postgres
from toolscout.search.hits import Result
from toolscout.search.index import Index
from toolscout.search.postgres import PostgresIndex
from toolscout.tools import Effect, Tool

VERBS = ("create", "list", "delete", "update", "export", "share", "archive", "rename")
NOUNS = ("invoice", "issue", "branch", "photo", "contact", "calendar", "ticket", "playlist")
QUERIES = (
    "create an invoice for a customer",
    "delete old photos",
    "who is in my contacts",
    "share the calendar of team 3, then export all tickets",
    "github issue",
    "archve a branch",
    "rechnung erstellen",
    "invoice effect:write",
    "+playlist share",
    "photo -delete",
    "server:team2 ticket",
    "team3",
    "create*",
    "/rename_(photo|issue)/",
    "select:team1__list_issue,team1__lst_isue",
    "kind:tool export",
    "list_branch",
    "qqzzx wvvut",
)

Open = Callable[..., PostgresIndex]


@pytest.fixture
def open_index(postgres_url: str) -> Iterator[Open]:
    opened: list[PostgresIndex] = []
    own = f"index_{uuid4().hex[:12]}"

    def open_one(**options: Any) -> PostgresIndex:
        opened.append(PostgresIndex(postgres_url, schema=own, pool_size=2, **options))
        return opened[-1]

    yield open_one
    for index in opened:
        index.close()


def make_tools(server: str, count: int, seed: int = 0) -> list[Tool]:
    random = Random(f"{server} {seed}")
    effects = {"list": Effect.READ, "export": Effect.READ, "delete": Effect.DESTRUCTIVE}
    tools: dict[str, Tool] = {}
    while len(tools) < count:
        verb, noun = random.choice(VERBS), random.choice(NOUNS)
        leaf = f"{verb}_{noun}" if f"{verb}_{noun}" not in tools else f"{verb}_{noun}_{len(tools)}"
        tools[leaf] = Tool.define(
            leaf,
            server=server,
            description=f"{verb.title()} one {noun} of {server} with {random.choice(NOUNS)} "
            f"number {random.randint(1, 40)}.",
            effect=effects.get(verb, Effect.WRITE),
        )
    return list(tools.values())


def load(index: PostgresIndex, servers: Mapping[str, Iterable[Tool]]) -> Index:
    """Put tools into an index; return one in memory with the same tools."""
    index.load(servers.items())
    return Index(Catalog(servers))


def describe(result: Result) -> tuple[object, ...]:
    hits = [(hit.tool, hit.score, hit.confidence, hit.why) for hit in result]
    rest = (result.query, result.worth, result.total, result.missing, result.corrected)
    return hits, rest, result.nearest


def names(result: Iterable[Any]) -> list[str]:
    return [hit.tool.name for hit in result]


@pytest.mark.parametrize("query", QUERIES)
def test_answers_and_explanations_are_those_of_an_index_in_memory(
    shared: tuple[PostgresIndex, Index], query: str
):
    index, memory = shared

    assert describe(index.search(query)) == describe(memory.search(query))


@pytest.fixture(scope="module")
def shared(postgres_url: str) -> Iterator[tuple[PostgresIndex, Index]]:
    """Give both kinds of index over the same tools, more than are all compared."""
    with PostgresIndex(postgres_url, schema=f"shared_{uuid4().hex[:12]}", pool_size=2) as index:
        yield index, load(index, {f"team{n}": make_tools(f"team{n}", 60) for n in range(5)})


def test_of_many_tools_the_candidates_are_those_of_an_index_in_memory(open_index: Open):
    index = open_index()
    memory = load(index, {f"team{n}": make_tools(f"team{n}", 60) for n in range(40)})

    shares: list[float] = []
    for query in QUERIES:
        mine, best = names(index.search(query)), names(memory.search(query))
        shares.append(len({*mine} & {*best}) / max(len(best), 1) if best else float(not mine))

    assert sum(shares) / len(shares) >= 0.95


def test_of_very_many_tools_neighbours_are_found_with_an_approximate_index(
    open_index: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(postgres, "NEIGHBOURS_FROM", 1_000)
    index = open_index()
    servers = {f"team{n}": make_tools(f"team{n}", 60) for n in range(30)}
    servers["garden"] = [Tool.define("mow", server="garden", description="Cuts the grass.")]
    load(index, servers)

    assert names(index.search("trim my lawn"))[0] == "garden__mow"

    index.replace("kitchen", [Tool.define("bake", server="kitchen", description="Makes bread.")])

    assert names(index.search("prepare a loaf"))[0] == "kitchen__bake"


def test_after_many_changes_an_index_answers_as_if_it_were_new(open_index: Open):
    index = open_index()
    random = Random(7)
    servers: dict[str, list[Tool]] = {}
    for step in range(25):
        server = f"team{random.randint(0, 4)}"
        if random.random() < 0.2:
            servers.pop(server, None)
            index.remove(server)
        else:
            servers[server] = make_tools(server, random.randint(1, 30), seed=step)
            index.replace(server, servers[server])

    memory = Index(Catalog(servers))
    assert len(index) == len(memory)
    assert index.servers == tuple(sorted(servers))
    for query in QUERIES[:9]:
        assert describe(index.search(query)) == describe(memory.search(query))


def test_a_change_is_seen_at_once_by_other_processes(open_index: Open):
    writer, reader = open_index(), open_index()
    assert len(reader.search("make an invoice")) == 0

    writer.replace("books", [Tool.define("create_invoice", server="books")])
    assert names(reader.search("make an invoice")) == ["books__create_invoice"]

    reader.replace("books", [Tool.define("list_invoices", server="books")])
    assert names(writer.search("make an invoice")) == ["books__list_invoices"]
    assert writer.get("books__create_invoice") is None


def test_a_tool_keeps_all_of_its_definition(open_index: Open):
    tool = Tool.define(
        "send",
        server="mail",
        title="Send it",
        description="Sends.\n\nA letter.",
        summary="Sends a letter.",
        input_schema={"type": "object", "properties": {"to": {"type": "string"}}},
        output_schema={"type": "object"},
        hint="post",
        aliases=["post_letter"],
        tags=["mail"],
        kind="Skill",
        effect="write",
        always_load=True,
        extras={"_meta": {"ui": {"visibility": ["app"]}}},
    )
    tool = replace(
        tool,
        claimed_effect=Effect.READ,
        instructions="Be brief.",
        fixed_arguments={"from": "me"},
        hidden_arguments=("bcc",),
    )
    index = open_index()

    index.replace("mail", [tool])

    assert index.get("mail__send") == tool
    assert index.search("post letter")[0].tool == tool
    assert index.resolve("MAIL.send") == [tool]
    assert names(index.search("kind:skill effect:read")) == ["mail__send"]


def test_a_name_that_another_server_has_changes_nothing(open_index: Open):
    index = open_index()
    index.replace("a.b", [Tool.define("run", server="a.b")])

    with pytest.raises(DuplicateTool):
        index.replace("a/b", [Tool.define("walk", server="a/b"), Tool.define("run", server="a/b")])

    assert names(index.search("effect:unknown")) == ["a_b__run"]


def test_a_tool_that_moves_to_another_definition_leaves_nothing_behind(open_index: Open):
    index = open_index()
    index.replace("s", [Tool.define("run", server="s", description="Feeds a wombat.")])
    index.replace("s", [Tool.define("run", server="s", description="Feeds a badger.")])

    assert names(index.search("+wombat")) == []
    assert names(index.search("+badger")) == ["s__run"]
    assert len(index) == 1


def test_a_hint_that_is_written_later_is_searched_at_once(open_index: Open):
    hints = Hints()
    index = open_index(hints=hints)
    tools = make_tools("team1", 40)
    index.replace("team1", tools)

    hints.add({digest_definition(tools[3]): "zebra crossing"}, by="person")

    assert names(index.search("zebra crossing"))[0] == tools[3].name
    memory = Index(Catalog({"team1": tools}), hints=hints)
    assert describe(index.search("zebra crossing")) == describe(memory.search("zebra crossing"))


def test_a_caller_who_may_see_one_server_of_many_finds_its_tools(open_index: Open):
    index = open_index()
    servers = {f"team{n}": make_tools(f"team{n}", 60) for n in range(20)}
    memory = load(index, servers)

    def allowed(tool: Tool) -> bool:
        return tool.server == "team7"

    for query in ("share a photo", "list_issue", "server:team7 invoice", "create*"):
        found = index.search(query, allowed=allowed)
        assert {hit.tool.server for hit in found} <= {"team7"}
        assert names(found) == names(memory.search(query, allowed=allowed))


def test_tools_to_judge_are_candidates_however_far_they_are(open_index: Open):
    index = open_index()
    load(index, {f"team{n}": make_tools(f"team{n}", 60) for n in range(12)})
    far = "team3__rename_playlist"
    assert index.get(far) is not None

    found = index.search("delete the branch of an issue", 100, also=[far])

    assert far in names(found)


def test_an_explanation_is_given_for_any_tool(open_index: Open):
    index = open_index()
    catalog = load_demo_catalog()
    servers: dict[str, list[Tool]] = {}
    for tool in catalog:
        servers.setdefault(tool.server, []).append(tool)
    memory = load(index, servers)
    name = next(iter(catalog)).name

    assert index.explain("send a message", name) == memory.explain("send a message", name)
    with pytest.raises(UsageError, match="There is no tool"):
        index.explain("send a message", "nobody__has_this")


def test_an_index_of_another_encoder_is_refused(open_index: Open):
    open_index()

    with pytest.raises(UsageError, match="another encoder"):
        open_index(encoder=None)


def test_a_database_that_is_away_is_reported_without_its_password():
    with pytest.raises(StoreUnavailable) as caught:
        PostgresIndex("postgresql://me:secret@127.0.0.1:1/none")

    assert "secret" not in str(caught.value)
