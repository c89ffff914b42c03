"""Read skills from folders, and turn the entry of a skill into an entry of the catalogue.

The entry of a skill is the JSON of SEP-2640: the address of its `SKILL.md`, its frontmatter, and
the address, digest and size of every file. Folders and MCP servers give the same entries, so that
approvals and calls need to know only one form. A call reads files by looking them up in the entry,
and `verify_read` refuses content that differs from it; no path of a model ever reaches the disk.
"""

import base64
import binascii
import errno
import hashlib
import math
import mimetypes
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from toolscout.config.documents import has_text_keys, parse_yaml
from toolscout.errors import SkillChanged, UnknownFile
from toolscout.names import find_near_names, list_some, to_one_line
from toolscout.schemas import Json, find_problem, is_list, is_object
from toolscout.sessions import texts
from toolscout.tools import DESCRIPTION_LIMIT, Effect, Tool

SKILL = "skill"
"""The kind of a skill in the catalogue."""
SERVER = "skills"
"""The server that skills of folders belong to, unless they are given another."""
SKILL_FILE = "SKILL.md"
SCHEME = "skill://"
FILES_LIMIT = 512
BYTES_LIMIT = 16 << 20
"""How many files a skill may have, and how long they may be together: the limits of SEP-2640."""
FRONTMATTER_CHARS = 64_000
NAME_LIMIT = 64
DESCRIPTION_CHARS = 1_024
"""The longest name and description that the format of skills allows."""
URI_CHARS = 8_000
FOLDERS_LIMIT = 2_000
"""Folders inside one skill, most of which are then empty."""
VISITED_LIMIT = 50_000
"""Folders that are searched for skills; a disk full of them is a mistake."""
DEPTH_LIMIT = 8
"""How deep in a folder a skill may be."""
FILES_NAMED = 40
"""Up to so many files, a description names all of them."""
FILES_SHOWN = 20
PATH_CHARS = 200
IGNORED = frozenset({"__pycache__", "node_modules"})
"""Folders that are not part of a skill, besides those that begin with a dot."""
DIRECTLY = "disable-model-invocation"
"""The member of a frontmatter that leaves a skill to people."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_END = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_PLACE = re.compile(r"line (\d+) column (\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillProblem:
    """Why a skill, or a part of it, cannot be used, or should be written in another way."""

    name: str
    """The skill, by its path in its folder."""
    code: str
    """The kind of problem, which stays the same between versions."""
    message: str
    remedy: str
    is_fatal: bool = True
    """Whether the skill is left out."""

    def __str__(self) -> str:
        outcome = " The skill is left out." if self.is_fatal else ""
        return f"Skill {self.name!r}: {self.message}{outcome} {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """One skill in a folder."""

    root: Path
    path: str
    """Where it is among all skills, such as `billing/refunds`."""
    frontmatter: Json
    files: tuple[tuple[str, str, int], ...]
    """Path in the skill, digest and size of every file."""

    def to_entry(self) -> Json:
        """Return the skill as SEP-2640 describes it."""
        base = f"{SCHEME}{_quote(self.path)}/"
        return {
            "uri": f"{base}{SKILL_FILE}",
            "frontmatter": self.frontmatter,
            "resources": [
                {"uri": f"{base}{_quote(path)}", "digest": digest, "size": size}
                for path, digest, size in self.files
            ],
        }


@dataclass(frozen=True, slots=True)
class _Reading:
    """What some folders held when they were last read."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[SkillProblem, ...] = ()
    places: Mapping[str, tuple[Path, str]] = field(default_factory=dict[str, tuple[Path, str]])
    """Folder and path of every file, by its address."""


