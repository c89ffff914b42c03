"""What `lints` finds, rule by rule, and in a whole catalogue."""

import json
from pathlib import Path

import pytest

from toolscout.catalog import Catalog
from toolscout.demo import load_demo_catalog
from toolscout.errors import InvalidFile, UsageError
from toolscout.lint.duplicates import Near, find_near
from toolscout.lint.lint import build_catalog, lint_catalog, sample_tools
from toolscout.lint.probes import Probe, read_probes
from toolscout.lint.rules import Finding, Severity
from toolscout.search.index import Index
from toolscout.tools import Tool

GOOD = Tool.define(
    "create_invoice",
    server="billing",
    description="Write a bill for a customer and send it by mail.",
    effect="write",
    input_schema={
        "type": "object",
        "properties": {"customer": {"type": "string", "description": "Who is to pay."}},
        "required": ["customer"],
    },
)


def tool(leaf: str = "create_invoice", server: str = "billing", **members: object) -> Tool:
    given = {"description": GOOD.description, "effect": "read", **members}
    return Tool.define(leaf, server=server, **given)  # pyright: ignore[reportArgumentType]  # checked by the class


def linted(*tools: Tool, **options: object) -> dict[str, list[Finding]]:
    catalog = Catalog()
    for server in {tool.server for tool in tools}:
        catalog.replace(server, [tool for tool in tools if tool.server == server])
    return lint_catalog(catalog, Index(catalog), **options)  # pyright: ignore[reportArgumentType]  # its own


def codes(found: dict[str, list[Finding]]) -> dict[str, list[str]]:
    return {name: [finding.code for finding in listed] for name, listed in found.items()}


def test_a_good_tool_has_no_findings():
    assert linted(GOOD) == {}


def test_the_demo_catalogue_has_only_the_finding_that_it_deserves():
    catalog = load_demo_catalog()

    found = lint_catalog(catalog, Index(catalog))

    assert codes(found) == {"postgres__execute": ["vague-name"]}


@pytest.mark.parametrize("text", ["", "  ", "TODO", "n/a", "No description available.", "..."])
def test_a_description_that_is_missing_or_a_placeholder_is_an_error(text: str):
    (finding,) = linted(tool(description=text))["billing__create_invoice"]

    assert (finding.code, finding.severity) == ("empty-description", Severity.ERROR)
    assert finding.remedy


@pytest.mark.parametrize(
    "text", ["Create invoice", "Creates an invoice.", "Billing API call to create invoices"]
)
def test_a_description_that_says_no_more_than_the_name_is_a_warning(text: str):
    (finding,) = linted(tool(description=text))["billing__create_invoice"]

    assert (finding.code, finding.severity) == ("vague-description", Severity.WARNING)


@pytest.mark.parametrize("leaf", ["run", "process_data", "doAction", "api_call_v2", "x"])
def test_a_name_without_a_subject_is_vague(leaf: str):
    assert codes(linted(tool(leaf)))[f"billing__{leaf}"] == ["vague-name"]


@pytest.mark.parametrize("leaf", ["search", "run_tests", "get_user", "k8s_apis", "发票"])
def test_a_name_with_a_subject_is_not_vague(leaf: str):
    assert linted(tool(leaf)) == {}


def test_required_parameters_without_a_description_weigh_more_than_optional_ones():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "string", "description": "Told."},
            "c": {"enum": ["x", "y"]},
        },
    }
    optional = linted(tool(input_schema=schema))["billing__create_invoice"]
    required = linted(tool(input_schema={**schema, "required": ["a"]}))["billing__create_invoice"]

    assert [f.code for f in (*optional, *required)] == ["undescribed-parameters"] * 2
    assert [f.severity for f in (*optional, *required)] == [Severity.INFO, Severity.WARNING]
    assert optional[0].message == "1 of 3 parameters have no description: a."


