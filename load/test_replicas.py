"""Replicas behind a load balancer, while they are killed and their database restarts.

300 clients search, call and check what comes back. Half of them speak the version of MCP that has
no sessions on the wire, the others the one before; both are written by hand on an HTTP client,
because 300 clients of the SDK would need more of two cores than the gateways do.
"""

import asyncio
import json
import os
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx2
import pytest
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from load.gateways import Fleet, becomes, tell
from load.site import Site, open_site
from toolscout.gateway.forward import STORED
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.stores import PostgresStore

SECONDS = float(os.environ.get("LOAD_REPLICAS_SECONDS", "120"))
CLIENTS = int(os.environ.get("LOAD_REPLICAS_CLIENTS", "300"))
THINK_SECONDS = float(os.environ.get("LOAD_REPLICAS_THINK_SECONDS", "6"))
"""How long a client waits between two requests, on average."""
KILL_SECONDS = 10.0
REPLICAS = 3
LIMIT_SECONDS = 5.0
"""In which every request must be answered, be it with an error."""
GIVE_UP_SECONDS = 30.0
SETTLE_SECONDS = 300.0
BROKEN = ("crashing", "hanging", "garbage", "dying", "slow")
SERVERS = {f"server{number}": "good" for number in range(15)} | {kind: kind for kind in BROKEN}
UPSTREAM = Path(__file__).parent / "upstream.py"
MODERN = MODERN_PROTOCOL_VERSIONS[0]
HANDSHAKE = "2025-11-25"
INFO = {"name": "load", "version": "1"}
BROKEN_SHARE = 0.05
LOADED_MOST = 12
"""Tools that one client loads; far fewer than what makes the gateway unload some."""
SAMPLES_KEPT = 20
SESSION_LOST = 404


class Failed(Exception):
    """A request without the answer it wants; the text says why."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What became of all requests."""

    seconds: list[float] = field(default_factory=list[float])
    answered: int = 0
    unstored: int = 0
    """Answers that say that the session is not stored yet."""
    errors: Counter[str] = field(default_factory=Counter[str])
    """Clear errors by what they say."""
    wrong: list[str] = field(default_factory=list[str])
    unclear: list[str] = field(default_factory=list[str])
    """Failures that do not say what has happened."""
    late: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    """Tools that were loaded, acknowledged, and are loaded no longer."""


