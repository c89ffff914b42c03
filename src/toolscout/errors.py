"""Every error of toolscout, grouped by who reads it.

    ToolscoutError
    ├── UsageError           read by the developer or operator
    │   ├── InvalidTool      a definition cannot be catalogued
    │   ├── DuplicateTool    two tools have the same exposed name
    │   ├── InvalidFile      a file of tools, queries or vectors cannot be read
    │   ├── InvalidHint      a hint that is empty, too long or useless
    │   ├── InvalidEncoder   an encoder returned something other than vectors
    │   ├── InvalidConfig    a setting with an unknown key or an impossible value
    │   │   └── UnknownPin   a pin that matches no tool and no server
    │   ├── InvalidState     a stored session or history that cannot be read
    │   ├── StoreUnavailable a database that cannot be reached, or that refuses
    │   ├── BrokenPolicy     a policy that failed; nothing is shown or called
    │   ├── MissingExtra     an optional dependency is not installed
    │   ├── IsolationFailed  a server cannot be isolated as configured, and is not started
    │   └── SdkChanged       an SDK lacks a private member that its adapter uses
    ├── ModelError           read by the model, as a tool result flagged as error
    │   ├── CatalogUnavailable  the database of the catalogue does not answer
    │   ├── InvalidQuery     a query that cannot be read; carries what to write instead
    │   ├── UnknownServer    `server:` names none that exists; carries near names
    │   ├── UnknownTool      no such name; carries near names
    │   ├── AmbiguousTool    a name that several tools have; carries their exposed names
    │   ├── NotLoaded        hidden in this session; carries the query to use
    │   ├── ToolChanged      its definition is not the one that was loaded
    │   ├── ToolHeld         its definition waits for a person's approval
    │   ├── InvalidArguments arguments that do not fit the schema; carries what is wrong
    │   ├── InvalidRequest   a meta-tool was called with arguments it does not take
    │   │   ├── NotJson      a part to pick from a result that has no parts
    │   │   ├── NotPending   an answer to a question that no call waits for
    │   │   └── OwnNameNeeded  `tool_call` must not run this tool
    │   ├── WrongVariant     a variant of tool_call that the tool's effect does not fit
    │   ├── UnknownResult    no such handle of a stored result
    │   ├── UnknownFile      a skill has no such file; carries near names
    │   ├── NotAllowed       refused by policy
    │   ├── ToolDisabled     switched off; carries the reason
    │   ├── ApprovalNeeded   the host has to approve this call first
    │   ├── ProgramFailed    a program that raised; carries the line and what the subset lacks
    │   └── ProgramStopped   a program that reached a limit; carries which
    └── UpstreamError        another program failed; the model reads it as a result too
        ├── ServerUnavailable  pending, failed or stopped; carries the state
        │   ├── LoginRequired  the caller has to log in to it first; carries the command
        │   └── LoginUndecided nobody has said whose login its calls use
        ├── ServerBusy       too many calls are waiting for it
        ├── ConnectionsBusy  nobody else can have a connection to it now
        ├── LoginFailed      nobody logged in to a server
        ├── CallTimedOut     no answer in time
        ├── CallFailed       the tool's own code failed
        ├── SkillChanged     a file of a skill is not the one that was listed
        ├── EndpointFailed   a service that runs a model refuses, or does not answer
        └── ProtocolError    an answer that cannot be read

An error carries its facts as attributes and builds its own message: what happened, what was
expected and what to do next. Errors that a model reads also have a stable `code` (R78).
Sentences in which `calls` reports to the model are at the end.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self


class ToolscoutError(Exception):
    """Anything that toolscout raises on purpose."""

    remedy: str = ""
    """What to do next, if the message ends with it."""


class UsageError(ToolscoutError):
    """A mistake that the developer or operator can fix."""


class InvalidTool(UsageError):
    """A definition that cannot be catalogued."""

    def __init__(self, problem: str, *, server: str, tool: str, remedy: str) -> None:
        self.problem, self.server, self.tool, self.remedy = problem, server, tool, remedy
        super().__init__(f"Tool {_name_owned(server, tool)} {problem}. {remedy}")


def _name_owned(server: str, leaf: str) -> str:
    return f"{leaf!r} of server {server!r}" if server else repr(leaf)


class DuplicateTool(UsageError):
    """Two tools with the same exposed name."""

    def __init__(self, name: str, *, first: tuple[str, str], second: tuple[str, str]) -> None:
        self.name, self.first, self.second = name, first, second
        super().__init__(
            f"Two tools have the exposed name {name!r}: {_name_owned(*first)} and "
            f"{_name_owned(*second)}. Rename one of them or its server."
        )


class InvalidFile(UsageError):
    """A file that cannot be read, written or understood."""

    def __init__(
        self,
        path: str,
        problem: str,
        *,
        line: int | None = None,
        column: int | None = None,
        remedy: str,
    ) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        self.line, self.column = line, column
        where = path if line is None else f"{path}, line {line}"
        where = where if column is None else f"{where}, column {column}"
        super().__init__(f"{where}: {problem}. {remedy}")


class InvalidHint(UsageError):
    """A hint that cannot be kept."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        self.remedy = "Write a line of words and short phrases that people use for the tool."
        super().__init__(f"The hint {problem}. {self.remedy}")


