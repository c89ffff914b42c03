"""Every error of toolscout, grouped by who reads it.

    ToolscoutError
    ├── UsageError           read by the developer or operator
    │   ├── InvalidTool      a definition cannot be catalogued
    │   ├── DuplicateTool    two tools have the same exposed name
    │   ├── InvalidFile      a file of tools, queries or vectors cannot be read
    │   ├── InvalidEncoder   an encoder returned something other than vectors
    │   ├── InvalidConfig    a setting with an unknown key or an impossible value
    │   │   └── UnknownPin   a pin that matches no tool and no server
    │   ├── InvalidState     a stored session or history that cannot be read
    │   ├── StoreUnavailable a database that cannot be reached, or that refuses
    │   ├── BrokenPolicy     a policy that failed; nothing is shown or called
    │   ├── MissingExtra     an optional dependency is not installed
    │   └── SdkChanged       an SDK lacks a private member that its adapter uses
    ├── ModelError           read by the model, as a tool result flagged as error
    │   ├── InvalidQuery     a query that cannot be read; carries what to write instead
    │   ├── UnknownServer    `server:` names none that exists; carries near names
    │   ├── UnknownTool      no such name; carries near names
    │   ├── AmbiguousTool    a name that several tools have; carries their exposed names
    │   ├── NotLoaded        hidden in this session; carries the query to use
    │   ├── ToolChanged      its definition is not the one that was loaded
    │   ├── InvalidArguments arguments that do not fit the schema; carries what is wrong
    │   ├── InvalidRequest   a meta-tool was called with arguments it does not take
    │   ├── UnknownResult    no such handle of a stored result
    │   ├── NotAllowed       refused by policy
    │   ├── ToolDisabled     switched off; carries the reason
    │   └── ApprovalNeeded   the host has to approve this call first
    └── UpstreamError        another program failed; the model reads it as a result too
        ├── ServerUnavailable  pending, failed or stopped; carries the state
        ├── ServerBusy       too many calls are waiting for it
        ├── LoginFailed      nobody logged in to a server
        ├── CallTimedOut     no answer in time
        ├── CallFailed       the tool's own code failed
        └── ProtocolError    an answer that cannot be read

An error carries its facts as attributes and builds its own message: what happened, what was
expected and what to do next. Errors that a model reads also have a stable `code` (R78).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


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
        super().__init__(f"Tool {tool!r} of server {server!r} {problem}. {remedy}")


class DuplicateTool(UsageError):
    """Two tools with the same exposed name."""

    def __init__(self, name: str, *, first: tuple[str, str], second: tuple[str, str]) -> None:
        self.name, self.first, self.second = name, first, second
        super().__init__(
            f"Two tools have the exposed name {name!r}: {first[1]!r} of server {first[0]!r} and "
            f"{second[1]!r} of server {second[0]!r}. Rename one of them or its server."
        )


class InvalidFile(UsageError):
    """A file that cannot be read, written or understood."""

    def __init__(self, path: str, problem: str, *, line: int | None = None, remedy: str) -> None:
        self.path, self.problem, self.line, self.remedy = path, problem, line, remedy
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}. {remedy}")


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


class InvalidQuery(ModelError):
    """A query that cannot be read."""

    code = "invalid_query"

    def __init__(self, problem: str, *, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}. {remedy}")


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

    def __init__(self, name: str, near: Sequence[str]) -> None:
        self.name, self.near = name, tuple(near)
        super().__init__(
            f"Not called: there is no tool {name!r}. "
            + (f"Near: {', '.join(self.near)}." if self.near else "Find it with tool_search.")
        )


class AmbiguousTool(ModelError):
    """A short name that several tools have."""

    code = "ambiguous_tool"

    def __init__(self, name: str, candidates: Sequence[str]) -> None:
        self.name, self.candidates = name, tuple(candidates)
        super().__init__(
            f"Not called: {name!r} may mean {', '.join(self.candidates)}. Use one of these names."
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
        super().__init__(f"Not called: the arguments of {name!r} do not fit its schema. {listed}.")


class InvalidRequest(ModelError):
    """A meta-tool called with arguments that it does not take."""

    code = "invalid_request"

    def __init__(self, problem: str, *, remedy: str) -> None:
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}. {remedy}")


class UnknownResult(ModelError):
    """A handle under which no result is kept."""

    code = "unknown_result"

    def __init__(self, handle: str) -> None:
        self.handle = handle
        super().__init__(
            f"No result is kept as {handle!r}. Call the tool again to get a new result."
        )


class NotAllowed(ModelError):
    """A call that the policy refuses."""

    code = "not_allowed"

    def __init__(self, name: str, reason: str = "") -> None:
        self.name, self.reason = name, reason
        super().__init__(
            f"Not called: {name!r} is not allowed here{f' ({reason})' if reason else ''}. "
            "Use another tool, or tell the user."
        )


class ToolDisabled(ModelError):
    """A tool that is switched off."""

    code = "tool_disabled"

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"Not called: {name!r} is switched off: {reason}. Use another tool.")


class ApprovalNeeded(ModelError):
    """A call that the host has to approve first."""

    code = "approval_needed"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"Not called: {name!r} needs the user's approval. Ask the user first.")


class UpstreamError(ToolscoutError):
    """Another program failed; what it said is quoted, cut and cleaned."""

    code: ClassVar[str] = "failed"


class ServerUnavailable(UpstreamError):
    """A server that cannot take a call now."""

    code = "server_unavailable"

    def __init__(
        self,
        server: str,
        state: str,
        reason: str = "",
        *,
        remedy: str = "Try again later, or use another tool.",
    ) -> None:
        self.server, self.state, self.reason, self.remedy = server, state, reason, remedy
        why = f"{state} ({reason})" if reason else state
        super().__init__(f"Not called: server {server!r} is {why}. {remedy}")


class ServerBusy(UpstreamError):
    """A server for which too many calls are waiting already."""

    code = "server_busy"

    def __init__(self, server: str, waiting: int) -> None:
        self.server, self.waiting = server, waiting
        super().__init__(
            f"Not called: server {server!r} is busy with {waiting} calls. Try again shortly."
        )


class LoginFailed(UpstreamError):
    """A login at a server that came to nothing; read by the person who tried."""

    code = "login_failed"

    def __init__(self, server: str, reason: str, *, remedy: str) -> None:
        self.server, self.reason, self.remedy = server, reason, remedy
        super().__init__(f"The login at server {server!r} failed: {reason}. {remedy}")


class CallTimedOut(UpstreamError):
    """A call that was given up after a time."""

    code = "timed_out"

    def __init__(self, name: str, seconds: float) -> None:
        self.name, self.seconds = name, seconds
        super().__init__(
            f"{name!r} gave no answer within {seconds:g} s; it may still have had an effect. "
            "Check before you call it again."
        )


class CallFailed(UpstreamError):
    """A tool whose own code failed."""

    code = "call_failed"

    def __init__(self, name: str, said: str) -> None:
        self.name, self.said = name, said
        super().__init__(f"{name!r} failed: {said}")


class ProtocolError(UpstreamError):
    """An answer that cannot be read."""

    code = "protocol_error"

    def __init__(self, server: str, problem: str) -> None:
        self.server, self.problem = server, problem
        super().__init__(f"Server {server!r} gave an answer that cannot be read: {problem}.")
