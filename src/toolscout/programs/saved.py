"""`SavedProgram`: a program that a person has approved, and that models call like a tool.

An operator saves a program under a name, with a schema and the tools that it calls. It waits until
somebody approves exactly this version, by its digest. A session finds and calls it only if it may
call everything that the program calls, and the program can call nothing else.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from toolscout.catalog import Catalog
from toolscout.errors import InvalidState, UsageError
from toolscout.names import find_near_names, is_exposed_name
from toolscout.schemas import Json, find_problem, is_object, to_canonical_json
from toolscout.stores.store import Store
from toolscout.tools import Effect, Tool

SAVED_KIND = "saved-program"
SAVED_SERVER = "programs"
"""The server that saved programs belong to in the catalogue."""
KEPT_VERSIONS = 20
_BY_DANGER = (Effect.READ, Effect.WRITE, Effect.UNKNOWN, Effect.DESTRUCTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedProgram:
    """One version of a program that has a name."""

    name: str
    description: str
    source: str
    parameters: Json
    """The schema of its arguments, which the program reads as variables."""
    calls: tuple[str, ...]
    """The exposed names of the tools that it may call."""
    version: int = 1
    by: str = ""
    at: str = ""

    @property
    def digest(self) -> str:
        """What a person approves: everything that says what the program does."""
        parts = [self.name, self.description, self.source, self.parameters, list(self.calls)]
        return hashlib.sha256(to_canonical_json(parts)).hexdigest()

    def __call__(self, **arguments: object) -> object:
        """Refuse: only a session can run it, which knows what it may call."""
        raise UsageError(f"The program {self.name!r} runs in a session. Use `Session.call`.")

    def to_tool(self, catalog: Catalog) -> Tool:
        """Return it as a tool, which may do what the most dangerous of its calls may do."""
        found = [catalog.get(name) for name in self.calls]
        effects = [tool.effect if tool is not None else Effect.UNKNOWN for tool in found]
        tool = Tool.define(
            self.name,
            server=SAVED_SERVER,
            description=self.description,
            input_schema=self.parameters,
            effect=max(effects, key=_BY_DANGER.index, default=Effect.READ),
            extras={"program": self.digest},
        )
        # Nothing that a server sends becomes a function, so no other tool can pass for a program.
        return replace(tool, function=self)


def save_program(store: Store, program: SavedProgram) -> SavedProgram:
    """Add a version of a program, which waits for approval; raises `UsageError`. This may block."""
    if not is_exposed_name(program.name):
        remedy = "Use letters, digits and underscores."
        raise UsageError(f"{program.name!r} cannot be the name of a program. {remedy}")
    problem = find_problem(program.parameters)
    if problem or program.parameters.get("type") != "object":
        why = problem or "is not of type object"
        raise UsageError(f"The schema of {program.name!r} {why}. Use a JSON Schema of an object.")
    versions, approved = _read(store, program.name)
    last = versions[-1].version if versions else 0
    at = datetime.now(UTC).isoformat(timespec="seconds")
    saved = replace(program, version=last + 1, at=at)
    _write(store, program.name, [*versions, saved][-KEPT_VERSIONS:], approved)
    return saved


def approve_program(store: Store, name: str, digest: str, by: str) -> SavedProgram:
    """Approve exactly the version with this digest; raises `UsageError`. This may block."""
    versions, _ = _read(store, name)
    found = next((one for one in reversed(versions) if one.digest == digest), None)
    if found is None:
        raise UsageError(f"No version of {name!r} has this digest. Look at it again.")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    _write(store, name, versions, {"digest": digest, "by": by, "at": at})
    return found


def remove_program(store: Store, name: str) -> None:
    """Delete all versions of a program. This may block."""
    find_program(store, name)
    store.write(SAVED_KIND, name, None)


def find_program(store: Store, name: str) -> tuple[SavedProgram, Json]:
    """Return the last version of a program, and who approved which digest; may block."""
    versions, approved = _read(store, name)
    if not versions:
        near = find_near_names(name, store.keys(SAVED_KIND), limit=1)
        remedy = f"Use {near[0]!r}." if near else "See `toolscout programs list`."
        raise UsageError(f"There is no saved program {name!r}. {remedy}")
    return versions[-1], approved


def list_approved(store: Store) -> list[SavedProgram]:
    """Return the approved version of each saved program, by name. This may block."""
    found: list[SavedProgram] = []
    for name in store.keys(SAVED_KIND):
        versions, approved = _read(store, name)
        found += [one for one in versions[::-1] if one.digest == approved.get("digest")][:1]
    return found


def publish_programs(catalog: Catalog, programs: Iterable[SavedProgram]) -> None:
    """Make saved programs tools of a catalogue, in place of those that were there."""
    catalog.replace(SAVED_SERVER, [program.to_tool(catalog) for program in programs])


def _read(store: Store, name: str) -> tuple[list[SavedProgram], Json]:
    data = store.read(SAVED_KIND, name)
    if data is None:
        return [], {}
    try:
        row: Any = json.loads(data)
        versions = [_program_from_json(one) for one in row["versions"]]
    except (ValueError, KeyError, TypeError):
        remedy = f"Remove it with `toolscout programs remove {name}`."
        raise InvalidState(f"The saved program {name!r} cannot be read", remedy=remedy) from None
    approved = row.get("approved")
    return versions, approved if is_object(approved) else {}


def _program_from_json(row: Mapping[str, Any]) -> SavedProgram:
    members: dict[str, Any] = {**row, "calls": tuple(row["calls"])}
    return SavedProgram(**members)


def _write(store: Store, name: str, versions: list[SavedProgram], approved: Json) -> None:
    row = {"versions": [asdict(one) for one in versions], "approved": approved}
    store.write(SAVED_KIND, name, json.dumps(row).encode())
