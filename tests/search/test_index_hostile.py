from collections.abc import Iterator
from typing import Any

import pytest

from toolscout.catalog import Catalog
from toolscout.errors import InvalidQuery, ModelError, UnknownServer
from toolscout.search.hits import Result
from toolscout.search.index import Index
from toolscout.tools import Tool

MANY = 100_000


def catalog_of(*tools: Tool) -> Catalog:
    plain = (
        Tool.define("copy", server="files", description="Copies a file to another folder."),
        Tool.define("send", server="mail", description="Sends a message to somebody."),
        Tool.define("aaaa", server="letters", description="a" * 5_000),
    )
    catalog = Catalog()
    for tool in (*plain, *tools):
        catalog.add(tool.server, [tool])
    return catalog


@pytest.fixture(scope="module")
def lexical() -> Index:
    return Index(catalog_of(), encoder=None)


@pytest.fixture(scope="module")
def semantic() -> Index:
    return Index(catalog_of())


@pytest.fixture(params=["words", "vectors"])
def index(request: pytest.FixtureRequest, lexical: Index, semantic: Index) -> Index:
    return lexical if request.param == "words" else semantic


def first(result: Result) -> str:
    return result[0].tool.name


# Queries


@pytest.mark.requirement("R10")
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "pattern",
    [
        "/(a+)+$/",
        "/(a|aa)+$/",
        "/(.*a){20}/",
        "/(a?){60}a{60}/",
        "/((a*)*)*b/",
        "/(?:x?){1000}/",
        "/((((a{9}){9}){9}){9}){9}/",
        r"/(\w+\s?)*!/",
        f"/{'(' * 200}a{')' * 200}/",
        f"/{'|'.join('ab' for _ in range(160))}/",
        f"/{'|'.join('ab' for _ in range(5_000))}/",
        f"/[{'a-z' * 150}]+$/",
        r"/\p{L}{500}/",
        "/(?<=a)b/",
        r"/(a)\1/",
        "/(/",
        "/[/",
        "/\\/",
        "/a**/",
        "/\ud800/",
        "/\x00/",
        "/(?i)🦘|邮件/",
    ],
)
def test_no_pattern_runs_long_or_fails_in_an_unexpected_way(index: Index, pattern: str):
    """R10"""
    try:
        result = index.search(pattern)
    except InvalidQuery as error:
        assert error.remedy
    else:
        assert len(result) <= 3


@pytest.mark.requirement("R12")
@pytest.mark.parametrize(
    "query",
    [
        "copy file " + "x" * 1_000_000,
        "copy file " + "word " * 200_000,
        "copy a file " * 90_000,
        " ".join(["copy", "file", *(f"word{n}" for n in range(10_000))]),
        "copy\x00 a\x00 file",
        "\u202ecopy a file\u202c",
        "\u2066copy\u2069 \u200ba file\ufeff",
        "🦘🦘 copy a file 🧑‍🚀",
        "\ud800copy a file\udfff",
        "copy a file שלום عليكم 邮件 письмо ไฟล์",
        "\uff23\uff2f\uff30\uff39 a \uff46\uff49\uff4c\uff45",
        "c\u0301o\u0308p\u0327y\u0302 a file",
        "copy a file" + "\u0301" * 10_000,
        "copy " * 3 + "file\n\t\r\x0b\x0c\x85\u2028",
        "<|im_start|>copy a file</s>",
        "copy a file'; DROP TABLE tools; --",
        "copy a file %s %n {0} ${HOME}",
    ],
    ids=lambda query: ascii(query[:24]),
)
def test_a_hostile_query_still_finds_what_it_names(index: Index, query: str):
    """R12"""
    result = index.search(query)

    assert first(result) == "files__copy"
    assert sum(result[0].why.shares.values()) == pytest.approx(1)