class _Unusable(Exception):
    """A skill cannot be read; carries a code, what is wrong and what to do."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        self.code, self.message, self.remedy = code, message, remedy
        super().__init__(message)


class SkillFolder:
    """The skills in some folders, each in a folder of its own with a `SKILL.md`.

        skills = SkillFolder("team/skills")
        scout = Scout({"skills": skills.tools})
        ...
        if skills.scan():  # something has changed
            scout.catalog.replace("skills", skills.tools)

    A skill that cannot be read is left out, and `problems` says why. Folders that do not exist have
    no skills; those that are `optional` are not a problem then. Links that lead out of a folder are
    not followed, and files and folders whose name begins with a dot are not part of a skill.
    Everything here may block.
    """

    def __init__(
        self,
        *folders: str | os.PathLike[str],
        server: str = SERVER,
        optional: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        self.server = server
        self._folders = tuple(Path(folder).expanduser().absolute() for folder in folders)
        self._optional = tuple(Path(folder).expanduser().absolute() for folder in optional)
        self._known: dict[str, tuple[object, Skill | None, tuple[SkillProblem, ...]]] = {}
        """What was read, by folder, with the state of its files then."""
        self._read = _Reading()
        self.scan()

    @property
    def skills(self) -> tuple[Skill, ...]:
        """The skills that can be used."""
        return self._read.skills

    @property
    def problems(self) -> tuple[SkillProblem, ...]:
        """What is wrong with these and with others."""
        return self._read.problems

    @property
    def tools(self) -> list[Tool]:
        """The skills as entries of a catalogue; a call of one reads its files."""
        found: dict[str, Tool] = {}
        for skill in self.skills:
            entry = skill.to_entry()
            if not is_for_people(entry):
                tool = tool_from_entry(entry, self.server, read=self.read)
                if tool.name in found:
                    tool = tool_from_entry(entry, self.server, leaf=skill.path, read=self.read)
                found.setdefault(tool.name, tool)
        return list(found.values())

    def scan(self) -> bool:
        """Read what has changed in the folders; tell whether anything has.

        Of skills whose files look as they did before, nothing is read again.
        """
        before = self._read
        problems: list[SkillProblem] = []
        found: dict[str, Skill] = {}
        known: dict[str, tuple[object, Skill | None, tuple[SkillProblem, ...]]] = {}
        for folder in (*self._folders, *self._optional):
            for root, path in self._find_roots(folder, problems):
                if str(root) in known:  # two of the folders have it
                    continue
                state = self._read_again(root, path, self._known.get(str(root)))
                known[str(root)] = state
                skill = state[1]
                problems += state[2]
                if skill is not None:
                    _add(found, skill, folder, problems)
        self._known = known
        places = {
            f"{SCHEME}{_quote(skill.path)}/{_quote(path)}": (skill.root, path)
            for skill in found.values()
            for path, _, _ in skill.files
        }
        # One value, because other threads may be reading.
        self._read = _Reading(tuple(found.values()), tuple(problems), places)
        return before != self._read

    def read(self, uri: str) -> Json | None:
        """Return a file as an answer to `resources/read`, or None if no skill has it."""
        place = self._read.places.get(uri)
        if place is None:
            return None
        try:
            data = _read_confined(*place, BYTES_LIMIT)
        except OSError:
            return None
        part: Json = {"uri": uri, "mimeType": mimetypes.guess_type(place[1])[0] or "text/plain"}
        try:
            part["text"] = data.decode()
        except UnicodeDecodeError:
            part["blob"] = base64.b64encode(data).decode()
            if part["mimeType"].startswith("text/"):
                part["mimeType"] = "application/octet-stream"
        return {"contents": [part]}

    def _find_roots(self, folder: Path, problems: list[SkillProblem]) -> Iterator[tuple[Path, str]]:
        """Yield the folders with a `SKILL.md`, and where in the folder they are."""
        base = Path(os.path.realpath(folder))
        if not base.is_dir():
            if folder not in self._optional:
                message = f"the folder {folder} does not exist or cannot be read."
                remedy = "Create it, or take it out of the configuration."
                problems.append(_make_problem(folder.name, "skill-folder", message, remedy))
            return
        rest = [(base, "")]
        visited = 0
        while rest:
            place, path = rest.pop()
            visited += 1
            if visited > VISITED_LIMIT:
                message = f"{folder} has more than {VISITED_LIMIT:,} folders."
                remedy = "Name a folder that has skills and little else."
                problems.append(_make_problem(folder.name, "skill-folder", message, remedy))
                return
            if os.path.lexists(place / SKILL_FILE):
                yield place, path or base.name
            elif path.count("/") < DEPTH_LIMIT:
                inner = list(_list_inner(place, path, base, problems))
                rest += reversed(inner)

    def _read_again(
        self,
        root: Path,
        path: str,
        known: tuple[object, Skill | None, tuple[SkillProblem, ...]] | None,
    ) -> tuple[object, Skill | None, tuple[SkillProblem, ...]]:
        """Return the state of the files of a skill, and the skill as it is in that state."""
        state: object = None
        problems: list[SkillProblem] = []
        try:
            listed = list(_list_files(root, path, problems))
            state = tuple(listed)
            if known is not None and known[0] == state:
                return known
            skill = _read_skill(root, path, [name for name, *_ in listed], problems)
        except _Unusable as error:
            problems.append(_make_problem(path, error.code, error.message, error.remedy))
            skill = None
        except OSError as error:
            message = f"its folder cannot be read ({error.strerror or type(error).__name__})."
            remedy = "Check who may read it."
            problems.append(_make_problem(path, "skill-unreadable", message, remedy))
            skill = None
        return state, skill, tuple(problems)


def _make_problem(
    name: str, code: str, message: str, remedy: str, *, is_fatal: bool = True
) -> SkillProblem:
    shown = to_one_line(name, PATH_CHARS)
    return SkillProblem(name=shown, code=code, message=message, remedy=remedy, is_fatal=is_fatal)


def _add(found: dict[str, Skill], skill: Skill, folder: Path, problems: list[SkillProblem]) -> None:
    """Add a skill; one whose place is taken by a skill of another folder gets another place."""
    path = skill.path
    if path in found and found[path].root != skill.root:
        label = folder.parent.name.lstrip(".") if folder.name == SERVER else folder.name
        path = f"{_make_segment(label)}/{path}"
        for number in range(2, len(found) + 3):
            if path not in found:
                break
            path = f"{_make_segment(label)}-{number}/{skill.path}"
        message = f"another folder has a skill at the same place; this one is at {path!r}."
        remedy = "Rename one of them."
        problems.append(_make_problem(skill.path, "skill-twice", message, remedy, is_fatal=False))
        skill = replace(skill, path=path)
    found.setdefault(path, skill)


def _make_segment(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-") or "folder"


def _quote(path: str) -> str:
    return quote(path, safe="/!$&'()*+,;=:@")


# Files.


def _list_inner(
    place: Path, path: str, base: Path, problems: list[SkillProblem]
) -> Iterator[tuple[Path, str]]:
    """Yield the folders in a folder in which skills may be."""
    try:
        with os.scandir(place) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in listed:
        if entry.name.startswith(".") or entry.name in IGNORED or not _is_text(entry.name):
            continue
        inner = f"{path}/{entry.name}".lstrip("/")
        if entry.is_symlink():
            if not os.path.lexists(Path(entry.path) / SKILL_FILE):
                continue
            target = Path(os.path.realpath(entry.path))
            if target.is_relative_to(base):
                yield target, inner
            else:
                message = "it is a link that leads out of its folder, which is not followed."
                remedy = "Add the folder that the link leads to."
                problems.append(_make_problem(inner, "skill-link", message, remedy))
        elif entry.is_dir(follow_symlinks=False):
            yield Path(entry.path), inner


def _list_files(
    root: Path, skill: str, problems: list[SkillProblem]
) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield the path and the state of every file of a skill; raises `_Unusable` for too many."""
    rest = [""]
    files = 0
    folders = 0
    while rest:
        path = rest.pop()
        folders += 1
        with os.scandir(root / path) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            if entry.name.startswith(".") or entry.name in IGNORED:
                continue
            inner = f"{path}/{entry.name}".lstrip("/")
            if not _is_text(inner):
                message = f"the name of the file {inner!a} is not text."
                remedy = "Rename the file, which is left out."
                problems.append(_make_problem(skill, "skill-link", message, remedy, is_fatal=False))
                continue
            if entry.is_dir(follow_symlinks=False):
                rest.append(inner)
                continue
            if entry.is_symlink() and not _is_inside(root, entry.path):
                message = f"{inner!r} is a link that leads out of the skill, or to no file."
                remedy = "Put a copy of the file in its place; until then it is left out."
                problems.append(_make_problem(skill, "skill-link", message, remedy, is_fatal=False))
                continue
            told = entry.stat()
            if stat.S_ISREG(told.st_mode):
                files += 1
                yield inner, told.st_mtime_ns, told.st_ctime_ns, told.st_size, told.st_ino
        if files > FILES_LIMIT or folders > FOLDERS_LIMIT:
            message = f"it has more than {FILES_LIMIT} files or {FOLDERS_LIMIT:,} folders."
            raise _Unusable("skill-size", message, "Leave out what the instructions do not need.")


