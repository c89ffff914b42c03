"""`toolscout servers login` and `logout`, as processes, with a real authorization server."""

import asyncio
import base64
import getpass
import json
import os
import re
import stat
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from click.testing import CliRunner, Result
from mcp.client import Client

from gateway.fleet import client_of, known, text_of
from servers.oauthserver import MACHINE, World, oauth_world
from serving import served
from toolscout.cli import main
from toolscout.config.file import read_config

DEADLINE_SECONDS = 120
PAUSE_SECONDS = 0.02
ADD = {"name": "web__add", "arguments": {"a": 2, "b": 3}}
SEARCH = {"queries": ["add two numbers"]}


@pytest.fixture
def world() -> Iterator[World]:
    with oauth_world(2) as running:
        yield running


@pytest.fixture
def config(world: World, tmp_path: Path) -> Path:
    path = tmp_path / "toolscout.toml"
    cache = json.dumps(str(tmp_path / "gateway.db"))
    path.write_text(
        f"[gateway]\ncache = {cache}\n"
        f"[servers.web]\nurl = '{world.urls[0]}'\noauth = true\n"
        f"[servers.other]\nurl = '{world.urls[1]}'\n"
    )
    return path


def run(command: str, *arguments: object) -> Result:
    return CliRunner().invoke(main, ["servers", command, *map(str, arguments)])


