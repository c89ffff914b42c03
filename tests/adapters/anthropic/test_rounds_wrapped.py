"""What a wrapped client knows between its requests."""

from typing import Any

import pytest

from toolscout.adapters._toolkit import Toolkit
from toolscout.adapters.anthropic.definitions import Declarations
from toolscout.adapters.anthropic.rounds import INTERRUPTED_KEPT, Wrapper
from toolscout.errors import UsageError
from toolscout.tools import Tool

Json = dict[str, Any]
TOOLS: list[Json] = [
    {"name": name, "description": f"Do {name}.", "input_schema": {"type": "object"}}
    for name in ("refund_order", "cancel_order", "send_email")
]


def wrapper(kept: int = 8) -> tuple[Wrapper, list[int]]:
    made: list[int] = []

    def define(native: Json) -> Tool:
        return Tool.from_anthropic(native)

    def make(tools: Any) -> Declarations[Any]:
        listed = list[Json](tools)
        made.append(len(listed))
        return Declarations(Toolkit(listed, define), dict)

    return Wrapper(make, kept=kept), made


def begin(wrapped: Wrapper, key: str = "k", path: str = "/v1/messages", **body: Any) -> Any:
    given = {"messages": [{"role": "user", "content": "Hello"}], "tools": TOOLS, **body}
    return wrapped.begin(path, given, key)


def test_a_list_of_tools_is_indexed_once_while_it_is_kept():
    wrapped, made = wrapper(kept=1)
    begin(wrapped)
    begin(wrapped)
    begin(wrapped, tools=TOOLS[:2])
    begin(wrapped)

    assert made == [3, 2, 3]


def test_only_requests_about_tools_are_begun():
    wrapped, made = wrapper()

    assert begin(wrapped, path="/v1/files") is None
    assert begin(wrapped, path="/v1/messages/batches") is None
    assert begin(wrapped, tools=[]) is None
    assert wrapped.begin("/v1/messages", None, "k") is None
    assert made == []


def test_a_repeated_request_goes_on_where_it_failed_and_once():
    wrapped, _ = wrapper()
    first = begin(wrapped)
    wrapped.keep("k", first)

    assert begin(wrapped, "other") is not first
    assert begin(wrapped) is first
    assert begin(wrapped) is not first
    wrapped.keep("k", first)
    wrapped.forget("k")
    assert begin(wrapped) is not first


def test_a_server_thread_is_refused_with_what_to_do():
    wrapped, _ = wrapper()

    with pytest.raises(UsageError, match="thread=False"):
        begin(wrapped, thread={"type": "create"})


def test_few_unfinished_requests_are_remembered():
    wrapped, _ = wrapper()
    first = begin(wrapped)
    for number in range(INTERRUPTED_KEPT + 1):
        wrapped.keep(f"k{number}", first)

    assert begin(wrapped, "k0") is not first
    assert begin(wrapped, "k1") is first
