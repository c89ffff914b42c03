"""No process outlives the one that started it."""

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from toolscout.servers.process import ProcessReaper

FAULTY = Path(__file__).with_name("faulty.py")
DEADLINE_SECONDS = 120
GATEWAY = f"""
    import asyncio, sys
    from toolscout.catalog import Catalog
    from toolscout.stores import MemoryStore
    from toolscout.servers.pool import Pool
    from toolscout.config.servers import ServerConfig, Transport

    def server(name, mode):
        args = ("-S", {str(FAULTY)!r}, mode)
        return ServerConfig(
            name=name, transport=Transport.STDIO, command=sys.executable, args=args
        )

    async def main():
        servers = [server("stubborn", "stubborn"), server("leaky", "leak")]
        async with Pool(servers, Catalog(), MemoryStore()) as pool:
            for name in pool.servers:
                await pool.request(name, "tools/call", {{"name": "echo", "arguments": {{}}}})
            print("ready", flush=True)
            await asyncio.Event().wait()

    asyncio.run(main())
"""


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        children = {int(child) for child in (task / "children").read_text().split()}
        found |= children.union(*map(descendants, children))
    return found


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def wait_until_gone(pids: set[int]) -> set[int]:
    """Return who is still there after the deadline."""
    until = time.monotonic() + DEADLINE_SECONDS
    while any(map(is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    return set(filter(is_alive, pids))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_however_the_gateway_ends_its_servers_and_their_children_end_too(number: signal.Signals):
    command = [sys.executable, "-c", textwrap.dedent(GATEWAY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as gateway:
        assert gateway.stdout is not None
        assert gateway.stdout.readline() == b"ready\n"
        family = descendants(gateway.pid)
        gateway.send_signal(number)
        gateway.wait()

        assert len(family) == 4  # two servers, a grandchild, the warden
        assert wait_until_gone(family) == set()


def test_a_group_that_was_released_is_left_alone():
    with subprocess.Popen(["sleep", "100"], start_new_session=True) as process:
        warden = ProcessReaper()
        warden.watch(process.pid)
        warden.release(process.pid)
        warden.close()

        assert process.poll() is None
        process.kill()


def test_a_group_that_is_still_watched_at_the_end_is_killed():
    script = "trap '' TERM; echo; while :; do sleep 0.05; done"
    with subprocess.Popen(
        ["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        warden = ProcessReaper()
        warden.watch(process.pid)
        warden.close()

        assert process.wait() == -signal.SIGKILL
