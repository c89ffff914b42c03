"""`Approvals`: which definitions of a server may be used, and which wait for a person.

The first list of a server is trusted, except what the scanner holds. After that, a tool that is
new or differs, and other instructions, are held: `check` takes them out of the list until a person
approves them. A lock file replaces what was approved here by what a team has agreed on.

A definition is known by the digest of what the server sent, before the configuration changes
anything. What was approved is stored for each server, with who and when, and before the list it
belongs to. A skill is known by the digest of its entry, which has those of all its files. Resources
and prompts are not held: their lists change all the time.
"""

import hashlib
import json
import logging
import re
import threading
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, cast

import rfc8785
import tomlkit

from toolscout.catalog import Pace
from toolscout.config.servers import Changes, ServerConfig
from toolscout.errors import InvalidFile
from toolscout.lint.rules import Finding
from toolscout.lint.scanner import Owners, is_held, scan_definition
from toolscout.names import escape_hidden, fold_name, make_exposed_name, to_one_line
from toolscout.options import join_keys
from toolscout.schemas import Json, is_list, is_object, to_canonical_json
from toolscout.servers.manifest import Manifest
from toolscout.skills.skill import SKILL_FILE
from toolscout.stores.store import Store

APPROVED_KIND = "approved"
"""The definitions that may be used, a row for each server."""
DECISIONS_KIND = "approvals"
"""A log of what people decided; gateways look there for news."""
DECISIONS_KEPT = 10_000
FIRST_USE = "first use"
CONFIGURATION = "configuration"
LOCK_FILE = "toolscout.lock"
LOCK_VERSION = 1
NAMES_SHOWN = 5
WARNINGS_LOGGED = 10
"""How many definitions of one list with mild findings have a line each in the log."""
NAME_CHARS = 80
DIFF_CHARS = 200_000
"""A longer list of differences is cut, and the cut is marked."""
PATH_CHARS = 1_000

_FRACTION = re.compile(r"[0-9](?:\.[0-9]|[eE][+-]?[0-9]|[0-9]{15})")
"""Finds a fraction or a long number in JSON, and sometimes in its texts, which does no harm."""
_LAST_OF_PLANE = "\uffff"
_encode = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode
_log = logging.getLogger(__name__)


class Change(StrEnum):
    """How a held definition differs from what was approved."""

    NEW = "new"
    CHANGED = "changed"
    RENAMED = "renamed"
    INSTRUCTIONS = "instructions"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDefinition:
    """A definition that may not be used until a person approves it."""

    server: str
    name: str
    """The tool's name on its server; empty for the instructions of the server."""
    is_skill: bool = False
    """Whether it is a skill; its name is then its address."""
    change: Change
    digest: str
    definition: Json
    former: Json | None = None
    """What was approved in its place, if that is known."""
    is_rejected: bool = False
    """Whether a person has looked at it and said no."""
    findings: tuple[Finding, ...] = ()
    """What the scanner found, worst first."""

    @property
    def label(self) -> str:
        """The name under which people approve it."""
        return _make_label(self.server, self.name, is_skill=self.is_skill)

    @property
    def id(self) -> str:
        """Hex digits that stand for exactly this definition: too many to find another with them."""
        parts = [self.server, self.name, self.digest]
        return hashlib.sha256(to_canonical_json(parts)).hexdigest()[:32]

    @property
    def sentence(self) -> str:
        """What has changed, in a few words."""
        found = f" and is suspicious ({self.codes})" if is_held(self.findings) else ""
        return self._describe_change() + found

    @property
    def codes(self) -> str:
        """The codes of what the scanner found."""
        return ", ".join(finding.code for finding in self.findings)

    def _describe_change(self) -> str:
        match self.change:
            case Change.NEW:
                return "is new"
            case Change.CHANGED:
                fields = ", ".join(self._list_changed_fields())
                return f"has changed ({fields})" if fields else "has changed"
            case Change.RENAMED:
                name = (self.former or {}).get("name", "")
                return f"was {to_one_line(str(name), NAME_CHARS)!r} and has another name now"
            case Change.INSTRUCTIONS:
                return "says other things about the server"

    def list_differences(self) -> list[str]:
        """Return every value that differs, old ones after `-` and new ones after `+`.

        What the scanner found comes first, after `!`.
        """
        old = dict(_list_values(self._name_files(self.former or {})))
        new = dict(_list_values(self._name_files(self.definition)))
        lines = [f"! {one.code}: {one.message} {one.remedy}" for one in self.findings]
        room = DIFF_CHARS
        for path in dict.fromkeys((*old, *new)):
            if old.get(path) == new.get(path):
                continue
            part = [escape_hidden(path)]
            for mark, value in (("-", old.get(path)), ("+", new.get(path))):
                part += [f"  {mark} {line}" for line in _split_value(value)]
            room -= sum(map(len, part))
            if room < 0:
                return [*lines, f"… The rest is longer than {DIFF_CHARS:,} characters."]
            lines += part
        return lines

    def _name_files(self, definition: Json) -> Json:
        """Return the entry of a skill with its files by name: a new one moves no others."""
        rows = definition.get("resources") if self.is_skill else None
        if not is_list(rows):
            return definition
        files = {row["uri"]: f"{row['digest']} ({row['size']:,} bytes)" for row in rows}
        return {**definition, "resources": files}

    def _list_changed_fields(self) -> list[str]:
        old = self.former or {}
        paths = dict.fromkeys((*old, *self.definition)) if old else {}
        names = [n for n in paths if _dump(old.get(n)) != _dump(self.definition.get(n))]
        return [to_one_line(name, NAME_CHARS) for name in names[:NAMES_SHOWN]]

    def to_json(self) -> Json:
        """Return what a person has to know to decide."""
        return {
            "id": self.id,
            "server": self.server,
            "name": self.label,
            "change": self.change.value,
            "digest": self.digest,
            "rejected": self.is_rejected,
            "findings": [one.to_json() for one in self.findings],
            "diff": self.list_differences(),
        }


