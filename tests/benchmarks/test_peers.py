"""One contract for all peers, each with its real package; see `make test-peers`."""

import asyncio
import json
from importlib import import_module
from typing import Any

import pytest

from benchmarks.systems import MissingPeer, System, make_system
from toolscout.tools import Tool

PEERS = ("fastmcp", "pydantic-ai", "haystack", "ratel", "graph-tool-call", "bm25s", "rank-bm25")
HOSTILE_QUERIES = (
    *("", " ", "+++", "🙂", "(a+)+$", "[", "\\", "\x00", "\ud800", "select:", "mcp__"),
    *("word " * 2_000, "x" * 10_000, "天气预报", "the of and"),
)


def tool_with(leaf: str, description: str, *keys: str, server: str = "") -> Tool:
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in keys}}
    return Tool.define(leaf, server=server, description=description, input_schema=schema)


TOOLS = (
    tool_with("create_issue", "Open a new issue in a repository.", "title", server="github"),
    tool_with("merge_pull_request", "Merge a pull request.", "number", server="github"),
    tool_with("send_message", "Post a message to a channel.", "channel", server="slack"),
    tool_with("list_channels", "List the channels of a workspace.", server="slack"),
    tool_with("getWeather", "Tell the weather forecast of a city.", "city", "days"),
    tool_with("convert_currency", "Convert an amount of money to another currency.", "amount"),
    tool_with("read_file", "Read a file from disk and return its contents.", "path"),
    tool_with("book_flight", "Book a flight between two airports.", "origin", "destination"),
    tool_with("translate_text", "Translate a text into another language.", "text", "language"),
)


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> System:
    try:
        system = make_system(request.param)
    except MissingPeer as missing:
        pytest.skip(str(missing))
    system.build(TOOLS)
    return system


def names_found(system: System, query: str, limit: int = 5) -> list[str]:
    return [hit.tool.name for hit in system.search(query, limit)]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("weather forecast of a city", "getWeather"),
        ("merge the pull request", "github__merge_pull_request"),
        ("translate a text into another language", "translate_text"),
    ],
)
def test_an_obvious_query_finds_its_tool_first(peer: System, query: str, name: str):
    assert names_found(peer, query)[0] == name


def test_the_limit_is_kept(peer: System):
    for limit in (0, 1, 2, 50):
        assert len(peer.search("read a file from disk and send a message", limit)) <= limit


def test_scores_fall_from_hit_to_hit(peer: System):
    scores = [hit.score for hit in peer.search("post a message to a channel", 9)]

    assert scores
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("query", HOSTILE_QUERIES, ids=lambda query: ascii(query)[:12])
def test_no_query_raises(peer: System, query: str):
    hits = peer.search(query, 5)

    assert len(hits) <= 5
    assert peer.reply(query, hits)


def test_a_rebuild_forgets_the_tools_before(peer: System):
    peer.build([tool_with("play_song", "Play a song of an artist.", "title"), *TOOLS[:2]])

    assert names_found(peer, "play a song")[0] == "play_song"
    assert "getWeather" not in names_found(peer, "weather forecast of a city")


def test_odd_tools_are_taken(peer: System):
    listed = {"type": "object", "properties": {"a": {"description": ["x"]}, "b": True}}
    odd = Tool.define("search_tools", description="Find a zebra.", input_schema=listed)
    peer.build([odd, Tool.define("call_tool"), *TOOLS])

    assert names_found(peer, "find a zebra")[0] == "search_tools"


def test_an_empty_catalogue_has_no_hits(peer: System):
    peer.build([])

    assert peer.search("weather", 5) == []
    assert peer.reply("weather", [])


def test_two_runs_give_the_same(peer: System):
    queries = ("list a file", "message", "text of a city")
    first = [peer.search(query, 5) for query in queries]
    peer.build(TOOLS)

    assert [peer.search(query, 5) for query in queries] == first


def test_the_reply_names_the_hits(peer: System):
    query = "weather forecast of a city"
    hits = peer.search(query, 3)

    reply = peer.reply(query, hits)

    assert all(hit.tool.name in reply for hit in hits)


def test_fastmcp_finds_what_a_real_server_of_it_finds():
    fastmcp: Any = pytest.importorskip("fastmcp", reason="fastmcp is not installed")
    searches: Any = import_module("fastmcp.server.transforms.search")
    system = make_system("fastmcp")
    system.build(TOOLS)
    server = fastmcp.FastMCP("real", transforms=[searches.BM25SearchTransform(max_results=4)])
    for tool in TOOLS:
        server.add_tool(
            import_module("fastmcp.tools").Tool(
                name=tool.name, description=tool.description, parameters=tool.input_schema
            )
        )

    for query in ("send a message", "text of a file", "weather"):
        answer = asyncio.run(server.call_tool("search_tools", {"query": query}))
        listed = json.loads(answer.content[0].text)
        assert names_found(system, query, 4) == [entry["name"] for entry in listed]
        assert json.loads(system.reply(query, system.search(query, 4))) == listed
