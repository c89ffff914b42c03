"""An agent with two servers and a scripted model, in three loading modes.

Run it: `python examples/agent.py`. Replace `ScriptedModel` with a call of your provider, and the
fake servers with real ones; the loop stays as it is.
"""

import asyncio
import sys

from toolscout import Catalog, Mode, Scout, Session, Settings
from toolscout.dialects import Dialect
from toolscout.testing import FakeServer, Recording, ScriptedModel, Step, call, calls_from_message


def create_issue(title: str, body: str = "", labels: list[str] | None = None) -> dict[str, int]:
    """Open a new issue in the bug tracker.

    Args:
        title: One line that says what is wrong.
        body: What happened, and what was expected.
        labels: Labels to file it under.
    """
    return {"number": 7}


def close_issue(number: int) -> str:
    """Close an issue that is done."""
    return f"Issue {number} is closed."


def list_issues(label: str = "") -> list[str]:
    """List the open issues, newest first."""
    return ["6: Logo is blurred"]


def send_email(to: str, subject: str, body: str) -> str:
    """Send an email to one person."""
    return f"Sent to {to}."


def list_emails(folder: str = "inbox") -> list[str]:
    """List the emails of a folder."""
    return []


TASK = "The login page shows an error 500. Please file it, and let anna@example.org know."
QUERIES = ["open an issue in the bug tracker", "send an email"]
ISSUE = {"title": "Login page shows error 500", "labels": ["bug"]}
EMAIL = {"to": "anna@example.org", "subject": "Login page", "body": "Filed as issue 7."}


def servers() -> dict[str, FakeServer]:
    """Return two servers that answer without a network, by name."""
    tracker = FakeServer("tracker", [create_issue, close_issue, list_issues])
    mail = FakeServer("mail", [send_email, list_emails])
    return {"tracker": tracker, "mail": mail}


def script(mode: Mode) -> list[Step]:
    """Return what the model does: search once, call two tools, answer."""
    search = call("tool_search", queries=QUERIES)
    if mode is Mode.BRIDGE:
        issue = call("tool_call", name="tracker__create_issue", arguments=ISSUE)
        email = call("tool_call", name="mail__send_email", arguments=EMAIL)
    else:
        issue = call("tracker__create_issue", **ISSUE)
        email = call("mail__send_email", **EMAIL)
    return [search, issue, email, "I filed it as issue 7 and wrote to Anna."]


async def converse(session: Session, model: ScriptedModel, message: str) -> Recording:
    """Run the loop of an agent until the model has nothing more to call."""
    recording = Recording([{"role": "user", "content": message}])
    session.user_message(message)
    while True:
        tools, system = session.tools(model.dialect), session.system_prompt()
        answer = model.reply(recording.messages, tools, system)
        recording.add(answer)
        calls = calls_from_message(answer)
        if not calls:
            return recording
        replies = [(id_, await session.handle(name, args)) for id_, name, args in calls]
        results = [reply.to_message(model.dialect, id_) for id_, reply in replies]
        if model.dialect is Dialect.ANTHROPIC:
            recording.add({"role": "user", "content": results})
        else:
            recording.add(*results)


async def main() -> None:
    """Show one conversation for each mode."""
    for mode in (Mode.BRIDGE, Mode.NATIVE, Mode.REFERENCE):
        catalog = Catalog()
        executors = servers()
        for server in executors.values():
            server.connect(catalog)
        scout = Scout(catalog, executors=executors, settings=Settings(mode=mode))
        dialect = Dialect.ANTHROPIC if mode is Mode.REFERENCE else Dialect.OPENAI_CHAT
        model = ScriptedModel(script(mode), dialect=dialect)
        recording = await converse(scout.session(f"example-{mode}"), model, TASK)
        sys.stdout.write(f"== {mode} ==\n{recording.render_transcript()}\n")
        sys.stdout.write(f"tools by request: {[len(r.tools) for r in model.requests]}\n\n")


if __name__ == "__main__":
    asyncio.run(main())
