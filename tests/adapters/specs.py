"""Three hundred tools of a shop, an office and a server room, and the ledger that runs them.

Each world has ten things and ten deeds, so that many tools are near each other. Nothing here knows
an SDK: a test makes the SDK's own tools out of specs, by schema or out of `Spec.function()`.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str) -> Json:
    return {"type": "integer", "description": description}


def _choice(description: str, *values: str) -> Json:
    return {"type": "string", "enum": list(values), "description": description}


def _texts(description: str) -> Json:
    return {"type": "array", "items": {"type": "string"}, "description": description}


_PERIOD: Json = {
    "type": "object",
    "description": "From which day to which.",
    "properties": {"first": _text("First day, as 2026-03-01."), "last": _text("Last day.")},
    "required": ["first", "last"],
    "additionalProperties": False,
}

SHOP = (
    *("invoice", "order", "parcel", "voucher", "subscription"),
    *("quotation", "deposit", "warranty", "repair", "gift_card"),
)
OFFICE = (
    *("meeting", "contract", "expense", "timesheet", "memo"),
    *("vacation", "survey", "room_booking", "visitor_badge", "training"),
)
SERVERS = (
    *("server", "database", "cluster", "certificate", "deployment"),
    *("pipeline", "backup", "firewall_rule", "message_queue", "container"),
)

SHOP_DEEDS: Mapping[str, tuple[str, Json]] = {
    "refund": (
        "Refund the {thing}: give its money back to the customer.",
        {"amount": _number("How much to give back, in cents.")},
    ),
    "dispute": ("Dispute the {thing} with the supplier.", {"reason": _text("What is wrong.")}),
    "reprint": ("Reprint the {thing} on paper.", {"copies": _number("How many sheets.")}),
    "discount": ("Lower the price of the {thing}.", {"percent": _number("By how much.")}),
    "approve": ("Approve the {thing}, so that it goes ahead.", {}),
    "cancel": ("Cancel the {thing} before it takes effect.", {"reason": _text("Why.")}),
    "split": ("Split the {thing} into equal parts.", {"parts": _number("Into how many.")}),
    "merge": ("Merge the {thing} with others of its kind.", {"others": _texts("Their ids.")}),
    "audit": ("Audit the past of the {thing} for mistakes.", {"period": _PERIOD}),
    "gift_wrap": (
        "Gift-wrap the {thing} before it is handed over.",
        {"paper": _choice("Which paper.", "plain", "stars", "flowers")},
    ),
}
OFFICE_DEEDS: Mapping[str, tuple[str, Json]] = {
    "postpone": ("Postpone the {thing} to a later day.", {"days": _number("By how many days.")}),
    "translate": (
        "Translate the {thing} into another language.",
        {"language": _choice("Into which one.", "french", "german", "japanese")},
    ),
    "share": ("Share the {thing} with colleagues.", {"people": _texts("Who may see it.")}),
    "archive": ("Archive the {thing}, so that it leaves the desk.", {}),
    "review": ("Review the {thing} and write down an opinion.", {"opinion": _text("Yours.")}),
    "summarize": ("Summarize the {thing} in a few words.", {"words": _number("At most so many.")}),
    "delegate": ("Delegate the {thing} to someone else.", {"person": _text("To whom.")}),
    "reject": ("Reject the {thing} and tell its author why.", {"reason": _text("Why.")}),
    "duplicate": ("Duplicate the {thing} under another title.", {"title": _text("The copy's.")}),
    "prolong": ("Prolong the {thing} for a while longer.", {"period": _PERIOD}),
}
SERVER_DEEDS: Mapping[str, tuple[str, Json]] = {
    "restart": (
        "Restart the {thing} when it hangs.",
        {"manner": _choice("How.", "gently", "at_once")},
    ),
    "scale": ("Scale the {thing} up or down.", {"replicas": _number("How many there shall be.")}),
    "snapshot": ("Take a snapshot of the {thing}.", {"label": _text("Under which name.")}),
    "monitor": ("Monitor the {thing} and raise an alarm.", {"limit": _number("From when on.")}),
    "rotate": ("Rotate the secret keys of the {thing}.", {"hours": _number("Grace for old ones.")}),
    "migrate": ("Migrate the {thing} to another region.", {"region": _text("Where to.")}),
    "tag": ("Tag the {thing} with labels.", {"labels": _texts("Which ones.")}),
    "drain": ("Drain the {thing} before maintenance.", {"minutes": _number("How long to wait.")}),
    "throttle": ("Throttle traffic that reaches the {thing}.", {"rate": _number("Per second.")}),
    "inspect": ("Inspect the health of the {thing} in detail.", {"period": _PERIOD}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A tool as a host has it."""

    name: str
    description: str
    schema: Json
    """Of an object; every parameter is required and described."""

    def function(self, ledger: "Ledger") -> Callable[..., str]:
        """Return a function with signature, annotations and docstring that runs the tool.

        For SDKs that read functions: a choice is a `Literal`, an object a `dict[str, str]`.
        """
        hints = {name: _hint(schema) for name, schema in self.schema["properties"].items()}

        def run(**arguments: Any) -> str:
            return ledger.run(self.name, arguments)

        run.__name__ = run.__qualname__ = self.name
        run.__doc__ = self._docstring()
        run.__annotations__ = {**hints, "return": str}
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        given = [inspect.Parameter(name, kind, annotation=hint) for name, hint in hints.items()]
        signature = inspect.Signature(given, return_annotation=str)
        run.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]  # as inspect reads it
        return run

    def _docstring(self) -> str:
        lines = [
            f"    {name}: {schema['description']}"
            for name, schema in self.schema["properties"].items()
        ]
        return "\n".join((self.description, "", "Args:", *lines))


