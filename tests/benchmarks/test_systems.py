"""The five baselines against the known answers of five-systems.md, section 6."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.systems import MissingPeer, Ranked, System, make_system
from benchmarks.systems.claude_code_best import STOP_WORDS, stem
from benchmarks.systems.definitions import mcp_name
from benchmarks.systems.dirge import ascii_lower
from benchmarks.systems.oh_my_pi import collation_key, tokens_from_text, weighted_tokens
from benchmarks.systems.system import finish, import_peer
from toolscout.errors import UsageError
from toolscout.tools import Tool

BASELINES = ("oh-my-pi", "claude-code-best", "dirge", "cortex", "deer-flow")
TOLERANCE = 0.0005


def tool_with(leaf: str, description: str, *keys: str, server: str = "") -> Tool:
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in keys}}
    return Tool.define(leaf, server=server, description=description, input_schema=schema)


CORPUS = {
    "G": tool_with(
        "create_issue",
        "Create a new issue in a repository.",
        "body",
        "owner",
        "repo",
        "title",
        server="github",
    ),
    "S": tool_with(
        "send_message", "Send a message to a channel.", "channel", "text", server="slack"
    ),
    "C": tool_with("CronCreate", "Schedule a recurring job.", "command", "schedule"),
    "R": tool_with("read", "Read a file from disk and return its contents.", "offset", "path"),
}

# A hit without a score is one whose score the original does not tell.
KNOWN_ANSWERS = {
    "create issue": (
        "G 5.6968, C 2.0970",
        "G 0.8266, C 0.3066",
        "G 7.0317, C 3.6143, R 1.0714, S 0.2817",
        "G 24, C 5",
        "",
    ),
    "create": (
        "C 2.0970, G 2.0814",
        "G 0.5908, C 0.4384",
        "G 9.2909, C 8.2118, R 1.6200",
        "G 12, C 5",
        "G 2, C 2",
    ),
    "issues": ("", "", "G 1.0327, S 0.5536, R 0.0400", "", ""),
    "send_message": ("S 7.2514", "", "S 8.4149, G 0.2159, R 0.0714", "S 3", "S 2"),
    "CronCreate": (
        "C 5.7394, G 2.0814",
        "C 0.4000",
        "C 19.0606, R 1.1852, G 1.1416",
        "C",
        "C 2",
    ),
    "read": ("R 3.6751", "R 0.8992", "R 21.1250, C 1.0741, G 0.5526", "R", "R 2"),
    "thread dump": ("", "R 0.4500", "R 5.5664, C 0.7492, G 0.6203, S 0.0541", "", ""),
    "play some music": ("", "", "S 0.4707, G 0.0833, R 0.0678, C 0.0526", "", ""),
    "+slack cron create": (
        "C 5.7394, S 3.5584, G 2.0814",
        "S 0.6268, C 0.4500, G 0.0636",
        "C 5.8949, G 3.4670, R 0.8581, S 0.6455",
        "S 12",
        "S",
    ),
    # oh-my-pi and dirge give an error here, which is no hits for a benchmark.
    "": ("", "", "", "", "G 2, S 2, C 2, R 2"),
}


def built(name: str) -> System:
    system = make_system(name)
    system.build(list(CORPUS.values()))
    return system


def letters_of(hits: list[Ranked]) -> str:
    letters = {tool.name: letter for letter, tool in CORPUS.items()}
    return "".join(letters[hit.tool.name] for hit in hits)


@pytest.mark.requirement("R38")
@pytest.mark.parametrize("query", KNOWN_ANSWERS)
@pytest.mark.parametrize("name", BASELINES)
def test_baseline_gives_the_known_answer(name: str, query: str):
    """R38"""
    expected = [entry.split() for entry in KNOWN_ANSWERS[query][BASELINES.index(name)].split(",")]
    expected = [entry for entry in expected if entry]

    hits = built(name).search(query, 20)

    assert letters_of(hits) == "".join(entry[0] for entry in expected)
    for hit, entry in zip(hits, expected, strict=True):
        if len(entry) > 1:
            assert hit.score == pytest.approx(float(entry[1]), abs=TOLERANCE)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize(
    "query", ["", " ", "+", "+++", "🙂", "(a+)+$", "[", "\\", "\ud800", "a" * 10_000, "select:"]
)
def test_no_query_raises(name: str, query: str):
    system = built(name)

    hits = system.search(query, 3)

    assert len(hits) <= 3
    assert system.reply(query, hits)


@pytest.mark.parametrize("name", BASELINES)
def test_a_rebuild_forgets_the_tools_before(name: str):
    system = built(name)
    system.build([CORPUS["S"]])

    assert letters_of(system.search("CronCreate", 5)) in ("", "S")
    assert letters_of(system.search("message", 5)) in ("", "S")


@pytest.mark.parametrize("name", BASELINES)
def test_an_empty_catalogue_has_no_hits(name: str):
    system = make_system(name)

    assert system.search("create", 5) == []


def test_oh_my_pi_weighs_fields_as_documented():
    lengths = [weighted_tokens(tool).total() for tool in CORPUS.values()]

    assert lengths == [68, 64, 30, 30]


def test_oh_my_pi_splits_words_at_case_and_symbols():
    assert tokens_from_text("MCPTool getÄrger2Go_no ПриветМир") == (
        ["mcp", "tool", "get", "arger2", "go", "no", "привет", "мир"]
    )


def test_oh_my_pi_orders_equal_scores_as_a_locale_does():
    names = ["b", "B", "a_b", "ab", "aB", "a1"]

    assert sorted(names, key=collation_key) == ["a_b", "a1", "ab", "aB", "b", "B"]


def test_claude_code_best_has_its_stop_words_and_stems():
    assert len(STOP_WORDS) == 114
    assert [
        stem(word) for word in ("issues", "kindness", "class", "users", "bus", "as", "added")
    ] == (["issu", "kind", "class", "user", "bus", "as", "add"])


def test_claude_code_best_selects_by_name_and_alias_and_never_cuts():
    system = make_system("claude-code-best")
    tools = [*CORPUS.values(), Tool.define("Grep", aliases=["search"])]
    system.build(tools)

    hits = system.search("SELECT: search, read,nothing, mcp__slack__send_message, read", 1)

    assert [hit.tool.leaf for hit in hits] == ["Grep", "read", "send_message"]


def test_claude_code_best_discovers_by_tfidf_alone():
    hits = built("claude-code-best").search("discover: create", 5)

    assert letters_of(hits) == "CG"
    assert hits[0].score == pytest.approx((0.4384 - 0.2) / 0.6, abs=TOLERANCE)


def test_claude_code_best_finds_names_by_prefix_in_pool_order():
    assert letters_of(built("claude-code-best").search("MCP__", 5)) == ""
    assert letters_of(built("claude-code-best").search("MCP__s", 5)) == "S"


def test_cortex_selects_and_completes_names():
    system = built("cortex")

    assert letters_of(system.search("select:read, CronCreate,READ", 1)) == "RC"
    assert letters_of(system.search("mcp__", 5)) == "GS"
    assert letters_of(system.search("mcp__", 1)) == "G"


def test_dirge_gives_twenty_at_most():
    system = make_system("dirge")
    system.build([tool_with(f"read_{number}", "Read a file.") for number in range(30)])

    assert len(system.search("read", 25)) == 20


def test_deer_flow_gives_five_at_most():
    system = make_system("deer-flow")
    system.build([tool_with(f"read_{number}", "Read a file.") for number in range(9)])

    assert [hit.tool.name for hit in system.search("FILE", 10)] == [f"read_{n}" for n in range(5)]
    assert [hit.tool.name for hit in system.search("select:read_8,read_1", 10)] == (
        ["read_1", "read_8"]
    )


def test_deer_flow_ranks_required_names_by_matches_of_the_rest():
    hits = built("deer-flow").search("+C is[st]ue", 5)

    assert [(hit.tool.leaf, hit.score) for hit in hits] == (
        [("create_issue", 2.0), ("send_message", 0.0), ("CronCreate", 0.0)]
    )


@pytest.mark.parametrize("query", ["a(?=b)", "c++", "(unclosed"])
def test_deer_flow_takes_literally_what_is_no_pattern(query: str):
    system = make_system("deer-flow")
    system.build([tool_with("odd", f"Explains {query} to you."), CORPUS["R"]])

    assert [hit.tool.name for hit in system.search(query.upper(), 5)] == ["odd"]


@pytest.mark.requirement("R10")
def test_deer_flow_survives_a_hostile_pattern():
    """R10"""
    system = make_system("deer-flow")
    system.build([tool_with("long", "a" * 5_000 + "!")])

    assert system.search("(a+)+$", 5) == []


QUERY_TEXTS = st.text(alphabet="aceirstu_ +", max_size=30) | st.text(max_size=10)


@given(query=QUERY_TEXTS)
def test_dirge_scores_as_one_tool_at_a_time_would(query: str):
    expected = {
        tool.name: score
        for tool in CORPUS.values()
        if (score := dirge_score(query.strip(), mcp_name(tool), tool.description)) > 0
    }

    hits = built("dirge").search(query, 20)

    assert {hit.tool.name: hit.score for hit in hits} == pytest.approx(expected, abs=TOLERANCE)


def dirge_score(query: str, name: str, description: str) -> float:
    query, name, description = map(ascii_lower, (query, name, description))
    if not query:
        return 0.0
    score = 10.0 * (name == query) + 4.0 * (query in name or name in query)
    score += sum(2.0 for token in query.split() if len(token.encode()) > 1 and token in name)
    score += 3 * dice(query, name) + 1.5 * (query in description)
    score += sum(0.5 for token in query.split() if len(token.encode()) > 2 and token in description)
    return score + dice(query, description)


def dice(first: str, second: str) -> float:
    rest = [second[i : i + 2] for i in range(len(second) - 1)]
    total, shared = len(rest) + max(len(first) - 1, 0), 0
    for i in range(len(first) - 1):
        if first[i : i + 2] in rest:
            rest.remove(first[i : i + 2])
            shared += 1
    return 2 * shared / total if shared else 0.0


def test_required_words_bind_as_far_as_they_do_in_the_originals():
    assert letters_of(built("cortex").search("+disk read create", 5)) == "R"
    assert letters_of(built("claude-code-best").search("+disk zzz", 5)) == "R"
    assert letters_of(built("claude-code-best").search("+dis create", 5)) == "CG"


def test_replies_are_those_of_the_originals():
    hits = [Ranked(CORPUS["S"], 1.0)]
    description = "Send a message to a channel."
    name = "mcp__slack__send_message"
    replies = {system: built(system).reply("say hello", hits) for system in BASELINES}

    assert replies["oh-my-pi"] == (
        '{"query":"say hello","activated_tools":["mcp__slack__send_message"],'
        '"match_count":1,"total_tools":4}'
    )
    assert replies["claude-code-best"].startswith(f"Found 1 deferred tool(s): {name}\n")
    assert json.loads(replies["dirge"])["results"] == [
        {
            "name": name,
            "description": description,
            "parameters": "{channel?: string, text?: string}",
        }
    ]
    assert name in replies["cortex"]
    assert json.loads(replies["deer-flow"]) == [
        {"name": name, "description": description, "parameters": CORPUS["S"].input_schema}
    ]


def test_deer_flow_says_what_it_did_not_find():
    assert built("deer-flow").reply("zzz", []) == "No tools found matching: zzz"


def test_an_unknown_system_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match=r"no system 'nothing'.*oh-my-pi.*bm25s"):
        make_system("nothing")


def test_a_missing_package_is_named():
    with pytest.raises(MissingPeer, match="pip install no-such-package") as caught:
        import_peer("no_such_package.part", system="some", package="no-such-package")

    assert (caught.value.system, caught.value.package) == ("some", "no-such-package")


def test_a_coroutine_that_waits_is_refused():
    async def wait() -> None:
        await asyncio.sleep(1)

    with pytest.raises(RuntimeError, match="event loop"):
        finish(wait())


@pytest.mark.parametrize("name", ["toolscout", "toolscout-lexical", "toolscout-onnx"])
def test_ours_finds_and_reads_queries_as_words(name: str):
    system = built(name)

    assert letters_of(system.search("create an issue", 1)) == "G"
    assert letters_of(system.search("/create an issue/", 1)) == "G"
    assert system.search("", 5) == []
    assert system.reply("create an issue", [Ranked(CORPUS["G"], 1.0)]) == (
        f"{CORPUS['G'].render_signature()} \N{EN DASH} {CORPUS['G'].first_sentence}"
    )
