"""What replies say about tools that need no search: pinned ones, and all when none is hidden."""

import asyncio
import re
from typing import Any

import pytest

from toolscout import Catalog, Mode, Scout, Session, Settings, Tool
from toolscout.sessions.replies import Reply
from toolscout.tokens import count_definition_tokens

META_NAME = re.compile(r"tool_(search|describe|call)")
LONG = "All about it. " * 2_000


def define(leaf: str, server: str = "", **members: Any) -> Tool:
    return Tool.define(leaf, server=server, description=f"The {leaf} tool. {LONG[:200]}", **members)


def run(tool: Tool, arguments: dict[str, Any]) -> str:
    return LONG


def open_session(*tools: Tool, **settings: Any) -> Session:
    servers: dict[str, list[Tool]] = {}
    for tool in tools:
        servers.setdefault(tool.server, []).append(tool)
    scout = Scout(Catalog(servers), settings=Settings(**settings), executors=run)
    return scout.session("a")


def call(session: Session, name: str, **arguments: Any) -> Reply:
    return asyncio.run(session.call(name, arguments))


HOST = (define("Read"), define("Bash"), define("Edit"), define("send_mail", "mail"))


def test_a_hosts_file_and_shell_tools_are_pinned_in_any_case():
    session = open_session(*HOST)

    assert session.pinned == ("Bash", "Edit", "Read")


@pytest.mark.parametrize("pin", ["mcp__mail__send_mail", "MAIL", "Send_Mail", "mcp__Mail__*"])
@pytest.mark.parametrize("setting", ["pins", "argument"])
def test_pins_ignore_case_and_accept_the_names_of_claude_code(pin: str, setting: str):
    settings = Settings(essential=(), pins=(pin,) if setting == "pins" else ())
    tools = [define("send_mail", "mail"), define("other", "x")]
    scout = Scout(Catalog({tool.server: [tool] for tool in tools}), settings=settings)
    session = scout.session("a", pins=[pin] if setting == "argument" else [])

    assert session.pinned == ("mail__send_mail",)
    assert session.warnings == []


def test_an_essential_tool_may_be_named_as_claude_code_names_it():
    session = open_session(*HOST, essential=["mcp__mail__send_mail", "READ"])

    assert session.pinned == ("Read", "mail__send_mail")


def test_a_pinned_hit_is_to_be_called_by_its_own_name_and_not_defined_again():
    reply = open_session(*HOST).search("Read")

    assert "Already among your tools: Read." in reply.text
    assert reply.text.endswith("Next: call it by its own name.")
    assert "Definition of" not in reply.text
    assert not META_NAME.search(reply.text)


def test_a_pinned_hit_next_to_a_new_one_is_told_apart():
    reply = open_session(*HOST).search(["Read", "send mail"])

    assert "Already among your tools: Read." in reply.text
    assert "Next: tool_call with one of these names and its arguments." in reply.text
    assert reply.text.endswith("Call those among your tools by their own names.")
    assert reply.described == ("mail__send_mail",)


def test_schemas_of_pinned_tools_are_not_repeated_on_request():
    reply = open_session(*HOST).search("Read", detail="schemas")

    assert reply.described == ()


@pytest.mark.parametrize("mode", list(Mode))
def test_with_hiding_off_no_reply_names_a_meta_tool(mode: Mode):
    wide = {"properties": {f"a{n}": {"description": LONG} for n in range(20)}, "required": ["a1"]}
    tools = [*HOST, define("wide", "x", input_schema=wide)]
    session = open_session(*tools, hiding="off", mode=mode)
    assert [shown.tool.name for shown in session.list_shown()] == sorted(
        tool.name for tool in tools
    )
    replies = [
        session.search("send mail"),
        session.search("send mail", detail="schemas"),
        session.search("select:nothing"),
        session.search("+zebra"),
        session.describe("mail__send_mail"),
        session.describe("x__wide"),
        session.describe("nothing"),
        call(session, "mail__send_mail"),
        call(session, "qqqqqq"),
        call(session, "x__wide", a1=3),
        session.user_message("Send a mail."),
    ]

    assert [reply.text for reply in replies if META_NAME.search(reply.text)] == []
    assert "among your tools" in replies[0].text
    assert "Characters 0 to" in replies[7].text


def test_tools_without_a_server_are_counted_under_this_program():
    reply = open_session(define("alpha"), define("beta", "mail")).search("+zebra")

    assert "Servers with tools: mail (1), this program (1)." in reply.text


def test_a_tool_without_a_server_that_nobody_runs_is_refused_without_an_empty_name():
    session = Scout(Catalog({"": [define("alpha")]})).session("a")
    session.search("alpha")

    reply = call(session, "alpha")

    assert reply.code == "server_unavailable"
    assert "''" not in reply.text
    assert reply.text.startswith("Not called: this program is not connected.")


def fill(session: Session, tools: list[Tool]) -> str:
    """Find one tool after another; return all that was said."""
    replies = [session.search(f"select:{tool.name}") for tool in (*tools, tools[-1])]
    return "\n".join(reply.text for reply in replies)


def test_what_no_reply_has_shown_is_not_reported_as_unloaded():
    tools = [define(f"tool{letter}", "s") for letter in "abc"]
    session = open_session(*tools, loaded_tokens=count_definition_tokens(tools[0]) * 2)
    session.load(tools[0])

    assert "Unloaded" not in fill(session, tools[1:])
    assert tools[0].name not in session.loaded


def test_conversations_that_share_a_session_do_not_hear_what_others_lost():
    tools = [define(f"tool{letter}", "s") for letter in "abc"]
    budget = count_definition_tokens(tools[0]) * 2
    alone = fill(open_session(*tools, loaded_tokens=budget), tools)
    shared = fill(open_session(*tools, loaded_tokens=budget, shared=True), tools)

    assert "Unloaded to make room: s__toola." in alone
    assert "Unloaded" not in shared
