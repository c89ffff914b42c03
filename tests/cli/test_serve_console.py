"""`toolscout console`, as a process."""

import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from console.asking import Asker
from gateway.fleet import TIME, configuration
from toolscout.cli import main

DEADLINE_SECONDS = 120


@contextmanager
def running(*options: str) -> Generator[Asker]:
    """Run the command until the end of the block; it has to end in good order."""
    arguments = [sys.executable, "-u", "-m", "toolscout", "console", "--port", "0", *options]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = re.search(r"http://\S+[^/\s]", process.stdout.readline())
        assert told is not None
        yield Asker(told[0])
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_demo_catalogue_is_shown_where_none_is_named():
    with running() as asker:
        told = asker.get("/overview")
        [hit] = asker.get("/search", q="create a pull request", limit=1)["hits"]
        page = asker.send("GET", "/")
        missing = asker.send("GET", "/mcp")

        assert (told["host"], told["tools"]) == ("console", 246)
        assert not any(told["capabilities"].values())
        assert hit["name"] == "github__create_pull_request"
        assert asker.get("/servers") == asker.get("/sessions")["sessions"] == []
        assert len(asker.get("/map")["x"]) == 246
        assert asker.problem("/servers/github/start", "POST") == (404, "no_servers")
        assert page.headers["content-security-policy"].startswith("default-src 'self'")
        assert page.headers["x-content-type-options"] == "nosniff"
        assert missing.status_code == 404
        assert asker.send("GET", "/", headers={"Host": "evil.example"}).status_code == 421


def test_the_configured_servers_are_shown_with_the_encoder_of_their_configuration(
    home: Path, capfd: pytest.CaptureFixture[str]
):
    config = configuration(home, {"time": TIME}, encoder="none")
    CliRunner().invoke(main, ["servers", "test", "--config", str(config)])

    with running() as asker:
        told = asker.get("/overview")
        names = [row["name"] for row in asker.get("/tools")["tools"]]

    assert names == ["time__convert_time", "time__get_current_time"]
    assert told["encoders"][0] == "lexical"
    assert f"Using 2 tools of 1 server in {config}." in capfd.readouterr().err


def test_any_catalogue_can_be_shown(tmp_path: Path):
    file = tmp_path / "tools.jsonl"
    file.write_text('{"name": "greet", "server": "local", "description": "Say hello."}\n')

    with running("--catalog", str(file)) as asker, asker.events():
        assert [row["name"] for row in asker.get("/tools")["tools"]] == ["local__greet"]
