"""What a client starts as `toolscout serve`: a bridge between its pipes and the daemon.

The bridge starts the daemon if there is none. It passes on every message unchanged, and remembers
only what it takes to go on with another daemon when the first one has ended: how the client
introduced itself, what it subscribed to, and which requests have no answer yet.

Every client waits for the start of its bridge, so what is imported here is little and quick.
"""

import fcntl
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from toolscout.daemon.place import (
    AS_DAEMON,
    CANCELLED,
    LEAVE,
    Place,
    UnsafeFolder,
    can_have_daemon,
    connect,
    find_place,
    greet,
)

ALONE = ("--no-daemon", "--http", "--demo", "--help", "-h")
"""With these, `toolscout serve` does its work itself."""
CONFIG = "--config"
PATHS = (CONFIG, "--cache")
PROFILE = "--profile"
START_SECONDS = 120.0
STARTS = 5
"""How often a client starts a daemon that is at once asked to end."""
LOOK_SECONDS = 0.02
LOG_CHARS = 4_000
INTERNAL_ERROR = -32603
WRONG_USAGE = 2
SEARCHING = ("tool_search", "tool_describe")
"""Meta-tools whose calls can be made again without harm."""
REMEMBERED = ("resources/subscribe", "logging/setLevel")
"""Requests that another daemon has to be told of."""
_ID = rb'"jsonrpc":"2\.0","id":(\d+|"[ !#-\[\]-~]*")'
ANSWER = re.compile(rb'\{%s,"(?:result|error)":' % _ID)
CALL = re.compile(rb'\{%s,"method":"tools/call",|\{"method":"tools/call",.*,%s\}\s*$' % (_ID, _ID))
"""How the daemon begins its answers, and how SDKs write calls. The bridge needs only the id of
these messages, so it does not parse them."""
READ_BYTES = 1 << 16


def run(arguments: Sequence[str]) -> int | None:
    """Serve one client over stdin and stdout until it disconnects; return the exit code.

    Returns None if the process has to serve the client itself, because it was told to or because
    there can be no daemon here.
    """
    if not wants_daemon(arguments):
        return None
    rest, profile = _split_arguments(arguments, os.environ)
    greeting = {
        "session": os.urandom(8).hex(),
        "profile": profile,
        "path": os.environ.get("PATH", ""),
        "folder": "",
    }
    with suppress(OSError):  # the folder may be gone
        greeting["folder"] = str(Path.cwd())
    try:
        daemons = Daemons(find_place(rest), rest, os.environ)
        bridge = Bridge(daemons, greeting, sys.stdin.buffer, sys.stdout.buffer)
        bridge.connect()
    except StartFailed as error:
        if error.code == WRONG_USAGE:  # without a daemon, it would be wrong as well
            sys.stderr.write(error.log)
            return error.code
        return _serve_alone(f"The gateway in the background did not start:\n{error.log}")
    except (UnsafeFolder, OSError, RuntimeError) as error:
        # A client that never asked for a daemon must not fail for want of one. Nothing in an
        # unsafe folder is used, so all that is lost is the sharing.
        problem = str(error).rstrip(".")
        return _serve_alone(f"There can be no gateway in the background: {problem}. ")
    try:
        return bridge.run()
    except StartFailed as error:
        sys.stderr.write(error.log)
        return error.code
    except KeyboardInterrupt:
        return 130


def wants_daemon(arguments: Sequence[str]) -> bool:
    """Tell whether `toolscout serve` with these arguments leaves the work to a daemon."""
    if not can_have_daemon() or sys.stdin is None or sys.stdin.isatty():
        return False
    return not any(word in ALONE or word.startswith(AS_DAEMON) for word in arguments)


def _serve_alone(reason: str) -> None:
    sys.stderr.write(f"{reason}This client gets a gateway of its own. See `toolscout doctor`.\n")


