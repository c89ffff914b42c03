"""The gateway's log, as an operator reads it."""

import asyncio
import json
import logging
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.fleet import BERLIN, TIME, configuration
from gateway.processes import Running
from toolscout.config.gateway import LogFormat
from toolscout.config.secrets import SecretMask
from toolscout.gateway.events import Reloaded, ServerChanged, TokenRefused
from toolscout.gateway.logs import CURRENT_REQUEST, log_event, set_up_log
from toolscout.servers.state import Phase
from toolscout.sessions.events import Called

SECRET = "hunter2-is-not-a-word"


@pytest.fixture
def root_log():
    """Puts the process's log back as it was."""
    root = logging.getLogger()
    kept, level = root.handlers[:], root.level
    yield
    root.handlers[:] = kept
    root.setLevel(level)


@pytest.mark.usefixtures("root_log")
def test_lines_of_json_carry_the_request_that_they_belong_to(capsys: pytest.CaptureFixture[str]):
    set_up_log(LogFormat.JSON, "INFO", SecretMask())
    logging.getLogger("toolscout.pool").info("before")
    call = Called(session="http:someone", tool="time__now", milliseconds=2.5)
    token = CURRENT_REQUEST.set(("http:someone", 17))
    log_event(call)  # successes are logged at level debug
    log_event(replace(call, code="timed_out"))
    CURRENT_REQUEST.reset(token)

    before, within = map(json.loads, capsys.readouterr().err.splitlines())
    assert "request" not in before
    assert before["message"] == "before"
    assert within["request"].endswith("-17")
    assert "someone" not in within["request"]
    assert within["message"] == "call time__now timed_out 2.5 ms"
    assert within["level"] == "info"


@pytest.mark.usefixtures("root_log")
def test_failed_servers_and_refused_tokens_are_warnings_with_fields(
    capsys: pytest.CaptureFixture[str],
):
    failed = ServerChanged(server="github", phase=Phase.FAILED, reason=f"it said {SECRET}")
    refused = TokenRefused(source="10.0.0.7", digest="0123", reason="it is not known", unnoted=2)
    reloaded = Reloaded(added=("tokens.eve", "servers.notes"))

    set_up_log(LogFormat.JSON, "INFO", SecretMask([SECRET]))
    for event in (failed, refused, reloaded):
        log_event(event)
    set_up_log(LogFormat.TEXT, "INFO", SecretMask([SECRET]))
    log_event(failed)

    *lines, text = capsys.readouterr().err.splitlines()
    server, token, reload = map(json.loads, lines)
    assert (server["level"], token["level"], reload["level"]) == ("warning", "warning", "info")
    assert (server["server"], server["phase"]) == ("github", "failed")
    assert server["reason"].startswith("it said ")
    assert (token["source"], token["digest"], token["unnoted"]) == ("10.0.0.7", "0123", "2")
    assert token["message"].startswith("token refused source=10.0.0.7 digest=0123 reason=")
    assert reload["added"] == "tokens.eve,servers.notes"
    assert 'server server=github phase=failed reason="it said ' in text
    assert SECRET not in "".join([*lines, text])


@pytest.mark.usefixtures("root_log")
def test_requests_that_run_side_by_side_keep_their_names(capsys: pytest.CaptureFixture[str]):
    set_up_log(LogFormat.JSON, "INFO", SecretMask())

    async def answer(number: int) -> None:
        CURRENT_REQUEST.set(("s", number))
        await asyncio.sleep(0)
        logging.getLogger("toolscout").info("%d", number)

    async def both() -> None:
        await asyncio.gather(answer(1), answer(2))

    asyncio.run(both())

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["request"].rpartition("-")[2] for line in lines] == ["1", "2"]
    assert [line["message"] for line in lines] == ["1", "2"]


@pytest.mark.usefixtures("root_log")
@pytest.mark.parametrize("form", list(LogFormat))
def test_no_log_line_contains_a_secret(form: LogFormat, capsys: pytest.CaptureFixture[str]):
    set_up_log(form, "INFO", SecretMask(["a", "", SECRET]))
    try:
        raise ValueError(f"refused {SECRET}")
    except ValueError:
        logging.getLogger("toolscout").exception("A server said %s.", SECRET)

    said = capsys.readouterr().err
    assert SECRET not in said
    assert "A server said …." in said
    assert "refused …" in said


def test_a_gateway_logs_as_its_configuration_says(tmp_path: Path):
    config = configuration(tmp_path, {"time": TIME}, log="json", log_level="debug")
    name, arguments = "time__get_current_time", BERLIN
    params = {"name": "tool_call", "arguments": {"name": name, "arguments": arguments}}
    about = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
    lines = talk(
        config,
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": "mine", "method": "tools/call", "params": params},
    )

    called = [line for line in lines if line["logger"] == "toolscout.requests"]
    assert called[0]["request"].endswith("-mine")
    assert called[0]["message"].startswith(("call time__", "refusal"))


def talk(config: Path, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Send messages to a gateway, wait for the last answer, and return the lines of its log."""
    words = [sys.executable, "-m", "toolscout", "serve", "--config", str(config), "--no-daemon"]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in messages:
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
            while (
                "id" in message and json.loads(process.stdout.readline()).get("id") != message["id"]
            ):
                pass
        _, said = process.communicate()
    return [json.loads(line) for line in said.splitlines()]


def test_secrets_of_a_server_that_a_reload_adds_are_masked(tmp_path: Path):
    secret = "swordfish-0123456789"
    # Each server's own lines are masked by what it was given; this one quotes another's secret.
    quoting = f"import sys; print('the key is', {secret!r}, 'indeed', file=sys.stderr)"
    config = configuration(tmp_path, {"time": TIME})
    added = f"""
[servers.encrypted_logins]
url = "http://127.0.0.1:9/mcp"
headers = {{ Authorization = "{secret}" }}

[servers.quoting]
command = {json.dumps(sys.executable)}
args = {json.dumps(["-c", quoting])}
"""
    with Running(config) as running:
        config.write_text(config.read_text(encoding="utf-8") + added, encoding="utf-8")
        assert running.process is not None
        running.process.send_signal(signal.SIGHUP)
        text = running.wait_for_line("indeed")

    assert "the key is … indeed" in text
    assert secret not in text
