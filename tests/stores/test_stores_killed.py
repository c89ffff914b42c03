"""A session whose process is killed opens again as it was, or one operation later.

A nursery is a process that has imported everything. It forks a child for each kill, because to
start Python anew would take longer than all that the child does. A child works on one session in
a random order. Before each operation it says which state comes next, having rehearsed it on a
twin in memory; after it, which state the session has.
"""

import hashlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from toolscout import Catalog, Scout
from toolscout.sessions.record import Record
from toolscout.stores import SqliteStore

KILLS = 50
"""In each of four parts."""
SESSIONS = 5
"""Each is worked on by ten processes, one after the other."""
OPERATIONS = 6
"""A kill strikes at one of the first so many."""
TURNS = 250_000
"""Of an empty loop, by which a kill comes later: about the time of an operation."""

NURSERY = """
import hashlib, os, random, sys

from toolscout import Catalog, Index, Scout, Settings, Tool
from toolscout.sessions.record import Record
from toolscout.stores import MemoryStore, SqliteStore

TOOLS = [
    Tool.define(f"{verb}_{noun}", server="s", description=f"{verb} a {noun} of the team.")
    for verb in ("create", "list", "delete") for noun in ("issue", "branch", "folder")
]
CATALOG = Catalog({"s": TOOLS})
INDEX = Index(CATALOG)  # made once, for all children
QUERIES = ["create", "list a branch", "folder of the team", "weather of the team"]

async def run(tool, arguments):
    return "word " * 200  # long enough to be kept under a handle

def opened(store, key):
    settings = Settings(loaded_tokens=150, result_tokens=100)
    scout = Scout(CATALOG, index=INDEX, executors=run, settings=settings, store=store)
    return scout.session(key)

def twin_of(store, key):
    memory = MemoryStore()
    memory.write("session", key, store.read("session", key))
    for _, usage in store.scan("usage"):
        memory.append("usage", usage)
    return opened(memory, key)

def operate(session, seed):
    dice = random.Random(seed)
    one, two = (dice.choice(TOOLS).name for _ in range(2))
    match dice.randrange(7):
        case 0: session.search(dice.choice(QUERIES))
        case 1: session.search([f"select:{one}", two], detail="schemas")
        case 2: session.describe([one, two])
        case 3: session.call_sync(one, {})
        case 4: session.unload(one, two)
        case 5: session.system_prompt()
        case 6: session.user_message("and now something else")

def tell(what, session):
    state = hashlib.sha256(Record.from_json(session.to_json()).to_bytes()).hexdigest()
    os.write(1, f"{what} {state}\\n".encode())  # at once, so that no line is cut by a kill

def work(path, key, seed):
    store = SqliteStore(path)
    session, twin = opened(store, key), twin_of(store, key)
    tell("is", session)
    while True:
        seed += 1
        operate(twin, seed)
        tell("next", twin)
        operate(session, seed)
        tell("is", session)

for seed in range(20):
    operate(opened(MemoryStore(), "warm"), seed)
for line in sys.stdin:
    path, key, seed = line.rstrip().split("\\t")
    child = os.fork()
    if not child:
        work(path, key, int(seed))
    os.write(1, f"child {child}\\n".encode())
    os.waitpid(child, 0)
    os.write(1, b"over\\n")
"""


@dataclass(slots=True)
class Nursery:
    """Has children work on sessions, and kills them."""

    asked: IO[str]
    said: IO[str]

    def run_and_kill(self, path: Path, key: str, seed: int) -> list[tuple[str, str]]:
        """Return what a child said before SIGKILL took it, in the midst of some operation."""
        dice = random.Random(seed)
        begun, turns = dice.randint(1, OPERATIONS), dice.randrange(TURNS)
        self.asked.write(f"{path}\t{key}\t{seed * 1_000}\n")
        self.asked.flush()
        child, heard = 0, list[tuple[str, str]]()
        while not child or sum(what == "next" for what, _ in heard) < begun:
            what, value = self.said.readline().split()
            if what == "child":
                child = int(value)
            else:
                heard.append((what, value))
        for _ in range(turns):
            pass
        os.kill(child, signal.SIGKILL)
        while (line := self.said.readline()) != "over\n":
            what, value = line.split()
            heard.append((what, value))  # said before the kill, so it counts
        return heard


@contextmanager
def nursery() -> Generator[Nursery]:
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout
        try:
            yield Nursery(process.stdin, process.stdout)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    with nursery() as running:
        yield running


def state_of(path: Path, key: str) -> str:
    """Return the hash of a session as the next process resumes it."""
    with closing(SqliteStore(path)) as store:
        session = Scout(Catalog(), store=store).session(key)
        return hashlib.sha256(Record.from_json(session.to_json()).to_bytes()).hexdigest()


def possible_states(heard: list[tuple[str, str]]) -> set[str]:
    """Return the last acknowledged state, and the next if its operation had begun."""
    last = max(number for number, (what, _) in enumerate(heard) if what == "is")
    return {state for _, state in heard[last:]}


@pytest.mark.parametrize("part", range(4))
@pytest.mark.requirement("R61")
def test_a_killed_session_loses_nothing_but_its_last_unfinished_operation(
    children: Nursery, tmp_path: Path, part: int
):
    """R61: over 200 kill points, each the end of a process of its own."""
    path = tmp_path / "store.db"
    keys = [f"session {number}" for number in range(SESSIONS)]
    states = {key: state_of(path, key) for key in keys}
    for kill in range(KILLS):
        key = keys[kill % SESSIONS]
        heard = children.run_and_kill(path, key, part * KILLS + kill)

        assert heard[0] == ("is", states[key]), "the next process resumes what was stored"
        for (_, rehearsed), (_, done) in zip(heard[1::2], heard[2::2], strict=False):
            assert done == rehearsed
        states[key] = state_of(path, key)
        assert states[key] in possible_states(heard)
