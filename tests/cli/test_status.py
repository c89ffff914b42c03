"""`toolscout status`, of gateways that run and of those that do not."""

import asyncio
import json
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.fleet import TIME as CLOCK
from gateway.fleet import client_of, configuration, known
from serving import DEADLINE_SECONDS, TIME, Served, served
from toolscout.cli import main
from toolscout.cli.status import FIGURES

FAILING = {
    "ready": False,
    "mode": "search",
    "servers": [
        {
            "name": "files",
            "phase": "ready",
            "since": "2026-11-15T12:00:00+00:00",
            "reason": "",
            "starts": 1,
            "tools": 1200,
            "problems": ["tool 'x' has no schema"],
            "lines": ["all is well"],
        },
        {
            "name": "mail",
            "phase": "needs login",
            "since": None,
            "reason": "no\x1b token\n",
            "starts": 3,
            "tools": 0,
            "problems": [],
            "lines": ["one", "two", "three", "four"],
        },
    ],
    "totals": {"tools": 1200, "searches": 4, "tokens_not_sent": -17},
    "versions": {"toolscout": "9.9"},
}
SHOWN = """\
toolscout 9.9, mode search: some servers have not listed their tools yet

server  phase         tools  starts  since
files   ready         1,200       1  2026-11-15T12:00:00+00:00
  tool 'x' has no schema
mail    needs login       0       3
  no token
  two
  three
  four

Tools                      1,200
Searches                       4
Tokens not sent              -17
"""


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with served(TIME, tokens={"ann": {"token": "open sesame"}}) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        yield running


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["status", *map(str, arguments)])


def test_the_status_of_a_running_gateway_has_its_servers_and_figures(
    gateway: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OURS", "open sesame")

    shown = run("--url", gateway.url, "--token", "${OURS}")
    told = json.loads(run("--url", f"{gateway.url}/", "--token", "${OURS}", "--json").stdout)

    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"toolscout {told['versions']['toolscout']}, mode search: ready")
    assert "\ntime    ready" in shown.stdout
    assert all(label in shown.stdout for label in FIGURES.values())
    assert told["totals"]["tools"] == 2


def test_a_token_can_be_read_from_a_file(gateway: Served, tmp_path: Path):
    (tmp_path / "token").write_text("open sesame\n")

    assert run("--url", gateway.url, "--token", f"${{file:{tmp_path}/token}}").exit_code == 0


def test_a_wrong_token_is_reported_with_a_remedy_and_not_repeated(gateway: Served):
    result = run("--url", gateway.url, "--token", "swordfish")

    assert result.exit_code == 4
    assert result.stderr == (
        f"Error: The gateway at {gateway.url} refused: A valid token is needed. Send "
        "'Authorization: Bearer TOKEN' with one of 'gateway.tokens'.\n"
    )


def test_nothing_that_answers_is_exit_code_4():
    url = f"http://127.0.0.1:{free_port()}"

    result = run("--url", url)

    assert result.exit_code == 4
    assert result.stdout == ""
    assert result.stderr.startswith(f"Error: No gateway answers at {url} (")
    assert "Start one with `toolscout serve --http`" in result.stderr


@pytest.mark.requirement("R52")
def test_servers_problems_and_figures_are_a_table():
    """R52: one line each, without the control characters of a server."""
    with answering(200, FAILING) as url:
        result = run("--url", url)

    assert result.stdout == SHOWN


def test_a_gateway_without_servers_says_how_to_get_some():
    with answering(200, {**FAILING, "servers": []}) as url:
        result = run("--url", url)

    assert "No servers. Add some with `toolscout init`." in result.stdout


@pytest.mark.parametrize(
    ("code", "answer"),
    [(200, []), (200, {}), (200, {"servers": 1}), (404, {"error": "no"}), (302, FAILING)],
)
def test_something_else_that_answers_is_exit_code_4(code: int, answer: object):
    with answering(code, answer) as url:
        result = run("--url", url)

    assert result.exit_code == 4
    assert result.stderr == (
        f"Error: The server at {url} (HTTP {code}) is not a gateway. Name another with --url.\n"
    )


@pytest.mark.parametrize("url", ["", "localhost:8765", "ftp://localhost", "http://", "http://[::1"])
def test_an_invalid_address_is_a_usage_error(url: str):
    result = run("--url", url)

    assert result.exit_code == 2
    assert "--url is not the address of a gateway." in result.stderr


@pytest.mark.parametrize("token", ["${NOT_SET_ANYWHERE}", "two\nlines", "naïve"])
def test_a_token_that_cannot_be_sent_is_a_usage_error(token: str):
    result = run("--token", token)

    assert result.exit_code == 2
    assert "--token" in result.stderr


def test_a_pipe_gets_a_watched_status_again_and_again(gateway: Served):
    arguments = ["status", "--watch", "--every", "0.1", "--json", "--url", gateway.url]
    running = subprocess.Popen(
        [sys.executable, "-m", "toolscout", *arguments, "--token", "open sesame"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None

    told = [json.loads(running.stdout.readline()) for _ in range(3)]
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=DEADLINE_SECONDS)

    assert [one["totals"]["tools"] for one in told] == [2, 2, 2]
    assert (running.returncode, said) == (130, "")


def test_gateways_over_stdio_are_found_by_their_configuration(home: Path):
    config = configuration(home, {"time": CLOCK}, port=free_port())

    async def converse() -> None:
        async with client_of(config, "--cache", str(home / "new" / "cache")) as client:
            await known(client, "time__get_current_time")
            nothing = await asyncio.to_thread(run)
            assert nothing.exit_code == 4  # its cache is elsewhere
        async with client_of(config) as client:
            await known(client, "time__get_current_time")
            shown = await asyncio.to_thread(run)
            while "time    ready" not in shown.stdout or "\nmcp " not in shown.stdout:
                shown = await asyncio.to_thread(run, "--config", config)
            told = json.loads((await asyncio.to_thread(run, "--json")).stdout)
            assert f"process {told['pid']} since {told['started']}" in shown.stdout
            assert (told["transport"], told["config"]) == ("stdio", str(config))
            [file] = (home / "running").iterdir()
            assert stat.S_IMODE(file.stat().st_mode) == 0o600

    asyncio.run(converse())

    after = run()
    assert after.exit_code == 4
    assert "No gateway answers at http://127.0.0.1:" in after.stderr
    assert after.stderr.endswith(" No gateway over stdio was found either.\n")


def test_a_gateway_that_was_killed_is_not_found(home: Path):
    config = configuration(home, {}, port=free_port())
    (home / "running").mkdir()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(DEADLINE_SECONDS)
    report = {**FAILING, "pid": ended.pid, "config": str(config), "started": "", "client": ""}
    (home / "running" / "1.json").write_text(json.dumps(report))
    (home / "running" / "2.json").write_text("not JSON")

    result = run()

    assert result.exit_code == 4
    assert "No gateway over stdio was found either." in result.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextmanager
def answering(code: int, answer: object) -> Generator[str]:
    """Serve one answer to whatever is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Location", "http://elsewhere.example/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        thread.join(DEADLINE_SECONDS)