class InvalidEncoder(UsageError):
    """An encoder whose answer is not one finite vector of the same length for each text."""

    def __init__(self, encoder: str, problem: str, *, remedy: str) -> None:
        self.encoder, self.problem, self.remedy = encoder, problem, remedy
        super().__init__(f"Encoder {encoder!r} {problem}. {remedy}")


class InvalidConfig(UsageError):
    """A setting with an unknown key or an impossible value."""

    def __init__(self, key: str, problem: str, *, remedy: str) -> None:
        self.key, self.problem, self.remedy = key, problem, remedy
        super().__init__(f"Setting {key!r} {problem}. {remedy}")


class UnknownPin(InvalidConfig):
    """A pin that matches no catalogued tool and no server."""

    def __init__(self, pin: str, near: Sequence[str]) -> None:
        self.pin, self.near = pin, tuple(near)
        known = f"Near: {', '.join(self.near)}." if self.near else "Name a tool, server or pattern."
        super().__init__("pins", f"names {pin!r}, which matches nothing", remedy=known)


class InvalidState(UsageError):
    """A stored session or a history that cannot be read."""

    def __init__(self, problem: str, *, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}. {remedy}")


class StoreUnavailable(UsageError):
    """A database that cannot be reached, or that refuses; its text holds no password."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        super().__init__(
            f"The store at {place} cannot be used: {problem}. Check that the database runs, that "
            "its address is right and that the user may create a schema."
        )


class BrokenPolicy(UsageError):
    """A policy that raised instead of answering; nothing is shown or called (R79)."""

    def __init__(self, what: str, error: Exception) -> None:
        self.what = what
        super().__init__(
            f"The policy failed at {what} with {type(error).__name__}. "
            "Nothing was shown or called; make it answer for every tool."
        )


class MissingExtra(UsageError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, module: str, *, extra: str) -> None:
        self.module, self.extra = module, extra
        super().__init__(f"{module!r} is not installed. Run `pip install 'toolscout[{extra}]'`.")


class IsolationFailed(UsageError):
    """A server cannot be isolated as its configuration says, so it is not started."""

    def __init__(self, option: str, problem: str, remedy: str, path: str = "") -> None:
        self.option, self.problem, self.remedy, self.path = option, problem, remedy, path
        # A model may read this, so the path stays out of it.
        super().__init__(f"Setting {option!r} cannot be followed: {problem}. {remedy}")


class SdkChanged(UsageError):
    """An SDK no longer has a private member that its adapter relies on."""

    def __init__(self, sdk: str, member: str) -> None:
        self.sdk = sdk
        self.member = member
        super().__init__(
            f"The installed {sdk} has no {member}, which toolscout's adapter relies on. "
            f"Install a version of {sdk} that docs/adapters.md lists, or a newer toolscout."
        )


class ModelError(ToolscoutError):
    """A mistake that the model can fix; its text holds no path, host or secret."""

    code: ClassVar[str] = "refused"


class CatalogUnavailable(ModelError):
    """A catalogue in a database that does not answer; the cause says which."""

    code = "catalog_unavailable"

    def __init__(self) -> None:
        super().__init__(
            "The catalogue of tools cannot be read at the moment. Call the tools that you have "
            "found already, or try again in a minute."
        )


QUERY_FORMS = (
    "Describe what the tool should do ('create a pull request'), or use "
    "'select:name,name' for known names, 'prefix*' for names that start with it, "
    "'+term' or '-term' for words that must or must not occur, '/regex/', and "
    "'server:name', 'effect:read' or 'kind:skill' to narrow it down."
)


class InvalidQuery(ModelError):
    """A query that cannot be read."""

    code = "invalid_query"

    def __init__(self, problem: str, *, remedy: str = QUERY_FORMS) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}. {remedy}")

    @classmethod
    def from_type(cls, kind: type) -> Self:
        """Return the error of a query that is not a string."""
        return cls(f"A query is text, not {kind.__name__}")

    @classmethod
    def from_nothing(cls) -> Self:
        """Return the error of a query without anything to search for."""
        return cls("The query contains nothing to search for")

    @classmethod
    def from_empty_selection(cls) -> Self:
        """Return the error of `select:` without names."""
        remedy = "Add some, for example 'select:a,b'."
        return cls("'select:' has no names", remedy=remedy)

    @classmethod
    def from_effect(cls, effect: str, known: Iterable[str]) -> Self:
        """Return the error of a filter by an unknown effect."""
        return cls(f"Unknown effect {effect!r}", remedy=f"Use one of {', '.join(known)}.")

    @classmethod
    def from_long_pattern(cls, limit: int) -> Self:
        """Return the error of a pattern with more characters than the limit."""
        return cls(f"The pattern is longer than {limit} characters", remedy="Shorten it.")

    @classmethod
    def from_pattern(cls, reason: str) -> Self:
        """Return the error of a pattern that does not compile."""
        remedy = "Use RE2 syntax, without look-around and back references, or plain words."
        return cls(f"The pattern is invalid ({reason})", remedy=remedy)


class UnknownServer(ModelError):
    """A `server:` filter that names no catalogued server."""

    code = "unknown_server"

    def __init__(
        self, server: str, near: Sequence[str], *, otherwise: str = "Leave `server:` out."
    ) -> None:
        self.server, self.near = server, tuple(near)
        super().__init__(
            f"There is no server {server!r}. "
            + (f"Near: {', '.join(self.near)}." if self.near else otherwise)
        )


class UnknownTool(ModelError):
    """A name that no tool of this caller has."""

    code = "unknown_tool"

    def __init__(
        self, name: str, near: Sequence[str], *, otherwise: str = "Find it with tool_search."
    ) -> None:
        self.name, self.near = name, tuple(near)
        super().__init__(
            f"Not called: there is no tool {name!r}. "
            + (f"Near: {', '.join(self.near)}." if self.near else otherwise)
        )


class AmbiguousTool(ModelError):
    """A short name that several tools have."""

    code = "ambiguous_tool"

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        self.name, self.candidates = name, tuple(candidates)
        super().__init__(
            f"Not called: {name!r} could mean {', '.join(self.candidates)}. Use one of these names."
        )


class NotLoaded(ModelError):
    """A tool that this session has not found yet."""

    code = "not_loaded"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Not called: tool {name!r} is not loaded yet. "
            f"Call tool_search with 'select:{name}' first."
        )


class ToolChanged(ModelError):
    """A tool whose definition is no longer the one that this session loaded (R64)."""

    code = "tool_changed"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Not called: the definition of {name!r} has changed since it was loaded. "
            "Read the schema below and call it again."
        )


class ToolHeld(ModelError):
    """A tool whose definition is new or changed, and which nobody has approved yet."""

    code = "tool_held"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Not called: the definition of {name!r} has changed and waits for the approval of a "
            "person, so it cannot be used now. Tell the user, who can look at it with `toolscout "
            "approvals`, and continue without it."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One argument that breaks one rule of the schema."""

    path: str
    """Where in the arguments, for example `items[2].id`; empty for the arguments as a whole."""
    rule: str
    """The schema's keyword, for example `required`."""
    message: str


