"""A thousand hostile programs: the gateway's sessions go on answering, and nothing is left."""

import asyncio
import resource
import time
from collections import Counter

import pytest

from load.gateways import tell
from tests.security.hostile_programs import make_hostile_programs
from tests.security.test_programs import STRICT, Place, attack, list_children
from toolscout.sessions.replies import Reply

PROGRAMS = 1_000
GROWTH_MB = 200
"""How much the memory of this process may grow; the programs want terabytes."""


@pytest.mark.timeout(3_600)
def test_a_thousand_hostile_programs() -> None:
    """They end, nothing answers wrongly meanwhile, and every process is accounted for."""
    place = Place(STRICT, options={"seconds": 0.5, "memory_mb": 30, "calls": 20})
    programs = list(make_hostile_programs(PROGRAMS, seed=2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()

    async def work() -> list[Reply]:
        replies = await attack(place, programs)
        workers = len(list_children())
        assert workers <= place.scout.settings.programs.workers
        await place.scout.close()
        return replies

    replies = asyncio.run(work())

    seconds = time.perf_counter() - started
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    codes = Counter(reply.code for reply in replies)
    tell(f"{PROGRAMS:,} programs in {seconds:.0f} s: {dict(codes)}, memory +{grown:.0f} MB")
    assert set(codes) <= {"ok", "program_failed", "program_stopped"}
    assert set(place.made) <= {"note"}
    assert list_children() == []
    assert grown < GROWTH_MB
