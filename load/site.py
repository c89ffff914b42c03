"""Three gateways on one database behind PgBouncer and HAProxy, as processes that can be killed.

PostgreSQL comes from a wheel; PgBouncer and HAProxy are Debian's. The load balancer uses the
configuration in `deploy`, with addresses of this machine, and every gateway starts its servers
itself.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import httpx2

from load.gateways import MARK, STOP_SECONDS, becomes
from tests.databases import restart_postgres, run_pooler, run_postgres

BALANCER = Path(__file__).parents[1] / "deploy" / "compose" / "haproxy.cfg"
READY_SECONDS = 300.0
LOOK_SECONDS = 0.1


def find_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Replica:
    """One gateway, which is started again whenever it has ended, as a service manager does."""

    def __init__(self, config: Path, folder: Path, port: int, mark: str) -> None:
        folder.mkdir()
        self.port = port
        self.log = folder / "log"
        self.starts = 0
        self._command = [sys.executable, "-m", "toolscout", "serve", "--no-daemon", "--http"]
        self._command += ["--port", str(port), "--config", str(config), "--cache", str(folder)]
        self._env = {**os.environ, MARK: mark}
        self._is_over = threading.Event()
        self._process = self._start()
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()

    @property
    def url(self) -> str:
        """The address of the gateway itself."""
        return f"http://127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        """Tell whether the load balancer would send requests to it."""
        with contextlib.suppress(httpx2.HTTPError):
            answer = httpx2.get(f"{self.url}/readyz?ignore=store", timeout=READY_SECONDS)
            return answer.is_success
        return False

    def kill(self) -> None:
        """End it without warning."""
        self._process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Stop it for good."""
        self._is_over.set()
        self._watching.join()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        self.starts += 1
        with self.log.open("ab") as log:
            return subprocess.Popen(self._command, env=self._env, stderr=log)

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            if self._process.poll() is not None:
                self._process = self._start()


class Site:
    """What clients find at `url`, and what can happen to it."""

    def __init__(self, url: str, replicas: list[Replica], database: str) -> None:
        self.url = url
        self.database = database
        """The address of the database itself."""
        self.replicas = replicas

    def restart_database(self) -> float:
        """Stop the database and start it again; return how many seconds that took."""
        started = time.monotonic()
        restart_postgres(self.database)
        return time.monotonic() - started


@contextlib.contextmanager
def open_site(
    folder: Path,
    servers: Mapping[str, Mapping[str, object]],
    tokens: Iterable[str],
    *,
    replicas: int,
    mark: str,
) -> Generator[Site]:
    """Start all parts, and wait until every gateway is ready.

    Tokens have the name of their principal. Whatever is started carries the mark.
    """
    public = find_port()
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(run_postgres())
        pooled = stack.enter_context(run_pooler(database))
        config = _write_configuration(folder, servers, tokens, pooled, database, public, mark)
        ports = [find_port() for _ in range(replicas)]
        stack.enter_context(_run_balancer(folder, public, ports))
        started: list[Replica] = []
        for number, port in enumerate(ports):
            replica = Replica(config, folder / f"replica{number}", port, mark)
            stack.callback(replica.close)
            started.append(replica)
        for replica in started:
            assert becomes(replica.is_ready, READY_SECONDS), replica.log.read_text()
        yield Site(f"http://127.0.0.1:{public}", started, database)


@contextlib.contextmanager
def _run(*command: str | Path) -> Generator[None]:
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


@contextlib.contextmanager
def _run_balancer(folder: Path, public: int, ports: Iterable[int]) -> Generator[None]:
    """Run HAProxy before the gateways, with the configuration of the compose file."""
    text = BALANCER.read_text(encoding="utf-8")
    rows = [f"    server gateway{port} 127.0.0.1:{port}" for port in ports]
    text = re.sub(r"^    server-template .*$", "\n".join(rows), text, flags=re.MULTILINE)
    text = text.replace("maxconn 20000", "maxconn 2000")  # fewer open files
    text = text.replace("bind :8080", f"bind 127.0.0.1:{public}")
    text = text.replace("bind :8404", f"bind 127.0.0.1:{find_port()}")
    file = folder / "haproxy.cfg"
    file.write_text(text, encoding="utf-8")
    with _run("haproxy", "-db", "-f", file):
        assert becomes(lambda: _listens(public), READY_SECONDS)
        yield


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def _write_configuration(
    folder: Path,
    servers: Mapping[str, Mapping[str, object]],
    tokens: Iterable[str],
    pooled: str,
    database: str,
    public: int,
    mark: str,
) -> Path:
    lines = ["[gateway]", f"hosts = {json.dumps([f'127.0.0.1:{public}'])}"]
    lines += [f"store = {json.dumps(pooled)}", f"store_listen = {json.dumps(database)}"]
    lines += ['log = "json"', 'mode = "dynamic"']
    for token in tokens:
        lines += [f"[gateway.tokens.{token}]", f"token = {json.dumps(token)}"]
    for name, keys in servers.items():
        lines += [f"[servers.{name}]", f'env = {{ {MARK} = "{mark}" }}']
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    file = folder / "toolscout.toml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file