class InvalidArguments(ModelError):
    """Arguments that do not fit a tool's schema."""

    code = "invalid_arguments"

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.name, self.problems = name, tuple(problems)
        listed = "; ".join(f"{p.path or 'arguments'}: {p.message} ({p.rule})" for p in problems)
        super().__init__(
            f"Not called: the arguments of {name!r} do not match its schema. {listed}."
        )


ONE_BY_ONE = "Use tool_call once for each."
READING_FORMS = (
    'Use {"start": 4000} (and "end"), {"line": 120}, {"lines": [120, 180]}, {"find": "words"} '
    '(and "start"), or {"path": "$.items[0]"}.'
)


PATH_FORM = "Write one like $.items[0].name, with ['key'], [n], [a:b] and [*]."


class InvalidRequest(ModelError):
    """A meta-tool called with arguments that it does not take."""

    code = "invalid_request"

    def __init__(self, problem: str, *, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}. {remedy}")

    @classmethod
    def from_call(cls, problem: str = "tool_call needs a name") -> Self:
        """Return the error of a `tool_call` that does not say what to call."""
        remedy = "Send {'name': …, 'arguments': {…}}, or several of these in 'calls'."
        return cls(f"Not called: {problem}", remedy=remedy)

    @classmethod
    def from_several(cls) -> Self:
        """Return the error of several calls at once, where the host makes calls itself."""
        return cls("Not called: only one call at a time is possible here", remedy=ONE_BY_ONE)

    @classmethod
    def from_meta_tool(cls, name: str) -> Self:
        """Return the error of a meta-tool that is called through `tool_call`."""
        return cls(f"Not called: {name} is not called through tool_call", remedy="Call it itself.")

    @classmethod
    def from_keys(cls, keys: str) -> Self:
        """Return the error of reading a result by other keys than it takes."""
        return cls(f"Results cannot be read by {keys}", remedy=READING_FORMS)

    @classmethod
    def from_number(cls, key: str, value: str, low: int, high: int) -> Self:
        """Return the error of a place in a result that is not a number or out of range."""
        return cls(f"{key!r} is {value}", remedy=f"Give a whole number from {low} to {high}.")

    @classmethod
    def from_lines(cls) -> Self:
        """Return the error of `lines` that are not a pair."""
        return cls("'lines' needs two numbers", remedy='Use {"lines": [120, 180]}.')

    @classmethod
    def from_words(cls, limit: int) -> Self:
        """Return the error of words to find that are none or too many."""
        return cls(f"Give 1 to {limit} characters to find", remedy='Use {"find": "words"}.')

    @classmethod
    def from_text(cls, *, is_cut: bool) -> Self:
        """Return the error of a path into a result that is not JSON, or not all of it."""
        why = "was too long to keep in full" if is_cut else "is not JSON"
        return cls(f"The result {why}", remedy=f"A path needs JSON. {READING_FORMS}")

    @classmethod
    def from_path(cls, path: str) -> Self:
        """Return the error of a path that cannot be read."""
        return cls(f"The path {path!r} is invalid", remedy=PATH_FORM)

    @classmethod
    def from_pick(cls, path: str) -> Self:
        """Return the error of a call that is to return a part of its result at no path."""
        return cls(f"Not called: {path!r} in 'pick' is no path", remedy=PATH_FORM)

    @classmethod
    def from_step(cls, where: str, step: str, *, size: int | None, keys: str | None) -> Self:
        """Return the error of a path that leaves its JSON at a list, an object or a value."""
        if size is not None:
            remedy = f"It has {size} items; use [n], [a:b] or [*]."
        elif keys is None:
            remedy = "It is a single value; drop the rest of the path."
        else:
            remedy = f"Keys there: {keys}." if keys else "It is an empty object."
        return cls(f"{where!r} has nothing at {step!r}", remedy=remedy)


