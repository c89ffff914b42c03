"""LiteLLM: the meta-tools as ordinary functions of the library, and the gateway in the proxy."""

import asyncio
import os
import re
import runpy
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import httpx2  # after the variable, which is read at import
import litellm
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from adapters import contract
from adapters.contract import (
    Ledger,
    Spec,
    check_async,
    check_concurrent_conversations,
    check_contract,
    check_streaming,
    check_two_conversations_do_not_share,
)
from adapters.gateways import FIND, META, REFUND, REFUNDED, configured, serving
from adapters.loops import Json, Loop, Loops
from adapters.provider import Provider, call
from adapters.surfaces import DialectName
from adapters.tables import ROOT
from toolscout.settings import Mode

# LiteLLM keeps its connections for later, and leaves closing them to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
lite = cast("Any", litellm)
PAGE = ROOT / "docs" / "adapters" / "gateway_clients.md"
MODELS: dict[str, str] = {
    "openai-chat": "openai/gpt-5.5",
    "anthropic": "anthropic/claude-opus-4-6",
}
KEY = "sk-loopback"


@dataclass(frozen=True)
class Makes:
    """Makes loops over LiteLLM, which speaks to a provider in its own dialect."""

    dialect: DialectName
    mode: Mode = Mode.BRIDGE

    def __call__(
        self, specs: Sequence[Spec], ledger: Ledger, base_url: str, saved: object | None
    ) -> contract.Agent:
        root = base_url.removesuffix("/v1") if self.dialect == "anthropic" else base_url
        kind = type("Lite", (LiteLoop,), {"model": MODELS[self.dialect]})
        return Loops(self.mode, "openai-chat", kind)(specs, ledger, root, saved)


class LiteLoop(Loop):
    """A loop whose requests LiteLLM makes, in the shape of Chat Completions."""

    model = ""
    stream = False

    async def ask_async(self, message: str) -> str:
        self.messages.append({"role": "user", "content": message})
        while True:
            answer = await self._answer()
            said = cast("Json", answer.choices[0].message.model_dump(exclude_none=True))
            self.messages.append(said)
            if not said.get("tool_calls"):
                return said["content"]
            for made in said["tool_calls"]:
                function = made["function"]
                reply = await self.answered(function["name"], function["arguments"])
                self.messages.append(self.to_message(reply, made["id"]))

    async def ask_streaming(self, message: str) -> str:
        self.stream = True
        return await self.ask_async(message)

    async def _answer(self) -> Any:
        section = {"role": "system", "content": self.system()}
        request: Json = {
            "model": self.model,
            "messages": [section, *self.messages],
            "tools": self.tools(),
            "api_base": self.base_url,
            "api_key": "none",
        }
        if not self.stream:
            return await asyncio.to_thread(lite.completion, **request)
        chunks = await lite.acompletion(**request, stream=True)
        return lite.stream_chunk_builder([chunk async for chunk in chunks])


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_a_loop_over_the_library_keeps_the_contract(dialect: DialectName):
    check_contract(Makes(dialect), mode="bridge", dialect=dialect)


def test_found_tools_may_join_the_request_as_well():
    check_contract(Makes("openai-chat", Mode.NATIVE), mode="native", dialect="openai-chat")


def test_conversations_share_nothing():
    makes = Makes("openai-chat")

    check_two_conversations_do_not_share(makes, mode="bridge", dialect="openai-chat")
    check_concurrent_conversations(makes, mode="bridge", dialect="openai-chat")


def test_streaming_and_asynchronous_loops_send_the_same():
    check_streaming(Makes("openai-chat"), mode="bridge", dialect="openai-chat")
    check_async(Makes("openai-chat"), mode="bridge", dialect="openai-chat")


def test_the_loop_on_the_page_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    [code] = re.findall(r"```python\n(import litellm.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    script = tmp_path / "loop.py"
    script.write_text(code, encoding="utf-8")
    find = call("tool_search", queries=["pay an order back"])
    refund = call("tool_call", name="refund_order", arguments={"order": "A-7"})
    with Provider([find, refund, "It is refunded."]) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        runpy.run_path(str(script))

    assert capsys.readouterr().out == "It is refunded.\n"
    assert [*provider.requests[-1].tool_results.values()][-1] == REFUNDED


@contextmanager
def proxy(folder: Path, gateway_url: str) -> Generator[str]:
    """Run LiteLLM's proxy with a gateway, registered as the page says; give its address."""
    [rows] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    config = folder / "proxy.yaml"
    config.write_text(rows.replace("http://127.0.0.1:8765/mcp", gateway_url), encoding="utf-8")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    command = [Path(sys.executable).with_name("litellm"), "--config", config, "--port", port]
    env = {**os.environ, "LITELLM_MASTER_KEY": KEY}
    with subprocess.Popen(
        [*command, "--host", "127.0.0.1"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            said = [*until(cast("IO[str]", process.stdout), "Uvicorn running")]
            assert "Uvicorn running" in said[-1], "".join(said)
            yield f"http://127.0.0.1:{port}/mcp/"
        finally:
            process.terminate()


def until(log: IO[str], words: str) -> Generator[str]:
    for line in log:
        yield line
        if words in line:
            return


async def through(url: str) -> tuple[list[str], str]:
    """Find a tool and call it by way of the proxy."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        names = [tool.name for tool in (await client.list_tools()).tools]
        while "order*" not in str(await client.call_tool("toolscout-tool_search", FIND)):
            pass
        return names, str(await client.call_tool("toolscout-tool_call", REFUND))


@pytest.mark.timeout(120)  # the proxy takes long to start
def test_clients_of_the_proxy_find_and_call_through_the_gateway(tmp_path: Path):
    config = configured(tmp_path)
    with serving(config) as gateway_url, proxy(tmp_path, gateway_url) as url:
        names, result = asyncio.run(through(url))

    assert sorted(names) == sorted(f"toolscout-{name}" for name in META)
    assert REFUNDED in result
