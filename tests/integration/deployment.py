"""What Debian's tools say about `deploy`; `make check-deploy` runs this."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Queue

import pytest

from databases import DEADLINE_SECONDS, run_pooler, run_postgres
from toolscout.stores import PostgresStore
from toolscout.stores.store import Append, Put, Trim

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd/toolscout.service"
MOST_EXPOSED = 20
"""What `systemd-analyze security` may find at most, of 100."""


def run(*words: str | Path) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_haproxy_accepts_the_configuration_of_the_load_balancer():
    run("haproxy", "-c", "-f", DEPLOY / "compose/haproxy.cfg")


def test_replicas_share_values_and_hear_each_other_through_pgbouncer():
    """In transaction mode, where each statement may use another connection to the database."""
    with run_postgres() as url, run_pooler(url) as pooled:
        one, two = (PostgresStore(pooled, listen_url=url) for _ in range(2))
        with one, two:
            heard: Queue[object] = Queue()
            two.listen(heard.put)
            assert heard.get(timeout=DEADLINE_SECONDS) is None  # it listens now
            values = [f"{number}".encode() for number in range(40)]
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(partial(one.append, "usage"), values))
            one.write_all([Put("session", "a", b"x"), Append("usage", b"last"), Trim("usage", 5)])
            while heard.get(timeout=DEADLINE_SECONDS) != {"session": {"a"}, "usage": set()}:
                pass
            kept = [value for _, value in two.scan("usage")]
            assert two.read("session", "a") == b"x"
            assert two.claim("renewal", "two", 60)
            assert not one.claim("renewal", "one", 60)

    assert len(kept) == 5
    assert kept[-1] == b"last"


def test_prometheus_accepts_the_alert_rules_and_its_configuration():
    run(
        "promtool", "check", "rules", "--lint=all", "--lint-fatal", DEPLOY / "prometheus/alerts.yml"
    )
    run("promtool", "check", "config", "--syntax-only", DEPLOY / "prometheus/prometheus.yml")


def test_alerts_fire_when_they_should_and_not_before():
    assert "SUCCESS" in run("promtool", "test", "rules", DEPLOY / "prometheus/alerts_test.yml")


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Return the unit with a program that exists, which systemd looks for."""
    program = Path(sys.executable).with_name("toolscout")
    text = UNIT.read_text(encoding="utf-8").replace("/opt/toolscout/bin/toolscout", str(program))
    file = tmp_path / UNIT.name
    file.write_text(text, encoding="utf-8")
    return file


def test_systemd_accepts_the_unit(unit: Path):
    assert run("systemd-analyze", "verify", unit) == ""


def test_the_service_can_do_little_harm(unit: Path):
    shown = run(
        *("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}"), unit
    )

    assert re.search(r"Overall exposure level for \S+: [01]\.\d OK", shown)