class NotJson(InvalidRequest):
    """A part to pick from a result that has no parts."""

    def __init__(self) -> None:
        super().__init__("It is not JSON", remedy="Leave out 'pick' for this tool.")


class NotPending(InvalidRequest):
    """An answer to a question that no call of the client waits for."""

    def __init__(self) -> None:
        super().__init__(
            "Not called: none of your calls is waiting for this answer",
            remedy="Make the call again, without a request state.",
        )


class WrongVariant(ModelError):
    """A tool called with a variant of `tool_call` that its effect does not fit."""

    code = "wrong_variant"

    def __init__(self, name: str, effect: str, variant: str) -> None:
        self.name, self.effect, self.variant = name, effect, variant
        super().__init__(f"Not called: {name} has the effect {effect!r}. Call it with {variant}.")


class OwnNameNeeded(InvalidRequest):
    """A tool that an SDK treats by its name, so that `tool_call` must not run it."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"{name} was not called: it does not run through tool_call",
            remedy="Call it by its own name.",
        )


class UnknownResult(ModelError):
    """A handle under which no result is kept."""

    code = "unknown_result"

    def __init__(self, handle: str) -> None:
        self.handle = handle
        super().__init__(
            f"There is no stored result {handle!r}. Call the tool again to get a new one."
        )


class UnknownFile(ModelError):
    """A file that a skill does not have."""

    code = "unknown_file"

    def __init__(self, skill: str, file: str, near: Sequence[str]) -> None:
        self.skill, self.file, self.near = skill, file, tuple(near)
        known = ", ".join(map(repr, self.near))
        super().__init__(
            f"Not read: the skill {skill!r} has no file {file!r}. "
            + (f"Near: {known}." if known else "Leave 'file' out to read its instructions.")
        )


class NotAllowed(ModelError):
    """A call that the policy, or a person, refuses."""

    code = "not_allowed"

    def __init__(self, name: str, *, rule: str = "", reason: str = "") -> None:
        self.name = name
        self.rule = rule
        why = f" ({reason.rstrip('.')})" if reason else ""
        super().__init__(
            f"Not called: {name!r} is not allowed here{why}. Use another tool, or tell the user."
        )


class ToolDisabled(ModelError):
    """A tool that is switched off."""

    code = "tool_disabled"

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"Not called: {name!r} is disabled: {reason}. Use another tool.")


class ApprovalNeeded(ModelError):
    """A call that a person has to approve first; `waiting` is its id, if it waits somewhere.

    `page` is where a person can approve it in a browser. The user can be asked about a call that is
    made `alone`, and not with others.
    """

    code = "approval_needed"

    def __init__(
        self, name: str, *, rule: str = "", waiting: str = "", page: str = "", alone: bool = False
    ) -> None:
        self.name = name
        self.rule = rule
        self.waiting = waiting
        remedy = "Call it alone, so that the user is asked." if alone else "Ask the user first."
        if waiting:
            command = f"toolscout policy approve {waiting}"
            place = f", or to approve it at {page}" if page else ""
            remedy = f"Ask the user to run `{command}`{place}, then make the same call again."
        super().__init__(f"Not called: {name!r} needs the user's approval. {remedy}")


MISSING_IN_PROGRAMS = (
    "Programs have no files, network, environment or packages, no class inheritance, and no yield, "
    "del or async for. They can import asyncio, collections, csv, datetime, decimal, functools, "
    "itertools, json, math, random and re."
)
NOT_AWAITED = "In a program with await, calls return coroutines: await each of them."
NEEDS_COROUTINE = "Await tools, search, describe and call; nothing else returns a coroutine."
NO_CALLBACK = "Call tools in a loop or a list comprehension, not through map, sorted or the like."
VALUE_TOO_LARGE = "the value has too many parts; return or send less of it"
OUTSIDE_SUBSET = "The monty syntax parser does not yet support"
"""How the interpreter says that it lacks something."""
NOT_IN_SUBSET = "programs do not have"
VALUE_TOO_DEEP = "the value is nested too deeply"
_PROGRAM_REMEDIES = {
    "object can't be awaited": NEEDS_COROUTINE,
    "'coroutine' object": NOT_AWAITED,
    "cannot suspend in this synchronous context": NO_CALLBACK,
    "is not supported in this environment": MISSING_IN_PROGRAMS,
}
_OUTSIDE_SUBSET = (
    *("ImportError", "ModuleNotFoundError", "NotImplementedError", "AttributeError", "SyntaxError"),
)
"""Exceptions with which a program often meets what the subset lacks."""


class ProgramFailed(ModelError):
    """A program that raised an exception, or that cannot be read."""

    code = "program_failed"

    def __init__(self, kind: str, reason: str, *, line: int = 0, source: str = "") -> None:
        self.kind, self.reason, self.line, self.source = kind, reason, line, source
        place = f" in line {line}" if line else ""
        shown = f" (`{source}`)" if source else ""
        what = f"{kind}: {reason.rstrip('.')}" if reason else kind
        found = (text for mark, text in _PROGRAM_REMEDIES.items() if mark in reason)
        usual = MISSING_IN_PROGRAMS if kind in _OUTSIDE_SUBSET else ""
        remedy = next(found, usual) or "Correct it, or catch the exception."
        super().__init__(f"The program failed{place}{shown}: {what}. {remedy}")


class ProgramStopped(ModelError):
    """A program that was ended because it reached a limit, or that could not begin."""

    code = "program_stopped"

    def __init__(self, problem: str, *, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"The program {problem}. {remedy}")

    @classmethod
    def from_time(cls, seconds: float) -> Self:
        """Return the error of a program that ran too long."""
        problem = f"was stopped: it ran longer than {seconds:g} s"
        return cls(problem, remedy="Do less in one program, or make fewer calls.")

    @classmethod
    def from_memory(cls, megabytes: int) -> Self:
        """Return the error of a program that used too much memory."""
        problem = f"was stopped: it used more than {megabytes} MB of memory"
        return cls(problem, remedy="Keep only the parts of results that you need.")

    @classmethod
    def from_calls(cls, calls: int) -> Self:
        """Return the error of a program that made too many calls."""
        problem = f"was stopped: it made more than {calls} calls"
        return cls(problem, remedy="Make fewer calls, or go on in another program.")

    @classmethod
    def from_crash(cls) -> Self:
        """Return the error of a program that ended its worker process."""
        problem = "was stopped: it crashed the process that ran it"
        return cls(problem, remedy="Write it more simply, or use tool_call.")

    @classmethod
    def from_busy(cls) -> Self:
        """Return the error of a program that found no free worker process."""
        problem = "was not started: too many programs are running"
        return cls(problem, remedy="Try again shortly, or use tool_call.")

    @classmethod
    def from_length(cls, limit: int) -> Self:
        """Return the error of a program with too many characters."""
        problem = f"was not started: it is longer than {limit:,} characters"
        return cls(problem, remedy="Shorten it.")

    @classmethod
    def from_switch(cls) -> Self:
        """Return the error of a program where programs are switched off."""
        return cls("was not started: programs are switched off here", remedy="Use tool_call.")

    @classmethod
    def from_nothing(cls) -> Self:
        """Return the error of a `tool_run` without a program."""
        return cls("is missing", remedy="Send {'code': '…'}.")


class UpstreamError(ToolscoutError):
    """Another program failed; what it said is quoted, cut and cleaned."""

    code: ClassVar[str] = "failed"


TRY_LATER = "Try again later, or use another tool."
CALL_INTERRUPTED = (
    "The gateway ended while this call was running, so it may have been made. Check before you "
    "make it again."
)


class ServerUnavailable(UpstreamError):
    """A server that cannot take a call now."""

    code = "server_unavailable"

    def __init__(
        self, server: str, state: str, reason: str = "", *, remedy: str = TRY_LATER
    ) -> None:
        self.server, self.state, self.reason, self.remedy = server, state, reason, remedy
        verb = "has" if state == "failed" else "is"
        why = f"{state} ({reason})" if reason else state
        who = f"server {server!r}" if server else "this program"
        super().__init__(f"Not called: {who} {verb} {why}. {remedy}")


class LoginRequired(ServerUnavailable):
    """A server that a principal has to log in to before its calls."""

    code = "login_required"

    def __init__(self, server: str, principal: str, command: str, page: str = "") -> None:
        self.principal, self.command = principal, command
        where = f"open {page}" if page else f"have `{command}` run where the gateway runs"
        super().__init__(
            server,
            "waiting for a login",
            f"{principal} has not logged in to it",
            remedy=f"Ask the user to {where}, then call again.",
        )


class LoginUndecided(ServerUnavailable):
    """A server with somebody's login, behind a gateway that several principals use."""

    code = "login_undecided"

    def __init__(self, server: str) -> None:
        super().__init__(
            server,
            "refused",
            "it would use one person's login for everybody",
            remedy='Ask the operator to give it login = "user" or login = "shared" in the '
            "configuration, or use another tool.",
        )


