import json
from pathlib import Path

from benchmarks.workloads import Workload, read_workload
from toolscout.tools import Tool


def tools_of(count: int) -> tuple[Tool, ...]:
    return tuple(
        Tool.define(f"read_{number}", server="files", description=f"Read file number {number}.")
        for number in range(count)
    )


def test_a_small_catalogue_grows_by_distinct_variants():
    tools = Workload(tools=tools_of(7), grows=True).draw_tools(500)

    assert len(tools) == 500
    assert len({tool.name for tool in tools}) == 500
    assert len({(tool.server, tool.leaf) for tool in tools}) == 500
    assert tools == Workload(tools=tools_of(7), grows=True).draw_tools(500)


def test_a_catalogue_that_does_not_grow_is_shuffled_and_cut():
    workload = Workload(tools=tools_of(30))

    assert len(workload.draw_tools(10)) == 10
    assert workload.draw_tools(10) == workload.draw_tools(20)[:10]
    assert workload.draw_tools(30) != workload.tools
    assert set(workload.draw_tools(1000)) == set(workload.tools)


def test_queries_without_questions_are_requests_in_the_words_of_tools():
    tool = Tool.define("send_mail", description="Deliver a letter to somebody else at once today.")
    workload = Workload(tools=(tool,))

    queries = workload.draw_queries([tool], 20)

    assert queries == workload.draw_queries([tool], 20)
    assert len(set(queries)) > 10
    for query in queries:
        assert " ".join(query.split()[-5:]) in tool.description
        assert 7 <= len(query.split()) <= 12


def test_a_request_for_a_tool_with_little_description_has_the_words_of_its_name():
    tool = Tool.define("send_mail_to_all", description="Sends mail.")

    (query,) = Workload(tools=(tool,)).draw_queries([tool], 1)

    assert {"mail", "to", "all"} <= set(query.split())


def test_questions_are_all_asked_before_any_comes_again():
    workload = Workload(tools=tools_of(1), questions=("a", "b", "c"))

    queries = workload.draw_queries(workload.tools, 5)

    assert len(queries) == 5
    assert set(queries[:3]) == {"a", "b", "c"}


def test_files_and_folders_are_read_together(tmp_path: Path):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "tools.jsonl").write_text('{"id": "1", "name": "read"}\n')
    (folder / "queries.jsonl").write_text('{"id": "q", "query": "read it", "relevant": ["1"]}\n')
    (tmp_path / "more.json").write_text(json.dumps([{"name": "read"}, {"name": "write"}]))

    workload = read_workload([folder, tmp_path / "more.json"])

    assert [tool.name for tool in workload.tools] == ["read", "read_2", "write"]
    assert workload.questions == ("read it",)
    assert not workload.grows


def test_without_files_the_demo_catalogue_grows():
    tools = read_workload([]).draw_tools(1000)

    assert len({tool.name for tool in tools}) == 1000
