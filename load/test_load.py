"""Many clients at once, in front of servers of which some are broken."""

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from load.gateways import Footprint, Gateway, becomes, fleet_of, footprint, is_ready, serving, tell

HERE = Path(__file__).parent
SECONDS = float(os.environ.get("LOAD_SECONDS", "60"))
CLIENTS = 200
BROKEN = ("crashing", "hanging", "garbage", "dying", "slow")
SERVERS = {f"server{number}": "good" for number in range(15)} | {kind: kind for kind in BROKEN}
BROKEN_SETTINGS = {kind: {"call_seconds": 3, "start_seconds": 5} for kind in BROKEN}
ERAS = ("auto", "legacy")

LEAVING_SECONDS = 90.0
SETTLING_SECONDS = 15.0
WARM_UP_SHARE = 1 / 3
GROWTH_MEGABYTES = 20.0
FILES_LEFT = 8
PROCESSES_MOST = len(SERVERS) + 2
"""All servers, the gateway and the shell that watches over them."""


@pytest.mark.timeout(SECONDS + 300)
def test_many_clients_get_every_answer_while_some_servers_are_broken(tmp_path: Path):
    """No wrong or lost answer, and nothing left behind: process, file or memory."""
    arguments = {name: (str(HERE / "upstream.py"), name, kind) for name, kind in SERVERS.items()}
    fleet = fleet_of(tmp_path, arguments, **BROKEN_SETTINGS)
    with serving(fleet) as gateway:
        assert becomes(lambda: is_ready(gateway), SETTLING_SECONDS), list(gateway.lines)
        before = footprint(gateway)
        reports, samples = _asked(gateway)
        becomes(lambda: footprint(gateway).files <= before.files, SETTLING_SECONDS)
        after = footprint(gateway)
    left = fleet.processes()
    total = _total(reports)
    warm = samples[int(len(samples) * WARM_UP_SHARE)]
    _tell(total, before, warm, samples, after)

    assert total["samples"] == []
    assert (total["wrong"], total["lost"], total["failed"]) == (0, 0, 0)
    assert left == set()
    assert max(sample.processes for sample in samples) <= PROCESSES_MOST
    assert after.zombies == 0
    assert after.files <= before.files + FILES_LEFT
    assert samples[-1].megabytes - warm.megabytes < GROWTH_MEGABYTES


def _asked(gateway: Gateway) -> tuple[list[Mapping[str, Any]], list[Footprint]]:
    """Let all clients ask; return what they report, and what the gateway took meanwhile."""
    asking = [_clients(gateway.url, era) for era in ERAS]
    samples: list[Footprint] = []
    try:
        texts = [_reported(process, gateway, samples) for process in asking]
    finally:
        for process in asking:
            process.kill()
            process.wait()
    return [json.loads(text) for text in texts], samples


def _reported(process: "subprocess.Popen[str]", gateway: Gateway, samples: list[Footprint]) -> str:
    """Return what a process of clients writes in the end; measure the gateway until then."""
    while len(samples) < SECONDS + LEAVING_SECONDS:
        samples.append(footprint(gateway))
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=1)[0]
    raise TimeoutError


def _clients(url: str, era: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(HERE / "clients.py"), url, json.dumps(SERVERS)]
    command += ["--clients", str(CLIENTS // len(ERAS)), "--seconds", str(SECONDS), "--mode", era]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _total(reports: list[Mapping[str, Any]]) -> dict[str, Any]:
    numbers = ("requests", "wrong", "lost", "failed")
    total: dict[str, Any] = {name: sum(report[name] for report in reports) for name in numbers}
    for name in ("samples", "calls", "searches"):
        total[name] = [entry for report in reports for entry in report[name]]
    total["errors"] = sum((Counter[str](report["errors"]) for report in reports), Counter[str]())
    return total


def _tell(
    total: Mapping[str, Any],
    before: Footprint,
    warm: Footprint,
    samples: list[Footprint],
    after: Footprint,
) -> None:
    tell(
        f"{CLIENTS} clients, {len(SERVERS)} servers of which {len(BROKEN)} are broken",
        requests=f"{total['requests']:,} in {SECONDS:g} s, {total['requests'] / SECONDS:,.0f}/s",
        wrong=total["wrong"],
        lost=total["lost"],
        failed_though_the_server_is_good=total["failed"],
        calls_of_good_servers=_times(total["calls"]),
        searches=_times(total["searches"]),
        errors_of_broken_servers=dict(sorted(total["errors"].items())),
        idle_before=before,
        warmed_up=warm,
        at_the_end=samples[-1],
        most_processes=max(sample.processes for sample in samples),
        most_files=max(sample.files for sample in samples),
        idle_after=after,
    )


def _times(seconds: list[float]) -> str:
    cuts = quantiles(seconds, n=100)
    most = max(seconds)
    return f"{len(seconds):,}; p50 {cuts[49]:.3f} s, p99 {cuts[98]:.3f} s, most {most:.3f} s"
