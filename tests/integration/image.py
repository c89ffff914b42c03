"""The image for real: two replicas of it on one database, behind the load balancer of `deploy`.

`make test-image` runs this, with the image `toolscout` that `make image` built. Containers use the
network of the machine; PostgreSQL and HAProxy run beside them. Prints its figures.
"""

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from toolscout.schemas import Json

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SERVERS = ROOT / "benchmarks" / "servers.py"
PODMAN = shutil.which("podman") or "docker"
RUNTIME = os.environ.get("TOOLSCOUT_RUNTIME", "")
"""The OCI runtime of Podman, if not its default, such as `runc` where groups are of version 1."""
IMAGE = "toolscout"
DEADLINE_SECONDS = 120.0
PAUSE_SECONDS = 0.05
LOCKED_DOWN = (
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
    *("--tmpfs", "/tmp", "--network", "host"),
    *("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"),
)
QUERY: Json = {"queries": ["select:many__echo"]}
CALL: Json = {"name": "many__echo", "arguments": {}}


def run(*words: str | Path) -> str:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def podman(*words: str | Path) -> str:
    runtime = ("--runtime", RUNTIME) if RUNTIME else ()
    return run(PODMAN, *runtime, *words)


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(*words: str | Path) -> Generator[None]:
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_SECONDS)


@contextlib.contextmanager
def socket_at(port: int) -> Generator[None]:
    """Enter once something listens at a port."""
    until = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            assert time.monotonic() < until, "the load balancer does not listen"
            time.sleep(PAUSE_SECONDS)
    yield


def say(figure: str) -> None:
    sys.stdout.write(f"\n{figure}\n")