class ServerBusy(UpstreamError):
    """A server for which too many calls are waiting already."""

    code = "server_busy"

    def __init__(self, server: str, waiting: int, *, is_own: bool = False) -> None:
        self.server, self.waiting = server, waiting
        whose = " of yours" if is_own else ""
        super().__init__(
            f"Not called: server {server!r} is busy with {waiting} calls{whose}. Try again shortly."
        )


class ConnectionsBusy(UpstreamError):
    """A server with as many connections as it may have, all of them in use."""

    code = "server_busy"

    def __init__(self, server: str, connections: int) -> None:
        self.server, self.connections = server, connections
        super().__init__(
            f"Not called: server {server!r} is busy for as many sessions or users as it may serve "
            f"at once ({connections}, see max_connections). Try again shortly."
        )


class LoginFailed(UpstreamError):
    """A login at a server that came to nothing; read by the person who tried."""

    code = "login_failed"

    def __init__(self, server: str, reason: str, *, remedy: str) -> None:
        self.server, self.reason, self.remedy = server, reason, remedy
        super().__init__(f"Login to server {server!r} failed: {reason}. {remedy}")


class CallTimedOut(UpstreamError):
    """A call that was given up after a time."""

    code = "timed_out"

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self.seconds = name, seconds
        super().__init__(
            f"{name!r} did not answer within {seconds:g} s; it may still have had an effect. "
            "Check before you call it again."
        )