def _is_text(name: str) -> bool:
    """Tell whether a name can be written in an address; those of files need not be text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return name.isprintable()


def _is_inside(root: Path, link: str) -> bool:
    target = Path(os.path.realpath(link))
    return target.is_relative_to(os.path.realpath(root)) and target.is_file()


def _read_confined(root: Path, path: str, limit: int) -> bytes:
    """Return the content of a file in a folder; raises `OSError` if it is longer or elsewhere."""
    base = Path(os.path.realpath(root))
    place = Path(os.path.realpath(base / path))
    if not place.is_relative_to(base):
        raise PermissionError(errno.EPERM, "leads out of its folder")
    # Between the two steps the file may become a link, or a pipe that would block.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(place, flags | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PermissionError(errno.EPERM, "is not a file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, "is too long")
    return data


def _read_skill(root: Path, path: str, names: Iterable[str], problems: list[SkillProblem]) -> Skill:
    room = BYTES_LIMIT
    files: list[tuple[str, str, int]] = []
    frontmatter: Json | None = None
    for name in sorted(names, key=lambda name: (name != SKILL_FILE, name)):
        try:
            data = _read_confined(root, name, room)
        except OSError as error:
            if error.errno == errno.EFBIG:
                message = f"its files have more than {BYTES_LIMIT:,} bytes."
                remedy = "Leave out what the instructions do not need."
                raise _Unusable("skill-size", message, remedy) from None
            raise
        room -= len(data)
        if name == SKILL_FILE:
            frontmatter = _read_frontmatter(data)
        files.append((name, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)))
    if frontmatter is None:
        message = f"its {SKILL_FILE} is not a file in its folder."
        raise _Unusable("skill-unreadable", message, "Write a file, not a link.")
    problems += _check_frontmatter(path, frontmatter)
    return Skill(root=root, path=path, frontmatter=frontmatter, files=tuple(files))


# Frontmatter.


def split_frontmatter(text: str) -> tuple[str, str]:
    """Return the frontmatter of a `SKILL.md` and the rest; no frontmatter is an empty one."""
    head = re.match(r"---[ \t]*\r?\n", text)
    end = _END.search(text, head.end(), head.end() + FRONTMATTER_CHARS) if head else None
    if head is None or end is None:
        return "", text
    return text[head.end() : end.start()], text[end.end() :].lstrip("\r\n")


def _read_frontmatter(data: bytes) -> Json:
    """Return the frontmatter of a `SKILL.md` as JSON; raises `_Unusable`."""
    fix = "Begin the file with a line ---, the lines name: and description:, and a line ---."
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _Unusable("skill-unreadable", "it is not UTF-8.", "Save it as UTF-8.") from None
    head = split_frontmatter(text)[0]
    if not head.strip():
        raise _Unusable("skill-frontmatter", f"its {SKILL_FILE} has no frontmatter.", fix)
    code = "skill-frontmatter"
    try:
        value = parse_yaml(head)
    except (RecursionError, OverflowError):
        raise _Unusable(code, "its frontmatter is nested too deep or too long.", fix) from None
    except ValueError as error:
        place = _PLACE.search(str(error))
        # The line --- comes first.
        where = f" (line {int(place[1]) + 1}, column {place[2]})" if place else ""
        remedy = "Put a text that contains a colon or a # in quotation marks."
        raise _Unusable(code, f"its frontmatter is not YAML{where}.", remedy) from None
    if not is_object(value) or not has_text_keys(value):
        raise _Unusable(code, "its frontmatter is not a list of names and values.", fix)
    plain = _to_json(value)
    if not is_object(plain) or find_problem(plain):
        raise _Unusable(code, "its frontmatter has values that JSON cannot have.", fix)
    description = plain.get("description")
    if not isinstance(description, str) or not description.strip():
        message = "its frontmatter has no description."
        remedy = "Say in a sentence what the skill does and when to use it."
        raise _Unusable("skill-description", message, remedy)
    return plain


def _to_json(value: object) -> object:
    """Return YAML as JSON; dates become text, and what JSON cannot have becomes None."""
    if is_object(value):
        return {key: _to_json(item) for key, item in value.items()}
    if is_list(value):
        return [_to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    return None if isinstance(value, bytes | set) else str(value)


def _check_frontmatter(path: str, frontmatter: Json) -> Iterator[SkillProblem]:
    """Yield what the format of skills does not allow, although the skill can be used."""
    name = frontmatter.get("name")
    folder = path.rpartition("/")[2]
    problem = ""
    if not isinstance(name, str) or not name.strip():
        problem = "its frontmatter has no name, so the name of its folder counts."
    elif len(name) > NAME_LIMIT or not _NAME.fullmatch(name):
        problem = f"its name {to_one_line(name, NAME_LIMIT)!r} is not one that the format allows."
    elif name != folder:
        problem = f"its name is {name!r}, but its folder is {folder!r}."
    if problem:
        remedy = f"Use one name for both: at most {NAME_LIMIT} of a-z, 0-9 and single hyphens."
        yield _make_problem(path, "skill-name", problem, remedy, is_fatal=False)
    length = len(frontmatter["description"])
    if length > DESCRIPTION_CHARS:
        message = f"its description has {length:,} characters; {DESCRIPTION_CHARS:,} are allowed."
        remedy = "Move the rest into the instructions."
        yield _make_problem(path, "skill-description", message, remedy, is_fatal=False)


# Entries.


def find_entry_problem(entry: object, *, any_name: bool = False) -> str:
    """Return what SEP-2640 does not allow in an entry, or nothing.

    An entry whose files its server generates is refused too: nobody could approve them. With
    `any_name`, names that the format of skills does not allow are accepted.
    """
    if not is_object(entry) or find_problem(entry):
        return "it is no object, or too large"
    uri: object = entry.get("uri")
    if not isinstance(uri, str) or len(uri) > URI_CHARS or not uri.endswith(f"/{SKILL_FILE}"):
        return f"its address does not end in /{SKILL_FILE}"
    frontmatter: object = entry.get("frontmatter")
    name: object = frontmatter.get("name") if is_object(frontmatter) else None
    base = uri.removesuffix(SKILL_FILE)
    if not any_name:
        if not isinstance(name, str) or len(name) > NAME_LIMIT or not _NAME.fullmatch(name):
            return "its frontmatter has no name that the format of skills allows"
        if unquote(base.rstrip("/").rpartition("/")[2]) != name:
            return "its address does not end with its name"
    description = frontmatter.get("description") if is_object(frontmatter) else None
    if not isinstance(description, str) or not description.strip():
        return "its frontmatter has no description"
    listed: object = entry.get("resources")
    if listed == "dynamic":
        return "its server generates its files, so that they cannot be compared with what is listed"
    if not is_list(listed) or len(listed) > FILES_LIMIT:
        return f"it does not list its files, or more than {FILES_LIMIT}"
    return _find_file_problem(listed, base, uri)


def _find_file_problem(listed: list[Any], base: str, uri: str) -> str:
    seen: set[str] = set()
    total = 0
    for row in listed:
        place: object = row.get("uri") if is_object(row) else None
        if not isinstance(place, str) or not _is_below(place, base) or place in seen:
            return "it lists a file twice, or one that is not in its folder"
        digest, size = row.get("digest"), row.get("size")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            return "it lists a file without a SHA-256 digest"
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            return "it lists a file without a size"
        seen.add(place)
        total += size
    if uri not in seen:
        return f"it does not list its {SKILL_FILE}"
    return f"its files have more than {BYTES_LIMIT:,} bytes" if total > BYTES_LIMIT else ""


def _is_below(uri: str, base: str) -> bool:
    path = unquote(uri.removeprefix(base)).replace("\\", "/")
    is_plain = {"", ".", ".."}.isdisjoint(path.split("/")) and len(uri) <= URI_CHARS
    return uri.startswith(base) and is_plain


def is_for_people(entry: Json) -> bool:
    """Tell whether the author of a skill wants no model to use it by itself."""
    return entry["frontmatter"].get(DIRECTLY) is True


def tool_from_entry(
    entry: Json,
    server: str,
    *,
    leaf: str = "",
    read: Callable[[str], Json | None] | None = None,
) -> Tool:
    """Return the entry of the catalogue for a skill; `read` makes it callable by itself.

    `leaf` is another name than the skill's own. Of the frontmatter, only the name, the description
    and `when_to_use` count: it cannot allow itself any tools.
    """
    frontmatter: Json = entry["frontmatter"]
    base = str(entry["uri"]).removesuffix(f"/{SKILL_FILE}")
    named: object = frontmatter.get("name")
    own = named if isinstance(named, str) and named.strip() else unquote(base.rpartition("/")[2])
    files = [path for path in list_files(entry) if path != SKILL_FILE]
    known: object = frontmatter.get("when_to_use")
    tool = Tool.define(
        leaf or own,
        server=server,
        description=str(frontmatter["description"])[:DESCRIPTION_LIMIT],
        input_schema=_build_schema(files),
        hint=known if isinstance(known, str) else "",
        kind=SKILL,
        effect=Effect.READ,
        extras={SKILL: entry},
    )
    if read is None:
        return tool

    def read_file(file: str = "") -> Json:
        """Return the instructions of the skill, or one of its files."""
        uri, text = find_file(tool, {"file": file})
        if text:
            return {"content": [{"type": "text", "text": text}]}
        answer = read(uri) or {}
        verify_read(tool, uri, answer)
        return render_read(tool, uri, answer)

    return replace(tool, function=read_file)


def _build_schema(files: list[str]) -> Json | None:
    if not files:
        return None
    choice: Json = {"type": "string", "description": texts.FILE_OF_SKILL}
    if len(files) <= FILES_NAMED:
        choice["enum"] = [SKILL_FILE, *files]
    else:
        choice["description"] = texts.FILE_OF_LARGE_SKILL
    return {"type": "object", "properties": {"file": choice}}


def list_files(entry: Json) -> dict[str, str]:
    """Return the addresses of a skill's files, by their paths in the skill."""
    base = str(entry["uri"]).removesuffix(SKILL_FILE)
    return {unquote(row["uri"].removeprefix(base)): row["uri"] for row in entry["resources"]}


