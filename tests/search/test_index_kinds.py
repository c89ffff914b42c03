"""Resources and prompts come after tools, unless they are asked for."""

from collections.abc import Iterable
from typing import Any

import pytest

from toolscout import Catalog, Index, Scout, Tool
from toolscout.search.hits import Confidence, Hit

SCALE = Tool.define(
    "scale",
    server="cluster",
    description="Set how many replicas a workload has.",
)
RESTART = Tool.define("restart", server="cluster", description="Restart a workload.")
STATE = Tool.define(
    "web_deployment",
    server="cluster",
    description="The web deployment: three instances and how they run.",
    kind="resource",
)
REVIEW = Tool.define(
    "review_deployment",
    server="cluster",
    description="Review the web deployment and its instances.",
    kind="prompt",
)
FILE = Tool.define(
    "deployment_files",
    server="cluster",
    description="Files of a web deployment by name.",
    kind="template",
)
HOLIDAYS = Tool.define(
    "holiday_policy",
    server="handbook",
    description="Company holiday policy: how many days of leave employees get.",
    kind="resource",
)
CATALOG = Catalog({"cluster": [SCALE, RESTART, STATE, REVIEW, FILE], "handbook": [HOLIDAYS]})
ASKED = "run three more instances of the web deployment"


def kinds(result: Iterable[Hit]) -> list[str]:
    return [hit.tool.kind for hit in result]


@pytest.mark.parametrize("encoder", ["static", None])
@pytest.mark.parametrize("query", ["web deployment workload", "restart the web deployment"])
def test_tools_come_before_resources_and_prompts(query: str, encoder: str | None):
    best = Index(CATALOG, encoder="static" if encoder else None).search(query).best
    is_tool = [hit.tool.kind == "tool" for hit in best]

    assert is_tool[0] and not is_tool[-1]
    assert is_tool == sorted(is_tool, reverse=True)


def test_a_resource_is_never_the_only_answer_where_there_are_tools():
    reply = Scout(CATALOG).session("a").search(ASKED)

    assert kinds(reply.hits)[0] == "tool"
    assert "resource" in kinds(reply.hits)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        (f"kind:resource {ASKED}", STATE),
        ("the web deployment resource", STATE),
        ("prompt to review the web deployment", REVIEW),
        ("template for files of a web deployment", FILE),
        ("web_deployment", STATE),
    ],
)
def test_what_is_asked_for_comes_first(query: str, first: Tool):
    assert Index(CATALOG).search(query)[0].tool == first


def test_a_resource_that_fits_follows_weak_tools_with_its_own_label():
    reply = (
        Scout(CATALOG).session("a").search("how many days of holiday leave does the policy give")
    )

    last = reply.hits[-1]
    assert last.tool == HOLIDAYS
    assert last.confidence is not Confidence.WEAK
    assert len(reply.hits) <= 4
    assert HOLIDAYS.name in reply.references


def test_lists_have_tools_first_too():
    assert kinds(Index(CATALOG).search("server:cluster")) == [
        "tool",
        "tool",
        "template",
        "prompt",
        "resource",
    ]


def test_a_hit_line_says_what_is_not_a_tool():
    text = Scout(CATALOG).session("a").search("server:cluster").text

    assert "- cluster__scale() \N{EN DASH} Set how many replicas a workload has. [exact]" in text
    assert "how they run. [exact, resource]" in text
    assert "its instances. [exact, prompt]" in text
    assert "by name. [exact, template]" in text


def run(tool: Tool, arguments: dict[str, Any]) -> str:
    return "done"


def test_past_calls_do_not_raise_a_resource_above_tools():
    session = Scout(CATALOG, executors=run).session("a")
    session.search("web deployment workload")
    session.call_sync(STATE.name, {})
    session.unload()

    found = session.search("web deployment workload", limit=10)

    assert kinds(found.hits)[0] == "tool"
