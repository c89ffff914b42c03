"""A server that returns a token: with `redact`, it reaches neither model, store nor log."""

import asyncio
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from serving import DEADLINE_SECONDS, eventually, served
from toolscout.config.redaction import SecretKind
from toolscout.config.servers import ServerConfig, Transport

TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
MARK = "[redacted: GitHub token]"


@pytest.fixture
def leaking(tmp_path: Path) -> ServerConfig:
    """The server; its token is in a file, because what is in its arguments is masked anyway."""
    file = tmp_path / "secret.txt"
    file.write_text(TOKEN, encoding="utf-8")
    program = Path(__file__).with_name("leaking_server.py")
    return ServerConfig(
        name="leaking",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(str(program), str(file)),
    )


def call(server: ServerConfig, tool: str) -> tuple[str, str, str]:
    """Return what a client read last, the log messages it heard, and the server's log.

    The client reads on in a result that was cut.
    """
    heard: list[str] = []

    async def note_log(params: Any) -> None:
        heard.append(str(params.data))

    with served(server) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)

        async def ask() -> str:
            transport = streamable_http_client(f"{gateway.url}/mcp")
            async with Client(transport, mode="legacy", logging_callback=note_log) as client:
                name = f"leaking__{tool}"
                await client.call_tool("tool_search", {"queries": [f"select:{name}"]})
                result = await client.call_tool("tool_call", {"name": name, "arguments": {}})
                if not result.is_error:  # the client may handle the log message after the result
                    await eventually(lambda: heard)
                text = result.model_dump_json(by_alias=True)
                handle = re.search(r"result_[0-9a-f]{10}", text)
                if handle is None:
                    return text
                words = {"find": "the token is"}
                page = await client.call_tool("tool_call", {"name": handle[0], "arguments": words})
                return page.model_dump_json(by_alias=True)

        result = asyncio.run(ask())
        state = gateway.gateway.pool.servers["leaking"]
    log = "\n".join(state.lines)  # complete, because the server has ended
    return result, "\n".join(heard), log


@pytest.mark.parametrize("tool", ["short_report", "failing_report"])
def test_a_token_in_a_result_or_error_is_replaced_by_a_mark(leaking: ServerConfig, tool: str):
    result, _, log = call(replace(leaking, redact=tuple(SecretKind)), tool)

    assert TOKEN not in result
    assert MARK in result
    assert TOKEN not in log
    assert MARK in log


def test_what_is_read_later_of_a_long_result_is_redacted_too(leaking: ServerConfig):
    page, _, _ = call(replace(leaking, redact=(SecretKind.GITHUB,)), "long_report")

    assert f"the token is {MARK}" in page
    assert TOKEN not in page


@pytest.mark.parametrize("tool", ["short_report", "logged_report"])
def test_a_log_message_for_the_client_is_redacted_even_if_that_takes_longer_than_the_answer(
    leaking: ServerConfig, tool: str
):
    _, heard, _ = call(replace(leaking, redact=(SecretKind.GITHUB,)), tool)

    assert TOKEN not in heard
    assert MARK in heard


def test_without_redact_results_stay_as_they_are(leaking: ServerConfig):
    result, heard, _ = call(leaking, "short_report")
    page, _, _ = call(leaking, "long_report")

    assert TOKEN in result
    assert TOKEN in heard
    assert f"the token is {TOKEN}" in page