@dataclass(frozen=True, slots=True)
class Approval:
    """One definition that may be used."""

    digest: str
    definition: Json
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """All definitions of one server that may be used; that of its instructions has no name."""

    approved: Mapping[str, Approval] = field(default_factory=dict[str, Approval])
    rejected: Mapping[str, str] = field(default_factory=dict[str, str])
    """Digests of definitions that a person refused, by name."""

    def find_definition(self, name: str, digest: str | None) -> Json | None:
        """Return an approved definition, if it is the one with this digest."""
        known = self.approved.get(name)
        return known.definition if known is not None and known.digest == digest else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecision:
    """What became of a definition, for those who keep a record."""

    server: str
    name: str
    """The name under which people approve it."""
    digest: str
    outcome: str
    """`held`, `allowed` or `denied` by the configuration; `approved` or `rejected` by a person."""
    by: str = ""
    more: int = 0
    """Further definitions of the same list, which are not named."""


Lock = Mapping[str, Mapping[str, str]]
"""The digests of a lock file, by server and then by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The part of a server's list that may be used, and the rest."""

    manifest: Manifest
    held: tuple[HeldDefinition, ...] = ()
    allowed: tuple[HeldDefinition, ...] = ()
    """What has changed and is used all the same, because the configuration says so."""
    problems: tuple[str, ...] = ()
    """What the operator should know about the rest."""


