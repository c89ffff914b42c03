"""The provider plays scripts in every dialect, and fails a test whose agent leaves the script."""

import json
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import pytest

from adapters.provider import Action, Move, Provider, call, hosted, unoffered
from adapters.samples import BODIES, chat, messages, post, post_text, responses, result

Json = dict[str, Any]


def every_dialect() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("dialect", BODIES)


@every_dialect()
def test_a_request_that_keeps_all_rules_is_answered(dialect: str):
    with Provider(["It rains."]) as provider:
        status, answer = ask(provider, dialect)

    assert status == 200
    assert "It rains." in json.dumps(answer)
    assert provider.requests[0].dialect == dialect


def test_refusals_that_nobody_took_fail_the_test():
    with pytest.raises(AssertionError, match="max_tokens"), Provider() as provider:
        ask(provider, "anthropic", max_tokens=None)


def test_refusals_are_shown_with_the_error_that_ended_the_test():
    with pytest.raises(ValueError, match="ours") as caught, Provider() as provider:
        ask(provider, "anthropic", max_tokens=None)
        raise ValueError("ours")

    assert "max_tokens" in caught.value.__notes__[0]


@every_dialect()
def test_a_call_of_what_the_request_does_not_offer_fails_the_test(dialect: str):
    with pytest.raises(AssertionError, match="does not offer 'send_mail'"):
        play(dialect, call("send_mail", to="Ann"))


@every_dialect()
def test_a_model_may_make_a_name_up_where_the_script_says_so(dialect: str):
    status, answer = play(dialect, unoffered(call("send_mail", to="Ann")))

    assert status == 200
    assert "send_mail" in json.dumps(answer)


@every_dialect()
def test_a_name_that_is_offered_is_not_made_up(dialect: str):
    with pytest.raises(AssertionError, match="offers 'get_weather'"):
        play(dialect, unoffered(call("get_weather", city="Oslo")))


def test_a_deferred_tool_is_offered_only_once_a_result_refers_to_it():
    _, whole = BODIES["anthropic"]

    assert play("anthropic", call("get_weather", city="Oslo"))[0] == 200
    with pytest.raises(AssertionError, match="does not offer 'get_weather'"):
        play("anthropic", call("get_weather", city="Oslo"), messages=whole()["messages"][:1])


def test_an_agent_that_stops_too_early_fails_the_test():
    with pytest.raises(AssertionError, match="moves left: 1"), Provider(["One.", "Two."]) as p:
        ask(p, "openai-chat")


def test_an_agent_that_asks_too_often_fails_the_test():
    with pytest.raises(AssertionError, match="end of the script"), Provider(["One."]) as provider:
        ask(provider, "openai-chat")
        ask(provider, "openai-chat")


def test_each_conversation_has_its_own_script():
    with Provider({"Oslo": ["Rain."], "Rome": ["Sun."]}) as provider:
        rome = [{"role": "user", "content": "Weather in Rome?"}]
        _, sun = ask(provider, "openai-chat", messages=rome)
        _, rain = ask(provider, "openai-chat")

    assert said(sun) == "Sun."
    assert said(rain) == "Rain."


def test_a_move_may_look_at_the_request():
    with Provider([lambda request: f"I see {request.tool_names}."]) as provider:
        _, answer = ask(provider, "openai-chat")

    assert said(answer) == "I see ['get_weather']."


@every_dialect()
def test_ids_are_never_given_twice(dialect: str):
    twice = [call("get_weather", city="Oslo"), call("get_weather", city="Rome")]
    with Provider([twice, twice]) as provider:
        texts = [json.dumps(ask(provider, dialect)[1]) for _ in range(2)]

    ids = [word for text in texts for word in text.split('"') if word.endswith(IDS)]
    assert len(ids) == len(set(ids)) >= 4


