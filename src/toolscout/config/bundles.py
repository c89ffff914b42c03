"""MCP bundles: `.mcpb` files, formerly `.dxt`, which hold a server with all that it needs.

`read_bundle` checks a file and gives an `Offer` that runs from a folder; `unpack_bundle` puts its
files there. A bundle is untrusted: names that lead out of the folder, links, and files that are too
large or too many are refused before anything is written. Signatures are not checked.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

from toolscout.config.registry import (
    MAX_ITEMS,
    Argument,
    Input,
    Offer,
    Pieces,
    Template,
    Unusable,
    find_warnings,
    merge_pieces,
    read_value,
)
from toolscout.errors import InvalidFile
from toolscout.names import to_one_line
from toolscout.schemas import Json, is_list, is_object

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20
MAX_BUNDLE_BYTES = 512 << 20
MAX_UNPACKED_BYTES = 2 << 30
MAX_FILES = 50_000
MAX_NAME_CHARS = 400
COPY_BYTES = 1 << 20
BUNDLE_ENDINGS = (".mcpb", ".dxt")
FORMATS = {"directory": "filepath", "file": "filepath"}
LISTED_FILE = b"PK\x01\x02"
"""What each entry of an archive's list of files begins with."""
SIGNATURE_END = b"MCPB_SIG_END"

