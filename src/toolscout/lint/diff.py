"""Compare two catalogues and describe in words which tools were added, removed or changed.

Tools are matched by exposed name, so a renamed tool counts as one removed and one added.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import cast

from toolscout.names import to_one_line
from toolscout.schemas import Json, list_parameters, to_canonical_json
from toolscout.tools import Tool

SHOWN_TEXT = 60
SHOWN_CHANGE = 300
PLAIN = ("title", "summary", "hint", "kind", "effect", "always_load", "aliases", "tags")


@dataclass(frozen=True, slots=True)
class Detail:
    """One thing about a tool that changed."""

    what: str
    """`description`, `parameters`, `output` or the name of another attribute of `Tool`."""
    text: str
    """A description of the change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A tool whose definition changed."""

    name: str
    changes: tuple[Detail, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The differences between two catalogues, sorted by name."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[Changed, ...]
    unchanged: int

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def to_json(self) -> Json:
        """Return the difference as plain JSON."""
        return asdict(self)


def compare_catalogs(old: Iterable[Tool], new: Iterable[Tool]) -> Difference:
    """Return the differences from old to new."""
    before = {tool.name: tool for tool in old}
    after = {tool.name: tool for tool in new}
    changed: list[Changed] = []
    both = sorted(before.keys() & after.keys())
    for name in both:
        if before[name].fingerprint != after[name].fingerprint:
            changes = tuple(_list_details(before[name], after[name]))
            changed.append(Changed(name=name, changes=changes))
    return Difference(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(changed),
        unchanged=len(both) - len(changed),
    )


def _list_details(old: Tool, new: Tool) -> Iterator[Detail]:
    if old.description != new.description:
        yield Detail("description", _describe_difference(old.description, new.description))
    if to_canonical_json(old.input_schema) != to_canonical_json(new.input_schema):
        changes = list(_list_parameter_changes(old.input_schema, new.input_schema))
        for text in changes or ["a rule of the schema changed"]:
            yield Detail("parameters", to_one_line(text, SHOWN_CHANGE))
    if to_canonical_json(old.output_schema) != to_canonical_json(new.output_schema):
        yield Detail("output", "the schema of its results changed")
    for member in PLAIN:
        one = getattr(old, member)
        other = getattr(new, member)
        if one != other:
            yield Detail(member, f"{_quote(one)} became {_quote(other)}")


def _describe_difference(old: str, new: str) -> str:
    """Return how a text changed; long texts are quoted from their first different word."""
    start = 0
    if max(len(old), len(new)) > SHOWN_TEXT:
        pairs = enumerate(zip(old, new, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))
        start = old.rfind(" ", 0, same) + 1
    return f"{_quote(old[start:])} became {_quote(new[start:])}"


def _list_parameter_changes(old: Json, new: Json) -> Iterator[str]:
    before = {parameter.path: parameter for parameter in list_parameters(old)}
    after = {parameter.path: parameter for parameter in list_parameters(new)}
    for path, parameter in after.items():
        if path not in before:
            need = "required" if parameter.required else "optional"
            yield f"{path} ({parameter.type}, {need}) is new"
    for path in before:
        if path not in after:
            yield f"{path} is gone"
    for path in [path for path in before if path in after]:
        was, now = before[path], after[path]
        if was.type != now.type:
            yield f"{path} was {was.type} and is {now.type}"
        if was.required != now.required:
            yield f"{path} is {'required' if now.required else 'optional'}"
        if was.enum != now.enum:
            gone = ", ".join(value for value in was.enum if value not in now.enum)
            come = ", ".join(value for value in now.enum if value not in was.enum)
            changes = [f"without {gone}" if gone else "", f"with {come}" if come else ""]
            yield f"{path} has other values: {' and '.join(filter(None, changes)) or 'reordered'}"
        if was.description != now.description:
            yield f"{path}: its description changed"


def _quote(value: object) -> str:
    if isinstance(value, tuple):
        return str(list(cast("tuple[str, ...]", value)))
    return repr(to_one_line(str(value), SHOWN_TEXT)) if str(value) else "nothing"
