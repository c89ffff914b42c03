"""`Place`: where the daemon of a configuration listens, and how clients greet it.

A daemon listens on a local socket in a folder that only its user can open. The name of the socket
stands for the command line and for the variables of the environment that the configuration refers
to, so clients that would get other servers get another daemon.

Every client waits for this module and for `bridge`, so they import a part of the standard library
and nothing else.
"""

import hashlib
import json
import os
import socket
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

GREETING_SECONDS = 10.0
GREETING_BYTES = 65_536
AS_DAEMON = "--as-daemon"
"""The option of `serve` that makes a process the daemon of a place."""
FOLDER_BYTES = 80
"""A longer folder leaves no room for the name of a socket, which may have 104 bytes on macOS."""
LEAVE = "leave"
"""What a daemon that ends asks of its clients."""
CANCELLED = "notifications/cancelled"
"""What a client says of a request that it wants no answer to; the SDK then sends none."""
ABOUT = "about"
"""What a command greets a daemon with to learn about it."""
CONSOLE = "console"
"""What a command greets a daemon with to see its console: the token for browsers."""
_DIGITS = 16


class UnsafeFolder(Exception):
    """Other users could take the place of the daemon."""


class Place:
    """The files of the daemons that one command line leads to."""

    def __init__(self, folder: Path, key: str) -> None:  # importing `dataclasses` takes a while
        self.folder = folder
        self.key = key

    @property
    def lock_file(self) -> Path:
        """Held by whoever starts a daemon."""
        return self.folder / f"{self.key}.lock"

    @property
    def variables_file(self) -> Path:
        """The names of the variables that the configuration refers to."""
        return self.folder / f"{self.key}.variables"

    def write_variables(self, names: Iterable[str]) -> None:
        """Note which variables the configuration refers to."""
        temporary = self.variables_file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(sorted(names)), encoding="utf-8")
        temporary.replace(self.variables_file)

    def find_socket(self, env: Mapping[str, str]) -> Path:
        """Return where the daemon for an environment listens, or would listen."""
        names: list[str] = []
        with suppress(OSError, ValueError):
            names = json.loads(self.variables_file.read_text(encoding="utf-8"))
        values = [(name, env.get(name)) for name in names]
        return self.folder / f"{_digest(self.key, values)}.socket"


def find_place(arguments: Sequence[str]) -> Place:
    """Return the place for the arguments of `serve`; raises `UnsafeFolder`."""
    return Place(open_folder(), _digest(list(arguments)))


def find_folder() -> Path:
    """Return the folder of this user's daemons, which may not exist yet.

    Many clients start programs with few variables, so none decides but HOME.
    """
    folder = Path.home() / ".cache" / "toolscout" / "daemon"
    if len(os.fsencode(folder)) > FOLDER_BYTES:
        import tempfile  # takes a while, and is hardly ever needed

        folder = Path(tempfile.gettempdir()) / f"toolscout-{os.getuid()}"
    return folder


def open_folder() -> Path:
    """Return the folder of this user's daemons, and create it; raises `UnsafeFolder`."""
    folder = find_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    check_folder(folder)
    return folder


def check_folder(folder: Path) -> None:
    """Raise `UnsafeFolder` if anybody but this user can open a folder."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UnsafeFolder(f"{folder} is not a folder of yours.")
    if found.st_mode & 0o077:
        raise UnsafeFolder(f"{folder} can be opened by other users.")


def can_have_daemon() -> bool:
    """Tell whether this system has what a daemon needs."""
    return sys.platform != "win32" and hasattr(socket, "AF_UNIX")


def connect(path: Path) -> socket.socket | None:
    """Return a connection to the daemon at a socket, or None if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def ask_daemons(folder: Path) -> Iterator[tuple[Path, dict[str, Any] | None]]:
    """Yield the sockets in a folder, each with what its daemon says about itself.

    That is empty if the daemon does not answer, and None if there is no daemon any more.
    """
    for path in sorted(folder.glob("*.socket")):
        connection = connect(path)
        if connection is None:
            yield path, None
            continue
        with connection:
            yield path, greet(connection, {ABOUT: True})


def greet(connection: socket.socket, greeting: Mapping[str, object]) -> dict[str, Any]:
    """Send a greeting and return the answer, which is empty if the daemon has just ended."""
    connection.settimeout(GREETING_SECONDS)
    try:
        connection.sendall(json.dumps(greeting).encode() + b"\n")
        answer = b""
        # Byte by byte: what follows belongs to the client.
        while not answer.endswith(b"\n") and len(answer) < GREETING_BYTES:
            part = connection.recv(1)
            if not part:
                return {}
            answer += part
        return json.loads(answer)
    except (OSError, ValueError):
        return {}
    finally:
        connection.settimeout(None)


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]
