"""The variables that a server starts with."""

import asyncio
import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from toolscout.config.file import Config, read_config
from toolscout.config.servers import ServerConfig, Transport
from toolscout.servers.connection import Delays
from toolscout.servers.pool import Connector
from toolscout.servers.probe import ProbeResult, probe_server
from toolscout.servers.process import INHERITED, build_environment

PAGE = Path(__file__).parents[2] / "docs" / "gateway.md"
WRITES_ENVIRONMENT = """
import json, os, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(json.dumps(dict(os.environ)))
sys.stderr.write(os.environ.get("SOME_TOKEN", "") + " were the last words")
"""


def server(**options: Any) -> ServerConfig:
    options = {"command": "x", **options}
    return ServerConfig(name="a", transport=Transport.STDIO, **options)


def start_and_read(folder: Path, **options: Any) -> tuple[ProbeResult, dict[str, str]]:
    """Start a process that writes its environment down; return that, and how the start ended."""
    config = server(
        command=sys.executable, args=("-c", WRITES_ENVIRONMENT, str(folder / "env")), **options
    )

    async def start() -> ProbeResult:
        with closing(Connector(Delays())) as connector:
            return await probe_server(config, connector)

    trial = asyncio.run(start())
    return trial, json.loads((folder / "env").read_text())


def test_a_server_process_gets_certificates_proxies_and_the_language(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    given = {
        "SSL_CERT_FILE": "/ca.pem",
        "NODE_EXTRA_CA_CERTS": "/ca.pem",
        "HTTPS_PROXY": "http://proxy:3128",
        "no_proxy": "localhost",
        "LC_ALL": "C.UTF-8",
        "TZ": "Europe/Berlin",
        "npm_config_registry": "https://npm.example",
        "UV_INDEX_URL": "https://pypi.example",
        "XDG_CACHE_HOME": "/cache",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GITHUB_TOKEN", "not-for-servers")
    trial, got = start_and_read(tmp_path, env={"TZ": "UTC"})

    assert trial.problem == "it ended with code 0"
    assert {name: got.get(name) for name in given} == given | {"TZ": "UTC"}
    assert "GITHUB_TOKEN" not in got


def test_an_inherited_secret_is_masked_in_what_its_server_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("SOME_TOKEN", "hunter2-hunter2")

    trial, got = start_and_read(tmp_path, inherit_env=["SOME_*"])

    assert got["SOME_TOKEN"] == "hunter2-hunter2"
    assert trial.notes == ("… were the last words",)


@pytest.mark.parametrize(
    "name",
    [
        "UV_PUBLISH_TOKEN",
        "UV_INDEX_MAIN_PASSWORD",
        "npm_config__auth",
        "npm_config_//registry.npmjs.org/:_authToken",
        "NPM_CONFIG__PASSWORD",
        "NODE_OPTIONS",
        "LD_PRELOAD",
        "OPENAI_API_KEY",
    ],
)
def test_credentials_and_what_loads_code_are_not_passed(name: str):
    assert build_environment(server(), {name: "x"}) == {}


def test_a_server_gets_the_variables_that_it_asks_for_by_pattern():
    env = {"GITHUB_TOKEN": "t", "GITHUB_HOST": "h", "OTHER": "o"}

    some = build_environment(server(inherit_env=("GITHUB_*",)), env)
    everything = build_environment(server(inherit_env=("*",)), env)

    assert some == {"GITHUB_TOKEN": "t", "GITHUB_HOST": "h"}
    assert everything == env


def test_a_pattern_does_not_pass_the_secrets_of_others_but_a_name_does(tmp_path: Path):
    path = tmp_path / "toolscout.toml"
    path.write_text(
        """
        [gateway]
        inherit_env = ["*"]
        [gateway.tokens.me]
        token = "${GATEWAY_TOKEN}"
        [servers.slack]
        command = "slack"
        env = { KEY = "${SLACK_KEY:-none}" }
        [servers.files]
        command = "files"
        cwd = "${WORK}"
        [servers.named]
        command = "named"
        inherit_env = ["SLACK_KEY"]
        """,
        encoding="utf-8",
    )
    env = {"GATEWAY_TOKEN": "g", "SLACK_KEY": "s", "WORK": "/w", "PLAIN": "p"}
    servers = {one.name: one for one in read_config(path).servers}

    assert build_environment(servers["files"], env) == {"WORK": "/w", "PLAIN": "p"}
    assert build_environment(servers["named"], env).keys() == {"SLACK_KEY", "WORK", "PLAIN"}
    own = build_environment(servers["slack"], env)
    assert own["SLACK_KEY"] == "s"
    assert "GATEWAY_TOKEN" not in own


def test_a_configuration_without_inheritance_keeps_its_servers_as_they_are():
    one = server(env={"KEY": "${KEY}"})

    assert Config(servers=(one,)).servers == (one,)


def test_the_page_about_the_gateway_lists_every_inherited_name():
    text = PAGE.read_text(encoding="utf-8")

    assert [name for name in INHERITED if f"`{name}`" not in text] == []