def find_file(tool: Tool, arguments: Json) -> tuple[str, str]:
    """Return the address of the file that a call of a skill wants; of a folder, a list instead.

    Only what the entry lists is found; raises `UnknownFile` for anything else.
    """
    entry: Json = tool.extras[SKILL]
    asked = str(arguments.get("file") or SKILL_FILE)
    files = list_files(entry)
    path = asked.replace("\\", "/").removeprefix("./")
    if path in files:
        return files[path], ""
    inside = sorted(name for name in files if name.startswith(path.rstrip("/") + "/"))
    if path in (".", "./", "/"):
        inside = sorted(files)
    if inside:
        return "", "\n".join([texts.SKILL_LISTED.format(file=asked[:PATH_CHARS]), *inside])
    near = find_near_names(asked[:PATH_CHARS], files)
    raise UnknownFile(tool.name, to_one_line(asked, PATH_CHARS), near)


def verify_read(tool: Tool, uri: str, answer: Json) -> None:
    """Raise `SkillChanged` unless an answer to `resources/read` is the file that is listed."""
    entry: Json = tool.extras[SKILL]
    listed = next((row for row in entry["resources"] if row["uri"] == uri), None)
    data = _read_bytes(answer)
    is_listed = listed is not None and data is not None and len(data) == listed["size"]
    if is_listed:
        assert listed is not None
        assert data is not None
        is_listed = listed["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        if is_listed and uri == entry["uri"]:
            try:
                is_listed = _is_same(_read_frontmatter(data), entry["frontmatter"])
            except _Unusable:
                is_listed = False
    if not is_listed:
        path = unquote(uri.removeprefix(str(entry["uri"]).removesuffix(SKILL_FILE)))
        raise SkillChanged(tool.name, to_one_line(path, PATH_CHARS))


def _read_bytes(answer: Json) -> bytes | None:
    """Return what an answer to `resources/read` contains, if that is one file."""
    parts: object = answer.get("contents")
    part: object = parts[0] if is_list(parts) and len(parts) == 1 else None
    if not is_object(part):
        return None
    text, blob = part.get("text"), part.get("blob")
    try:
        if isinstance(text, str):
            return text.encode()
        return base64.b64decode(blob, validate=True) if isinstance(blob, str) else None
    except (binascii.Error, UnicodeEncodeError, ValueError):
        return None


def _is_same(mine: object, theirs: object) -> bool:
    """Tell whether two readings of one frontmatter agree; parsers differ in dates and numbers."""
    if is_object(mine) and is_object(theirs):
        return mine.keys() == theirs.keys() and all(_is_same(mine[k], theirs[k]) for k in mine)
    if is_list(mine) and is_list(theirs):
        return len(mine) == len(theirs) and all(map(_is_same, mine, theirs))
    return mine == theirs or str(mine) == str(theirs)


def render_read(tool: Tool, uri: str, answer: Json) -> Json:
    """Return a file of a skill as the result of a call, with whose it is.

    Of a `SKILL.md`, the frontmatter is left out: the model has read its description, and the rest
    is for programs.
    """
    entry: Json = tool.extras[SKILL]
    part: Json = answer["contents"][0]
    files = list_files(entry)
    path = next(path for path, address in files.items() if address == uri)
    told = partial(str.format, name=tool.leaf, server=tool.server)
    text: object = part.get("text")
    if uri != entry["uri"]:
        notes = [told(texts.SKILL_FILE_READ, file=path)]
    else:
        notes = [told(texts.SKILL_READ)]
        text = split_frontmatter(text.removeprefix("\ufeff"))[1] if isinstance(text, str) else text
        others = [name for name in files if name != path]
        if others:
            notes.append(texts.SKILL_FILES.format(files=list_some(others, FILES_SHOWN)))
    if not isinstance(text, str):
        return {
            "content": [{"type": "text", "text": notes[0]}, {"type": "resource", "resource": part}]
        }
    return {"content": [{"type": "text", "text": "\n".join((*notes, "", text))}]}