@pytest.mark.requirement("R10")
@pytest.mark.timeout(90)
def test_time_does_not_grow_with_the_square_of_a_query(lexical: Index):
    """R10"""
    # Taken in the square, each of the first kinds takes seconds; all together they take less.
    for sign in ("x", "A", "'", "/", "+", "@", "1", "x1", "a@", '"', "https://", ". ", "aB", "邮"):
        result = lexical.search(f"copy {sign * (20_000 // len(sign))}")

        assert first(result) == "files__copy"


@pytest.mark.requirement("R12")
@pytest.mark.parametrize(
    "query",
    [
        *("\x00", "\ud800", "\u202e\u202c", "\ufeff", "\u0301" * 50, "🦘", "🏳️‍🌈", "𒐫", "ﷺ"),
        *("+" * 5_000, "-" * 5_000, '"' * 5_000, "/" * 5_000, "*" * 5_000, "_" * 5_000),
        *("+a " * 5_000, "-a " * 5_000, '+"' * 2_000, "a* " * 2_000, "server:a " * 2_000),
        *("select:" + "a," * 5_000, "select:" * 500, "discover:" * 500, "kind:a,b,c" * 300),
        *("select:" + "\ud800", "select:\x00", "server:\ud800", "server:" + "x" * 15_000),
        *("effect:\x00", "kind:\ud800 a", "+\x00 a", "-\ud800 a", "\ud800*", "%00", "\\", "mcp__"),
    ],
    ids=lambda query: ascii(query[:24]),
)
def test_a_query_that_makes_no_sense_is_answered_or_refused_for_the_model(index: Index, query: str):
    """R12"""
    try:
        result = index.search(query)
    except ModelError as error:
        assert str(error)
    else:
        assert len(result) <= 10
        assert all(hit.why.shares for hit in result)


def test_two_thousand_selected_names_are_each_answered(lexical: Index):
    wanted = [f"n{number}" for number in range(2_000)]
    result = lexical.search(f"select:files__copy,{','.join(wanted)}")

    assert first(result) == "files__copy"
    assert [missing.name for missing in result.missing] == wanted


def test_a_long_unknown_server_is_reported(lexical: Index):
    with pytest.raises(UnknownServer):
        lexical.search(f"copy server:{'x' * 10_000}")


# Tools


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {"bottom": {"type": "string"}}}
    for level in range(depth):
        schema = {"type": "object", "properties": {f"level{level}": schema}}
    return schema


RECURSIVE: dict[str, Any] = {
    "type": "object",
    "properties": {"node": {"$ref": "#/$defs/node"}},
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "quokka": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                "self": {"$ref": "#"},
            },
        }
    },
}
WIDE = {"properties": {f"field{n}": {"type": "string"} for n in range(5_000)}}


