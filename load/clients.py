"""Many clients at once: each asks one thing after the other and checks every answer.

Run it as `python load/clients.py URL SERVERS --clients 100 --seconds 60 --mode legacy`, where
SERVERS is a JSON object of names and kinds. Writes a `Report` as JSON to stdout.
"""

import argparse
import asyncio
import json
import logging
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

CONNECTING_AT_ONCE = 10
DEADLINE_SECONDS = 20.0
BROKEN_DEADLINE_SECONDS = 60.0
BROKEN_SHARE = 0.05
SEARCH_SHARE = 0.2
SAMPLES_KEPT = 10
BY_NAME_EVERY = 10
"""Calls by the tool's own name are fewer: the SDK's client asks for the list before each."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What became of the requests of one process."""

    requests: int = 0
    wrong: int = 0
    """Answers that belong to another question."""
    lost: int = 0
    """Requests without an answer in time."""
    failed: int = 0
    """Errors of servers that have nothing wrong."""
    samples: list[str] = field(default_factory=list[str])
    """Some of what was wrong, lost or failed."""
    errors: Counter[str] = field(default_factory=Counter[str])
    """Errors by kind of server and code."""
    calls: list[float] = field(default_factory=list[float])
    """Seconds of calls to good servers."""
    searches: list[float] = field(default_factory=list[float])

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def note(self, kind: str, text: str) -> None:
        """Count something that must not happen."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.samples) < SAMPLES_KEPT:
            self.samples.append(f"{kind}: {text[:300]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request and its only right answer."""

    tool: str
    arguments: dict[str, Any]
    expected: str
    kind: str
    """The kind of the server, or `search`."""

    @property
    def deadline(self) -> float:
        """Seconds in which an answer must come."""
        usual = self.kind in ("good", "search")
        return DEADLINE_SECONDS if usual else BROKEN_DEADLINE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """What all clients of a process wait for."""

    connecting: asyncio.Semaphore
    connected: asyncio.Barrier


class Asker:
    """One client."""

    def __init__(self, name: str, servers: dict[str, str], report: Report) -> None:
        self._name, self._report = name, report
        self._good = [server for server, kind in servers.items() if kind == "good"]
        self._broken = [(server, kind) for server, kind in servers.items() if kind != "good"]
        self._random = random.Random(name)
        self._asked = 0

    async def ask_until(self, client: Client, end: float) -> None:
        """Ask until a time."""
        while time.monotonic() < end:
            await self._ask(client, self._question())

    def _question(self) -> Question:
        self._asked += 1
        chance = self._random.random()
        if chance < SEARCH_SHARE:
            return self._search()
        if chance < SEARCH_SHARE + BROKEN_SHARE:
            return self._call(*self._random.choice(self._broken))
        return self._call(self._random.choice(self._good), "good")

    def _search(self) -> Question:
        server, number = self._random.choice(self._good), self._random.randint(1, 19)
        name = f"{server}__report_{number}"
        words = f"report number {number} of {server}"
        query = self._random.choice((f"select:{name}", words))
        return Question(
            tool="tool_search", arguments={"queries": [query]}, expected=name, kind="search"
        )

    def _call(self, server: str, kind: str) -> Question:
        text = f"{self._name} {self._asked}"
        name, inner = f"{server}__echo", {"text": text}
        expected = f"{server}.echo: {text}"
        if self._asked % BY_NAME_EVERY == 0:
            return Question(tool=name, arguments=inner, expected=expected, kind=kind)
        given = {"name": name, "arguments": inner}
        return Question(tool="tool_call", arguments=given, expected=expected, kind=kind)

    async def _ask(self, client: Client, question: Question) -> None:
        report, started = self._report, time.perf_counter()
        report.requests += 1
        try:
            async with asyncio.timeout(question.deadline):
                result = await client.call_tool(question.tool, question.arguments)
        except Exception as error:
            report.note("lost", f"{question}: {type(error).__name__}: {error}")
            return
        self._check(question, result)
        seconds = time.perf_counter() - started
        if question.kind in ("good", "search"):
            (report.searches if question.kind == "search" else report.calls).append(seconds)

    def _check(self, question: Question, result: Any) -> None:
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        if result.is_error:
            meta: dict[str, Any] = result.meta or {}
            code = meta.get("toolscout/code", "tool_error")
            self._report.errors[f"{question.kind}: {code}"] += 1
            if question.kind in ("good", "search"):
                self._report.note("failed", f"{question}: {text}")
        elif not _is_answer(question, text):
            self._report.note("wrong", f"{question}: {text}")


def _is_answer(question: Question, text: str) -> bool:
    return question.expected in text if question.kind == "search" else question.expected == text


async def _live(asker: Asker, given: argparse.Namespace, gates: Gates, report: Report) -> None:
    """Connect, ask and leave."""
    async with _http() as http:
        client = Client(streamable_http_client(given.url, http_client=http), mode=given.mode)
        try:
            async with gates.connecting:
                await client.__aenter__()
        except Exception as error:
            report.note("lost", f"connecting: {type(error).__name__}: {error}")
            await gates.connected.wait()
            return
        await gates.connected.wait()
        try:
            await asker.ask_until(client, time.monotonic() + given.seconds)
        finally:
            await client.__aexit__(None, None, None)


def _http() -> httpx2.AsyncClient:
    # Without `verify`, each client would read all certificates, which takes longer than the rest.
    return httpx2.AsyncClient(timeout=BROKEN_DEADLINE_SECONDS, verify=False)


async def _ask_all(given: argparse.Namespace) -> Report:
    report, servers = Report(), json.loads(given.servers)
    gates = Gates(
        connecting=asyncio.Semaphore(CONNECTING_AT_ONCE), connected=asyncio.Barrier(given.clients)
    )
    askers = [Asker(f"{given.mode} {n}", servers, report) for n in range(given.clients)]
    async with asyncio.TaskGroup() as group:
        for asker in askers:
            group.create_task(_live(asker, given, gates, report))
    return report


def main() -> None:
    """Ask, and write the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("servers")
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--mode", required=True)
    logging.getLogger("client").setLevel(logging.ERROR)  # tools that are not listed are meant
    report = asyncio.run(_ask_all(parser.parse_args()))
    sys.stdout.write(json.dumps(report.to_json()))


if __name__ == "__main__":
    main()
