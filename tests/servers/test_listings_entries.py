"""What a configuration lets through of a server's lists, and under which names."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.calls.arguments import prepare
from toolscout.config.servers import ServerConfig, Transport
from toolscout.dialects import to_definition
from toolscout.errors import InvalidArguments, InvalidConfig
from toolscout.schemas import Json
from toolscout.servers.listings import build_entries
from toolscout.servers.manifest import Manifest
from toolscout.tools import Effect, Tool

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def config(**options: Any) -> ServerConfig:
    return ServerConfig(name="s", transport=Transport.STDIO, command="none", **options)


def tool(name: str, **members: Any) -> Json:
    return {"name": name, "description": name, "inputSchema": {"type": "object"}} | members


def names(manifest: Manifest, **options: Any) -> list[str]:
    return [offered.name for offered in build_entries(config(**options), manifest)[0]]


def test_allowed_tools_that_are_not_denied_are_offered():
    manifest = Manifest(tools=(tool("read_a"), tool("read_b"), tool("write")))

    assert names(manifest, allow=("read_*",), deny=("*_b",)) == ["s__read_a"]


def test_a_renamed_tool_is_called_by_its_old_name_and_found_by_both():
    manifest = Manifest(tools=(tool("old"),))

    (offered,) = build_entries(config(renames={"old": "new"}), manifest)[0]

    assert (offered.name, offered.leaf) == ("s__new", "new")
    assert offered.extras["leaf"] == "old"
    assert offered.aliases == ("old",)


@pytest.mark.requirement("R24")
def test_effects_hints_and_pins_come_from_the_configuration():
    """R24: hints for one tool, for all tools of the server, and what the server sent itself."""
    sent = {**tool("sent"), "_meta": {"anthropic/searchHint": "own words"}}
    manifest = Manifest(tools=(tool("drop"), tool("other"), sent))
    options = {
        "effects": {"dr*": Effect.DESTRUCTIVE},
        "hints": {"drop": "remove table"},
        "hint": "database",
        "pins": ("drop",),
    }

    drop, other, hinted = build_entries(config(**options), manifest)[0]

    assert (drop.effect, drop.hint, drop.always_load) == (Effect.DESTRUCTIVE, "remove table", True)
    assert (other.hint, other.always_load) == ("database", False)
    assert hinted.hint == "own words database"


def test_of_two_tools_with_one_name_the_first_is_offered_and_the_second_told():
    manifest = Manifest(tools=(tool("a", description="first"), tool("a", description="second")))

    tools, problems = build_entries(config(), manifest)

    assert [offered.description for offered in tools] == ["first"]
    assert problems == ["'a' is offered twice; the first one counts."]


def test_a_definition_without_use_costs_only_itself():
    manifest = Manifest(tools=(tool("a"), {"description": "nameless"}, tool("b")))

    tools, problems = build_entries(config(), manifest)

    assert [offered.leaf for offered in tools] == ["a", "b"]
    assert len(problems) == 1


@pytest.mark.requirement("R27")
def test_resources_templates_and_prompts_are_entries_of_their_own_kind():
    """R27"""
    manifest = Manifest(
        resources=({"name": "log", "uri": "file:///log"},),
        templates=({"name": "day", "uriTemplate": "log://{year}/{+month}"},),
        prompts=({"name": "ask", "arguments": [{"name": "topic", "required": True}]},),
    )

    log, day, ask = build_entries(config(), manifest)[0]

    assert (log.kind, log.effect, log.extras["uri"]) == ("resource", Effect.READ, "file:///log")
    assert (day.kind, list(day.input_schema["properties"])) == ("template", ["year", "month"])
    assert (ask.kind, ask.input_schema["required"]) == ("prompt", ["topic"])


def test_a_prompt_with_the_name_of_a_tool_is_offered_beside_it():
    manifest = Manifest(tools=(tool("fetch"),), prompts=({"name": "fetch"},))

    tools, problems = build_entries(config(), manifest)

    assert [offered.name for offered in tools] == ["s__fetch", "s__fetch_prompt"]
    assert tools[1].extras["prompt"] == "fetch"
    assert not problems


def test_resources_of_one_name_are_told_apart_by_their_addresses():
    rows = tuple({"name": "README", "uri": f"file:///{place}/README"} for place in "abcd")

    tools, problems = build_entries(config(), Manifest(resources=rows))

    assert {offered.extras["uri"] for offered in tools} == {row["uri"] for row in rows}
    assert not problems


@given(st.lists(NAMES), st.lists(NAMES))
def test_whatever_a_server_lists_every_name_is_offered_once(tools: list[str], prompts: list[str]):
    manifest = Manifest(tools=tuple(map(tool, tools)), prompts=tuple({"name": n} for n in prompts))

    offered = names(manifest)

    assert len(offered) == len(set(offered))


def test_metadata_and_icons_that_a_list_would_repeat_are_bounded():
    icons = [{"src": f"https://example.com/{number}.png"} for number in range(20)]
    large = [{"src": f"data:image/png;base64,{'a' * 20_000}"} for _ in range(3)]
    manifest = Manifest(
        tools=(
            tool("many", icons=icons, _meta={"x/y": "z" * 15_000}),
            tool("large", icons=large, _meta={"x/y": "z" * 17_000}),
            tool("wrong", icons=["x", {"src": 7}, {}], _meta=["x"], annotations="x"),
        )
    )

    many, huge, wrong = (to_definition(t, "mcp") for t in build_entries(config(), manifest)[0])

    assert many["icons"] == icons[:8]
    assert many["_meta"] == {"x/y": "z" * 15_000}
    assert len(huge["icons"]) == 1
    assert "_meta" not in huge
    assert wrong.keys() == {"name", "description", "inputSchema"}


@pytest.mark.parametrize(
    "source",
    ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "//example.com/x.png", ""],
)
def test_an_icon_is_an_image_of_the_web_or_of_its_own(source: str):
    manifest = Manifest(tools=(tool("t", icons=[{"src": source}]),))

    (offered,) = build_entries(config(), manifest)[0]

    assert "icons" not in to_definition(offered, "mcp")


ISSUE = {
    "type": "object",
    "properties": {"owner": {"type": "string"}, "title": {"type": "string"}, "draft": {}},
    "required": ["owner", "title"],
}


def overridden(**changes: Any) -> tuple[list[Tool], list[str]]:
    """Return the entries and problems of a tool with these changes."""
    manifest = Manifest(tools=(tool("open", inputSchema=ISSUE),))
    return build_entries(config(tools={"open": changes}), manifest)


def test_the_operator_changes_what_a_tool_shows_and_sends():
    [changed], problems = overridden(
        description="Open an issue.", arguments={"owner": "acme"}, hidden=["draft"]
    )

    assert problems == []
    assert changed.description == "Open an issue."
    assert changed.render_signature() == "s__open(title*)"
    prepared = prepare(changed, {"title": "It fails"})
    assert prepared.arguments == {"title": "It fails", "owner": "acme"}
    for name in ("owner", "draft"):
        with pytest.raises(InvalidArguments, match=f"{name}: is set for every call"):
            prepare(changed, {"title": "It fails", name: "evil"})


def test_a_fixed_argument_changes_the_fingerprint_and_is_in_no_repr():
    [acme], _ = overridden(arguments={"owner": "acme"})
    [other], _ = overridden(arguments={"owner": "other"})

    assert acme.fingerprint != other.fingerprint
    assert "acme" not in repr(acme)
    assert "acme" not in str(to_definition(acme, "mcp"))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"arguments": {"ownr": "acme"}}, r"open\.arguments' names 'ownr'.* Use 'owner'\."),
        ({"hidden": ["title"]}, "leaves no call that the tool's schema accepts"),
        ({"arguments": {"owner": "${NO_SUCH_VARIABLE}"}}, "'NO_SUCH_VARIABLE', which is not set"),
    ],
)
def test_a_tool_that_cannot_be_changed_as_wanted_is_left_out(changes: Any, problem: str):
    tools, [said] = overridden(**changes)

    assert tools == []
    assert re.search(problem, said)
    assert said.endswith("Until then, 'open' is left out.")


def test_an_argument_is_either_fixed_or_hidden():
    with pytest.raises(InvalidConfig, match=r"'servers\.s\.tools\.open\.hidden' names 'owner'"):
        overridden(arguments={"owner": "acme"}, hidden=["owner"])