_PLACEHOLDER = re.compile(r"\$\{([^${}]+)\}")
_HIDDEN = re.compile(r"[\x00-\x1f\x7f\\:]")
# `zipfile` raises all of these for files that are broken, encrypted or of an unknown kind.
_ZIP_ERRORS = (BadZipFile, RuntimeError, OSError, ValueError, EOFError, zlib.error)
_SAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A checked `.mcpb` file."""

    path: Path
    sha256: str
    folder: Path
    """Where it is to be unpacked; it does not exist yet."""
    program: str
    """The file in it that is made executable, if it is a program."""
    offer: Offer


def read_bundle(
    path: Path, home: Path, folders: Path, platform: str, *, sha256: str = ""
) -> Bundle:
    """Return what a bundle offers, or raise `InvalidFile`.

    It is to be unpacked into a new folder among `folders`. `platform` is as `sys.platform` has it.
    """
    digest = _hash_file(path)
    if sha256 and digest != sha256:
        problem = f"has the SHA-256 {digest}, but its publisher names {sha256}"
        raise _refuse(path, problem, "Do not use it. Fetch the file again.")
    try:
        with ZipFile(path) as file:
            names = _check_members(file)
            manifest = _read_manifest(file)
        title = f"{manifest['name']}-{manifest['version']}-{secrets.token_hex(4)}"
        folder = folders / _SAFE.sub("_", title).lstrip(".")
        return _build_bundle(path, digest, manifest, folder, names, home, platform)
    except Unusable as error:
        raise _refuse(path, f"cannot be used: {error}") from None
    except _ZIP_ERRORS as error:
        raise _refuse(path, f"is not an MCP bundle ({to_one_line(str(error), 200)})") from None


def is_bundle(path: Path) -> bool:
    """Tell whether a file is meant to be a bundle and not a document."""
    if path.suffix in BUNDLE_ENDINGS:
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def unpack_bundle(bundle: Bundle) -> None:
    """Write the files of a bundle into its folder, all or none; only the owner can read them."""
    folder = bundle.folder
    try:
        folder.mkdir(parents=True, mode=0o700)
        if _hash_file(bundle.path) != bundle.sha256:
            raise _refuse(bundle.path, "has changed since it was shown", "Run the command again.")
        with ZipFile(bundle.path) as file:
            _check_members(file)
            for member in file.infolist():
                _unpack_member(file, member, folder, bundle.program)
    except InvalidFile:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except (*_ZIP_ERRORS, Unusable) as error:
        shutil.rmtree(folder, ignore_errors=True)
        problem = f"cannot be unpacked into {folder} ({to_one_line(str(error), 200)})"
        raise _refuse(bundle.path, problem) from None


def _unpack_member(file: ZipFile, member: ZipInfo, folder: Path, program: str) -> None:
    place = folder.joinpath(*member.filename.rstrip("/").split("/"))
    if member.is_dir():
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        return
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    is_program = bool(member.external_attr >> 16 & stat.S_IXUSR) or member.filename == program
    handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700 if is_program else 0o600)
    # The content cannot be longer than the size that was checked: `zipfile` reads no further.
    with os.fdopen(handle, "wb") as target, file.open(member) as source:
        shutil.copyfileobj(source, target, COPY_BYTES)


def _hash_file(path: Path) -> str:
    """Return the digest of a file, or raise `InvalidFile` if it is too large to be opened."""
    digest = hashlib.sha256()
    size = files = 0
    tail = b""
    try:
        with path.open("rb") as file:
            while data := file.read(COPY_BYTES):
                digest.update(data)
                size += len(data)
                # `zipfile` reads the whole list of files, however long it is.
                files += (tail + data).count(LISTED_FILE)
                tail = data[1 - len(LISTED_FILE) :]
                if size > MAX_BUNDLE_BYTES:
                    raise _refuse(path, f"is larger than {MAX_BUNDLE_BYTES:,} bytes")
                if files > MAX_FILES:
                    raise _refuse(path, f"holds more than {MAX_FILES:,} files")
    except OSError as error:
        raise _refuse(path, f"cannot be read ({error.strerror or error})") from None
    return digest.hexdigest()


def _check_members(file: ZipFile) -> frozenset[str]:
    """Return the names of all files, or raise `Unusable`."""
    members = file.infolist()
    if sum(member.file_size for member in members) > MAX_UNPACKED_BYTES:
        raise Unusable(f"its files are larger than {MAX_UNPACKED_BYTES:,} bytes")
    seen: set[str] = set()
    for member in members:
        name = member.filename
        shown = to_one_line(name, 100)
        parts = name.rstrip("/").split("/")
        # `orig_filename` still has what `zipfile` cuts off after a NUL.
        if _HIDDEN.search(member.orig_filename) or len(name) > MAX_NAME_CHARS:
            raise Unusable(f"the file {shown!r} has a name that not every system can have")
        if any(part in ("", ".", "..") for part in parts):
            raise Unusable(f"the file {shown!r} would be outside of its folder")
        kind = stat.S_IFMT(member.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or member.flag_bits & 1:
            raise Unusable(f"{shown!r} is not a plain file")
        # Some systems do not tell letters by their case.
        if name.casefold() in seen:
            raise Unusable(f"it holds {shown!r} twice")
        seen.add(name.casefold())
    return frozenset(member.filename for member in members if not member.is_dir())


def _read_manifest(file: ZipFile) -> Json:
    if MANIFEST not in file.namelist() or file.getinfo(MANIFEST).file_size > MAX_MANIFEST_BYTES:
        raise Unusable(f"it has no {MANIFEST} of at most {MAX_MANIFEST_BYTES:,} bytes")
    try:
        manifest: object = json.loads(file.read(MANIFEST))
    except (ValueError, RecursionError):
        raise Unusable(f"its {MANIFEST} is not JSON") from None
    if not is_object(manifest) or not is_object(manifest.get("server")):
        raise Unusable(f"its {MANIFEST} describes no server")
    for key in ("name", "version"):
        if not isinstance(manifest.get(key), str) or not 0 < len(manifest[key]) <= 100:
            raise Unusable(f"its {MANIFEST} has no usable {key!r}")
    return manifest


def _build_bundle(
    path: Path,
    digest: str,
    manifest: Json,
    folder: Path,
    names: frozenset[str],
    home: Path,
    platform: str,
) -> Bundle:
    compatibility = _get_table(manifest, "compatibility")
    platforms = compatibility.get("platforms")
    if is_list(platforms) and platforms and platform not in platforms:
        raise Unusable(f"it is made for {to_one_line(', '.join(map(str, platforms)), 100)} only")
    server = manifest["server"]
    config = dict(_get_table(server, "mcp_config"))
    overrides = _get_table(_get_table(config, "platform_overrides"), platform)
    config |= {key: overrides[key] for key in ("command", "args", "env") if overrides.get(key)}
    entry = read_value(server.get("entry_point")).removeprefix("./")
    inputs = _read_inputs(_get_table(manifest, "user_config"), home)
    variables = {"__dirname": str(folder), **_list_folders(home)}

    def read(value: object) -> Pieces:
        return _split_placeholders(read_value(value), variables, inputs)

    command = _fill_fixed(read(config.get("command")))
    listed = config.get("args")
    words = listed[:MAX_ITEMS] if is_list(listed) else []
    if not command:
        command, words = _guess_command(read_value(server.get("type")), entry)
        words = [_fill_fixed(read(word)) for word in words]
    program = command.removeprefix(f"{folder}{os.sep}").replace(os.sep, "/").removeprefix("./")
    program += ".exe" if platform == "win32" and f"{program}.exe" in names else ""
    if program in names:
        command = str(folder.joinpath(*program.split("/")))
    elif "/" in command or "\\" in command:
        raise Unusable(f"its command {to_one_line(command, 100)!r} is not a file in it")
    elif command == "python" and not shutil.which("python"):
        command = "python3"
    env = {read_value(name): read(value) for name, value in _get_table(config, "env").items()}
    # A bundle may well load its own files.
    outside = [name for name, pieces in env.items() if not _starts_inside(pieces, folder)]
    warnings = find_warnings(outside, command)
    if _is_signed(path):
        warnings.append("It is signed, but toolscout does not check signatures.")
    template = Template(
        label=f"bundle {path.name}",
        command=command,
        arguments=tuple(_group_words(map(read, words))),
        env=env,
        cwd=str(folder),
        warnings=tuple(warnings),
    )
    author = _get_table(manifest, "author")
    repository = _get_table(manifest, "repository")
    offer = Offer(
        name=manifest["name"],
        version=to_one_line(manifest["version"], 100),
        title=str(manifest.get("display_name") or ""),
        description=str(manifest.get("description") or ""),
        publisher=str(author.get("name") or ""),
        website=str(repository.get("url") or manifest.get("homepage") or ""),
        templates=(template,),
    )
    return Bundle(path=path, sha256=digest, folder=folder, program=program, offer=offer)


def _group_words(words: Iterable[Pieces]) -> Iterator[Argument]:
    """Yield arguments, an option together with its value, so that both are left out or none."""
    option: Pieces = ()
    for word in words:
        first = word[0] if len(word) == 1 else ""
        if option and isinstance(first, Input) and not first.is_repeated:
            yield Argument(words=(option, word))
            option = ()
            continue
        if option:
            yield Argument(words=(option,))
        is_option = isinstance(first, str) and first.startswith("-") and "=" not in first
        option = word if is_option else ()
        if not is_option:
            yield Argument(words=(word,))
    if option:
        yield Argument(words=(option,))


def _guess_command(kind: str, entry: str) -> tuple[str, list[str]]:
    """Return the command of a manifest that names none, and its arguments."""
    file = f"${{__dirname}}/{entry}"
    if kind == "uv":
        return "uv", ["run", "--directory", "${__dirname}", entry]
    if kind not in ("python", "node", "binary") or not entry:
        raise Unusable("it does not say how its server is started")
    return (entry, []) if kind == "binary" else (kind, [file])


def _get_table(table: Json, key: str) -> Json:
    found = table.get(key)
    return found if is_object(found) else {}


def _list_folders(home: Path) -> dict[str, str]:
    named = {name.upper(): str(home / name) for name in ("Desktop", "Documents", "Downloads")}
    return {"HOME": str(home), **named, "pathSeparator": os.sep, "/": os.sep}


def _read_inputs(table: Json, home: Path) -> dict[str, Input]:
    found: dict[str, Input] = {}
    folders = _list_folders(home)
    for key, option in list(table.items())[:MAX_ITEMS]:
        if not is_object(option):
            continue
        default = option.get("default")
        listed = default if is_list(default) else [] if default is None else [default]
        texts = [_split_placeholders(read_value(one), folders, {}) for one in listed]
        kind = read_value(option.get("type"))
        found[key] = Input(
            key=key,
            description=str(option.get("description") or option.get("title") or ""),
            default=tuple(filter(None, map(_fill_fixed, texts))),
            format=FORMATS.get(kind, kind),
            is_required=option.get("required") is True,
            is_secret=option.get("sensitive") is True,
            is_repeated=option.get("multiple") is True,
        )
    return found


def _split_placeholders(
    text: str, variables: Mapping[str, str], inputs: Mapping[str, Input]
) -> Pieces:
    """Return a text in pieces; placeholders that mean nothing stay as they are."""
    pieces: list[str | Input] = []
    for place, part in enumerate(_PLACEHOLDER.split(text)):
        key = part.removeprefix("user_config.")
        if place % 2 and key != part and key in inputs:
            pieces.append(inputs[key])
        elif part:
            pieces.append(variables.get(part, f"${{{part}}}") if place % 2 else part)
    return merge_pieces(pieces)


def _starts_inside(pieces: Pieces, folder: Path) -> bool:
    first = pieces[0] if pieces else ""
    return isinstance(first, str) and first.startswith(f"{folder}/") and ".." not in first


def _is_signed(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-len(SIGNATURE_END), os.SEEK_END)
        return file.read() == SIGNATURE_END


def _fill_fixed(pieces: Pieces) -> str:
    if not all(isinstance(one, str) for one in pieces):
        raise Unusable("its command depends on a value that a person gives")
    return "".join(map(str, pieces))


def _refuse(
    path: Path, problem: str, remedy: str = "Ask its publisher for another."
) -> InvalidFile:
    return InvalidFile(str(path), problem, remedy=remedy)