def test_an_unknown_effect_is_told_mildly():
    (finding,) = linted(tool(effect="unknown"))["billing__create_invoice"]

    assert (finding.code, finding.severity) == ("unknown-effect", Severity.INFO)


def test_a_definition_of_many_tokens_is_overlong():
    long = " ".join(f"Rule {n} is that word{n} wins." for n in range(200))

    found = linted(tool(description=f"{GOOD.description} {long}"))

    assert codes(found) == {"billing__create_invoice": ["overlong-definition"]}


def test_names_of_one_server_that_differ_in_spelling_alone_clash():
    found = linted(
        tool("getUser", description="Look a person up."),
        tool("get-user", description="Show an account's owner with phone and address."),
        tool("get_user", server="other", description="Read who signed in last."),
    )

    assert codes(found) == {"billing__getUser": ["name-clash"], "billing__get-user": ["name-clash"]}
    assert found["billing__getUser"][0].others == ("billing__get-user",)
    assert found["billing__getUser"][0].severity is Severity.ERROR


def test_names_with_the_same_words_are_told_mildly():
    found = linted(
        tool("get_user", description="Look a person up."),
        tool("get_users", description="List all accounts of the company, page by page."),
    )

    assert codes(found) == {
        "billing__get_user": ["similar-name"],
        "billing__get_users": ["similar-name"],
    }


TWIN = tool("make_invoice", description="Write a bill for the customer, and send it by mail.")


@pytest.mark.parametrize("encoder", [True, False])
def test_tools_that_say_the_same_are_near_duplicates(encoder: bool):
    same = tool("make_invoice", description=GOOD.description)
    catalog = Catalog({"billing": [GOOD, same, tool("delete_file", description="Erase a file.")]})
    index = Index(catalog) if encoder else Index(catalog, encoder=None)

    found = lint_catalog(catalog, index)

    assert {name for name, listed in codes(found).items() if "near-duplicate" in listed} == {
        "billing__create_invoice",
        "billing__make_invoice",
    }
    assert found["billing__make_invoice"][0].others == ("billing__create_invoice",)


def test_twins_of_different_servers_are_milder_than_twins_of_one():
    twin = tool("create_invoice", server="other")

    alone = linted(GOOD, twin)["other__create_invoice"]
    beside = linted(GOOD, TWIN)["billing__make_invoice"]

    assert [f.severity for f in alone if f.code == "near-duplicate"] == [Severity.INFO]
    assert [f.severity for f in beside if f.code == "near-duplicate"] == [Severity.WARNING]


def test_tools_that_only_mean_something_similar_are_no_duplicates():
    found = linted(
        tool("start_machine", description="Start a virtual machine that is stopped."),
        tool("delete_machine", description="Erase a virtual machine with all its disks for good."),
    )

    assert found == {}


def test_near_tools_come_nearest_first():
    index = Index(load_demo_catalog())

    found = find_near(index, "github__create_pull_request", limit=3)

    assert found[0].name == "github__merge_pull_request"
    assert [one.similarity for one in found] == sorted(
        (one.similarity for one in found), reverse=True
    )
    assert len(found) == 3 and all(0 < one.similarity < 1 for one in found)


def test_near_tools_are_found_by_words_where_there_are_no_vectors():
    same = tool("make_invoice", description=GOOD.description)
    catalog = Catalog({"billing": [GOOD, same, tool("delete_file", description="Erase a file.")]})

    found = find_near(Index(catalog, encoder=None), "billing__make_invoice")

    assert found[0] == Near(name="billing__create_invoice", similarity=0.75)
    assert found[1].similarity == 0


def test_near_an_unknown_tool_names_those_that_exist():
    with pytest.raises(UsageError, match=r"There is no tool 'billing__create_invoce'\. Near: bill"):
        find_near(Index(Catalog({"billing": [GOOD]})), "billing__create_invoce")