@contextmanager
def login(config: Path, name: str, *options: str) -> Generator["subprocess.Popen[str]"]:
    """Run a login until the end of the block, at which it has to have ended by itself."""
    arguments = ["servers", "login", name, "--config", str(config), "--port", "0", *options]
    process = subprocess.Popen(
        [sys.executable, "-m", "toolscout", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
        process.wait(DEADLINE_SECONDS)
    finally:
        process.kill()
        process.communicate()


def printed_url(process: "subprocess.Popen[str]") -> str:
    assert process.stderr is not None
    for line in process.stderr:
        found = re.fullmatch(r"  (http\S+)\n", line)
        if found:
            return found[1]
    raise AssertionError("no address was printed")


def visit(url: str) -> httpx2.Response:
    return httpx2.get(url, follow_redirects=True, timeout=DEADLINE_SECONDS)


def log_in(config: Path, name: str = "web") -> None:
    with login(config, name, "--no-browser") as process:
        assert visit(printed_url(process)).status_code == 200
        assert process.stdout is not None
        assert process.stdout.read() == f"Logged in to {name!r}.\n"
    assert process.returncode == 0


def log_in_here(config: Path, name: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> Result:
    """Log in within this process, where a browser costs nothing, and return what was said."""

    def open_page(url: str) -> bool:
        threading.Thread(target=visit, args=(url,)).start()
        return True

    monkeypatch.setattr(webbrowser, "open", open_page)
    return run("login", name, "--config", config, "--port", 0, *options)


def states(config: Path) -> dict[str, str]:
    told = json.loads(run("list", "--config", config, "--json").stdout)
    return {row["name"]: row["login"] for row in told["servers"]}


async def call(client: Client) -> str:
    await known(client, "web__add")
    return text_of(await client.call_tool("tool_call", ADD))


async def search_until(client: Client, part: str) -> str:
    """Search until some text is in the answer, and return it."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            told = text_of(await client.call_tool("tool_search", SEARCH))
            if part in told:
                return told
            await asyncio.sleep(PAUSE_SECONDS)


@contextmanager
def serve(config: Path) -> Generator[str]:
    """Serve a configuration in a thread, and give the address for clients."""
    servers = read_config(config).servers
    with served(*servers, logins=config.parent / "tokens") as gateway:
        yield f"{gateway.url}/mcp"


def test_a_login_a_call_through_the_gateway_and_a_logout(config: Path, world: World):
    async def call_through_process() -> str:
        async with client_of(config) as client:
            return await call(client)

    async def call_through_thread() -> str:
        with serve(config) as url:
            async with Client(url) as client:
                return await call(client)

    before = states(config)
    log_in(config)
    files = list((config.parent / "tokens").iterdir())
    tried = run("test", "web", "other", "--config", config)

    assert before == {"web": "needed", "other": "none"}
    assert states(config) == {"web": "logged in", "other": "none"}
    assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600]
    assert tried.exit_code == 1
    assert re.search(r"^web    ok      1 tool \(", tried.stdout, re.MULTILINE)
    assert "other  failed  It needs a login. Run `toolscout servers login other`." in tried.stdout
    assert asyncio.run(call_through_process()) == "5"
    world.authority.access.clear()
    assert asyncio.run(call_through_thread()) == "5", "expired tokens are renewed without a person"
    assert run("logout", "web", "--config", config).stdout == "Logged out of 'web'.\n"
    assert run("logout", "web", "--config", config).stdout == "There was no login for 'web'.\n"
    assert states(config)["web"] == "needed"


def test_a_gateway_that_is_running_takes_a_login_over(config: Path):
    async def talk(url: str) -> None:
        async with Client(url) as client:
            told = await search_until(client, "needs login")
            await asyncio.to_thread(log_in, config)
            await search_until(client, "web__add")

            assert "run `toolscout servers login web`" in told
            assert text_of(await client.call_tool("tool_call", ADD)) == "5"

    with serve(config) as url:
        asyncio.run(talk(url))


def test_what_the_browser_ended_at_may_be_pasted(config: Path):
    with login(config, "web", "--no-browser") as process:
        url = printed_url(process)
        [callback] = parse_qs(urlsplit(url).query)["redirect_uri"]
        ended = httpx2.get(url, timeout=DEADLINE_SECONDS).headers["location"]
        assert process.stdin is not None
        process.stdin.write(f"{callback}?code=x&state=forged\n{ended}\n")
        process.stdin.flush()
        assert process.stderr is not None
        said = process.stderr.read()

    assert process.returncode == 0
    assert said.count("That is not the address at the end of a login.") == 1


def test_a_person_who_says_no_gets_exit_code_4_and_no_traceback(config: Path, world: World):
    world.authority.denies = True
    with login(config, "web", "--no-browser") as process:
        page = visit(printed_url(process))
        assert process.stderr is not None
        said = process.stderr.read()

    assert page.status_code == 403
    assert process.returncode == 4
    assert said.splitlines()[-1] == (
        "Error: Login to server 'web' failed: the answer was no "
        "(access_denied The person said no). Run the command again to agree."
    )
    assert "Traceback" not in said
    assert not (config.parent / "tokens").exists()


def test_the_browser_is_opened_by_default(config: Path, tmp_path: Path):
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho \"$1\" > '{opened}'\n")
    browser.chmod(0o700)
    os.environ["BROWSER"] = f"{browser} %s"
    try:
        with login(config, "web") as process:
            url = printed_url(process)
            assert process.stderr is not None
            assert process.stderr.readline() == "\n"
            assert process.stderr.readline() == "Opened a browser.\n"
            visit(url)
    finally:
        del os.environ["BROWSER"]

    assert opened.read_text() == f"{url}\n"
    assert process.returncode == 0


def test_two_servers_are_logged_in_to_apart(
    config: Path, world: World, monkeypatch: pytest.MonkeyPatch
):
    web = log_in_here(config, "web", monkeypatch)
    first = states(config)
    other = log_in_here(config, "other", monkeypatch)

    assert (web.exit_code, web.stdout) == (0, "Logged in to 'web'.\n")
    assert (other.exit_code, other.stdout) == (0, "Logged in to 'other'.\n")
    assert first == {"web": "logged in", "other": "none"}
    assert states(config) == {"web": "logged in", "other": "logged in"}
    assert {token.resource for token in world.authority.access.values()} == set(world.urls)
    assert run("test", "--config", config).exit_code == 0


def test_removing_a_server_forgets_its_login(config: Path, monkeypatch: pytest.MonkeyPatch):
    log_in_here(config, "web", monkeypatch)
    assert list((config.parent / "tokens").iterdir())

    assert run("remove", "web", "--config", config).exit_code == 0
    assert list((config.parent / "tokens").iterdir()) == []


def test_a_program_with_credentials_of_its_own_is_tried_and_needs_no_login(
    config: Path, world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OUR_SECRET", MACHINE[1])
    with config.open("a") as file:
        file.write(
            f"[servers.machine]\nurl = '{world.url}'\noauth_grant = 'client_credentials'\n"
            f"oauth_client_id = '{MACHINE[0]}'\noauth_client_secret = '${{OUR_SECRET}}'\n"
            f"oauth_issuer = '{world.authority.url}/'\n"
        )

    assert run("test", "machine", "--config", config).exit_code == 0
    assert states(config)["machine"] == "client credentials"
    refused = run("login", "machine", "--config", config)
    assert refused.exit_code == 2
    assert "uses client credentials and needs no person" in refused.stderr


def test_a_principal_logs_in_and_out_beside_the_login_of_everybody(
    config: Path, monkeypatch: pytest.MonkeyPatch
):
    with_tokens = "[gateway.tokens.ann]\ntoken = 'a token of more than 24 characters'\n"
    config.write_text(config.read_text() + with_tokens)
    text = config.read_text()

    refused = run("login", "web", "--config", config, "--principal", "ann")
    config.write_text(text.replace("oauth = true\n", "oauth = true\nlogin = 'user'\n"))
    unknown = run("login", "web", "--config", config, "--principal", "anne")
    done = log_in_here(config, "web", monkeypatch, "--principal", "ann")
    state = states(config)["web"]
    out = run("logout", "web", "--config", config, "--principal", "ann")
    again = run("logout", "web", "--config", config, "--principal", "ann")

    assert refused.exit_code != 0
    assert 'login = "user"' in refused.stderr
    assert unknown.exit_code != 0
    assert "Use 'ann'." in unknown.stderr
    assert done.stdout == "Logged in to 'web' for 'ann'.\n"
    assert state == "needed"  # the one that everybody shares
    assert out.stdout == "Logged out of 'web'.\n"
    assert again.stdout == "There was no login for 'web'.\n"
    assert list_logins(config) == [("started", "ann"), ("ok", "ann"), ("removed", "ann")]


def list_logins(config: Path) -> list[tuple[str, str]]:
    """Return what the audit record says about logins: the outcome, and whose it is."""
    words = ["audit", "--event", "login", "--json", "--config", str(config)]
    lines = CliRunner().invoke(main, words).stdout.splitlines()
    entries = [json.loads(line) for line in lines]
    assert {entry["by"] for entry in entries} <= {getpass.getuser()}
    return [(entry["outcome"], entry.get("principal", "")) for entry in entries]


def test_removing_a_server_forgets_the_logins_of_its_users(
    config: Path, monkeypatch: pytest.MonkeyPatch
):
    text = config.read_text().replace("oauth = true\n", "oauth = true\nlogin = 'user'\n")
    text += "[gateway.tokens.ann]\ntoken = 'a token of more than 24 characters'\n"
    config.write_text(text)
    log_in_here(config, "web", monkeypatch, "--principal", "ann")

    assert run("remove", "web", "--config", config).exit_code == 0
    config.write_text(text)
    out = run("logout", "web", "--config", config, "--principal", "ann")

    assert out.stdout == "There was no login for 'web'.\n"
    assert list_logins(config)[-1] == ("removed", "ann")


def test_a_login_that_cannot_be_decrypted_is_not_written_over(
    config: Path, monkeypatch: pytest.MonkeyPatch
):
    with_tokens = "[gateway.tokens.ann]\ntoken = 'a token of more than 24 characters'\n"
    text = config.read_text().replace("oauth = true\n", "oauth = true\nlogin = 'user'\n")
    config.write_text(text + with_tokens)
    log_in_here(config, "web", monkeypatch, "--principal", "ann")
    monkeypatch.setenv("LOGIN_KEY", base64.b64encode(bytes(32)).decode())
    config.write_text(text.replace("[gateway]\n", '[gateway]\nlogin_keys = ["${LOGIN_KEY}"]\n'))
    config.write_text(config.read_text() + with_tokens)

    refused = log_in_here(config, "web", monkeypatch, "--principal", "ann")
    out = run("logout", "web", "--config", config, "--principal", "ann")

    assert refused.exit_code != 0
    assert "lacks the key that encrypted a stored login" in refused.stderr
    assert out.stdout == "Logged out of 'web'.\n"
