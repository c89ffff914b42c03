"""The fakes that users test their own agents with."""

from pathlib import Path

import pytest

from toolscout import Catalog, Scout, Tool
from toolscout.errors import InvalidFile, UsageError
from toolscout.schemas import Json
from toolscout.testing import FakeServer, Recording, ScriptedModel, call, calls_from_message

SEARCH: Json = {"type": "function", "function": {"name": "tool_search", "parameters": {}}}
USER: Json = {"role": "user", "content": "Hello"}


def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello {name}."


def test_a_scripted_model_plays_its_steps_and_keeps_what_it_was_sent():
    model = ScriptedModel([call("tool_search", queries=["greet"]), "Done."])

    first = model.reply([USER], [SEARCH], system="Be kind.")
    second = model.reply([USER, first], [SEARCH])

    assert calls_from_message(first) == [("call_1", "tool_search", '{"queries": ["greet"]}')]
    assert second == {"role": "assistant", "content": "Done."}
    assert model.requests[0].system == "Be kind."
    assert model.requests[1].messages == [USER, first]
    assert model.requests[0].tool_names == ["tool_search"]


def test_a_step_may_look_at_the_messages():
    model = ScriptedModel([lambda messages: f"You said {messages[-1]['content']}."])

    assert model.reply([USER], [SEARCH])["content"] == "You said Hello."


def test_a_script_that_is_over_says_so():
    model = ScriptedModel(["Done."])
    model.reply([USER], [SEARCH])

    with pytest.raises(UsageError, match="1 steps and was asked for one more"):
        model.reply([USER], [SEARCH])


def test_a_call_of_a_tool_that_the_request_lacks_is_refused():
    model = ScriptedModel([call("delete_everything")])

    with pytest.raises(
        UsageError, match="calls 'delete_everything'; the request offers tool_search"
    ):
        model.reply([USER], [SEARCH])


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([{"name": "a"}, {"name": "a"}], "'a' twice"),
        ([{"name": "a b"}], "'a b'"),
        ([{"name": "a", "defer_loading": True}], "All tools of the request are deferred"),
    ],
)
def test_requests_that_providers_refuse_are_refused(tools: list[dict[str, object]], said: str):
    with pytest.raises(UsageError, match=said):
        ScriptedModel(["Done."], dialect="anthropic").reply([USER], tools)


def test_a_deferred_tool_may_be_called_only_after_a_reference():
    tools = [{"name": "tool_search"}, {"name": "greet", "defer_loading": True}]
    reference = {"type": "tool_reference", "tool_name": "greet"}
    result = {"type": "tool_result", "tool_use_id": "x", "content": [reference]}
    found = {"role": "user", "content": [result]}

    early = ScriptedModel([call("greet", name="Anna")], dialect="anthropic")
    with pytest.raises(UsageError, match="calls 'greet'"):
        early.reply([USER], tools)
    late = ScriptedModel([call("greet", name="Anna")], dialect="anthropic")
    assert calls_from_message(late.reply([USER, found], tools)) == [
        ("call_1", "greet", {"name": "Anna"})
    ]


def test_a_reference_to_an_undeclared_tool_is_refused():
    reference = {"type": "tool_reference", "tool_name": "gone"}
    result = {"type": "tool_result", "tool_use_id": "x", "content": [reference]}
    model = ScriptedModel(["Done."], dialect="anthropic")

    with pytest.raises(UsageError, match="refers to 'gone'"):
        model.reply([{"role": "user", "content": [result]}], [{"name": "tool_search"}])


def test_a_fake_server_answers_from_its_table_and_remembers():
    tools = [greet, Tool.define("fail", server="fake"), Tool.define("echo", server="fake")]
    server = FakeServer("fake", tools, {"fail": RuntimeError("out of order")})
    catalog = Catalog()
    server.connect(catalog)
    scout = Scout(catalog, executors={"fake": server})
    session = scout.session("s")
    session.describe(["fake__greet", "fake__fail", "fake__echo"])

    assert session.call_sync("fake__greet", {"name": "Anna"}).text == "Hello Anna."
    assert session.call_sync("fake__fail").code == "call_failed"
    assert '"called": "echo"' in session.call_sync("fake__echo", {"a": 1}).text
    assert server.calls == [("greet", {"name": "Anna"}), ("fail", {}), ("echo", {"a": 1})]


def test_a_recording_is_written_and_read_back(tmp_path: Path):
    recording = Recording([USER])
    recording.add({"role": "assistant", "content": "Grüß Gott"})

    recording.write(tmp_path / "talk.jsonl")

    assert Recording.read(tmp_path / "talk.jsonl") == recording
    assert recording.render_transcript() == "user: Hello\nassistant: Grüß Gott"


def test_a_broken_recording_names_its_line(tmp_path: Path):
    (tmp_path / "talk.jsonl").write_text('{"role": "user"}\nnonsense\n', encoding="utf-8")

    with pytest.raises(InvalidFile, match="line 2: holds no message"):
        Recording.read(tmp_path / "talk.jsonl")
