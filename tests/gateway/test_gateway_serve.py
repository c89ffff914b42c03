"""The gateway as a client meets it: a process on stdin and stdout, with real servers behind."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import mcp_types as types
import pytest
from click.testing import CliRunner
from mcp.client import Client
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from gateway.fleet import (
    BERLIN,
    DEADLINE_SECONDS,
    GIT,
    TIME,
    client_of,
    configuration,
    keep_open,
    known,
    text_of,
)
from gateway.processes import fill_cache
from toolscout.cli import main
from toolscout.config.file import read_config
from toolscout.encoders import OnnxEncoder
from toolscout.gateway.gateway import Gateway
from toolscout.stores import MemoryStore

SERVERS = {"time": TIME, "broken": ("-c", "raise SystemExit(3)")}
SEARCHED = {"queries": ["what time is it in a city"]}
CALLED = {"name": "time__get_current_time", "arguments": BERLIN}


class Hold(Protocol):
    """Holds a conversation with a gateway that several tests ask, which knows its tools."""

    def __call__(
        self, talk: Callable[[Client], Awaitable[None]], *options: str, mode: str = "auto"
    ) -> None: ...


@pytest.fixture(scope="module")
def hold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hold]:
    """Give what holds a conversation; those with the same options are with one gateway."""
    with keep_open() as keeper:

        def hold_one(
            talk: Callable[[Client], Awaitable[None]], *options: str, mode: str = "auto"
        ) -> None:
            def connect() -> AbstractAsyncContextManager[Client]:
                folder = tmp_path_factory.mktemp("gateway")
                is_split = "--split-calls" in options
                config = configuration(folder, SERVERS, trusted=is_split)
                return client_of(config, *options, mode=mode)

            client = keeper.open((options, mode), connect)

            async def converse() -> None:
                await known(client, "time__get_current_time")
                await talk(client)

            keeper.run(converse)

        yield hold_one


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that knows the clock."""
    return fill_cache(configuration(tmp_path_factory.mktemp("cache"), {"time": TIME}))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_both_protocol_eras_search_and_call(mode: str, hold: Hold):
    async def talk(client: Client) -> None:
        listed = await client.list_tools()
        found = await client.call_tool("tool_search", SEARCHED)
        called = await client.call_tool("tool_call", CALLED)

        names = [tool.name for tool in listed.tools]
        assert names == ["tool_search", "tool_describe", "tool_call"]
        assert "time__get_current_time(timezone*)" in text_of(found)
        assert called.structured_content is not None
        assert called.structured_content["timezone"] == "Europe/Berlin"

    hold(talk, mode=mode)


def test_the_list_of_tools_is_the_same_before_and_after_any_use(tmp_path: Path):
    async def talk() -> None:
        async with client_of(configuration(tmp_path, {"time": TIME, "git": GIT})) as client:
            await known(client, "time__get_current_time", "git__git_status")
            before = await client.list_tools()
            await client.call_tool("tool_search", SEARCHED)
            await client.call_tool("tool_describe", {"names": ["git_status"]})
            await client.call_tool("tool_call", CALLED)
            after = await client.list_tools(cache_mode="bypass")

            assert before.tools == after.tools
            assert before.ttl_ms == 60_000

    asyncio.run(talk())


def test_a_known_name_is_called_though_it_is_not_listed_or_searched_for(hold: Hold):
    async def talk(client: Client) -> None:
        direct = await client.call_tool("time__get_current_time", BERLIN)

        assert direct.is_error is False

    hold(talk)


def test_wrong_failed_and_repaired_calls_are_reported(hold: Hold):
    async def talk(client: Client) -> None:
        wrong = await client.call_tool("tool_call", {**CALLED, "arguments": {}})
        failed = await client.call_tool(
            "tool_call", {**CALLED, "arguments": {"timezone": "Nowhere/At_all"}}
        )
        repaired = await client.call_tool(
            "tool_call", {"name": "get_current_time", "arguments": '{"timezone": "UTC"}'}
        )

        assert wrong.is_error
        assert text_of(wrong).startswith("Not called: the arguments")
        assert '"timezone"' in text_of(wrong)
        assert failed.is_error
        assert "Nowhere/At_all" in text_of(failed)
        assert text_of(repaired).startswith("(Called time__get_current_time")

    hold(talk)