class Client:
    """One client, with a token and a session of its own."""

    def __init__(self, url: str, name: str, report: Report) -> None:
        self.name = name
        self.loaded: set[str] = set()
        """Tools of which an answer said that they are loaded."""
        self._report = report
        self._random = random.Random(name)
        self._asked = 0
        self._headers = {
            "Authorization": f"Bearer {name}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN if self.is_modern else HANDSHAKE,
        }
        # Without `verify`, each client would read all certificates, which takes longer than all.
        self._http = httpx2.AsyncClient(base_url=url, timeout=GIVE_UP_SECONDS, verify=False)

    @property
    def is_modern(self) -> bool:
        """Whether it speaks the version without sessions on the wire."""
        return self.name.startswith("modern")

    @property
    def session(self) -> str:
        """The name under which gateways store its session; every modern principal has one."""
        return f"principal:{self.name}"

    async def open(self) -> None:
        """Introduce itself, if its version of MCP wants that."""
        if not self.is_modern:
            hello = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": INFO}
            answer = await self._post({"id": 0, "method": "initialize", "params": hello})
            assert STORED not in answer.text
            self._headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
            await self._post({"method": "notifications/initialized"})

    async def close(self) -> None:
        """Close its connection."""
        await self._http.aclose()

    async def live(self, end: float) -> None:
        """Search and call in turn until a time, with pauses."""
        await asyncio.sleep(self._random.uniform(0, 2 * THINK_SECONDS))
        while time.monotonic() < end:
            for work in (self._search, self._call):
                started = time.perf_counter()
                try:
                    await work()
                    self._report.answered += 1
                except Failed as error:
                    self._report.errors[str(error)] += 1
                except httpx2.HTTPError as error:
                    self._report.unclear.append(f"{self.name}: {type(error).__name__}: {error}")
                seconds = time.perf_counter() - started
                self._report.seconds.append(seconds)
                if seconds > LIMIT_SECONDS:
                    self._report.late.append(f"{self.name}: {work.__name__} {seconds:.1f} s")
                await asyncio.sleep(self._random.uniform(0, 2 * THINK_SECONDS))

    async def list_tools(self, url: str = "") -> set[str]:
        """Return the tools that a gateway lists; a handshake client's list has the loaded ones."""
        result = await self._ask("tools/list", {}, url)
        return {tool["name"] for tool in result["tools"]}

    async def _search(self) -> None:
        """Find a tool by its name or by words, and note that it is loaded now."""
        number = self._random.randrange(1, 20)
        server = f"server{self._random.randrange(15)}"
        tool = f"{server}__report_{number}"
        if len(self.loaded) >= LOADED_MOST:
            tool = self._random.choice(sorted(self.loaded))
        query = self._random.choice((f"select:{tool}", tool.replace("__", " ")))
        text, meta = await self._use("tool_search", {"queries": [query]})
        if tool not in text:
            self._report.wrong.append(f"{self.name}: {query}: {text[:200]}")
        elif query.startswith("select:"):
            if meta.get(STORED) is False:
                self._report.unstored += 1
            else:
                self.loaded.add(tool)

    async def _call(self) -> None:
        """Call a tool whose answer no other request has."""
        self._asked += 1
        server = f"server{self._random.randrange(15)}"
        if self._random.random() < BROKEN_SHARE:
            server = self._random.choice(BROKEN)
        nonce = f"{self.name} {self._asked} {uuid.uuid4().hex}"
        wanted = {"name": f"{server}__echo", "arguments": {"text": nonce}}
        text, _ = await self._use("tool_call", wanted)
        if text != f"{server}.echo: {nonce}":
            self._report.wrong.append(f"{self.name}: {nonce}: {text[:200]}")

    async def _use(self, tool: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the text and the metadata of a result; a result that is an error is raised."""
        result = await self._ask("tools/call", {"name": tool, "arguments": arguments})
        text = "\n".join(block.get("text", "") for block in result["content"])
        meta: dict[str, Any] = result.get("_meta") or {}
        if result.get("isError"):
            server = str(arguments.get("name")).partition("__")[0]
            kind = SERVERS.get(server, "search")
            raise Failed(f"{kind}: {meta.get('toolscout/code')}: {_generalise(text)}")
        return text, meta

    async def _ask(self, method: str, params: dict[str, Any], url: str = "") -> dict[str, Any]:
        """Return the result of a request; an error of any kind is raised."""
        number = uuid.uuid4().hex
        headers: dict[str, str] = {}
        if self.is_modern:
            headers = {"Mcp-Method": method, "Mcp-Name": params.get("name", "")}
            meta = {
                PROTOCOL_VERSION_META_KEY: MODERN,
                CLIENT_INFO_META_KEY: INFO,
                CLIENT_CAPABILITIES_META_KEY: {},
            }
            params = {**params, "_meta": meta}
        answer = await self._post(
            {"id": number, "method": method, "params": params}, headers, url=url
        )
        message = _read_message(answer, number)
        if message is None:
            self._report.unclear.append(f"{self.name}: no answer in {answer.text[:200]!r}")
            raise Failed("an answer without a message")
        if "error" in message:
            raise Failed(f"JSON-RPC: {message['error']['message']}")
        return message["result"]

    async def _post(
        self, message: dict[str, Any], headers: dict[str, str] | None = None, url: str = ""
    ) -> httpx2.Response:
        body = {"jsonrpc": "2.0", **message}
        request = self._http.build_request(
            "POST", f"{url}/mcp", json=body, headers={**self._headers, **(headers or {})}
        )
        answer = await self._http.send(request, stream=True)
        parts: list[bytes] = []
        try:
            async for part in answer.aiter_raw():
                parts.append(part)
        except httpx2.RemoteProtocolError:
            # The gateway was killed between the answer and the end of its stream.
            if not parts:
                raise
        finally:
            await answer.aclose()
        answer = httpx2.Response(
            answer.status_code, headers=answer.headers, content=b"".join(parts)
        )
        if answer.is_error:
            if answer.status_code == SESSION_LOST:
                self._report.lost.append(f"{self.name}: its session: {answer.text}")
            try:
                said = answer.json()["error"]["message"]
            except (ValueError, KeyError, TypeError):
                said = answer.text.strip()
                self._report.unclear.append(f"{self.name}: {answer.status_code} {said[:200]!r}")
            raise Failed(f"HTTP {answer.status_code}: {said}")
        return answer


def _read_message(answer: httpx2.Response, number: str) -> dict[str, Any] | None:
    """Return the answer to a request, from JSON or from a stream of events."""
    if answer.headers["content-type"].startswith("application/json"):
        texts = [answer.text]
    else:
        lines = answer.text.splitlines()
        texts = [line.removeprefix("data:") for line in lines if line.startswith("data:")]
    messages = [json.loads(text) for text in texts]
    return next((one for one in messages if one.get("id") == number), None)


def _generalise(text: str) -> str:
    """Return the beginning of an error without what differs from one time to the next."""
    return " ".join(word for word in text.split()[:14] if not any(map(str.isdigit, word)))


async def _disturb(site: Site, end: float) -> tuple[int, float]:
    """Kill a replica every 10 seconds, and restart the database once, in the middle."""
    started = time.monotonic()
    kills = 0
    restarted: asyncio.Task[float] | None = None
    while (due := started + (kills + 1) * KILL_SECONDS) < end:
        middle = started + SECONDS / 2 + KILL_SECONDS / 2
        if restarted is None and due > middle:
            await asyncio.sleep(middle - time.monotonic())
            restarted = asyncio.create_task(asyncio.to_thread(site.restart_database))
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        site.replicas[kills % REPLICAS].kill()
        kills += 1
    assert restarted is not None
    return kills, await restarted


async def _open_all(clients: list[Client]) -> None:
    at_once = asyncio.Semaphore(10)

    async def open_one(client: Client) -> None:
        async with at_once:
            await client.open()

    await asyncio.gather(*map(open_one, clients))


async def _read_back(
    site: Site, clients: list[Client], store: PostgresStore, report: Report
) -> None:
    """Note what was loaded and acknowledged, and is loaded no longer.

    A handshake client lists its tools at each replica. What a modern client has loaded is not in
    its list, so that is read from the database.
    """
    for client in clients:
        if client.is_modern:
            stored = await asyncio.to_thread(store.read, SESSION_KIND, client.session)
            entries = json.loads(stored or b"{}").get("entries", [])
            found = [{entry["name"] for entry in entries}]
        else:
            found = [await client.list_tools(replica.url) for replica in site.replicas]
        for names in found:
            report.lost += [f"{client.name}: {name}" for name in sorted(client.loaded - names)]


async def _run_clients(site: Site, store: PostgresStore) -> tuple[Report, int, float, int]:
    report = Report()
    names = [f"{'modern' if n % 2 else 'handshake'}{n}" for n in range(CLIENTS)]
    clients = [Client(site.url, name, report) for name in names]
    await _open_all(clients)
    end = time.monotonic() + SECONDS
    disturbing = asyncio.create_task(_disturb(site, end))
    await asyncio.gather(*(client.live(end) for client in clients))
    kills, restarted = await disturbing
    for replica in site.replicas:
        assert await asyncio.to_thread(becomes, replica.is_ready, SETTLE_SECONDS)
    await _read_back(site, clients, store, report)
    for client in clients:
        await client.close()
    return report, kills, restarted, sum(len(client.loaded) for client in clients)


@pytest.mark.timeout(SECONDS + 900)
def test_replicas_that_are_killed_give_no_wrong_answer_and_lose_nothing():
    """Every request is answered within 5 seconds, with what it asked for or with a clear error."""
    with tempfile.TemporaryDirectory(prefix="toolscout-") as folder:
        # Not a folder of pytest, which closes them to PgBouncer's user whenever another run begins.
        report, kills, starts, restarted, loaded, left = _run_site(Path(folder))
    _tell(report, kills, starts, restarted, loaded)

    assert report.answered > 0
    assert report.wrong == []
    assert report.lost == []
    assert report.unclear == []
    assert report.late == []
    assert left == set()


def _run_site(folder: Path) -> tuple[Report, int, int, float, int, set[int]]:
    fleet = Fleet(config=folder / "toolscout.toml", mark=uuid.uuid4().hex)
    servers: dict[str, dict[str, object]] = {}
    for name, kind in SERVERS.items():
        servers[name] = {"command": sys.executable, "args": ["-ISP", str(UPSTREAM), name, kind]}
        if kind != "good":
            servers[name] |= {"call_seconds": 3, "start_seconds": 5}
    tokens = [f"{'modern' if n % 2 else 'handshake'}{n}" for n in range(CLIENTS)]
    with open_site(folder, servers, tokens, replicas=REPLICAS, mark=fleet.mark) as site:
        with closing(PostgresStore(site.database)) as store:
            report, kills, restarted, loaded = asyncio.run(_run_clients(site, store))
        starts = sum(replica.starts for replica in site.replicas) - REPLICAS
    return report, kills, starts, restarted, loaded, fleet.processes()


def _tell(report: Report, kills: int, starts: int, restarted: float, loaded: int) -> None:
    cuts = quantiles(report.seconds, n=100)
    tell(
        f"{REPLICAS} replicas, {CLIENTS} clients for {SECONDS:g} s, {len(SERVERS)} servers of "
        f"which {len(BROKEN)} are broken",
        requests=f"{len(report.seconds):,}, {len(report.seconds) / SECONDS:,.0f}/s",
        answered=f"{report.answered:,}",
        failed_with_a_clear_error=f"{report.errors.total():,}",
        **{f"- {text}": count for text, count in report.errors.most_common()},
        failed_without_one=f"{len(report.unclear)} {report.unclear[:SAMPLES_KEPT]}",
        wrong_answers=f"{len(report.wrong)} {report.wrong[:SAMPLES_KEPT]}",
        answered_before_it_was_stored=report.unstored,
        loaded_and_acknowledged=loaded,
        lost_afterwards=f"{len(report.lost)} {report.lost[:SAMPLES_KEPT]}",
        kills=kills,
        starts_after_that=starts,
        restart_of_the_database=f"{restarted:.1f} s",
        p50=f"{cuts[49] * 1e3:.0f} ms",
        p99=f"{cuts[98] * 1e3:.0f} ms",
        longest=f"{max(report.seconds):.2f} s",
        later_than_5_s=f"{len(report.late)} {report.late[:SAMPLES_KEPT]}",
    )