class Approvals:
    """Compares lists with what was approved. Any thread may use it; everything may block.

    With a lock, only what the lock names may be used, and nobody can approve anything else.
    """

    def __init__(self, store: Store, lock: Lock | None = None) -> None:
        self.is_locked = lock is not None
        self._store = store
        self._pins = lock
        self._lock = threading.Lock()
        self._baselines: dict[str, Baseline] = {}
        self._unsaved: dict[str, Baseline] = {}
        self._seen = 0
        self.on_decision: Callable[[ApprovalDecision], None] = lambda decision: None
        """Called with each decision that a person makes here; other processes report their own."""
        self._scans: dict[str, _Findings] = {}
        self._owners: dict[str, frozenset[str]] = {}
        self._has_all_owners = False

    def check(self, config: ServerConfig, manifest: Manifest) -> Checked:
        """Return what of a list may be used.

        The first list of a server is approved, except what the scanner holds.
        """
        listed = _list_definitions(manifest)
        pins = None if self._pins is None else self._pins.get(config.name, {})
        with self._lock:
            known = self._find(config)
            # A list that was stored after a comparison, but without what it was compared with,
            # is not a first one.
            is_first = known is None and not manifest.is_checked
            baseline = known or Baseline()
            findings: _Findings = {}
            if pins is not None:
                if is_first:
                    agreed = [item for item in listed if pins.get(item.name) == item.digest]
                    baseline = self._follow(config, agreed, baseline, LOCK_FILE)
            else:
                findings = self._scan(config, listed, baseline)
                if is_first or config.changes in (Changes.ALLOW, Changes.TRUST):
                    by = FIRST_USE if is_first else CONFIGURATION
                    held = {digest for digest, found in findings.items() if is_held(found)}
                    former = baseline
                    baseline = self._follow(
                        config, listed, former, by, held=held, is_urgent=is_first
                    )
                    if not held:
                        is_same = is_first or baseline is former
                        changed = _compare(config, manifest, listed, former, None, findings)
                        return Checked(manifest=manifest, allowed=() if is_same else changed.held)
        return _compare(config, manifest, listed, baseline, pins, findings)

    def decide(
        self, config: ServerConfig, held: Sequence[HeldDefinition], *, approve: bool, by: str
    ) -> None:
        """Approve or reject exactly these definitions of a server, for every gateway."""
        at = _format_now()
        with self._lock:
            self._baselines.pop(_make_key(config), None)
            former = self._find(config) or Baseline()
            approved, rejected = dict(former.approved), dict(former.rejected)
            for item in held:
                if approve:
                    approved[item.name] = Approval(item.digest, item.definition, by, at)
                    rejected.pop(item.name, None)
                else:
                    rejected[item.name] = item.digest
            self._write(config, Baseline(approved, rejected))
        for item in held:
            decision = "approved" if approve else "rejected"
            row = {"server": item.server, "name": item.name, "digest": item.digest}
            row |= {"decision": decision, "by": by, "at": at}
            self._store.append(DECISIONS_KIND, json.dumps(row).encode())
            fields = {"server": item.server, "tool": item.label, "by": by}
            text = "%s server=%s tool=%s by=%s"
            _log.info(text, decision, *fields.values(), extra=fields)
            self.on_decision(
                ApprovalDecision(
                    server=item.server,
                    name=item.label,
                    digest=item.digest,
                    outcome=decision,
                    by=by,
                )
            )
        self._store.trim(DECISIONS_KIND, DECISIONS_KEPT)

    def read_news(self) -> set[str]:
        """Return the servers whose approvals somebody has changed since the last time."""
        named: set[str] = set()
        for number, value in self._store.scan(DECISIONS_KIND, self._seen):
            self._seen = number
            named.add(str(json.loads(value).get("server")))
        found: set[str] = set()
        with self._lock:
            for key, known in list(self._baselines.items()):
                name = key.partition(":")[2]
                if name in named:
                    data = self._store.read(APPROVED_KIND, key)
                    self._baselines[key] = _baseline_from_bytes(data or b"")
                    found |= {name} if self._baselines[key] != known else set()
        return found

    def forget(self, name: str) -> None:
        """Delete what was approved for a server."""
        with self._lock:
            for key in self._store.keys(APPROVED_KIND):
                if key.partition(":")[2] == name:
                    self._baselines.pop(key, None)
                    self._store.write(APPROVED_KIND, key, None)

    def save(self, config: ServerConfig) -> None:
        """Store what the configuration allowed by itself; until then it is known here alone."""
        with self._lock:
            self._save(config)

    def release(self, config: ServerConfig) -> None:
        """Drop what memory holds about a server; it is read again when it is needed."""
        with self._lock:
            key = _make_key(config)
            if key not in self._unsaved:
                self._baselines.pop(key, None)
            scanned = self._scans.get(key, {})
            self._scans[key] = {digest: found for digest, found in scanned.items() if found}

    def _scan(self, config: ServerConfig, listed: "_Listed", baseline: Baseline) -> "_Findings":
        """Return what the scanner finds in definitions that nobody has approved, by digest."""
        if config.changes == Changes.TRUST:
            return {}
        approved = {approval.digest for approval in baseline.approved.values()}
        unknown = [one for one in listed if not one.digest or one.digest not in approved]
        owners = self._list_owners(config.name, listed, is_needed=bool(unknown))
        known = self._scans.get(_make_key(config), {})
        found: dict[str, tuple[Finding, ...]] = {}
        pace = Pace(len(unknown))
        for name, digest, definition, is_skill in unknown:
            pace.step()
            if digest and digest in known:
                found[digest] = known[digest]
                continue
            label = _make_label(config.name, name, is_skill=is_skill)
            read = definition["frontmatter"] if is_skill else definition
            here = scan_definition(read, server=config.name, owners=owners, exposed=label)
            found[digest] = (*found.get(digest, ()), *here)
        self._scans[_make_key(config)] = found
        warned = [one for digest in found.keys() - known.keys() for one in found[digest]]
        _log_warnings(config, [one for one in warned if not is_held([one])])
        return found

    def _list_owners(self, server: str, listed: "_Listed", *, is_needed: bool) -> Owners:
        """Return which servers have a tool of which name: those in the store, and this one."""
        names = {server: [one.name for one in listed if not one.is_skill]}
        if is_needed and not self._has_all_owners:
            self._has_all_owners = True
            for key in self._store.keys(APPROVED_KIND):
                data = self._store.read(APPROVED_KIND, key) or b""
                known = _baseline_from_bytes(data).approved
                names.setdefault(key.partition(":")[2], []).extend(known)
        for owner, leaves in names.items():
            for folded in map(fold_name, filter(None, leaves)):
                owners = self._owners.get(folded, frozenset())
                if owner not in owners:
                    self._owners[folded] = owners | {owner}
        return self._owners

    def _follow(
        self,
        config: ServerConfig,
        listed: "_Listed",
        baseline: Baseline,
        by: str,
        *,
        held: Collection[str] = (),
        is_urgent: bool = True,
    ) -> Baseline:
        """Make a list the approved one; what was approved before keeps its who and when.

        A definition whose digest is `held` does not replace what was approved in its place.
        """
        at = _format_now()
        found: dict[str, Approval] = {}
        for name, digest, definition, _ in listed:
            known = baseline.approved.get(name)
            if digest in held:
                if known is not None:
                    found.setdefault(name, known)
            elif digest and name not in found:
                if known is None or known.digest != digest:
                    known = Approval(digest, definition, by, at)
                found[name] = known
        if found != baseline.approved:
            baseline = Baseline(found, baseline.rejected)
            key = _make_key(config)
            self._baselines[key] = self._unsaved[key] = baseline
            if is_urgent:
                try:
                    self._save(config)
                except Exception:  # a store that cannot be written is no reason to lose a server
                    _log.warning(
                        "The approvals of server %s were not stored.", config.name, exc_info=True
                    )
        return baseline

    def _save(self, config: ServerConfig) -> None:
        key = _make_key(config)
        if key in self._unsaved:
            self._write(config, self._unsaved[key])
            del self._unsaved[key]

    def _find(self, config: ServerConfig) -> Baseline | None:
        key = _make_key(config)
        if key not in self._baselines:
            data = self._store.read(APPROVED_KIND, key)
            if data is None:
                return None
            self._baselines[key] = _baseline_from_bytes(data)
        return self._baselines[key]

    def _write(self, config: ServerConfig, baseline: Baseline) -> None:
        rows = {
            name: {"digest": a.digest, "definition": a.definition, "by": a.by, "at": a.at}
            for name, a in baseline.approved.items()
        }
        row = {"approved": rows, "rejected": dict(baseline.rejected)}
        key = _make_key(config)
        self._store.write(APPROVED_KIND, key, json.dumps(row).encode())
        self._baselines[key] = baseline