@pytest.mark.parametrize("options", [(), ("--split-calls",)])
def test_calls_are_read_as_leniently_as_in_a_session(options: tuple[str, ...], hold: Hold):
    async def talk(client: Client) -> None:
        verb = "tool_read" if options else "tool_call"
        for name, arguments in (("tool", "args"), ("tool_name", "parameters")):
            request = {name: CALLED["name"], arguments: BERLIN}
            called = await client.call_tool(verb, request)

            assert called.is_error is False, text_of(called)
            assert called.structured_content is not None
            assert called.structured_content["timezone"] == "Europe/Berlin"

    hold(talk, *options)


def test_a_call_without_a_name_says_what_to_send(hold: Hold):
    async def talk(client: Client) -> None:
        called = await client.call_tool("tool_call", {"arguments": BERLIN})

        assert called.is_error
        assert "tool_call needs a name" in text_of(called)

    hold(talk)


def test_direct_mode_passes_everything_through_under_its_name(tmp_path: Path):
    async def talk() -> None:
        config = configuration(tmp_path, {"time": TIME})
        async with client_of(config, "--mode", "direct") as client:
            await known(client, "time__get_current_time")
            listed = await client.list_tools(cache_mode="bypass")
            called = await client.call_tool("time__convert_time", {**CONVERSION})

            names = [tool.name for tool in listed.tools]
            assert names == ["time__convert_time", "time__get_current_time"]
            assert called.is_error is False

    asyncio.run(talk())


CONVERSION = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}


@pytest.mark.parametrize(("mode", "grows"), [("legacy", True), ("auto", False)])
def test_dynamic_mode_lists_what_was_found_for_older_clients_alone(
    mode: str, grows: bool, tmp_path: Path, cache: Path
):
    shutil.copy(cache, tmp_path / "gateway.db")
    notices: list[str] = []

    async def noticed(message: Any) -> None:
        notices.append(getattr(message, "method", ""))

    async def talk() -> None:
        config = configuration(tmp_path, {"time": TIME})
        settings: Any = {"mode": mode, "message_handler": noticed}
        async with client_of(config, "--mode", "dynamic", **settings) as client:
            before = [tool.name for tool in (await client.list_tools()).tools]
            await known(client, "time__get_current_time")
            await client.call_tool("tool_describe", {"names": ["time__get_current_time"]})
            after = [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]

            found = ["time__get_current_time"] if grows else []
            assert after == [*before, *found]
            assert ("notifications/tools/list_changed" in notices) is grows

    asyncio.run(talk())


def test_split_calls_keep_effects_apart(hold: Hold):
    async def talk(client: Client) -> None:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        right = await client.call_tool("tool_read", CALLED)
        wrong = await client.call_tool("tool_destroy", CALLED)

        assert listed[2:] == ["tool_read", "tool_write", "tool_destroy"]
        assert right.is_error is False
        assert text_of(wrong) == (
            "Not called: \"time__get_current_time\" has the effect 'read'. Call it with tool_read."
        )

    hold(talk, "--split-calls")


def test_a_warm_cache_answers_before_any_server_has_started(tmp_path: Path, cache: Path):
    shutil.copy(cache, tmp_path / "gateway.db")

    async def talk() -> None:
        async with client_of(configuration(tmp_path, {"time": TIME})) as client:
            found = await client.call_tool("tool_search", SEARCHED)

            assert "time__get_current_time" in text_of(found)
            assert "connecting" not in text_of(found)

    asyncio.run(talk())


def test_one_server_that_cannot_start_does_not_stop_the_others(hold: Hold):
    async def talk(client: Client) -> None:
        called = await client.call_tool("tool_call", CALLED)

        assert called.is_error is False

    hold(talk)  # of its two servers one is broken


