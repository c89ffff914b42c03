"""Servers as rows, and what they say without what they were given."""

import pytest

from toolscout.config.file import Config
from toolscout.config.servers import ServerConfig, Transport
from toolscout.console.app import Console
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import ANONYMOUS
from toolscout.stores.memory import MemoryStore
from toolscout.tokens import count_definition_tokens

FAR = ServerConfig(
    name="far",
    transport=Transport.HTTP,
    url="https://ann:pw@far.example/mcp?key=hunter2",
    headers={"X-Key": "${FAR_KEY}"},
    token="literal-token",
)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("refused literal-token twice", "refused … twice"),
        ("sent from-the-environment", "sent …"),
        (f"GET {FAR.url} 401", "GET https://far.example/… 401"),
        ("started with password=letmein now", "started with password=… now"),
        ("  indented  and\x1b[31m plain", "indented and[31m plain"),
    ],
)
@pytest.mark.requirement("R52")
@pytest.mark.requirement("R108")
def test_a_line_is_shown_without_secrets(monkeypatch: pytest.MonkeyPatch, said: str, shown: str):
    """R52, R108"""
    monkeypatch.setenv("FAR_KEY", "from-the-environment")
    console = Console.from_gateway(Gateway(Config(servers=(FAR,)), MemoryStore()))
    assert console.servers is not None

    console.activity.add_line("far", said)

    [line] = console.servers.read_log(console.get_view(ANONYMOUS), "far")["lines"]
    assert line["text"] == shown


def test_only_the_last_lines_are_kept():
    console = Console.from_gateway(Gateway(Config(servers=(FAR,)), MemoryStore()))
    assert console.servers is not None
    for number in range(250):
        console.activity.add_line("far", f"line {number}")

    lines = console.servers.read_log(console.get_view(ANONYMOUS), "far")["lines"]

    assert [line["text"] for line in lines] == [f"line {number}" for number in range(50, 250)]


def test_prompts_and_resources_do_not_count_as_tools_of_a_server():
    gateway = Gateway(Config(servers=(FAR,)), MemoryStore())
    kinds = ("tool", "prompt", "resource")
    rows = [{"name": kind, "kind": kind, "description": "One of them."} for kind in kinds]
    gateway.catalog.replace("far", rows)
    console = Console.from_gateway(gateway)
    assert console.servers is not None

    view = console.get_view(ANONYMOUS)
    [row] = console.servers.list_rows(view, console.costs.sum_by(view.callables, ["far"]), {})

    assert row["tools"] == 1
    [tool] = [tool for tool in gateway.catalog.tools if tool.kind == "tool"]
    assert row["tokens"] == count_definition_tokens(tool)