def wait_for(url: str, status: int = 200) -> float:
    """Return the seconds until an address answers with a status."""
    began = time.monotonic()
    while time.monotonic() < began + DEADLINE_SECONDS:
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(url, timeout=DEADLINE_SECONDS).status_code == status:
                return time.monotonic() - began
        time.sleep(PAUSE_SECONDS)
    raise AssertionError(f"{url} never answered {status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A container of the image."""

    name: str
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def inspect(self, form: str) -> str:
        return podman("inspect", "--format", form, self.name).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Two replicas and where their clients find them."""

    url: str
    token: str
    folder: Path
    replicas: tuple[Replica, ...]

    def start(self, replica: Replica) -> None:
        podman(
            *("run", "--detach", "--name", replica.name, *LOCKED_DOWN),
            *("--volume", "/var/lib/toolscout"),
            *("--volume", f"{self.folder}/toolscout.toml:/etc/toolscout/toolscout.toml:ro"),
            *("--volume", f"{self.folder}/secrets:/run/secrets:ro"),
            *(IMAGE, "serve", "--http", "--host", "0.0.0.0", "--port", str(replica.port)),
            *("--config", "/etc/toolscout/toolscout.toml", "--cache", "/var/lib/toolscout"),
        )

    def wait_ready(self, replica: Replica) -> float:
        """Return the seconds until a replica is ready; fail with its log."""
        try:
            return wait_for(f"{replica.url}/readyz")
        except AssertionError:
            told = subprocess.run([PODMAN, "logs", replica.name], capture_output=True, text=True)
            raise AssertionError(told.stdout + told.stderr) from None

    def ask(self, tool: str, arguments: Json, url: str = "") -> str:
        """Return what a fresh client with the token is told."""

        async def ask_once() -> str:
            headers = {"Authorization": f"Bearer {self.token}"}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
                Client(streamable_http_client(f"{url or self.url}/mcp", http_client=http)) as one,
            ):
                result = await one.call_tool(tool, arguments)
                return "\n".join(getattr(part, "text", "") for part in result.content)

        return asyncio.run(ask_once())

    def count_searches(self, replica: Replica) -> float:
        headers = {"Authorization": f"Bearer {self.token}"}
        page = httpx2.get(f"{replica.url}/metrics", headers=headers, timeout=DEADLINE_SECONDS)
        found = re.search(r'toolscout_searches_total{code="ok"} (\S+)', page.text)
        return float(found[1]) if found else 0.0


@pytest.fixture(scope="module")
def site(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "secrets").mkdir()
    token = secrets.token_hex(32)
    for name in ("admin-token", "metrics-token", "login-key", "database-password"):
        made = token if name == "admin-token" else secrets.token_hex(32)
        made = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=" if name == "login-key" else made
        (folder / "secrets" / name).write_text(made, encoding="utf-8")
    servers, database, public = find_port(), find_port(), find_port()
    write_configuration(folder, servers, database, public, postgres_url)
    replicas = tuple(
        Replica(name=f"toolscout-{uuid.uuid4().hex[:8]}", port=find_port()) for _ in range(2)
    )
    write_balancer(folder, public, database, replicas, postgres_url)
    found = Site(url=f"http://127.0.0.1:{public}", token=token, folder=folder, replicas=replicas)
    try:
        with (
            running("haproxy", "-db", "-f", folder / "haproxy.cfg"),
            socket_at(database),
            running(
                sys.executable, "-P", SERVERS, "many", "--tools", "200", "--port", str(servers)
            ),
        ):
            for replica in replicas:
                found.start(replica)
            seconds = [found.wait_ready(replica) for replica in replicas]
            wait_for(f"{found.url}/healthz")
            say(f"ready after {max(seconds):.1f} s")
            yield found
    finally:
        for replica in replicas:
            podman("rm", "--force", "--volumes", replica.name)


def write_configuration(
    folder: Path, servers: int, database: int, public: int, postgres_url: str
) -> None:
    """Write the configuration of the compose file, with addresses of this machine."""
    text = (DEPLOY / "compose/toolscout.toml").read_text(encoding="utf-8")
    parts = urlsplit(postgres_url)
    text = re.sub(
        r'^store = ".*"$',
        f'store = "postgresql://{parts.username}@127.0.0.1:{database}{parts.path}"',
        text,
        flags=re.MULTILINE,
    )
    text = text.replace("localhost:8080", f"127.0.0.1:{public}")
    text += f'\n[servers.many]\nurl = "http://127.0.0.1:{servers}/mcp"\n'
    (folder / "toolscout.toml").write_text(text, encoding="utf-8")


def write_balancer(
    folder: Path, public: int, database: int, replicas: tuple[Replica, ...], postgres_url: str
) -> None:
    """Write the configuration of the load balancer, and let it pass the database on too."""
    text = (DEPLOY / "compose/haproxy.cfg").read_text(encoding="utf-8")
    servers = [f"    server {one.name} 127.0.0.1:{one.port}" for one in replicas]
    text = re.sub(r"^    server-template .*$", "\n".join(servers), text, flags=re.MULTILINE)
    text = text.replace("maxconn 20000", "maxconn 1000")  # fewer open files
    text = text.replace("bind :8080", f"bind 127.0.0.1:{public}")
    text = text.replace("bind :8404", f"bind 127.0.0.1:{find_port()}")
    parts = urlsplit(postgres_url)
    asked = parse_qs(parts.query)
    place = (
        f"unix@{asked['host'][0]}/.s.PGSQL.{parts.port or 5432}"
        if "host" in asked
        else (f"{parts.hostname}:{parts.port or 5432}")
    )
    text += (
        f"\nlisten database\n    mode tcp\n    option tcplog\n    bind 127.0.0.1:{database}\n"
        f"    server database {place}\n"
    )
    file = folder / "haproxy.cfg"
    file.write_text(text, encoding="utf-8")
    run("haproxy", "-c", "-f", file)


def test_the_image_runs_as_nobody_in_particular_and_holds_no_settings_of_the_build():
    [told] = json.loads(podman("image", "inspect", IMAGE))
    listed = podman(
        *("run", "--rm", *LOCKED_DOWN, "--entrypoint", "sh", IMAGE, "-c"),
        "id -u; test ! -e /etc/pip.conf && test ! -e /wheels && echo clean; "
        "touch /opt/x 2>/dev/null || echo read-only; toolscout --version",
    )

    assert listed.split()[:3] == ["10001", "clean", "read-only"]
    assert told["Config"]["User"] == "10001:10001"
    assert told["Healthcheck"]["Test"][0] == "CMD"
    say(f"image: {told['Size'] / 1e6:,.0f} MB")


def test_a_client_searches_and_calls_through_the_load_balancer(site: Site):
    assert "many__echo" in site.ask("tool_search", QUERY)
    assert site.ask("tool_call", CALL) == "ok"


def test_requests_of_one_token_go_to_one_replica(site: Site):
    before = [site.count_searches(replica) for replica in site.replicas]
    for _ in range(6):
        site.ask("tool_search", QUERY)
    after = [site.count_searches(replica) for replica in site.replicas]

    gained = sorted(new - old for new, old in zip(after, before, strict=True))
    assert gained == [0, 6]


def test_prometheus_may_name_a_replica_by_its_address_and_nobody_asks_through_the_balancer(
    site: Site,
):
    token = (site.folder / "secrets/metrics-token").read_text(encoding="utf-8")
    headers = {"Authorization": f"Bearer {token}"}
    [replica, _] = site.replicas
    page = httpx2.get(f"{replica.url}/metrics", headers=headers, timeout=DEADLINE_SECONDS)
    [memory] = re.findall(r"^process_resident_memory_bytes (\S+)", page.text, re.MULTILINE)

    assert "toolscout_ready 1.0" in page.text
    assert httpx2.get(f"{site.url}/metrics", headers=headers).status_code == 404
    say(f"resident memory of a replica: {float(memory) / 1e6:,.0f} MB")


def test_the_health_check_of_the_image_passes_where_the_gateway_listens_at_its_port(site: Site):
    [replica, _] = site.replicas
    [told] = json.loads(podman("image", "inspect", IMAGE))
    _, *command = told["Healthcheck"]["Test"]
    here = [word.replace(":8765", f":{replica.port}") for word in command]
    nowhere = [word.replace(":8765", ":1") for word in command]

    podman("exec", replica.name, *here)
    with pytest.raises(AssertionError):
        podman("exec", replica.name, *nowhere)


def test_when_a_replica_is_killed_the_other_answers_and_it_can_come_back(site: Site):
    site.ask("tool_search", QUERY)
    counts = {site.count_searches(replica): replica for replica in site.replicas}
    serving = counts[max(counts)]

    podman("kill", "--signal", "KILL", serving.name)
    began = time.monotonic()
    answer = ""
    while answer != "ok" and time.monotonic() < began + DEADLINE_SECONDS:
        with contextlib.suppress(Exception):
            answer = site.ask("tool_call", CALL)
    say(f"another replica answers {time.monotonic() - began:.1f} s after a kill")
    podman("rm", "--force", "--volumes", serving.name)
    site.start(serving)
    site.wait_ready(serving)

    assert answer == "ok"


def test_a_replica_that_is_asked_to_stop_ends_by_itself(site: Site):
    [_, replica] = site.replicas
    began = time.monotonic()

    podman("stop", "--time", "60", replica.name)

    say(f"stopped after {time.monotonic() - began:.1f} s")
    assert replica.inspect("{{.State.ExitCode}}") == "0"
    assert time.monotonic() - began < 50