FAILURE = "locked by the auditors"


class ToolFailure(Exception):
    """What a tool raises that cannot do its work."""


@dataclass(slots=True)
class Ledger:
    """Runs specs and remembers the calls, in order."""

    calls: list[tuple[str, Json]] = field(default_factory=list[tuple[str, Json]])
    failing: set[str] = field(default_factory=set[str])
    """Tools that raise `ToolFailure`; they do not count as run."""

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool: `refund_invoice done: inv-7, 500`."""
        if name in self.failing:
            raise ToolFailure(f"{name} is {FAILURE}")
        self.calls.append((name, dict(arguments)))
        return f"{name} done: {', '.join(str(value) for value in arguments.values())}"


@dataclass(slots=True)
class Relay(Ledger):
    """Hands calls to the ledger of the day, for tools that are made once because it takes long."""

    to: Ledger = field(default_factory=Ledger)

    def run(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool for that ledger."""
        return self.to.run(name, arguments)


def _hint(schema: Json) -> Any:
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    kinds: dict[str, Any] = {"array": list[str], "object": dict[str, str], "integer": int}
    return kinds.get(schema["type"], str)


def _spec(deed: str, thing: str, description: str, parameters: Json) -> Spec:
    spoken = thing.replace("_", " ")
    properties = {f"{thing}_id": _text(f"Which {spoken}."), **parameters}
    schema: Json = {"type": "object", "properties": properties, "required": list(properties)}
    schema["additionalProperties"] = False
    described = description.format(thing=spoken)
    return Spec(name=f"{deed}_{thing}", description=described, schema=schema)


def _specs() -> tuple[Spec, ...]:
    worlds = ((SHOP, SHOP_DEEDS), (OFFICE, OFFICE_DEEDS), (SERVERS, SERVER_DEEDS))
    return tuple(
        _spec(deed, thing, description, parameters)
        for things, deeds in worlds
        for thing in things
        for deed, (description, parameters) in deeds.items()
    )


SPECS = _specs()