def _split_arguments(arguments: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the arguments for the daemon, with absolute paths, and the profile of this client."""
    words: list[str] = []
    for word in arguments:
        name, given, value = word.partition("=")
        words += [name, value] if given and name in (*PATHS, PROFILE) else [word]
    rest: list[str] = []
    profile = ""
    left = iter(words)
    for word in left:
        if word == PROFILE:
            profile = next(left, "")
        elif word in PATHS:
            rest += [word, str(Path(next(left, "")).absolute())]
        else:
            rest.append(word)
    if CONFIG not in rest:
        # Clients that name the default configuration share a daemon with those that do not.
        rest = [CONFIG, str(find_default_config(env)), *rest]
    return rest, profile


def find_default_config(env: Mapping[str, str]) -> Path:
    """Return the configuration that is used if none is named; `Machine.user_file` is the same."""
    named = Path(env.get("XDG_CONFIG_HOME") or "")
    folder = named if named.is_absolute() else Path.home() / ".config"
    return folder / "toolscout" / "toolscout.toml"


def read_version() -> str:
    """Return the installed version, from the name of the folder with its metadata.

    `importlib.metadata` takes longer than all the rest of the bridge.
    """
    for folder in sys.path:
        with suppress(OSError):
            for name in os.listdir(folder or "."):  # noqa: PTH208  # only the names are needed
                if name.startswith("toolscout-") and name.endswith(".dist-info"):
                    return name.removeprefix("toolscout-").removesuffix(".dist-info")
    from importlib.metadata import version

    return version("toolscout")


class StartFailed(Exception):
    """The daemon ended before it listened."""

    def __init__(self, log: str, code: int) -> None:
        super().__init__(log)
        self.log = log
        self.code = code


class Daemons:
    """Finds the daemon of a place, and starts it if there is none or only an older one."""

    def __init__(self, place: Place, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self._place = place
        self._arguments = list(arguments)
        self._env = dict(env)
        self._version = read_version()

    def open(self, greeting: Mapping[str, object]) -> socket.socket:
        """Return a connection to a daemon that has accepted a greeting; raises `StartFailed`."""
        opened = self._try(greeting)
        if opened is not None:
            return opened
        with self._place.lock_file.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one client starts it, the others wait here
            return self._try(greeting) or self._start(greeting)

    def _try(self, greeting: Mapping[str, object]) -> socket.socket | None:
        connection = connect(self._place.find_socket(self._env))
        if connection is None:
            return None
        answer = greet(connection, {**greeting, "version": self._version})
        if "problem" in answer:
            raise StartFailed(f"Error: {answer['problem']}\n", 2)
        if answer.get("accepted"):
            return connection
        connection.close()
        return None

    def _start(self, greeting: Mapping[str, object], starts: int = STARTS) -> socket.socket:
        import subprocess

        log_file = self._place.find_socket(self._env).with_suffix(".log")
        own = ["serve", *self._arguments, f"{AS_DAEMON}={self._place.key}"]
        words = [sys.executable, "-m", "toolscout", *own]
        with log_file.open("ab") as log:
            begin = log.tell()
            daemon = subprocess.Popen(
                words,
                env=self._env,
                cwd=Path.home(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # Whoever starts a process has to ask how it ended, or the system keeps it.
        threading.Thread(target=daemon.wait, daemon=True).start()
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            opened = self._try(greeting)
            if opened is not None:
                return opened
            code = daemon.poll()
            if code == 0 and starts > 1:  # it was asked to end before this client reached it
                return self._start(greeting, starts - 1)
            if code is not None:
                said = log_file.read_bytes()[begin:].decode(errors="replace")[-LOG_CHARS:]
                raise StartFailed(said, code or 1)
            time.sleep(LOOK_SECONDS)
        problem = f"No gateway was ready after {START_SECONDS:g} s. See {log_file}."
        raise StartFailed(f"Error: {problem}\n", 4)


class Bridge:
    """Passes messages between one client and whichever daemon runs."""

    def __init__(
        self, daemons: Daemons, greeting: Mapping[str, object], source: BinaryIO, sink: BinaryIO
    ) -> None:
        self._daemons = daemons
        self._greeting = dict(greeting)
        self._source = source
        self._sink = sink
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._connection: socket.socket | None = None
        self._receivers: list[threading.Thread] = []
        self._pending: dict[str, tuple[socket.socket, bytes]] = {}
        """Requests of the client without an answer, by id, with where they were sent."""
        self._last = ""
        """The id of the last message, if it was a request."""
        self._asked: dict[str, socket.socket] = {}
        """Requests of daemons that the client has not answered, by id."""
        self._hello: bytes = b""
        self._initialized: bytes = b""
        self._remembered: dict[tuple[str, str], dict[str, Any]] = {}
        self._failure: StartFailed | None = None

    def run(self) -> int:
        """Pass messages on until the client disconnects; return the exit code."""
        for line in self._source:
            with self._lock:
                self._pass_on(line)
                if self._failure is not None:
                    raise self._failure
        with self._lock:
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_WR)
        for receiver in list(self._receivers):
            receiver.join()
        return 0

    def _pass_on(self, line: bytes) -> None:
        """Send a message of the client, to a new daemon if the last one has ended."""
        call = CALL.match(line)
        message = _read_message(line) if call is None else {}
        key = _make_key(message) if call is None else (call[1] or call[2]).decode()
        if call is None and key and "method" not in message:
            # An answer to a daemon that has ended is of no use to the next.
            asked = self._asked.pop(key, None)
            if asked is not None:
                _send(asked, line)
            return
        while True:
            connection = self._connection or self.connect()
            if _send(connection, line):
                break
            self._connection = None  # it has not read this message
        if key:
            self._pending[key] = (connection, line)
        self._last = key
        if call is None:
            self._remember(line, message)

    def _remember(self, line: bytes, message: dict[str, Any]) -> None:
        method = message.get("method")
        params: Any = message.get("params")
        uri = str(cast("Any", params).get("uri", "")) if isinstance(params, dict) else ""
        if method == "initialize":
            self._hello = line
        elif method == "notifications/initialized":
            self._initialized = line
        elif method in REMEMBERED:
            self._remembered[method, uri] = message
        elif method == "resources/unsubscribe":
            self._remembered.pop(("resources/subscribe", uri), None)
        elif method == CANCELLED and isinstance(params, dict):
            # No answer comes, and no other daemon need be asked.
            request = cast("Any", params).get("requestId")
            self._pending.pop(_make_key({"id": request}), None)

    def connect(self) -> socket.socket:
        """Find or start a daemon, and tell it what the last one knew of the client."""
        connection = self._daemons.open(self._greeting)
        if self._hello and _make_key(_read_message(self._hello)) not in self._pending:
            while not self._introduce(connection):
                connection.close()
                connection = self._daemons.open(self._greeting)
        self._connection = connection
        receiver = threading.Thread(target=self._receive, args=(connection,), daemon=True)
        self._receivers.append(receiver)
        receiver.start()
        return connection

    def _introduce(self, connection: socket.socket) -> bool:
        """Repeat the handshake, whose answer the client has had already.

        Tells whether the daemon has listened to all of it. It may just be about to end.
        """
        answers = connection.makefile("rb", buffering=0)
        repeated = [self._hello]
        for number, message in enumerate(self._remembered.values()):
            repeated.append(json.dumps({**message, "id": f"toolscout-{number}"}).encode() + b"\n")
        for place, line in enumerate(repeated):
            key = _make_key(_read_message(line))
            _send(connection, line)
            answer: dict[str, Any] = {}
            while _make_key(answer) != key:
                try:
                    data = answers.readline()
                except OSError:
                    return False
                answer = _read_message(data)
                if not data or answer.get("toolscout") == LEAVE:
                    return False
            if place == 0 and self._initialized:
                _send(connection, self._initialized)
        return True

    def _receive(self, connection: socket.socket) -> None:
        """Pass on what a daemon says until it ends, or until it has answered everything."""
        unread = ""
        # `makefile` returns an object that reads through Python code; this one does not.
        with connection, open(connection.fileno(), "rb", READ_BYTES, closefd=False) as lines:
            try:
                for line in lines:
                    self._pass_back(connection, line)
            except ConnectionResetError:
                unread = self._last  # it ended before it had read everything
            except OSError:
                pass
            with self._lock:
                self._end(connection, unread)
                self._receivers.remove(threading.current_thread())

    def _pass_back(self, connection: socket.socket, line: bytes) -> None:
        answer = ANSWER.match(line)
        if answer is not None:
            with self._lock:
                self._pending.pop(answer[1].decode(), None)
            self._write(line)
            return
        message = _read_message(line)
        key = _make_key(message)
        if message.get("toolscout") == LEAVE:
            with self._lock:
                if self._connection is connection:
                    self._connection = None
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
            return
        if key:
            with self._lock:
                if "method" in message:
                    self._asked[key] = connection
                else:
                    self._pending.pop(key, None)
        self._write(line)

    def _write(self, line: bytes) -> None:
        with self._writing:
            try:
                self._sink.write(line)
                self._sink.flush()
            except BrokenPipeError:
                pass  # the client has gone; its requests end when stdin does

    def _end(self, connection: socket.socket, unread: str) -> None:
        """Repeat at another daemon what can be repeated, and refuse the rest."""
        if self._connection is connection:
            self._connection = None
        self._asked = {key: at for key, at in self._asked.items() if at is not connection}
        left = [(key, item) for key, item in self._pending.items() if item[0] is connection]
        for key, (_, line) in left:
            del self._pending[key]
            message = _read_message(line)
            if key == unread or _can_repeat(message):
                try:
                    self._pass_on(line)
                    continue
                except StartFailed as error:
                    self._failure = error
                    sys.stderr.write(error.log)
            from toolscout.errors import CALL_INTERRUPTED  # takes as long as the whole bridge

            problem = {"code": INTERNAL_ERROR, "message": CALL_INTERRUPTED}
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": problem}
            self._write(json.dumps(answer).encode() + b"\n")


def _send(connection: socket.socket, line: bytes) -> bool:
    """Send a line; tell whether the daemon was there to take it."""
    try:
        connection.sendall(line)
    except OSError:
        return False
    return True


def _can_repeat(message: dict[str, Any]) -> bool:
    """Tell whether a request can be made twice without harm."""
    if message.get("method") != "tools/call":
        return True
    params: Any = message.get("params")
    return isinstance(params, dict) and cast("Any", params).get("name") in SEARCHING


def _read_message(line: bytes) -> dict[str, Any]:
    """Return a message; an empty one for what the daemon has to complain about."""
    try:
        message: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", message) if isinstance(message, dict) else {}


def _make_key(message: dict[str, Any]) -> str:
    """Return the id of a message as a key; 1 and "1" differ. Empty for a notification."""
    number = message.get("id")
    if number is None:
        return ""
    return str(number) if type(number) is int else json.dumps(number)
