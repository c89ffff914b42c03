"""Servers as their publishers describe them: `server.json` files and exports of the MCP registry.

An `Offer` holds the ways to run or reach a server, each a `Template` with the values that a person
has to give; `Template.fill` makes a `ServerConfig` of them. All documents are untrusted: what they
say is never looked up as a reference, and a package whose name could be read as an option is not
usable. Nothing is started or fetched here. `bundles` reads `.mcpb` files.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from toolscout.config.references import escape, is_literal
from toolscout.config.secrets import is_secret_name
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidFile, UsageError
from toolscout.names import list_some, to_one_line
from toolscout.schemas import Json, is_list, is_object

MAX_DOCUMENT_BYTES = 1 << 20
MAX_EXPORT_BYTES = 256 << 20
MAX_ITEMS = 200
"""Packages of a server, and arguments or variables of a package."""
MAX_TEXT_CHARS = 8_000
OFFICIAL = "io.modelcontextprotocol.registry/official"
"""The member of `_meta` in which the registry itself says something about a server."""
ACTIVE = "active"
DELETED = "deleted"

RUNNERS = {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}
"""The program that fetches and starts a package of each kind."""
SOURCES = {"npm": "registry.npmjs.org", "pypi": "pypi.org", "nuget": "api.nuget.org"}
"""Where that program fetches packages from by itself."""
OWN_OPTIONS = {
    "npx": ("-y", "--yes"),
    "docker": ("run", "-i", "--interactive", "--rm"),
    "uvx": (),
    "dnx": ("-y", "--yes"),
}
"""Arguments of a runner that toolscout passes anyway, where there is need for them."""
SHELLS = ("sh", "bash", "dash", "zsh", "fish", "cmd", "powershell", "pwsh")
HARMLESS_OPTIONS = ("-e", "--env", "-q", "--quiet", "--init")

_NAME = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
_IDENTIFIERS = {
    "npm": re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*"),
    "pypi": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9,._-]+\])?"),
    "oci": re.compile(
        r"[a-z0-9][a-z0-9._/-]*(?::[0-9]+/[a-z0-9][a-z0-9._/-]*)?"
        r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]*)?(?:@sha256:[0-9a-f]{64})?"
    ),
    "nuget": re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*"),
}
# Less than three numbers are a range to npm.
_VERSIONS = {
    "npm": re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[+-][0-9A-Za-z.+-]+)?"),
    "pypi": re.compile(r"v?[0-9][0-9A-Za-z._+!-]*"),
    "nuget": re.compile(r"[0-9]+(?:\.[0-9]+)*(?:[+-][0-9A-Za-z.+-]+)?"),
    "oci": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*"),
}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VARIABLE = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_CAPITAL = re.compile(r"(?=[A-Z])")
_BLANKS = re.compile(r"\s*")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_VERSION_PART = re.compile(r"[0-9]+|[A-Za-z]+")
# Variables with which a program, or the one that fetches it, loads other code or trusts others.
_LOADING = re.compile(
    r"LD_\w+|DYLD_\w+|NODE_(?:OPTIONS|PATH|EXTRA_CA_CERTS|TLS_REJECT_UNAUTHORIZED)"
    r"|PYTHON(?:PATH|HOME|STARTUP|USERBASE|INSPECT|BREAKPOINT|EXECUTABLE|WARNINGS)"
    r"|PERL5(?:OPT|LIB|DB)|RUBY(?:OPT|LIB)|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS"
    r"|BASH_ENV|ENV|SHELLOPTS|PATH|GIT_(?:SSH|SSH_COMMAND|EXEC_PATH)|(?:NPM_CONFIG|UV|PIP)_\w+"
    r"|DOCKER_(?:HOST|CONFIG|CONTEXT)|(?:HTTPS?|ALL)_PROXY|SSL_CERT_(?:FILE|DIR)|DOTNET_\w+",
    re.IGNORECASE,
)
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class Unusable(Exception):
    """A package or an address that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A value that a person may give."""

    key: str
    """What `--set` calls it."""
    description: str = ""
    default: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    format: str = "string"
    """`string`, `number`, `boolean`, `filepath`, or `flag`: an argument that may have no value."""
    is_required: bool = False
    is_secret: bool = False
    is_repeated: bool = False

    def check(self, texts: Sequence[str]) -> tuple[str, ...]:
        """Return what a person gave, or raise `UsageError` if it does not fit."""
        expected = ""
        for text in texts:
            if self.is_secret and is_literal(text):
                expected = "a reference such as ${VARIABLE} or ${file:PATH}, because it is a secret"
            elif not is_literal(text):
                continue
            elif self.choices and text not in self.choices:
                expected = f"one of {', '.join(self.choices)}"
            elif self.format == "boolean" and text not in ("true", "false"):
                expected = "true or false"
            elif self.format == "number" and not _NUMBER.fullmatch(text):
                expected = "a number"
            elif _CONTROL.search(text):
                expected = "plain text"
        if len(texts) > 1 and not self.is_repeated:
            expected = "one value only"
        if expected:
            raise UsageError(f"{self.key!r} takes {to_one_line(expected, 300)}.")
        return tuple(texts)


Pieces = tuple["str | Input", ...]
"""A text made of fixed parts and of values that a person gives."""
Values = Mapping[str, Sequence[str]]
"""What a person gave, by key; references in it are looked up when the server starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One or more words of a command line, left out if a value in them is not given."""

    words: tuple[Pieces, ...]
    needs: Pieces = ()
    """Further values without which it is left out."""

    def render(self, values: Values) -> Iterator[str]:
        """Yield the words, once for each value that a person gave."""
        found = [_find_texts(one, values) for one in _list_inputs((*self.words, self.needs))]
        if all(found):
            for turn in range(max(map(len, found), default=1)):
                for word in self.words:
                    text = _join(word, values, turn)
                    # A flag that a person sets to true stands alone.
                    if text != "true" or not _is_flag(word):
                        yield text


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One way to run or reach a server, with the values that a person has to give."""

    label: str
    problem: str = ""
    """Why it cannot be used."""
    transport: Transport = Transport.STDIO
    command: str = ""
    arguments: tuple[Argument, ...] = ()
    env: Mapping[str, Pieces] = field(default_factory=dict[str, Pieces])
    cwd: str = ""
    url: Pieces = ()
    headers: Mapping[str, Pieces] = field(default_factory=dict[str, Pieces])
    warnings: tuple[str, ...] = ()
    sha256: str = ""
    """The digest of the `.mcpb` file that a person has to fetch first, from `source`."""
    source: str = ""

    def list_inputs(self) -> list[Input]:
        """Return the values that a person may give, each once."""
        words = [word for one in self.arguments for word in (*one.words, one.needs)]
        return _list_inputs((*words, *self.env.values(), self.url, *self.headers.values()))

    def fill(self, name: str, values: Values) -> ServerConfig:
        """Return the server under a name; variables and headers without a value are left out."""
        fill = partial(_fill_table, values=values)
        return ServerConfig(
            name=name,
            transport=self.transport,
            command=escape(self.command),
            args=tuple(word for one in self.arguments for word in one.render(values)),
            env=fill(self.env),
            cwd=escape(self.cwd),
            url=_join(self.url, values),
            headers=fill(self.headers),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A server that a registry, a file or a bundle offers."""

    name: str
    version: str
    title: str = ""
    description: str = ""
    publisher: str = ""
    website: str = ""
    status: str = ACTIVE
    remark: str = ""
    """What the registry says about the status."""
    templates: tuple[Template, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A version of a server as an export of the registry lists it."""

    name: str
    version: str
    server: Json
    status: str
    remark: str
    age: tuple[bool, str, tuple[tuple[int, int, str], ...]]
    """Of two versions, the newer has the greater one."""

    @property
    def packages(self) -> list[str]:
        """The packages and addresses, for people and for searching."""
        found = [
            f"{_read_text(one, 'registryType')} {_read_text(one, 'identifier')}"
            for one in _list_tables(self.server, "packages")
        ]
        found += [_read_text(one, "url") for one in _list_tables(self.server, "remotes")]
        return [to_one_line(text, 200) for text in found]


def read_offer(path: Path) -> Offer:
    """Return the server of a `server.json` file, or of one answer of the registry's API."""
    values = list(_parse_values(path, _read_bytes(path, MAX_DOCUMENT_BYTES)))
    entry = _read_entry(values[0]) if len(values) == 1 else None
    if entry is None:
        problem = "is not a server.json: it has no 'name' such as io.github.someone/weather"
        remedy = "Name a server.json, an .mcpb file, or a server that `servers search` finds."
        raise InvalidFile(str(path), problem, remedy=remedy)
    return offer_from_entry(entry)


def read_export(paths: Iterable[Path]) -> dict[str, Entry]:
    """Return the newest version of each server of an export, by name.

    A file holds one or more answers of the registry's list API, or their entries, as one JSON
    document or several in a row. Entries without a valid name are left out.
    """
    newest: dict[str, Entry] = {}
    room = MAX_EXPORT_BYTES
    for path in paths:
        data = _read_bytes(path, room)
        room -= len(data)
        for value in _parse_values(path, data):
            for row in _list_rows(value):
                entry = _read_entry(row)
                known = newest.get(entry.name) if entry else None
                if entry and (known is None or entry.age > known.age):
                    newest[entry.name] = entry
        if not newest:
            remedy = "Name an answer of the registry's list API, {'servers': [...]}."
            raise InvalidFile(str(path), "lists no servers", remedy=remedy)
    return newest


def offer_from_entry(entry: Entry) -> Offer:
    """Return a server with all ways to run or reach it, usable or not."""
    server = entry.server
    repository = server.get("repository")
    website = _read_text(server, "websiteUrl")
    if is_object(repository):
        website = _read_text(repository, "url") or website
    packages = [_build_package(table) for table in _list_tables(server, "packages")]
    remotes = [_build_remote(table) for table in _list_tables(server, "remotes")]
    return Offer(
        name=entry.name,
        version=entry.version,
        title=_read_text(server, "title"),
        description=_read_text(server, "description"),
        publisher=entry.name.partition("/")[0],
        website=website,
        status=entry.status,
        remark=entry.remark,
        templates=(*packages, *remotes),
    )


def find_warnings(env: Iterable[str], command: str = "") -> list[str]:
    """Return what a person should know about the variables and the command of a server."""
    found = [name for name in env if _LOADING.fullmatch(name)]
    warnings: list[str] = []
    if found:
        names = to_one_line(", ".join(found), 300)
        warnings.append(f"It sets {names}, which can load other code or redirect what it fetches.")
    program = re.split(r"[/\\]", command.lower())[-1].removesuffix(".exe")
    if program in SHELLS:
        warnings.append(f"It starts {program}, a shell, which does whatever its arguments say.")
    return warnings


def _read_bytes(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise InvalidFile(str(path), problem, remedy="Name a file that exists.") from None
    if len(data) > limit:
        remedy = "Leave out what you do not need, such as old versions."
        raise InvalidFile(str(path), f"is larger than {limit:,} bytes", remedy=remedy)
    return data


def _parse_values(path: Path, data: bytes) -> Iterator[object]:
    """Yield the JSON values of a file, which stand in a row or on lines of their own."""
    decoder = json.JSONDecoder()
    place = 0
    text = ""
    try:
        text = data.decode("utf-8-sig")
        place = _skip_blanks(text, place)
        while place < len(text):
            value, place = decoder.raw_decode(text, place)
            yield value
            place = _skip_blanks(text, place)
    except (ValueError, RecursionError) as error:
        line = text.count("\n", 0, getattr(error, "pos", place)) + 1
        remedy = "Correct what stands there, or fetch the file again."
        raise InvalidFile(str(path), "is not JSON", line=line, remedy=remedy) from None


def _skip_blanks(text: str, place: int) -> int:
    found = _BLANKS.match(text, place)
    return found.end() if found else place


def _list_rows(value: object) -> Iterator[object]:
    """Yield the entries of an answer, or of a list of entries or answers."""
    for one in value if is_list(value) else [value]:
        listed = one.get("servers") if is_object(one) else None
        yield from listed if is_list(listed) else [one]


def _read_entry(value: object) -> Entry | None:
    if not is_object(value):
        return None
    inner = value.get("server")
    server = inner if is_object(inner) else value
    name = server.get("name")
    if not isinstance(name, str) or len(name) > 200 or not _NAME.fullmatch(name):
        return None
    older = server.get("version_detail")
    version = _read_text(server, "version") or _read_text(older, "version")
    metas = [part.get("_meta") for part in (value, server)]
    official = next((m[OFFICIAL] for m in metas if is_object(m) and OFFICIAL in m), None)
    status = _read_text(official, "status") or _read_text(server, "status") or ACTIVE
    parts = [
        (1, int(part), "") if part.isdigit() else (0, 0, part)
        for part in _VERSION_PART.findall(version[:100])
    ]
    is_latest = is_object(official) and official.get("isLatest") is True
    return Entry(
        name=name,
        version=to_one_line(version, 100),
        server=server,
        status=to_one_line(status, 40),
        remark=_read_text(official, "statusMessage"),
        # A version without a word, as in rc1, is newer than the same with one.
        age=(is_latest, _read_text(official, "publishedAt"), (*parts, (0, 1, ""))),
    )


def _build_package(table: Json) -> Template:
    kind = _read_text(table, "registryType")
    identifier = _read_text(table, "identifier")
    version = _read_text(table, "version")
    label = to_one_line(f"{kind} {identifier} {version}", 300)
    try:
        return _build_runner(table, kind, identifier, version, label)
    except Unusable as error:
        return Template(label=label, problem=str(error))


def _build_runner(table: Json, kind: str, identifier: str, version: str, label: str) -> Template:
    transport = table.get("transport")
    if is_object(transport) and _read_text(transport, "type") not in ("", "stdio"):
        raise Unusable("it serves HTTP on this machine; start it yourself and add it with --url")
    if kind == "mcpb":
        digest = _read_text(table, "fileSha256")
        if not _SHA256.fullmatch(digest) or not _is_address(identifier):
            raise Unusable("it names no file with a SHA-256")
        return Template(label=label, sha256=digest, source=identifier)
    if kind not in RUNNERS:
        kinds = ", ".join((*RUNNERS, "mcpb"))
        raise Unusable(f"toolscout starts only packages of the kinds {kinds}")
    target = _check_target(table, kind, identifier, version)
    env = {
        _read_env_name(one): _read_pieces(one, _read_text(one, "name"))
        for one in _list_tables(table, "environmentVariables")
    }
    runner = RUNNERS[kind]
    given = [
        argument
        for argument in _read_arguments(table, "runtimeArguments", is_fixed=True)
        if argument.words not in [((one,),) for one in OWN_OPTIONS[runner]]
    ]
    own = list(_read_arguments(table, "packageArguments", is_fixed=False))
    if runner == "npx":
        before = [_fix("-y"), *given, _fix(target)]
    elif runner == "uvx":
        before = [*given, _fix(target)]
    elif runner == "dnx":
        before = [_fix(target), _fix("--yes"), *given, _fix("--")]
    else:
        # The values stay in the environment of the runner, where no list of processes shows them.
        passed = [Argument(words=(("-e",), (name,)), needs=env[name]) for name in env]
        options = [_fix(one) for one in ("run", "-i", "--rm")]
        before = [*options, *passed, *given, _fix(target)]
    warnings = find_warnings(env)
    odd = [one for one in given if one.words[0] not in [(word,) for word in HARMLESS_OPTIONS]]
    if odd:
        shown = [" ".join(map(_show_pieces, one.words)) for one in odd]
        told = f"Its publisher passes {list_some(shown)} to {runner}"
        warnings.append(to_one_line(f"{told}, which can change what is run and what it sees.", 500))
    if kind == "oci" and target.endswith(":latest"):
        warnings.append("The tag 'latest' names another image tomorrow.")
    return Template(
        label=label,
        command=runner,
        arguments=(*before, *own),
        env=env,
        warnings=tuple(warnings),
    )


def _check_target(table: Json, kind: str, identifier: str, version: str) -> str:
    """Return the exact package as its runner takes it."""
    base = _read_text(table, "registryBaseUrl")
    host = urlsplit(base).hostname if _is_address(base) else base
    if kind == "oci":
        # Older documents name the host and the tag apart.
        has_host = "." in identifier.partition("/")[0]
        if host and host not in ("docker.io", "hub.docker.com") and not has_host:
            identifier = f"{host}/{identifier}"
        if ":" not in identifier.rpartition("/")[2] and "@" not in identifier:
            identifier = f"{identifier}:{version}"
            if not _VERSIONS[kind].fullmatch(version):
                raise Unusable("it names no version")
    elif base and host != SOURCES[kind]:
        raise Unusable(f"it comes from {to_one_line(base, 100)}, not from {SOURCES[kind]}")
    if len(identifier) > 300 or not _IDENTIFIERS[kind].fullmatch(identifier):
        raise Unusable(f"its identifier is not one that {kind} packages can have")
    if kind == "oci":
        return identifier
    if len(version) > 100 or not _VERSIONS[kind].fullmatch(version):
        raise Unusable("it names no exact version")
    return f"{identifier}{'==' if kind == 'pypi' else '@'}{version}"


def _build_remote(table: Json) -> Template:
    kind = _read_text(table, "type") or _read_text(table, "transportType")
    label = to_one_line(f"{kind} {_read_text(table, 'url')}", 300)
    try:
        address = read_value(table.get("url"))
        if kind not in ("streamable-http", "http", "sse"):
            raise Unusable("toolscout can use streamable-http and sse only")
        variables = table.get("variables")
        known = variables if is_object(variables) else {}
        # A brace cannot stay in an address, so every name in braces has to be given.
        named = {name: known.get(name, {"isRequired": True}) for name in _VARIABLE.findall(address)}
        url = _split_variables(address, named, is_repeated=False)
        headers = {
            _read_text(one, "name"): _read_pieces(one, _read_text(one, "name"))
            for one in _list_tables(table, "headers")
        }
        first = url[0] if url else ""
        if isinstance(first, str) and not first.startswith(("https://", "http://")):
            raise Unusable("its address does not begin with https:// or http://")
        template = Template(
            label=label,
            transport=Transport.SSE if kind == "sse" else Transport.HTTP,
            url=url,
            headers=headers,
            warnings=tuple(_list_remote_warnings(address)),
        )
    except Unusable as error:
        return Template(label=label, problem=str(error))
    return template


def _list_remote_warnings(address: str) -> Iterator[str]:
    is_plain = address.startswith("http://")
    if is_plain and not (_is_address(address) and urlsplit(address).hostname in _LOCAL_HOSTS):
        yield "Its address begins with http://, so everything is sent without encryption."


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _read_arguments(table: Json, key: str, *, is_fixed: bool) -> Iterator[Argument]:
    """Yield arguments; one that is only a name is passed as it is if `is_fixed`."""
    for place, one in enumerate(_list_tables(table, key), 1):
        is_named = _read_text(one, "type") == "named"
        name = read_value(one.get("name")) if is_named else ""
        hint = name.lstrip("-") or _read_text(one, "valueHint") or f"argument{place}"
        is_flag = is_named and not one.keys() - {"type", "name", "description"}
        if is_named and not name:
            raise Unusable("one of its arguments has no name")
        if is_flag and is_fixed:
            yield _fix(name)
        else:
            value = _read_pieces({"format": "flag", **one} if is_flag else one, hint)
            yield Argument(words=((name,), value) if is_named else (value,))


def _read_env_name(table: Json) -> str:
    name = _read_text(table, "name")
    if not _ENV_NAME.fullmatch(name):
        raise Unusable("one of its variables has a name that no variable can have")
    return name


def _read_pieces(table: Json, key: str) -> Pieces:
    """Return the value of an argument, variable or header: fixed, or with values to be given."""
    is_repeated = table.get("isRepeated", table.get("is_repeated")) is True
    if table.get("value") is None:
        return (_read_input(table, key, is_repeated=is_repeated),)
    variables = table.get("variables")
    known = variables if is_object(variables) else {}
    return _split_variables(read_value(table["value"]), known, is_repeated=is_repeated)


def _split_variables(text: str, variables: Json, *, is_repeated: bool) -> Pieces:
    pieces: list[str | Input] = []
    for place, part in enumerate(_VARIABLE.split(text)):
        table = variables.get(part) if place % 2 else None
        if is_object(table) and table.get("value") is None:
            pieces.append(_read_input(table, part, is_repeated=is_repeated))
        elif is_object(table):
            pieces.append(read_value(table["value"]))
        elif part:
            pieces.append(f"{{{part}}}" if place % 2 else part)
    return merge_pieces(pieces)


def merge_pieces(pieces: Iterable[str | Input]) -> Pieces:
    """Return pieces in which no two fixed ones follow each other."""
    merged: list[str | Input] = []
    for one in pieces:
        before = merged[-1] if merged else None
        if isinstance(one, str) and isinstance(before, str):
            merged[-1] = before + one
        else:
            merged.append(one)
    return tuple(merged)


def _read_input(table: Json, key: str, *, is_repeated: bool) -> Input:
    default = read_value(table.get("default"))
    choices = table.get("choices")
    listed = tuple(map(read_value, choices[:MAX_ITEMS])) if is_list(choices) else ()
    is_secret = _find(table, "isSecret") is True
    return Input(
        key=key,
        description=_read_text(table, "description"),
        default=(default,) if default else (),
        choices=listed,
        format=_read_text(table, "format") or "string",
        is_required=_find(table, "isRequired") is True,
        # Many publishers forget to say it.
        is_secret=is_secret or (is_secret_name(key) and not default and not listed),
        is_repeated=is_repeated,
    )


def _list_tables(table: Json, key: str) -> list[Json]:
    found = _find(table, key)
    return [one for one in found[:MAX_ITEMS] if is_object(one)] if is_list(found) else []


def _find(table: object, key: str) -> object:
    """Return a member; until September 2025, names were written with underscores."""
    if not is_object(table):
        return None
    return table.get(key, table.get(_CAPITAL.sub("_", key).lower()))


def _read_text(table: object, key: str) -> str:
    """Return a text that is only shown, or checked by the caller."""
    value = _find(table, key)
    return value[:MAX_TEXT_CHARS] if isinstance(value, str) else ""


def read_value(value: object) -> str:
    """Return a value that becomes part of a configuration, or raise `Unusable`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value) if isinstance(value, int | float | str) else ""
    if len(text) > MAX_TEXT_CHARS or _CONTROL.search(text):
        raise Unusable("one of its values is too long or has control characters")
    return text


def _fix(word: str) -> Argument:
    return Argument(words=((word,),))


def _show_pieces(pieces: Pieces) -> str:
    return "".join(one if isinstance(one, str) else f"{{{one.key}}}" for one in pieces)


def _list_inputs(texts: Iterable[Pieces]) -> list[Input]:
    found = {one.key: one for text in texts for one in text if isinstance(one, Input)}
    return list(found.values())


def _find_texts(wanted: Input, values: Values) -> Sequence[str]:
    texts = values.get(wanted.key, wanted.default)
    return [text for text in texts if wanted.format != "flag" or text != "false"]


def _is_flag(pieces: Pieces) -> bool:
    return any(isinstance(one, Input) and one.format == "flag" for one in pieces)


def _join(pieces: Pieces, values: Values, turn: int = 0) -> str:
    """Return a text; of several values of an input, the one of this turn, or the last.

    What a publisher wrote is escaped as a whole, so that no reference can be put together from
    parts; what a person gave stays as it is.
    """
    parts: list[tuple[bool, str]] = []
    for one in pieces:
        is_given = isinstance(one, Input) and one.key in values
        texts = _find_texts(one, values) if isinstance(one, Input) else [one]
        text = texts[min(turn, len(texts) - 1)] if texts else ""
        if parts and parts[-1][0] == is_given:
            text = parts.pop()[1] + text
        parts.append((is_given, text))
    for (_, before), (_, after) in pairwise(parts):
        if before.endswith("$") and after.startswith(("{", "${")):
            raise UsageError("A '$' may not stand before the value of a setting here.")
    return "".join(text if is_given else escape(text) for is_given, text in parts)


def _fill_table(table: Mapping[str, Pieces], values: Values) -> dict[str, str]:
    return {
        name: _join(pieces, values)
        for name, pieces in table.items()
        if all(_find_texts(one, values) for one in _list_inputs([pieces]))
    }