def test_a_call_becomes_a_search_where_the_request_has_the_clients_search():
    _, answer = play("openai-responses", call("tool_search", queries=["mail"]))

    item = answer["output"][0]
    assert (item["type"], item["execution"]) == ("tool_search_call", "client")
    assert item["arguments"] == {"queries": ["mail"]}


def test_a_function_of_a_namespace_is_called_with_it():
    functions = [{"type": "function", "name": f"mail_{number}"} for number in range(2)]
    mail = {"type": "namespace", "name": "mail", "description": "Mail.", "tools": functions}
    tools = [*responses()["tools"], mail]

    _, answer = play("openai-responses", call("mail_1"), tools=tools)

    assert answer["output"][0]["namespace"] == "mail"


def test_a_hosted_search_answers_itself():
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    tools = [*messages()["tools"], search]
    move = hosted("weather", "get_weather", then=call("get_weather", city="Oslo"))

    _, answer = play("anthropic", move, tools=tools, messages=messages()["messages"][:1])

    kinds = [block["type"] for block in answer["content"]]
    assert kinds == ["server_tool_use", "tool_search_tool_result", "tool_use"]


def test_a_thread_is_continued_with_its_tools_and_history():
    begun = messages() | {"messages": messages()["messages"][:1], "thread": {"type": "create"}}
    with Provider([call("tool_search", city="Oslo"), "It rains."]) as provider:
        _, answer = post(f"{provider.base_url}/messages", begun)
        new = {"role": "user", "content": [result(answer["content"][0]["id"], "None.")]}
        thread = {"type": "continue", "previous_message_id": answer["id"]}
        body = {"model": "claude-opus-5", "max_tokens": 9, "thread": thread, "messages": [new]}
        status, _ = post(f"{provider.base_url}/messages?beta=true", body)

    first, second = provider.requests
    assert status == 200
    assert second.tool_names == first.tool_names
    assert second.prefix_bytes == first.prefix_bytes
    assert len(second.messages) == 3


def test_a_response_is_continued_with_its_history_alone():
    tools = [{"type": "function", "name": "send_mail", "description": "Send."}]
    begun = {"model": "gpt-5.5", "input": "Write to Ann.", "tools": tools}
    with Provider([call("send_mail"), "Sent."]) as provider:
        _, answer = post(f"{provider.base_url}/responses", begun)
        call_id = answer["output"][0]["call_id"]
        output = {"type": "function_call_output", "call_id": call_id, "output": "Done."}
        body = {"model": "gpt-5.5", "input": [output], "previous_response_id": answer["id"]}
        status, _ = post(f"{provider.base_url}/responses", body)

    assert status == 200
    assert provider.requests[1].tool_names == []
    assert provider.requests[1].tool_results == {call_id: "Done."}


@every_dialect()
def test_a_request_is_kept_byte_for_byte(dialect: str):
    with Provider(["It rains."]) as provider:
        ask(provider, dialect)
    request = provider.requests[0]

    assert json.loads(request.raw) == request.body
    assert request.tools_bytes in request.raw
    assert all(definition in request.tools_bytes for definition in request.definitions_bytes)
    assert b"Be brief." in request.prefix_bytes
    assert "Rain." in request.tool_results.values()


def test_a_request_lists_the_references_of_its_results():
    for dialect in ("anthropic", "openai-responses"):
        with Provider(["It rains."]) as provider:
            ask(provider, dialect)

        assert provider.requests[0].references == ["get_weather"]


@every_dialect()
@pytest.mark.parametrize(
    "move",
    ["It rains in Oslo.", [call("get_weather", city="Oslo"), call("get_weather", city="Rome")]],
    ids=["text", "calls"],
)
def test_a_stream_brings_what_an_answer_has(dialect: str, move: Action):
    with Provider([move]) as provider:
        path, whole = BODIES[dialect]
        streamed = path.replace(":generate", ":streamGenerate")
        options = {} if dialect == "gemini" else {"stream": True}
        body = whole() | options
        _, text = post_text(f"{provider.root_url}{streamed}?alt=sse", body)

    assert joined(dialect, text) == wanted(move)


