"""Answers of a server as MCP's results."""

import gzip

import pytest

from servers.openapi.samples import operation
from servers.openapi.services import Reply, Service, call, json_reply
from toolscout.calls.outcome import outcome_from_value
from toolscout.schemas import Json


def test_a_refusal_is_a_result_with_status_and_words(service: Service):
    service.answer = lambda _: Reply(
        429, b'{"error": "slow\x1b[31m down"}', {"retry-after": "9", "content-type": "text/plain"}
    )
    result = call(service, operation(), {})

    text = 'HTTP 429 Too Many Requests (retry after 9): {"error": "slow[31m down"}'
    assert result == {"content": [{"type": "text", "text": text}], "isError": True}
    assert outcome_from_value(result).is_error


def test_long_refusals_are_cut(service: Service):
    service.answer = lambda _: Reply(500, b"x" * 100_000, {"content-type": "text/html"})

    assert len(call(service, operation(), {})["content"][0]["text"]) < 4_100


def test_a_json_answer_that_looks_like_a_result_is_still_json(service: Service):
    value = {"content": [{"type": "text", "text": "hi"}], "isError": True}
    service.answer = lambda _: json_reply(value)
    outcome = outcome_from_value(call(service, operation(), {}))

    assert (outcome.is_error, outcome.data) == (False, value)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (Reply(204), "Status 204, no content."),
        (Reply(200, b"gr\xfcn", {"content-type": "text/plain; charset=latin-1"}), "grün"),
        (Reply(200, b"a", {"content-type": "text/plain; charset=punycode"}), "a"),
        (Reply(200, b"a", {"content-type": "text/plain; charset=no-such"}), "a"),
        (Reply(200, b"{oops", {"content-type": "application/json"}), "{oops"),
        (Reply(200, b"<svg/>", {"content-type": "image/svg+xml"}), "<svg/>"),
        (Reply(200, b"plain"), "plain"),
        (Reply(200, b"[" * 100_000, {"content-type": "application/json"}), "[" * 100_000),
        (Reply(200, gzip.compress(b"zip", mtime=0), {"content-encoding": "gzip"}), "zip"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_answers_in_words_are_text(service: Service, reply: Reply, text: str):
    service.answer = lambda _: reply

    assert call(service, operation(), {}) == {
        "content": [{"type": "text", "text": text}],
        "isError": False,
    }


@pytest.mark.parametrize(
    ("media", "block"),
    [
        ("image/png", {"type": "image", "data": "AAE=", "mimeType": "image/png"}),
        ("audio/ogg", {"type": "audio", "data": "AAE=", "mimeType": "audio/ogg"}),
        (
            "application/pdf",
            {
                "type": "resource",
                "resource": {
                    "uri": "openapi://api/get_x",
                    "mimeType": "application/pdf",
                    "blob": "AAE=",
                },
            },
        ),
    ],
)
def test_binary_answers_are_blocks(service: Service, media: str, block: Json):
    service.answer = lambda _: Reply(200, b"\0\1", {"content-type": media})
    result = call(service, operation(), {})

    assert result["content"] == [block]
    assert outcome_from_value(result).blocks == (block,)


def test_answers_that_are_too_long_are_cut_with_a_note(service: Service):
    note = "(Cut after 10 bytes. Ask for less.)"
    service.answer = lambda _: json_reply(["x" * 100])
    cut = call(service, operation(), {}, max_bytes=10)
    service.answer = lambda _: Reply(200, b"\0" * 11, {"content-type": "image/png"})
    left_out = call(service, operation(), {}, max_bytes=10)

    assert cut["content"][0]["text"] == f'["xxxxxxxx\n{note}'
    assert "structuredContent" not in cut
    assert left_out["content"][0]["text"] == f"Content of type image/png was left out. {note}"
