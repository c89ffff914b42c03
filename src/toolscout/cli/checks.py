"""`Checkup`: one thing that was looked at, how it is, and the command that mends it.

Values only. What is looked at is the business of the modules beside this one.
"""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARN = "warn"
    """It works, but not as well as it could, or not for everyone."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """One thing that was looked at."""

    name: str
    """What was looked at: `python`, `cache`, `server github`."""
    state: State
    text: str
    remedy: str = ""
    """A command to type, or what to do; empty where nothing is to be done."""


def ok(name: str, text: str) -> Checkup:
    """Return that a thing is in order."""
    return Checkup(name=name, state=State.OK, text=text)


def warn(name: str, text: str, remedy: str) -> Checkup:
    """Return that a thing could be better."""
    return Checkup(name=name, state=State.WARN, text=text, remedy=remedy)


def fail(name: str, text: str, remedy: str) -> Checkup:
    """Return that a thing does not work."""
    return Checkup(name=name, state=State.FAIL, text=text, remedy=remedy)
