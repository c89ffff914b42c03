"""One request of a wrapped client, round by round."""

import asyncio
from typing import Any

from toolscout.adapters._toolkit import Toolkit
from toolscout.adapters.anthropic.definitions import Declarations
from toolscout.adapters.anthropic.rounds import SearchLoop, identify
from toolscout.settings import Settings
from toolscout.tools import Tool

Json = dict[str, Any]
ORDER: Json = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
TOOLS: list[Json] = [
    {"name": "refund_order", "description": "Refund an order.", "input_schema": ORDER},
    {"name": "cancel_order", "description": "Cancel an order.", "input_schema": ORDER},
    {"name": "send_email", "description": "Send an email.", "input_schema": ORDER},
]
META = ["tool_search", "tool_describe", "tool_call"]


def interlude(mode: str = "reference", *, rounds: int = 10, **body: Any) -> SearchLoop:
    def define(native: Json) -> Tool:
        return Tool.from_anthropic(native)

    toolkit = Toolkit(TOOLS, define, settings=Settings.from_mapping({"mode": mode}))
    declarations = Declarations(toolkit, dict, passed=[{"type": "web", "name": "web"}])
    given = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, **body}
    return SearchLoop(declarations, given, rounds=rounds)


def take(asked: SearchLoop, response: Json) -> Json | None:
    return asyncio.run(asked.take(response))


def call(id_: str, name: str, /, **given: Any) -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": given}


def reply(*blocks: Json, stop: str = "tool_use") -> Json:
    return {"content": list(blocks), "stop_reason": stop, "usage": {"input_tokens": 1}}


SEARCH = call("t1", "tool_search", queries=["refund an order"], limit=1)


def names(tools: list[Json]) -> list[str]:
    return [tool["name"] for tool in tools]


def test_a_search_is_answered_and_the_model_asked_again():
    asked = interlude()
    before = asked.request
    nothing = take(asked, reply(SEARCH))
    after = asked.request

    assert nothing is None
    assert after["tools"] == before["tools"]
    assert names(after["tools"]) == ["web", *META, "cancel_order", "refund_order", "send_email"]
    assert after["messages"][1] == {"role": "assistant", "content": [SEARCH]}
    assert after["messages"][2]["content"][0]["content"] == [
        {"type": "tool_reference", "tool_name": "refund_order"}
    ]


def test_a_found_tool_is_the_users_to_call_with_checked_arguments():
    asked = interlude()
    take(asked, reply(SEARCH))
    final = take(asked, reply(call("t2", "refund_order", order=7)))

    assert final is not None
    assert final["content"][-1] == call("t2", "refund_order", order="7")
    assert final["stop_reason"] == "tool_use"
    assert final["usage"] == {"input_tokens": 2}


def test_a_tool_that_was_not_found_is_refused_inside():
    asked = interlude()

    assert take(asked, reply(call("t1", "refund_order", order="7"))) is None
    result = asked.request["messages"][-1]["content"][0]
    assert result["is_error"]
    assert "tool_search" in result["content"]


def test_in_mode_bridge_the_user_sees_the_tool_itself_and_the_model_its_own_call():
    asked = interlude("bridge")
    take(asked, reply(SEARCH))
    made = call("t2", "tool_call", name="refund_order", arguments={"order": "7"})
    final = take(asked, reply(made))
    assert final is not None
    result = {"type": "tool_result", "tool_use_id": "t2", "content": "Done."}
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": final["content"]},
        {"role": "user", "content": [result]},
    ]
    again = interlude("bridge", messages=messages).request

    assert final["content"][-1] == call("t2", "refund_order", order="7")
    assert again["messages"][3] == {"role": "assistant", "content": [made]}
    assert names(again["tools"]) == ["web", *META]


def test_in_mode_native_found_tools_join_at_the_end():
    asked = interlude("native")
    take(asked, reply(SEARCH))

    assert names(asked.request["tools"]) == ["web", *META, "refund_order"]


def test_tools_that_nobody_here_knows_are_the_users():
    own = call("t1", "bash", command="ls")

    final = take(interlude(), reply(own))

    assert final == reply(own)


def test_a_search_that_was_cut_off_is_not_shown():
    said = {"type": "text", "text": "I look."}

    final = take(interlude(), reply(said, SEARCH, stop="max_tokens"))

    assert final == reply(said, stop="max_tokens")


def test_after_the_last_round_the_turn_is_paused():
    asked = interlude(rounds=2)

    assert take(asked, reply(SEARCH)) is None
    paused = take(asked, reply(call("t2", "tool_search", queries=["mail"])))
    assert paused is not None
    assert paused["stop_reason"] == "pause_turn"


def test_a_tool_that_the_request_insists_on_is_shown_and_accepted():
    choice = {"type": "tool", "name": "send_email"}
    for mode in ("reference", "bridge", "native"):
        asked = interlude(mode, tool_choice=choice)
        shown = [t["name"] for t in asked.request["tools"] if not t.get("defer_loading")]

        assert shown == ["web", *META, "send_email"]
        assert take(asked, reply(call("t1", "send_email", order="7"))) is not None


def test_asynchronous_rounds_are_the_same():
    async def play() -> tuple[Json | None, Json]:
        asked = interlude()
        return await asked.take(reply(SEARCH)), asked.request

    nothing, request = asyncio.run(play())
    twin = interlude()
    take(twin, reply(SEARCH))

    assert nothing is None
    assert request == twin.request


def test_a_conversation_has_the_same_name_as_it_grows():
    first = {"role": "user", "content": "Hello"}

    assert identify([first]) == identify([first, first])
    assert identify([first]) != identify([{"role": "user", "content": "Bye"}])