def test_nothing_but_messages_goes_to_stdout(tmp_path: Path):
    config = configuration(tmp_path, {"time": TIME})

    done = subprocess.run(
        [sys.executable, "-m", "toolscout", "serve", "--config", str(config), "--no-daemon"],
        input=f"this is no message\n{json.dumps(HANDSHAKE)}\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [message["result"]["serverInfo"]["name"] for message in told if "result" in message] == [
        "toolscout"
    ]
    assert done.returncode == 0


HANDSHAKE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def test_a_client_without_a_handshake_gets_whole_answers_and_clear_errors(tmp_path: Path):
    config = configuration(tmp_path, {})
    command = [sys.executable, "-m", "toolscout", "serve", "--config", str(config), "--no-daemon"]
    envelope = {
        PROTOCOL_VERSION_META_KEY: MODERN_PROTOCOL_VERSIONS[-1],
        CLIENT_INFO_META_KEY: {"name": "test", "version": "1"},
        CLIENT_CAPABILITIES_META_KEY: {},
    }

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as gateway:
        assert gateway.stdin and gateway.stdout

        def ask(method: str, **params: object) -> dict[str, Any]:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            assert gateway.stdin and gateway.stdout
            gateway.stdin.write(json.dumps(message).encode() + b"\n")
            gateway.stdin.flush()
            return json.loads(gateway.stdout.readline())

        found = ask("tools/call", name="tool_search", arguments=SEARCHED, _meta=envelope)
        text = ask("tools/call", name="tool_search", arguments=json.dumps(SEARCHED), _meta=envelope)
        wrong = ask("tools/call", name="tool_search", arguments=[1], _meta=envelope)
        hello = ask("initialize", **HANDSHAKE["params"])
        gateway.stdin.close()
        gateway.wait(DEADLINE_SECONDS)

    assert found["result"]["resultType"] == "complete"
    assert found["result"]["_meta"][SERVER_INFO_META_KEY]["name"] == "toolscout"
    assert found["result"]["_meta"]["toolscout/code"] == "empty_catalog"
    assert text["result"] == found["result"]
    assert wrong["error"]["code"] == types.INVALID_PARAMS
    assert hello["error"]["code"] == types.UNSUPPORTED_PROTOCOL_VERSION
    assert hello["error"]["data"]["supported"] == list(MODERN_PROTOCOL_VERSIONS)


def test_a_gateway_whose_client_dies_with_an_answer_unread_ends(tmp_path: Path):
    # Programs in Node give their servers sockets, which report such a death as an error.
    ours, theirs = socket.socketpair()
    config = configuration(tmp_path, {})
    command = [sys.executable, "-m", "toolscout", "serve", "--config", str(config), "--no-daemon"]

    pipe = theirs.fileno()
    with ours, theirs, subprocess.Popen(command, stdin=pipe, stdout=pipe) as gateway:
        theirs.close()
        ours.sendall(json.dumps(HANDSHAKE).encode() + b"\n")
        ours.recv(1, socket.MSG_PEEK)
        ours.close()
        try:
            assert gateway.wait(DEADLINE_SECONDS) == 0
        finally:
            gateway.kill()


@pytest.mark.slow
def test_a_gateway_that_was_killed_comes_back_with_what_it_knew(tmp_path: Path):
    async def talk() -> None:
        config = configuration(tmp_path, {"time": TIME})
        async with client_of(config) as client:
            await known(client, "time__get_current_time")
            await client.call_tool("tool_search", SEARCHED)
            os.kill(_gateway_pid(config), signal.SIGKILL)
        with sqlite3.connect(tmp_path / "gateway.db") as database:
            kinds = {row[0] for row in database.execute("select kind from entries")}
        async with client_of(config) as client:
            found = await client.call_tool("tool_search", SEARCHED)

            assert {"manifest", "session"} <= kinds
            assert "time__get_current_time" in text_of(found)

    asyncio.run(talk())


