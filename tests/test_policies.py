"""Policies: one predicate for search, description and call, which fails closed."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st

from toolscout import Catalog, Permission, Policy, Reply, Scout, Session, Settings, Tool
from toolscout.errors import BrokenPolicy, UsageError
from toolscout.schemas import Json

SECRET = "payroll"


def catalog() -> Catalog:
    return Catalog(
        {
            "files": [tool("files", "read"), tool("files", "write"), tool("files", "delete")],
            SECRET: [tool(SECRET, "pay"), tool(SECRET, "show_salaries", aliases=["wages"])],
        }
    )


def tool(server: str, leaf: str, **options: Any) -> Tool:
    text = f"{leaf.capitalize()} something of the {server}."
    return Tool.define(leaf, server=server, description=text, **options)


def done(_: Tool, __: Json) -> str:
    return "done"


def not_secret(tool: Tool) -> bool:
    return tool.server != SECRET


def not_writing(tool: Tool) -> bool:
    return tool.leaf != "write"


def session_of(policy: Policy, **options: Any) -> Session:
    scout = Scout(catalog(), policy=policy, executors=done)
    return scout.session("s", **options)


def everything_said(session: Session) -> list[Reply]:
    """Return the replies to whatever could bring up a tool that is not to be seen."""
    hidden = [f"{SECRET}__show_salaries", "wages", "show_salaries", f"{SECRET}.pay", SECRET]
    queries = ["show the salaries", "payrol", "show_salarys", f"server:{SECRET}", "pay*", "/pay/"]
    return [
        *(session.search([query, f"select:{query}"]) for query in (*queries, *hidden)),
        *(session.describe(name) for name in hidden),
        *(session.call_sync(name, {}) for name in hidden),
    ]


@pytest.mark.requirement("R77")
def test_a_denied_name_is_revealed_by_no_search_description_call_or_prompt():
    """R77"""
    session = session_of(Policy(allowed=not_secret))

    replies = everything_said(session)

    assert {hit.tool.server for reply in replies for hit in reply.hits} <= {"files"}
    assert not [reply.text for reply in replies if "Show_salaries something" in reply.text]
    assert session.loaded == ()
    assert SECRET not in session.system_prompt(listing=True)
    assert SECRET not in str(session.tools("openai-chat"))


@pytest.mark.requirement("R77")
def test_the_answers_are_the_same_as_if_a_denied_tool_did_not_exist():
    """R77: what is denied changes nothing in what the others are told."""
    open_catalog = Catalog({"files": [t for t in catalog() if not_secret(t)]})
    without = Scout(open_catalog).session("s")

    denied = everything_said(session_of(Policy(allowed=not_secret)))

    assert [r.text for r in denied] == [r.text for r in everything_said(without)]


@pytest.mark.requirement("R77")
def test_a_tool_that_is_denied_later_is_no_longer_loaded_or_called():
    """R77"""
    denied: set[str] = set()
    session = session_of(Policy(allowed=lambda tool: tool.name not in denied))
    session.search("select:files__read,files__write")

    denied.add("files__read")

    assert session.loaded == ("files__write",)
    assert session.call_sync("files__read").code == "unknown_tool"


@pytest.mark.requirement("R77")
def test_a_session_sees_what_both_its_scout_and_its_caller_allow():
    """R77"""
    policy = Policy(allowed=not_secret, disabled={"files__delete": "keep everything"})
    session = session_of(policy, allowed=not_writing)

    session.search("select:files__read,files__write,files__delete,payroll__pay")

    assert session.loaded == ("files__read",)


@pytest.mark.requirement("R77")
@trying(max_examples=40)
@given(st.sets(st.sampled_from([t.name for t in catalog()])))
def test_search_describe_and_call_agree_on_what_there_is(allowed: set[str]):
    """R77"""
    policy = Policy(allowed=lambda tool: tool.name in allowed)
    names = [t.name for t in catalog()]

    def session() -> Session:
        scout = Scout(catalog(), policy=policy, settings=Settings(calls_by_name=True))
        return scout.session("s")

    found = {hit.tool.name for hit in session().search(f"select:{','.join(names)}").hits}
    described = set(session().describe(names).references)
    known = {n for n in names if session().call_sync(n).code != "unknown_tool"}

    # With nothing to hide, all is loaded from the start and nothing is new.
    assert found | described | known <= allowed
    assert known == allowed


@pytest.mark.requirement("R76")
@pytest.mark.parametrize("pattern", ["files__delete", "files__d*", "*delete"])
def test_a_tool_disabled_by_name_or_pattern_is_refused_with_the_reason(pattern: str):
    """R76"""
    session = session_of(Policy(disabled={pattern: "nothing is deleted here"}))

    refusal = session.call_sync("files__delete")

    assert refusal.code == "tool_disabled"
    assert "disabled: nothing is deleted here." in refusal.text
    assert session.describe("files__delete").code == "tool_disabled"
    assert "files__delete" not in session.search("delete something of the files").text


def test_an_empty_reason_says_that_none_was_given():
    reply = session_of(Policy(disabled={"files__*": ""})).call_sync("files__read")

    assert "disabled: no reason given." in reply.text


def raising(_: Tool) -> bool:
    raise RuntimeError("the directory of users is away")


async def asynchronous(_: Tool) -> bool:
    return False


@pytest.mark.requirement("R79")
@pytest.mark.parametrize("broken", [raising, asynchronous])
def test_a_policy_that_does_not_answer_stops_the_session_at_its_start(broken: Any):
    """R79: a coroutine counts as true in Python; here it is no answer."""
    with pytest.raises(BrokenPolicy):
        session_of(Policy(allowed=broken))
    with pytest.raises(BrokenPolicy):
        session_of(Policy(allowed=not_secret), allowed=broken)


@pytest.mark.requirement("R79")
def test_a_policy_that_breaks_later_lets_nothing_out():
    """R79"""
    broken = False

    def allowed(_: Tool) -> bool:
        if broken:
            raise RuntimeError("the directory of users is away")
        return True

    session = session_of(Policy(allowed=allowed))
    session.search("select:files__read")
    broken = True
    replies = [
        session.search("read something"),
        session.search("nothing of the kind"),
        session.describe("files__write"),
        session.call_sync("files__read"),
    ]

    for reply in replies:
        assert (reply.code, reply.is_error) == ("broken_policy", True)
        assert reply.hits == reply.references == reply.described == ()
        assert reply.text == (
            "The tool search failed; nothing was called or loaded. Tell the user."
        )


@pytest.mark.requirement("R79")
@pytest.mark.parametrize("answer", [None, True, "yes", RuntimeError("away")])
def test_a_permission_that_is_none_calls_nothing(answer: object):
    """R79"""
    calls: list[str] = []

    def permit(_: Tool, __: Json) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    scout = Scout(
        catalog(),
        policy=Policy(permit=permit),
        executors=lambda tool, _: calls.append(tool.name),
    )
    session = scout.session("s")
    session.search("select:files__read")

    reply = session.call_sync("files__read", approved=True)

    assert (reply.code, calls) == ("broken_policy", [])


def test_permissions_may_be_given_by_name_and_later():
    async def later(_: Tool, __: Json) -> Permission:
        return Permission.ASK

    def named(_: Tool, __: Json) -> Any:
        return "deny"

    asked = Policy(permit=later).decide(tool("files", "read"), {})
    denied = Policy(permit=named).decide(tool("files", "read"), {})

    assert asyncio.run(asked).permission is Permission.ASK
    assert asyncio.run(denied).permission is Permission.DENY


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"disabled": ["files__delete"]}, r"is a list\. Use a mapping from names"),
        ({"disabled": {"files__delete": None}}, "from names or patterns to reasons"),
        ({"allowed": ["files__read"]}, r"Policy\(allowed=…\) is a list\. Use a function"),
        ({"permit": Permission.ALLOW}, r"Policy\(permit=…\) is a Permission\. Use a function"),
    ],
)
def test_a_policy_of_wrong_types_says_what_it_takes(options: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        Policy(**options)