class CallFailed(UpstreamError):
    """A tool whose own code failed."""

    code = "call_failed"

    def __init__(self, name: str, said: str) -> None:
        self.name, self.said = name, said
        super().__init__(f"{name!r} failed: {said}")


class SkillChanged(UpstreamError):
    """A file of a skill that differs from the one that was listed, and so from what is approved."""

    code = "skill_changed"

    def __init__(self, skill: str, file: str) -> None:
        self.skill, self.file = skill, file
        super().__init__(
            f"Not read: {file!r} of the skill {skill!r} has changed since the skill was listed. "
            "Search for the skill again. If it is not found, a person has to approve the change."
        )


class EndpointFailed(UpstreamError):
    """A service that runs a model and did not answer."""

    def __init__(self, model: str, reason: str, *, remedy: str) -> None:
        self.model, self.reason, self.remedy = model, reason, remedy
        super().__init__(f"The model {model!r} did not answer ({reason}). {remedy}")


class ProtocolError(UpstreamError):
    """An answer that cannot be read."""

    code = "protocol_error"

    def __init__(self, server: str, problem: str) -> None:
        self.server, self.problem = server, problem
        super().__init__(f"Server {server!r} sent an unreadable answer: {problem}.")


# Sentences in which `calls` reports to the model, with what `format` fills in; those of sessions
# are in `sessions.texts`.