def test_a_tool_that_its_own_sentence_does_not_find_is_told():
    crowd = [
        tool(f"general_service_part_{word}", description=f"Paint the {word} part of a service.")
        for word in ("red", "blue", "green", "black", "white", "brown", "pink")
    ]
    hidden = tool("zebra", description="A part of the general service.")

    found = linted(hidden, *crowd)

    missed = [f for f in found["billing__zebra"] if f.code == "missed-sentence"]
    assert [f.severity for f in missed] == [Severity.WARNING]
    assert "of its own description finds it at rank" in missed[0].message
    assert set(missed[0].others) <= {one.name for one in crowd}


def test_only_some_sentences_are_tried_where_there_are_many_tools():
    tools = [GOOD] * 10

    assert len(sample_tools(tools, 4)) == 4
    assert len(sample_tools(tools, 10)) == 10
    assert list(sample_tools([], 4)) == []


def test_a_given_query_that_finds_its_tool_is_no_finding_and_another_is_an_error():
    probes = [
        Probe(query="bill a customer", tools=("create_invoice",)),
        Probe(query="server:nowhere bill", tools=("billing__create_invoice",)),
        Probe(query="anything", tools=("billing__create_invoce",)),
    ]

    found = linted(GOOD, probes=probes)

    assert codes(found) == {
        "billing__create_invoce": ["missed-query"],
        "billing__create_invoice": ["missed-query"],
    }
    assert "not among the first 50" in found["billing__create_invoice"][0].message
    assert found["billing__create_invoce"][0].remedy == "Near: billing__create_invoice."
    assert all(f.severity is Severity.ERROR for listed in found.values() for f in listed)


def test_probes_are_read_in_all_their_shapes(tmp_path: Path):
    rows = [
        {"query": "a", "tool": "x"},
        {"query": "b", "tools": ["x", "y"], "times": 3},
        {"query": "c", "relevant": ["z"], "id": "1"},
    ]
    file = tmp_path / "queries.jsonl"
    file.write_text("\n\n".join(map(json.dumps, rows)) + "\n")

    assert read_probes(file) == [
        Probe(query="a", tools=("x",)),
        Probe(query="b", tools=("x", "y"), times=3),
        Probe(query="c", tools=("z",)),
    ]


@pytest.mark.parametrize("row", ["{", "[]", '{"query": "a"}', '{"query": 1, "tool": "x"}'])
def test_a_line_that_is_no_probe_is_told_with_its_number(tmp_path: Path, row: str):
    file = tmp_path / "queries.jsonl"
    file.write_text(f'{{"query": "a", "tool": "x"}}\n{row}\n')

    with pytest.raises(InvalidFile, match=r"queries\.jsonl, line 2: has no query"):
        read_probes(file)


def test_tools_that_ask_for_one_name_are_told_and_the_first_is_kept():
    other = tool("create.invoice", description="Another.")
    slash = tool("create/invoice", description="A third.")

    catalog, found = build_catalog([other, other, slash, tool("tool_search", server="")])

    assert [one.leaf for one in catalog.tools] == ["create.invoice"]
    assert [(f.tool, f.code) for f in found] == [
        ("billing__create_invoice", "name-taken"),
        ("tool_search", "name-taken"),
    ]


def test_findings_come_worst_first_and_progress_is_told_to_the_end():
    heard: dict[str, tuple[int, int]] = {}

    def hear(stage: str, done: int, total: int) -> None:
        heard[stage] = (done, total)

    found = linted(
        tool("run", description="", effect="unknown"),
        GOOD,
        probes=[Probe(query="bill", tools=(GOOD.name,))],
        progress=hear,
    )

    assert codes(found) == {"billing__run": ["empty-description", "vague-name", "unknown-effect"]}
    assert heard == {
        "Reading definitions": (2, 2),
        "Scanning for attacks": (2, 2),
        "Comparing tools": (2, 2),
        "Trying sentences": (2, 2),
        "Trying queries": (1, 1),
    }
