"""A gateway that serves HTTP in a thread of its own, for tests that ask it from outside."""

import asyncio
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolscout.config.file import Config, read_config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.console.app import Console
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.http import serve_http
from toolscout.policies import Policy
from toolscout.servers.approvals import Lock
from toolscout.sessions.events import Answered, Event
from toolscout.stores.memory import MemoryStore
from toolscout.stores.store import Store

DEADLINE_SECONDS = 120.0

TIME_SERVER = str(Path(__file__).with_name("time_server.py"))
TIME = ServerConfig(
    name="time",
    transport=Transport.STDIO,
    command=sys.executable,
    args=(TIME_SERVER,),
)
HANGING = ServerConfig(
    name="hanging",
    transport=Transport.STDIO,
    command=sys.executable,
    args=("-c", "import sys; sys.stdin.read()"),
)
MISSING = ServerConfig(
    name="missing",
    transport=Transport.STDIO,
    command="toolscout-test-no-such-command",
    env={"API_KEY": "hunter2-hunter2"},
)


async def eventually(is_so: Callable[[], object]) -> None:
    """Return once something is so; fail after the deadline."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not is_so():  # noqa: ASYNC110  # nothing announces it
            await asyncio.sleep(0.002)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A gateway that is being served."""

    url: str
    gateway: Gateway
    """For use in the thread of the gateway only."""
    loop: asyncio.AbstractEventLoop
    stopping: asyncio.Event
    thread: threading.Thread
    known: threading.Event
    """Set once tools have come into the catalogue."""
    events: list[Event] = field(default_factory=list[Event])

    def heard(self) -> list[Event]:
        """Return the events of all answers so far; the gateway tells of them after it answers."""
        turned: Future[list[Event]] = Future()
        # The gateway puts such work off by two turns of the loop.
        self.loop.call_soon_threadsafe(
            self.loop.call_soon, lambda: turned.set_result(list(self.events))
        )
        return turned.result(DEADLINE_SECONDS)

    def stop(self) -> None:
        """Ask the gateway to stop."""
        self.loop.call_soon_threadsafe(self.stopping.set)


@contextmanager
def served(
    *servers: ServerConfig,
    policy: Policy | None = None,
    store: Store | None = None,
    logins: Path | None = None,
    lock: Lock | None = None,
    console: bool = False,
    file: Path | None = None,
    **options: object,
) -> Generator[Served]:
    """Serve servers behind a gateway, or what a file configures.

    Ends with the gateway stopped and its thread gone.
    """
    if file is not None:
        config = read_config(file)
        config = replace(config, gateway=replace(config.gateway, port=0))
    else:
        gateway = GatewayConfig(**{"port": 0, **options})  # pyright: ignore[reportArgumentType]  # checked by the class
        config = Config(servers=servers, gateway=gateway)
    begun: Future[Served] = Future()

    def make() -> Gateway:
        kept = MemoryStore() if store is None else store
        return Gateway(config, kept, policy=policy, tokens=logins, lock=lock)

    thread = threading.Thread(target=lambda: _run(make, begun, console=console))
    thread.start()
    running = begun.result(DEADLINE_SECONDS)
    try:
        yield running
    finally:
        if thread.is_alive():
            running.stop()
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive()


_Make = Callable[[], Gateway]


def _run(make: _Make, begun: "Future[Served]", *, console: bool) -> None:
    try:
        asyncio.run(_serve(make, begun, console=console))
    except BaseException as error:
        if begun.done():
            raise
        begun.set_exception(error)


async def _serve(make: _Make, begun: "Future[Served]", *, console: bool) -> None:
    events: list[Event] = []
    known = threading.Event()
    stop = asyncio.Event()

    async with make() as gateway:

        def ready(url: str) -> None:
            running = Served(
                url=url,
                gateway=gateway,
                loop=asyncio.get_running_loop(),
                stopping=stop,
                thread=threading.current_thread(),
                known=known,
                events=events,
            )
            begun.set_result(running)

        gateway.events.subscribe(lambda event: _keep_answer(event, events))
        gateway.catalog.subscribe(lambda change: known.set())
        await serve_http(
            gateway,
            pages=Console.from_gateway(gateway).pages if console else None,
            ready=ready,
            stop=stop,
        )


def _keep_answer(event: Event, events: list[Event]) -> None:
    if isinstance(event, Answered):
        events.append(event)
