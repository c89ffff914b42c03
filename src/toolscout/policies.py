"""`Policy` decides which tools a caller may see, which are disabled and which calls need approval.

Search, description and call use one predicate, so a caller can run exactly the tools that a
search may show (R77). If a policy raises, nothing is shown or called (R79). A policy does not know
what a session has loaded.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import cast

from toolscout.errors import BrokenPolicy, UsageError
from toolscout.schemas import Json
from toolscout.tools import Effect, Tool


class Permission(StrEnum):
    """The host's answer to one call."""

    ALLOW = "allow"
    ASK = "ask"
    """A person has to approve the call first."""
    DENY = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A permission, and what it is based on."""

    permission: Permission
    rule: str = ""
    """The rule that decided; empty if none did."""
    reason: str = ""
    """Why, in the words of whoever wrote the rule."""
    each: bool = False
    """Whether a person is asked about every single call, whatever they agreed to before."""


_ALLOWED = Decision(permission=Permission.ALLOW)
Permit = Callable[[Tool, Json], Permission | Decision | Awaitable[Permission | Decision]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What one caller may see and run; without arguments, everything."""

    allowed: Callable[[Tool], bool] | None = None
    """Tools that it rejects do not exist for the caller."""
    disabled: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names or patterns with `*`, each with the reason that a call returns; searches skip them."""
    permit: Permit | None = None
    """Called for every call, with the arguments that would be sent."""

    is_open: bool = field(init=False, repr=False, compare=False)
    """Whether every tool is visible."""

    def __post_init__(self) -> None:
        is_mapping = isinstance(cast("object", self.disabled), Mapping)
        pairs = self.disabled.items() if is_mapping else [(None, None)]
        if not all(isinstance(text, str) for pair in pairs for text in pair):
            raise UsageError(
                f"Policy(disabled=…) is a {type(self.disabled).__name__}. Use a mapping from names "
                "or patterns to reasons, such as {'github__delete_*': 'not in production'}."
            )
        for name, function in (("allowed", self.allowed), ("permit", self.permit)):
            if function is not None and not callable(cast("object", function)):
                raise UsageError(
                    f"Policy({name}=…) is a {type(function).__name__}. Use a function, or None."
                )
        object.__setattr__(self, "is_open", self.allowed is None and not self.disabled)

    def sees(self, tool: Tool) -> bool:
        """Tell whether a search may show a tool."""
        return self.knows(tool) and not (self.disabled and self.explain_disabled(tool))

    def knows(self, tool: Tool) -> bool:
        """Tell whether a tool exists for the caller, disabled or not."""
        if self.allowed is None:
            return True
        try:
            return _accepts(self.allowed, tool)
        except Exception as error:
            raise BrokenPolicy(f"tool {tool.name!r}", error) from error

    def sees_some(self, server: str) -> bool:
        """Tell whether a search may show a tool of a server whose tools are not known yet."""
        possible = (Tool.define("x", server=server, effect=effect) for effect in Effect)
        try:
            return any(map(self.sees, possible))
        except BrokenPolicy:  # it only knows real tools
            return False

    def explain_disabled(self, tool: Tool) -> str:
        """Return why a tool is disabled, or an empty text if it is not."""
        for pattern, reason in self.disabled.items():
            if tool.name == pattern or fnmatchcase(tool.name, pattern):
                return reason or "no reason given"
        return ""

    async def decide(self, tool: Tool, arguments: Json) -> Decision:
        """Return the host's answer to a call, or raise `BrokenPolicy` if it gives none."""
        if self.permit is None:
            return _ALLOWED
        try:
            answer = self.permit(tool, arguments)
            if inspect.isawaitable(answer):
                answer = await answer
            if isinstance(answer, Decision):
                return answer
            return Decision(permission=Permission(answer))
        except Exception as error:
            raise BrokenPolicy(f"a call of {tool.name!r}", error) from error

    def narrow(self, allowed: Callable[[Tool], bool] | None) -> "Policy":
        """Return a policy that sees what both this one and a further predicate accept."""
        if allowed is None:
            return self
        if self.allowed is None:
            return Policy(allowed=allowed, disabled=self.disabled, permit=self.permit)
        first, second = self.allowed, allowed
        return Policy(
            allowed=lambda tool: _accepts(first, tool) and _accepts(second, tool),
            disabled=self.disabled,
            permit=self.permit,
        )


def _accepts(predicate: Callable[[Tool], object], tool: Tool) -> bool:
    answer = predicate(tool)
    if isinstance(answer, bool):
        return answer
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        # A coroutine counts as true, so it would allow everything.
        raise TypeError("an asynchronous predicate gives no answer")
    return bool(answer)
