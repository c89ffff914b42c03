"""What requests to Anthropic declare for the tools of an SDK."""

from typing import Any

from toolscout.adapters._toolkit import Toolkit
from toolscout.adapters.anthropic.definitions import Declarations
from toolscout.catalog import Catalog
from toolscout.scout import Scout
from toolscout.settings import Settings
from toolscout.tools import Tool

Json = dict[str, Any]
WEB: Json = {"type": "web_search_20250305", "name": "web_search"}
META = ["tool_search", "tool_describe", "tool_call"]


def native(name: str, **members: Any) -> Json:
    return {
        "name": name,
        "description": f"Do {name}.",
        "input_schema": {"type": "object"},
        **members,
    }


NATIVES = [native("refund_order", strict=True), native("send_email")]


def declarations_of(mode: str, hosted: str = "") -> Declarations[Json]:
    def define(written: Json) -> Tool:
        return Tool.from_anthropic(written)

    scout = Scout(Catalog(), settings=Settings.from_mapping({"mode": mode}))
    scout.catalog.add("mail", [Tool.define("post", server="mail", description="Post a letter.")])
    return Declarations(Toolkit(NATIVES, define, scout=scout), dict, passed=[WEB], hosted=hosted)


def names(definitions: list[Json]) -> list[str]:
    return [definition["name"] for definition in definitions]


def test_hidden_tools_are_declared_as_their_sdk_writes_them():
    declarations = declarations_of("reference")

    definitions = declarations.list_definitions(declarations.toolkit.open_session("s"))

    assert definitions[0] == WEB
    assert names(definitions)[1:4] == META
    assert definitions[5] == native("refund_order", strict=True, defer_loading=True)
    assert names(definitions)[4] == "mail__post"


def test_the_description_of_the_search_lists_what_exists():
    declarations = declarations_of("bridge")

    definitions = declarations.list_definitions(declarations.toolkit.open_session("s"))

    assert names(definitions) == ["web_search", *META]
    assert "refund_order" in definitions[1]["description"]


def test_definitions_stay_the_same_whatever_is_found():
    for mode in ("reference", "bridge"):
        declarations = declarations_of(mode)
        session = declarations.toolkit.open_session("s")
        before = declarations.list_definitions(session)
        session.search(["refund an order", "post a letter"])

        assert declarations.list_definitions(session) == before


def test_a_forced_tool_is_not_hidden():
    for mode in ("reference", "bridge", "native"):
        declarations = declarations_of(mode)
        definitions = declarations.list_definitions(
            declarations.toolkit.open_session("s"), "refund_order"
        )

        assert native("refund_order", strict=True) in definitions
        assert names(definitions).count("refund_order") == 1


def test_the_providers_own_search_replaces_the_meta_tools():
    declarations = declarations_of("reference", hosted="bm25")

    definitions = declarations.list_definitions(declarations.toolkit.open_session("s"))

    assert names(definitions)[:2] == ["web_search", "tool_search_tool_bm25"]
    assert all(each.get("defer_loading") for each in definitions[2:])