def _gateway_pid(config: Path) -> int:
    """Return the process that serves a configuration."""
    listed = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True)
    rows = [line.split(None, 1) for line in listed.stdout.splitlines()]
    found = [int(pid) for pid, args in rows if f"serve --config {config}" in args]
    assert len(found) == 1
    return found[0]


def test_a_missing_configuration_says_what_to_run(tmp_path: Path):
    words = ["serve", "--no-daemon", "--config", str(tmp_path / "none.toml")]

    done = CliRunner().invoke(main, words)

    assert done.exit_code == 2
    assert (
        "Run `toolscout init` or `toolscout servers add`, or name a file with --config."
        in done.stderr
    )


def test_a_profile_limits_what_a_client_over_stdio_finds_and_calls(tmp_path: Path):
    path = configuration(tmp_path, {"time": TIME, "git": GIT})
    with path.open("a", encoding="utf-8") as file:
        file.write("[gateway.profiles.clock]\nservers = ['time']\n")

    async def talk() -> None:
        async with client_of(path, "--profile", "clock") as client:
            await known(client, "time__get_current_time")
            hidden = await client.call_tool("tool_search", {"queries": ["server:git status"]})
            refused = await client.call_tool(
                "tool_call", {"name": "git__git_status", "arguments": {"repo_path": "."}}
            )
            assert "git__git_status" not in text_of(hidden)
            assert refused.is_error
            assert not (await client.call_tool("tool_call", CALLED)).is_error

    asyncio.run(talk())


def test_a_profile_that_does_not_exist_names_the_nearest(tmp_path: Path):
    path = configuration(tmp_path, {})
    with path.open("a", encoding="utf-8") as file:
        file.write("[gateway.profiles.cursor]\nservers = ['time']\n")
    command = [sys.executable, "-m", "toolscout", "serve", "--config", str(path), "--no-daemon"]

    def fail_with(*options: str) -> str:
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 2
        return done.stderr

    assert "There is no profile 'cursr'. Use 'cursor'." in fail_with("--profile", "cursr")
    assert "--profile is for stdio." in fail_with("--profile", "cursor", "--http")


def test_a_changed_configuration_is_taken_over_without_dropping_the_client(tmp_path: Path):
    async def talk() -> None:
        config = configuration(tmp_path, {"time": TIME})
        async with client_of(config) as client:
            await known(client, "time__get_current_time")
            configuration(tmp_path, {"time": TIME, "git": GIT})
            os.kill(_gateway_pid(config), signal.SIGHUP)
            await known(client, "git__git_status")
            called = await client.call_tool("tool_call", CALLED)

            assert called.is_error is False

    asyncio.run(talk())


def test_a_configuration_that_cannot_be_read_leaves_the_old_one_in_place(tmp_path: Path):
    async def talk() -> None:
        config = configuration(tmp_path, {"time": TIME})
        async with client_of(config) as client:
            await known(client, "time__get_current_time")
            config.write_text("[servers.time\n", encoding="utf-8")
            os.kill(_gateway_pid(config), signal.SIGHUP)
            called = await client.call_tool("tool_call", CALLED)

            assert called.is_error is False

    asyncio.run(talk())


@pytest.mark.parametrize("table", ["gateway", "sessions"])
def test_the_gateway_searches_with_the_encoder_of_its_configuration(table: str, tmp_path: Path):
    pytest.importorskip("onnxruntime")
    config = read_config(tmp_path / "toolscout.toml", f'[{table}]\nencoder = "onnx"\n')

    gateway = Gateway(config, MemoryStore())

    assert isinstance(gateway.scout.index.encoder, OnnxEncoder)


def test_an_encoder_that_is_not_installed_ends_the_start_in_one_sentence(tmp_path: Path):
    config = configuration(tmp_path, {"time": TIME}, encoder="onnx")
    code = "import sys; sys.modules['onnxruntime'] = None; from toolscout.cli import main; main()"
    words = [sys.executable, "-c", code, "serve", "--config", str(config)]

    ended = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    assert ended.returncode == 2
    assert ended.stderr == (
        "Error: 'onnxruntime' is not installed. Run `pip install 'toolscout[onnx]'`.\n"
    )