def test_usage_comes_in_a_chunk_of_its_own_where_it_is_asked_for():
    with Provider(["It rains."]) as provider:
        body = chat() | {"stream": True, "stream_options": {"include_usage": True}}
        _, text = post_text(f"{provider.base_url}/chat/completions", body)

    usage = events(text)[-1]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] > 0
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
def test_a_version_in_the_path_is_optional(path: str):
    with Provider(["It rains."]) as provider:
        assert post(f"{provider.root_url}{path}", chat())[0] == 200


def test_models_and_token_counts_are_served():
    with Provider() as provider:
        with urlopen(f"{provider.base_url}/models") as answer:
            listed = json.load(answer)
        _, counted = post(f"{provider.base_url}/messages/count_tokens", messages())

    assert [model["id"] for model in listed["data"]] == ["scripted"]
    assert counted["input_tokens"] > 0


IDS = tuple(f"_{number:04d}" for number in range(1, 9))


def play(dialect: str, move: Move, **changes: object) -> tuple[int, Json]:
    with Provider([move]) as provider:
        return ask(provider, dialect, **changes)


def ask(provider: Provider, dialect: str, **changes: object) -> tuple[int, Json]:
    """Send the good request of a dialect, with changes; None takes a member out."""
    path, whole = BODIES[dialect]
    body = {key: value for key, value in (whole() | changes).items() if value is not None}
    return post(f"{provider.root_url}{path}", body)


def said(answer: Json) -> str:
    return answer["choices"][0]["message"]["content"]


def events(text: str) -> list[Json]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def wanted(move: object) -> tuple[str, list[Json]]:
    if isinstance(move, str):
        return move, []
    return "", [{"city": "Oslo"}, {"city": "Rome"}]


def joined(dialect: str, text: str) -> tuple[str, list[Json]]:
    """Put a stream's pieces together by the rules of its dialect: the text, and the arguments."""
    texts: list[str] = []
    pieces: dict[object, str] = {}
    for data in events(text):
        for key, piece, is_text in JOINERS[dialect](data):
            if is_text:
                texts.append(piece)
            else:
                pieces[key] = pieces.get(key, "") + piece
    return "".join(texts), [json.loads(piece) for piece in pieces.values() if piece]


Piece = tuple[object, str, bool]


def chat_pieces(data: Json) -> list[Piece]:
    delta = data["choices"][0]["delta"]
    calls: list[Json] = delta.get("tool_calls") or []
    found: list[Piece] = [(made["index"], made["function"]["arguments"], False) for made in calls]
    return [*found, ("", delta.get("content") or "", True)]


def responses_pieces(data: Json) -> list[Piece]:
    match data["type"]:
        case "response.function_call_arguments.delta":
            return [(data["item_id"], data["delta"], False)]
        case "response.output_text.delta":
            return [("", data["delta"], True)]
        case _:
            return []


def messages_pieces(data: Json) -> list[Piece]:
    delta = data.get("delta", {})
    match delta.get("type"):
        case "input_json_delta":
            return [(data["index"], delta["partial_json"], False)]
        case "text_delta":
            return [("", delta["text"], True)]
        case _:
            return []


def gemini_pieces(data: Json) -> list[Piece]:
    found: list[Piece] = []
    for part in data["candidates"][0]["content"]["parts"]:
        if "text" in part:
            found.append(("", part["text"], True))
        else:
            made = part["functionCall"]
            found.append((made["id"], json.dumps(made["args"]), False))
    return found


JOINERS: dict[str, Callable[[Json], list[Piece]]] = {
    "openai-chat": chat_pieces,
    "openai-responses": responses_pieces,
    "anthropic": messages_pieces,
    "gemini": gemini_pieces,
}