_PROBLEMS = {
    "type": "expected {wanted}, got {got}",
    "required": "is required",
    "enum": "must be one of {wanted}",
    "const": "must be {wanted}",
    "additionalProperties": "is not a parameter; known: {wanted}",
    "unevaluatedProperties": "is not a parameter; known: {wanted}",
    "anyOf": "matches none of: {wanted}; got {got}",
    "oneOf": "matches none of: {wanted}; got {got}",
    "minimum": "must be at least {wanted}, got {got}",
    "maximum": "must be at most {wanted}, got {got}",
    "exclusiveMinimum": "must be above {wanted}, got {got}",
    "exclusiveMaximum": "must be below {wanted}, got {got}",
    "multipleOf": "must be a multiple of {wanted}, got {got}",
    "minLength": "must have at least {wanted} characters, got {got}",
    "maxLength": "must have at most {wanted} characters, got {got}",
    "minItems": "must have at least {wanted} items, got {got}",
    "maxItems": "must have at most {wanted} items, got {got}",
    "minProperties": "must have at least {wanted} properties, got {got}",
    "maxProperties": "must have at most {wanted} properties, got {got}",
    "pattern": "must match the pattern {wanted}, got {got}",
    "format": "must be a valid {wanted}, got {got}",
    "value": "is refused by the tool: {wanted}",
    "uniqueItems": "must not contain duplicates",
    "contains": "contains no item of the required kind",
    "propertyNames": "has a key that is not allowed",
    "schema": "does not match the schema; the place is unknown",
    "not": "is a forbidden kind of value",
    "properties": "is not allowed",
    "fixed": "is set for every call and cannot be chosen; leave it out",
    "items": "is one item too many",
    "additionalItems": "is one item too many",
    "unevaluatedItems": "is one item too many",
}
UNKNOWN_PARAMETER = "is not a parameter"
SEVERAL_FIT = "matches more than one alternative instead of exactly one"
MISFIT = "does not match the schema"
LONE_SURROGATE = "contains half a character (a lone surrogate)"
UNWRITABLE_NUMBER = "contains a number that JSON cannot represent: NaN, infinite or too long"