class _Definition(NamedTuple):
    """One definition of a list; the instructions come first and have no name."""

    name: str
    digest: str
    definition: Json
    is_skill: bool = False


_Listed = list[_Definition]
_Findings = Mapping[str, tuple[Finding, ...]]
"""What the scanner found, by digest. Definitions without one share an entry."""


def _compare(
    config: ServerConfig,
    manifest: Manifest,
    listed: _Listed,
    baseline: Baseline,
    pins: Mapping[str, str] | None,
    findings: _Findings,
) -> Checked:
    digests = {name: item.digest for name, item in baseline.approved.items()}
    digests = digests if pins is None else pins
    names = {one.name for one in listed}
    gone = _GoneTools(baseline, names)
    held: dict[str, HeldDefinition] = {}
    used: list[Json] = []
    skills: list[Json] = []
    for name, digest, definition, is_skill in listed:
        if digest and digest == digests.get(name):
            if name:
                (skills if is_skill else used).append(definition)
        elif name not in held:
            change = Change.CHANGED if name in digests else Change.NEW
            change = change if name else Change.INSTRUCTIONS
            former = baseline.find_definition(name, digests.get(name))
            if change is Change.NEW:
                former = gone.find_former(definition)
                change = change if former is None else Change.RENAMED
            held[name] = HeldDefinition(
                server=config.name,
                name=name,
                is_skill=is_skill,
                change=change,
                digest=digest,
                definition=definition,
                former=former,
                is_rejected=bool(digest) and baseline.rejected.get(name) == digest,
                findings=findings.get(digest, ()),
            )
    kept = replace(manifest, tools=tuple(used), skills=tuple(skills))
    if "" in held:
        former = held[""].former or {}
        said = str(former.get("instructions", ""))
        kept = replace(kept, instructions=said, title=str(former.get("title", "")))
    missing = [] if pins is None else sorted(pins.keys() - names)
    problems = tuple(_explain(config, list(held.values()), missing, is_locked=pins is not None))
    return Checked(manifest=kept, held=tuple(held.values()), problems=problems)