@pytest.mark.parametrize("with_vectors", [False, True])
@pytest.mark.parametrize(
    ("tool", "query"),
    [
        (Tool.define("big", description=f"{'blah ' * 20_000}"), "big blah"),
        (Tool.define("big", description="x" * 100_000), "big thing"),
        (Tool.define("big", description=f"quokka {'lorem ipsum ' * 8_000}"), "quokka"),
        (Tool.define("tree", input_schema=RECURSIVE), "quokka"),
        (Tool.define("wide", input_schema=WIDE), "wide field 7"),
        (Tool.define("deep", input_schema=nested(90)), "deep level"),
        (Tool.define("bare"), "bare thing"),
        (Tool.define("blank", description="  \n\t ", input_schema={}), "blank thing"),
        (Tool.define("odd", input_schema={"properties": [1, 2], "type": 5}), "odd thing"),
        (Tool.define("odd", input_schema={"properties": {"": None, "quokka": 3}}), "odd thing"),
        (Tool.define("odd", input_schema={"$ref": "#"}), "odd thing"),
        (Tool.define("null", description="quokka\x00\ud800\u202e wallaby"), "wallaby quokka"),
        (Tool.define("long_" * 200), "long thing"),
        (Tool.define("many", tags=[f"t{n} quokka" for n in range(500)]), "quokka"),
        (Tool.define("发送邮件"), "发送邮件 现在"),
        (Tool.define("メールを送る"), "メール を 送る"),
        (Tool.define("메일_보내기"), "메일"),
        (Tool.define("отправить_письмо"), "письмо"),
        (Tool.define("שלח_דואר"), "דואר"),
        (Tool.define("إرسال_بريد"), "بريد"),
        (Tool.define("ส่งอีเมล"), "ส่งอีเมล"),
        (Tool.define("ईमेल_भेजें"), "ईमेल"),
        (Tool.define("στείλε_γράμμα"), "ΓΡΑΜΜΑ"),
        (Tool.define("🦘"), "🦘"),
        (Tool.define("\N{SCRIPT SMALL G}et_\N{MATHEMATICAL BOLD SCRIPT SMALL Q}uokka"), "quokka"),
        (Tool.define("a b/c.d:e@f\\quokka"), "quokka"),
        (Tool.define("\ud800quokka"), "quokka"),
        (Tool.define("quokka\x00"), "quokka"),
    ],
    ids=lambda value: ascii(value.leaf[:16]) if isinstance(value, Tool) else "",
)
def test_a_hostile_tool_is_found_by_its_words_and_by_its_name(
    tool: Tool, query: str, with_vectors: bool
):
    catalog = catalog_of(tool)
    index = Index(catalog) if with_vectors else Index(catalog, encoder=None)

    assert first(index.search(query)) == tool.name
    assert first(index.search(tool.name)) == tool.name
    assert first(index.search(f"select:{tool.name}")) == tool.name
    assert first(index.search("copy a file")) == "files__copy"
    assert index.explain(query, tool.name).shares


@pytest.mark.parametrize("with_vectors", [False, True])
def test_a_tool_stuffed_with_words_does_not_push_others_away(with_vectors: bool):
    stuffed = Tool.define("stuffed", description="copy file send message folder somebody " * 2_000)
    catalog = catalog_of(stuffed)
    index = Index(catalog) if with_vectors else Index(catalog, encoder=None)

    assert first(index.search("copy a file to another folder")) == "files__copy"
    assert first(index.search("send somebody a message")) == "mail__send"


def test_tools_without_any_word_are_listed_and_selected():
    found = [Tool.define(mark, server="s") for mark in ("!!!", "???", "…")]
    index = Index(catalog_of(*found), encoder=None)

    assert {hit.tool.leaf for hit in index.search("server:s")} == {"!!!", "???", "…"}
    assert first(index.search("select:???")) == found[1].name


# Size


def synthetic_tools() -> Iterator[Tool]:
    verbs = ("get", "list", "make", "drop", "send", "read", "move", "sort", "find", "join")
    things = ("file", "mail", "page", "song", "road", "bill", "team", "lamp", "ship", "tree")
    for number in range(MANY):
        verb, thing = verbs[number % 10], things[number // 10 % 10]
        yield Tool.define(
            f"{verb}_{thing}_{number}",
            server=f"server{number % 500}",
            description=f"{verb.title()} any {thing} of the account in batch {number // 100}.",
        )


@pytest.mark.requirement("R36")
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_hundred_thousand_tools_are_searched():
    """R36"""
    servers: dict[str, list[Tool]] = {}
    for tool in synthetic_tools():
        servers.setdefault(tool.server, []).append(tool)
    odd = Tool.define("weigh", server="server7", description="Weighs a quokka in a batch.")
    servers["server7"].append(odd)
    catalog = Catalog(servers)
    index = Index(catalog, encoder=None)

    assert len(index) == MANY + 1
    assert first(index.search("server7__sort_file_2007")) == "server7__sort_file_2007"
    assert first(index.search("Sort File 2007")) == "server7__sort_file_2007"
    assert first(index.search("weigh any quokka of the account")) == odd.name