def describe_problem(rule: str, wanted: str = "", got: str = "") -> str:
    """Return what is wrong with an argument that breaks a rule of its schema."""
    return _PROBLEMS.get(rule, MISFIT).format(wanted=wanted, got=got)


TOO_SLOW = "Checking all arguments would take too long."
FOREIGN_REFERENCE = "The schema has external references, so only names were checked."
UNSAFE_PATTERN = "A pattern in the schema is unsafe and was not checked."
INVALID_SCHEMA = "The schema is not valid JSON Schema, so only names were checked."

EMPTY_ARGUMENTS = "Read empty arguments as {}."
ARGUMENTS_FROM_TEXT = "Read the arguments from JSON text."
ARGUMENTS_FROM_LIST = "Took the arguments out of a list."
ARGUMENTS_FROM_OBJECT = "Took the arguments out of '{key}'."
READ_AS = "Read '{path}' as {meaning}."
NULL_LEFT_OUT = "Left out '{path}', which was null."
SET_TO_DEFAULT = "Set '{path}' to its default {value}."

NO_CONTENT = "(no content)"
CONTENT_WITHOUT_TEXT = "(content without text: {kinds})"
PART_SHOWN = "Characters {start:,} to {end:,} of {total:,}."
END_LOST = "The last {lost:,} characters of the result were not kept."
OTHER_WAYS = "Or give find, line, lines or path instead."


def report_matches(shown: int, total: int, words: str) -> str:
    """Say how many places of a result that hold some words are shown."""
    if not total:
        return f"Nothing contains '{words}'. {READING_FORMS}"
    return f"{shown:,} of {total:,} matches of '{words}' are shown."


def suggest_reading(handle: str, arguments: Mapping[str, object], verb: str = "Read on") -> str:
    """Return the call that reads a stored result."""
    text = json.dumps(arguments, ensure_ascii=False)
    return f'{verb} with tool_call(name="{handle}", arguments={text}).'