def _explain(
    config: ServerConfig, held: list[HeldDefinition], missing: list[str], *, is_locked: bool
) -> Iterator[str]:
    parts = [f"{item.label} {item.sentence}" for item in held if is_locked or not item.is_rejected]
    parts += [f"{make_exposed_name(config.name, name)} is gone" for name in missing]
    if not parts:
        return
    more = len(parts) - NAMES_SHOWN
    text = "; ".join([*parts[:NAMES_SHOWN], *([f"{more:,} more"] if more > 0 else [])])
    if is_locked:
        remedy = "Run `toolscout lock` to accept it, and commit the file."
        yield f"Not served, because it differs from {LOCK_FILE}: {text}. {remedy}"
    elif config.changes == Changes.DENY:
        yield f"Not used, because the configuration denies changes: {text}."
    else:
        yield f"Waits for approval: {text}. See `toolscout approvals`."


def _log_warnings(config: ServerConfig, findings: list[Finding]) -> None:
    """Log what the scanner found that is no reason to hold a definition.

    At level INFO, which a gateway prints: other commands read stored lists and would repeat it.
    """
    for one in findings[:WARNINGS_LOGGED]:
        fields = (config.name, one.tool, one.code)
        _log.info("suspicious server=%s name=%s finding=%s", *fields)
    if len(findings) > WARNINGS_LOGGED:
        _log.info("suspicious server=%s more=%d", config.name, len(findings) - WARNINGS_LOGGED)


class _GoneTools:
    """Approved tools that a list no longer has, found by everything but their names."""

    def __init__(self, baseline: Baseline, names: set[str]) -> None:
        gone = [item for name, item in baseline.approved.items() if name not in names]
        self._gone = [item.definition for item in gone]
        self._by_rest: dict[str, Json] = {}

    def find_former(self, definition: Json) -> Json | None:
        """Return the tool that has another name now, if that is all that changed."""
        if self._gone and not self._by_rest:
            self._by_rest = {compute_digest({**gone, "name": ""}): gone for gone in self._gone}
        return self._by_rest.get(compute_digest({**definition, "name": ""})) if self._gone else None


def compute_digest(definition: Json) -> str:
    """Return the SHA-256 of a definition in the form of RFC 8785; empty if it has none.

    That form has neither large whole numbers nor half characters, which servers send all the same.
    Such a definition counts in Python's form, which differs from every other in its first byte.
    """
    try:
        text = _encode(definition)
        # Both forms are the same without fractions, if keys sort alike.
        is_plain = text.isascii() or max(text) <= _LAST_OF_PLANE
        is_same = is_plain and _FRACTION.search(text) is None
        data = text.encode() if is_same else rfc8785.dumps(definition)
    except ValueError:
        data = b"\0" + to_canonical_json(definition)
    except RecursionError:
        return ""
    return hashlib.sha256(data).hexdigest()


def _list_definitions(manifest: Manifest) -> _Listed:
    about: Json = {"instructions": manifest.instructions, "title": manifest.title}
    listed: _Listed = [_Definition("", compute_digest(about), about)]
    pace = Pace(len(manifest.tools) + len(manifest.skills))
    for definition in manifest.tools:
        pace.step()
        name = definition.get("name")
        if isinstance(name, str) and name:
            listed.append(_Definition(name, compute_digest(definition), definition))
    for entry in manifest.skills:
        pace.step()
        listed.append(_Definition(entry["uri"], compute_digest(entry), entry, is_skill=True))
    return listed


def compute_config_key(config: ServerConfig) -> str:
    """Return a digest of the options that decide a server's tools.

    It marks what is stored about a server: one that is started or reached in another way is another
    server.
    """
    parts = [config.command, list(config.args), config.cwd, config.url, config.spec]
    parts += config.skills
    return hashlib.sha256(to_canonical_json([str(config.transport), *parts])).hexdigest()[:16]


