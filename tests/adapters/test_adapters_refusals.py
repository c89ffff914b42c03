"""The provider refuses what the real ones refuse: each rule has a request that breaks it."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from adapters.provider import Provider, call
from adapters.samples import BODIES, SCHEMA, messages, post, result, used

Json = dict[str, Any]
Change = Callable[[Json], object]

# How the message begins, and what to do to a good request to get it.


def function(body: Json) -> Json:
    return body["tools"][0]["function"]


def renamed(body: Json, name: str) -> None:
    function(body)["name"] = name


def strict(body: Json) -> None:
    function(body)["strict"] = True


CHAT: dict[str, Change] = {
    "model: is missing": lambda b: b.pop("model"),
    "messages: at least one is needed": lambda b: b["messages"].clear(),
    "tools: an empty array is too short": lambda b: b["tools"].clear(),
    "tools: the name 'get_weather' is declared 2 times": lambda b: b["tools"].append(b["tools"][0]),
    "tools: the name 'get.weather' does not match": lambda b: renamed(b, "get.weather"),
    "tools: the name 'xxxxx": lambda b: renamed(b, "x" * 65),
    "tools: 129 are too many": lambda b: b.update(
        tools=[
            {"type": "function", "function": {"name": f"tool_{number}"}} for number in range(129)
        ]
    ),
    "tools: the schema of 'get_weather' must have type 'object'": lambda b: function(b).update(
        parameters={"type": "string"}
    ),
    "tools: 'get_weather' is strict": strict,
    "tools: 'defer_loading' of 'get_weather' is not known": lambda b: b["tools"][0].update(
        defer_loading=True
    ),
    "tools: 'custom_search' is no type": lambda b: b["tools"][0].update(type="custom_search"),
    "messages: the tool calls ['call_1'] have no tool message": lambda b: b["messages"].pop(),
    "messages: the tool calls ['call_1'] have no": lambda b: b["messages"].insert(
        3, {"role": "user", "content": "Hurry."}
    ),
    "messages: the tool message for 'call_1' answers no call": lambda b: b["messages"].pop(2),
    "messages: the tool message for 'call_9' answers no call": lambda b: b["messages"][3].update(
        tool_call_id="call_9"
    ),
    "messages: a tool message needs text": lambda b: b["messages"][3].update(content=None),
    "messages: the arguments of a tool call must be JSON text": lambda b: b["messages"][2][
        "tool_calls"
    ][0]["function"].update(arguments={"city": "Oslo"}),
    "messages: an empty 'tool_calls'": lambda b: b["messages"].append(
        {"role": "assistant", "content": "Rain.", "tool_calls": []}
    ),
    "messages: an assistant message needs content": lambda b: b["messages"].append(
        {"role": "assistant", "content": None}
    ),
    "messages: a user message needs content": lambda b: b["messages"][1].update(content=None),
    "messages: 'human' is no role": lambda b: b["messages"][1].update(role="human"),
}


def deferred_function(**more: object) -> Json:
    return {"type": "function", "name": "send_mail", "description": "Send.", **more}


def namespace(count: int, **more: object) -> Json:
    inner = [deferred_function() | {"name": f"mail_{number}"} for number in range(count)]
    return {"type": "namespace", "name": "mail", "description": "Mail.", "tools": inner, **more}


RESPONSES: dict[str, Change] = {
    "model: is missing": lambda b: b.pop("model"),
    "input: at least one item is needed": lambda b: b.update(input=[]),
    "tools: a tool_search that the client executes needs": lambda b: b["tools"][0].pop(
        "description"
    ),
    "tools: 'gpt-5.3' does not support tool_search": lambda b: b.update(model="gpt-5.3"),
    "tools: 'gpt-5.5-nano' does not support tool_search": lambda b: b.update(model="gpt-5.5-nano"),
    "tools: one tool_search is allowed": lambda b: b["tools"].append(b["tools"][0]),
    "tools: the search tool 'tool_search' must not be deferred": lambda b: b["tools"][0].update(
        defer_loading=True
    ),
    "tools: defer_loading needs a tool_search tool": lambda b: b.update(
        tools=[deferred_function(defer_loading=True)]
    ),
    "tools: the namespace 'mail' has more than 9": lambda b: b["tools"].append(namespace(10)),
    "tools: defer_loading belongs to the functions": lambda b: b["tools"].append(
        namespace(1, defer_loading=True)
    ),
    "tools: the namespace 'mail' needs a description": lambda b: b["tools"].append(
        namespace(1, description=None)
    ),
    "tools: the name 'send_mail' is declared 2 times": lambda b: b["tools"].extend(
        [deferred_function()] * 2
    ),
    "tools: 'send_mail' is strict": lambda b: b["tools"].append(
        deferred_function(strict=True, parameters=SCHEMA)
    ),
    "tools: the schema of 'send_mail' must have type 'object'": lambda b: b["tools"].append(
        deferred_function(parameters={"type": "array"})
    ),
    "input: no tool_search_output was found for": lambda b: b["input"].pop(2),
    "input: the tool_search_output for 'call_1' answers no": lambda b: b["input"].pop(1),
    "input: no function_call_output was found for": lambda b: b["input"].pop(),
    "input: the function_call_output for 'call_2' answers no": lambda b: b["input"].pop(3),
    "input[1].arguments: must be an object": lambda b: b["input"][1].update(
        arguments='{"queries": []}'
    ),
    "input[3].arguments: must be JSON text": lambda b: b["input"][3].update(
        arguments={"city": "Oslo"}
    ),
    "input[4].output: must be text": lambda b: b["input"][4].update(output={"weather": "rain"}),
    "input[3].id: 'call_2' must begin with 'fc'": lambda b: b["input"][3].update(id="call_2"),
    "tool_search_output: 'get_weather' has no description": lambda b: b["input"][2]["tools"][
        0
    ].update(description=None),
    "tool_search_output: status 'failed'": lambda b: b["input"][2].update(status="failed"),
    "tool_search_output: one conversation has several shapes": lambda b: b["input"][2][
        "tools"
    ].append(namespace(1)),
    "input[1].role: must be 'developer'": lambda b: b["input"].insert(
        1, {"type": "additional_tools", "role": "user", "tools": []}
    ),
    "There is no conversation 'resp_9'": lambda b: b.update(previous_response_id="resp_9"),
}


def search_tool(**more: object) -> Json:
    kind = "tool_search_tool_bm25_20251119"
    return {"type": kind, "name": "tool_search_tool_bm25", **more}


def addition(tool: Json) -> Json:
    return {"type": "tool_addition", "tool": tool}


def system_message(*blocks: Json) -> Json:
    return {"role": "system", "content": list(blocks)}


def last(body: Json) -> list[Json]:
    return body["messages"][-1]["content"]


MESSAGES: dict[str, Change] = {
    "model: is missing": lambda b: b.pop("model"),
    "max_tokens: is missing": lambda b: b.pop("max_tokens"),
    "messages: at least one is needed": lambda b: b["messages"].clear(),
    "messages: the first must be of the user": lambda b: b["messages"].insert(
        0, {"role": "assistant", "content": "Hello."}
    ),
    "messages: 'human' is no role": lambda b: b["messages"][2].update(role="human"),
    "tools: all have defer_loading": lambda b: b["tools"].pop(0),
    "tools: the search tool 'tool_search' must not be deferred": lambda b: (
        b["tools"][0].update(defer_loading=True) or b["tools"][1].pop("defer_loading")
    ),
    "tools: the search tool 'tool_search_tool_bm25' must not be": lambda b: b["tools"].append(
        search_tool(defer_loading=True)
    ),
    "tools: 'get_weather' has both defer_loading and cache_control": lambda b: b["tools"][1].update(
        cache_control={"type": "ephemeral"}
    ),
    "tools: 'get_weather' has both defer_loading and input_examples": lambda b: b["tools"][
        1
    ].update(input_examples=[{"city": "Oslo"}]),
    "tools: the name 'tool_search' is declared 2 times": lambda b: b["tools"].append(b["tools"][0]),
    "tools: the name 'tool search' does not match": lambda b: b["tools"][0].update(
        name="tool search"
    ),
    "tools: 'tool_search' has no schema": lambda b: b["tools"][0].pop("input_schema"),
    "tools: the schema of 'tool_search' must have type 'object'": lambda b: b["tools"][0].update(
        input_schema={"type": "string"}
    ),
    "tools: 10001 are too many": lambda b: b["tools"].extend(
        {"name": f"tool_{number}", "input_schema": SCHEMA} for number in range(9_999)
    ),
    "messages: the tool reference 'get_weather' has no": lambda b: b["tools"].pop(1),
    "messages.2: the tool_reference of a result has its name under": lambda b: b["messages"][
        2
    ].update(content=[result("toolu_1", [{"type": "tool_reference", "name": "get_weather"}])]),
    "messages.2: the content of a tool_result must not be": lambda b: b["messages"][2].update(
        content=[result("toolu_1", [])]
    ),
    "messages.4: a text block must not be empty": lambda b: last(b)[0].update(
        content=[{"type": "text", "text": ""}]
    ),
    "messages.4: a text block must not be": lambda b: last(b).append({"type": "text", "text": " "}),
    "messages.2: a result with is_error may hold text only": lambda b: b["messages"][2]["content"][
        0
    ].update(is_error=True),
    "messages.5: content must not be empty": lambda b: b["messages"].append(
        {"role": "assistant", "content": []}
    ),
    "messages: the tool_use blocks ['toolu_2'] have no tool_result": lambda b: b["messages"].pop(),
    "messages: the tool_result for 'toolu_9' answers no": lambda b: last(b).append(
        result("toolu_9", "Sun.")
    ),
    "messages: several tool_result blocks answer 'toolu_2'": lambda b: last(b).append(
        result("toolu_2", "Sun.")
    ),
    "messages: tool_result blocks must come first": lambda b: last(b).insert(
        0, {"type": "text", "text": "So:"}
    ),
    "messages: the tool_use blocks ['toolu_2'] have no": lambda b: (
        b["messages"].insert(4, {"role": "user", "content": "Hurry."})
        or b["messages"].insert(5, {"role": "assistant", "content": "I do."})
    ),
    "messages.3: the input of a tool_use must be": lambda b: b["messages"][3]["content"][0].update(
        input="Oslo"
    ),
    "cache_control: more than 4": lambda b: [
        last(b).append({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}})
        for _ in range(5)
    ],
    "There is no conversation 'msg_9'": lambda b: b.update(
        thread={"type": "continue", "previous_message_id": "msg_9"}
    ),
}


def contents(body: Json) -> list[Json]:
    return body["contents"]


def declaration(body: Json) -> Json:
    return body["tools"][0]["functionDeclarations"][0]


GEMINI: dict[str, Change] = {
    "contents: at least one is needed": lambda b: contents(b).clear(),
    "contents: 'assistant' is no role": lambda b: contents(b)[1].update(role="assistant"),
    "contents: parts must not be empty": lambda b: contents(b)[0].update(parts=[]),
    "tools: 'get_weather' has no description": lambda b: declaration(b).pop("description"),
    "tools: the name '2day' must begin with": lambda b: declaration(b).update(name="2day"),
    "tools: the name 'get_weather' is declared 2 times": lambda b: b["tools"].append(
        deepcopy(b["tools"][0])
    ),
    "tools: the schema of 'get_weather' must have type 'object'": lambda b: declaration(b).update(
        parameters={"type": "STRING"}
    ),
    "contents: the calls ['get_weather'] are followed by": lambda b: contents(b).pop(),
    "contents: the calls [] are followed by": lambda b: contents(b).pop(1),
    "contents: the calls ['get_weather'] are followed": lambda b: contents(b).insert(
        2, {"role": "user", "parts": [{"text": "Hurry."}]}
    ),
}


def every_broken(dialect: str, changes: dict[str, Change]) -> pytest.MarkDecorator:
    cases = [(dialect, message, change) for message, change in changes.items()]
    return pytest.mark.parametrize(("dialect", "message", "change"), cases, ids=list(changes))


@every_broken("openai-chat", CHAT)
def test_chat_completions_refuse(dialect: str, message: str, change: Change):
    expect_refusal(dialect, message, change)


@every_broken("openai-responses", RESPONSES)
def test_responses_refuse(dialect: str, message: str, change: Change):
    expect_refusal(dialect, message, change)


@every_broken("anthropic", MESSAGES)
def test_messages_refuse(dialect: str, message: str, change: Change):
    expect_refusal(dialect, message, change)


@every_broken("gemini", GEMINI)
def test_gemini_refuses(dialect: str, message: str, change: Change):
    expect_refusal(dialect, message, change)


BETAS = "mid-conversation-tool-changes-2026-07-01"
CHANGES: dict[str, tuple[str, Json]] = {
    "messages: the role 'system' needs the beta": ("", {"type": "text", "text": "Be brief."}),
    "messages: a system message cannot hold": (BETAS, used("toolu_3", "tool_search")),
    "messages: the tool_reference of a tool change has its name under 'name'": (
        BETAS,
        addition({"type": "tool_reference", "tool_name": "get_weather"}),
    ),
    "messages: a tool_definition needs the beta": (
        BETAS,
        addition({"type": "tool_definition", "definition": {"name": "x", "input_schema": SCHEMA}}),
    ),
    "messages: the tool reference 'send_mail' has no corresponding tool definition": (
        BETAS,
        addition({"type": "tool_reference", "name": "send_mail"}),
    ),
}


@pytest.mark.parametrize(("message", "change"), CHANGES.items(), ids=list(CHANGES))
def test_messages_refuse_a_change_of_tools(message: str, change: tuple[str, Json]):
    betas, block = change
    with Provider() as provider:
        status, _ = post_change(provider, betas, block)
        refusals = provider.take_refusals()

    assert status == 400
    assert refusals[0].message.startswith(message)


def test_messages_take_a_tool_that_is_defined_in_their_midst():
    definition = {"name": "send_mail", "description": "Send.", "input_schema": SCHEMA}
    block = addition({"type": "tool_definition", "definition": definition})
    with Provider([call("send_mail", city="Oslo")]) as provider:
        status, _ = post_change(provider, f"{BETAS},inline-tools-2026-09-15", block)

    assert status == 200
    assert provider.requests[0].references == ["get_weather", "send_mail"]


def test_messages_refuse_to_continue_a_thread_twice():
    body = messages() | {"thread": {"type": "create"}}
    with Provider(["One.", "Two."]) as provider:
        _, answer = post(f"{provider.base_url}/messages", body)
        body["thread"] = {"type": "continue", "previous_message_id": answer["id"]}
        body["messages"] = [{"role": "user", "content": "More."}]
        statuses = [post(f"{provider.base_url}/messages", body)[0] for _ in range(2)]
        refusals = provider.take_refusals()

    assert statuses == [200, 400]
    assert "already continued" in refusals[0].message


def post_change(provider: Provider, betas: str, block: Json) -> tuple[int, Json]:
    body = messages()
    body["messages"].append(system_message(block))
    return post(f"{provider.base_url}/messages", body, {"anthropic-beta": betas})


def expect_refusal(dialect: str, message: str, change: Change) -> None:
    path, whole = BODIES[dialect]
    body = deepcopy(whole())
    change(body)

    with Provider() as provider:
        status, answer = post(f"{provider.root_url}{path}", body)
        refusals = provider.take_refusals()

    assert status == 400
    assert [refusal.dialect for refusal in refusals] == [dialect]
    assert refusals[0].message.startswith(message)
    assert answer["error"]["message"] == refusals[0].message
