import json

import pytest

from demos import make_demo_scout
from toolscout import Scout
from toolscout.demo import load_demo_catalog
from toolscout.dialects import Dialect, to_definition
from toolscout.sessions.metatools import INSTRUCTIONS, build_meta_tools, to_meta_name
from toolscout.tokens import count_tokens
from toolscout.tools import Effect

DEFINITION_LIMIT_TOKENS = 900


@pytest.mark.parametrize("dialect", list(Dialect))
def test_the_three_definitions_cost_less_than_900_tokens(dialect: Dialect):
    definitions = [to_definition(tool, dialect) for tool in build_meta_tools()]

    assert count_tokens(json.dumps(definitions)) < DEFINITION_LIMIT_TOKENS


@pytest.mark.parametrize(
    ("dialect", "path"),
    [
        ("openai-chat", ("function", "parameters")),
        ("openai-responses", ("parameters",)),
        ("anthropic", ("input_schema",)),
        ("mcp", ("inputSchema",)),
    ],
)
def test_a_session_declares_the_three_tools_in_each_dialect(dialect: str, path: tuple[str, ...]):
    session = make_demo_scout().session("a")

    parameters: list[list[str]] = []
    for definition in session.tools(dialect)[:3]:
        for step in path:
            definition = definition[step]
        parameters.append(list(definition["properties"]))

    assert parameters == [
        ["queries", "limit", "detail", "max_tokens"],
        ["names"],
        ["name", "arguments"],
    ]


@pytest.mark.requirement("R98")
@pytest.mark.parametrize("dialect", list(Dialect))
def test_definitions_and_section_stay_the_same_bytes_whatever_is_loaded(dialect: Dialect):
    """R98"""
    session = make_demo_scout().session("a")
    before = json.dumps(session.tools(dialect)), session.system_prompt()

    session.search(["create an issue", "send email"])
    session.describe("slack__post_message")

    assert session.loaded
    assert (json.dumps(session.tools(dialect)), session.system_prompt()) == before


@pytest.mark.requirement("R98")
def test_two_sessions_of_equal_catalogues_send_equal_bytes():
    """R98"""
    first, second = (Scout(load_demo_catalog()).session(id_) for id_ in ("a", "b"))
    first.search("create an issue")

    assert first.tools("anthropic") == second.tools("anthropic")
    assert first.system_prompt() == second.system_prompt()


@pytest.mark.requirement("R97")
def test_the_listing_is_in_the_system_prompt_or_inside_tool_search():
    """R97: by default in the tool, and never in both unless the host asks for it twice."""
    session = make_demo_scout().session("a")

    listing = session.get_listing()

    assert session.tools("mcp")[0]["description"].endswith(f"\n\n{listing}")
    assert session.system_prompt() == INSTRUCTIONS
    assert session.system_prompt(listing=True) == f"{INSTRUCTIONS}\n\n{listing}"
    assert listing not in session.tools("mcp", listing=False)[0]["description"]


@pytest.mark.requirement("R100")
def test_the_model_reads_to_search_first_and_what_search_is_not_for():
    """R100: in the prompt section and in the definition of `tool_search`."""
    session = make_demo_scout().session("a")

    section = session.system_prompt()
    described = session.tools("mcp")[0]["description"]

    assert "Before you say that something cannot be done, look for a tool" in section
    assert "does not search files, code or the web" in section
    assert "Search before you say that you lack a tool" in described
    assert "not files, code or web pages" in described


def test_searching_and_describing_only_read():
    assert [tool.effect for tool in build_meta_tools()] == [
        Effect.READ,
        Effect.READ,
        Effect.UNKNOWN,
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("tool_search", "tool_search"),
        ("mcp__toolscout__tool_call", "tool_call"),
        ("search", ""),
        ("tool_search_extra", ""),
        ("", ""),
    ],
)
def test_a_meta_tool_is_known_behind_a_gateways_prefix(name: str, meant: str):
    assert to_meta_name(name) == meant