def _make_key(config: ServerConfig) -> str:
    return f"{compute_config_key(config)}:{config.name}"


def _baseline_from_bytes(data: bytes) -> Baseline:
    """Return what was stored; what cannot be read approves nothing."""
    try:
        row = cast("object", json.loads(data))
    except (ValueError, RecursionError):
        return Baseline()
    approved: object = row.get("approved") if is_object(row) else None
    rejected: object = row.get("rejected") if is_object(row) else None
    found: dict[str, Approval] = {}
    for name, item in approved.items() if is_object(approved) else ():
        if is_object(item) and is_object(item.get("definition")):
            by, at = str(item.get("by", "")), str(item.get("at", ""))
            found[name] = Approval(str(item.get("digest", "")), item["definition"], by, at)
    refused = {key: str(value) for key, value in rejected.items()} if is_object(rejected) else {}
    return Baseline(found, refused)


def _make_label(server: str, name: str, *, is_skill: bool = False) -> str:
    if is_skill:
        name = name.partition("://")[2].removesuffix(f"/{SKILL_FILE}")
    return make_exposed_name(server, name) if name else f"{server}:about"


def _format_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# What a person reads.


def _list_values(definition: Json) -> Iterator[tuple[str, str]]:
    """Yield all values that hold no others, as JSON, with where they are.

    Below a long path, values are not taken apart.
    """
    rest: list[tuple[str, object]] = [("", definition)]
    while rest:
        path, node = rest.pop()
        if len(path) > PATH_CHARS:  # each value below would repeat it
            yield path, _dump(node)
        elif is_object(node) and node:
            # Quoted where needed, so that no two places look alike.
            names = {key: join_keys(key) for key in reversed(node)}
            rest += [(f"{path}.{name}".lstrip("."), node[key]) for key, name in names.items()]
        elif is_list(node) and node:
            rest += [(f"{path}[{at}]", node[at]) for at in reversed(range(len(node)))]
        else:
            yield path, _dump(node)


def _dump(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return "nested too deeply"


def _split_value(value: str | None) -> list[str]:
    """Return the lines of a value; those of a text without quotes."""
    if value is None:
        return []
    text = str(json.loads(value)) if value.startswith('"') else value
    return [escape_hidden(line) for line in text.split("\n")]


# The lock file.


def build_lock(checked: Iterable[tuple[ServerConfig, Manifest]]) -> Lock:
    """Return the digests of lists of which everything may be used."""
    lock: dict[str, dict[str, str]] = {}
    for config, manifest in checked:
        digests: dict[str, str] = {}
        for one in _list_definitions(manifest):
            digests.setdefault(one.name, one.digest)
        lock[config.name] = digests
    return lock


def format_lock(lock: Lock) -> str:
    """Return the text of a lock file: a table for each server, a line for each digest, sorted."""
    document = tomlkit.document()
    document.add(
        tomlkit.comment("Written by `toolscout lock`; `toolscout serve --locked` reads it.")
    )
    document.add("version", tomlkit.item(LOCK_VERSION))
    tables = tomlkit.table(is_super_table=True)
    for server in sorted(lock):
        table = tomlkit.table()
        table.add("about", lock[server].get("", ""))
        tools = tomlkit.table()
        for name in sorted(filter(None, lock[server])):
            tools.add(name, lock[server][name])
        table.add("tools", tools)
        tables.add(server, table)
    document.add("servers", tables)
    return tomlkit.dumps(document)


def read_lock(path: Path) -> Lock:
    """Return the digests of a lock file, or raise `InvalidFile`."""
    remedy = "Write it anew with `toolscout lock`."
    try:
        tables: Json = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidFile(str(path), "does not exist", remedy=remedy) from None
    except (OSError, UnicodeError, ValueError) as error:
        raise InvalidFile(str(path), f"cannot be read ({error})", remedy=remedy) from None
    servers: object = tables.get("servers", {})
    if tables.get("version") != LOCK_VERSION or not is_object(servers):
        raise InvalidFile(str(path), "is not a lock file of this version", remedy=remedy)
    lock: dict[str, dict[str, str]] = {}
    for server, table in servers.items():
        tools: object = table.get("tools", {}) if is_object(table) else None
        if not is_object(table) or not is_object(tools):
            raise InvalidFile(str(path), "holds a server without tools", remedy=remedy)
        lock[server] = {"": str(table.get("about", ""))}
        lock[server] |= {name: str(digest) for name, digest in tools.items() if name}
    return lock
