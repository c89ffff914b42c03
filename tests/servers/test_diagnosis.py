"""Causes that are read from what a failed program wrote."""

import asyncio
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from serving import eventually
from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig, Transport
from toolscout.servers.connection import Delays
from toolscout.servers.diagnosis import choose_error_lines, diagnose
from toolscout.servers.pool import Connector, Pool
from toolscout.servers.probe import ProbeResult, probe_server
from toolscout.servers.state import Phase
from toolscout.stores import MemoryStore

DEADLINE_SECONDS = 120

NODE_CRASH = """\
node:internal/modules/cjs/loader:1143
  throw err;
  ^

Error: Cannot find module '/srv/server.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1140:15)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v18.19.0
"""
PYTHON_CRASH = """\
INFO starting
Traceback (most recent call last):
  File "/srv/server.py", line 3, in <module>
    connect()
psycopg.OperationalError: connection refused
"""
NPM_UNKNOWN = """\
npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/nope - Not found
npm error 404
npm error 404  'nope@*' is not in this registry.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git folder.
npm error A complete log of this run can be found in: npm/_logs/x.log
"""
SDK = "it was written for an older version of the MCP SDK"
CERTIFICATE = "a certificate could not be verified"
REGISTRY = "the package registry could not be reached"


def test_the_error_of_a_node_crash_is_quoted_instead_of_its_last_lines():
    assert choose_error_lines(NODE_CRASH.splitlines(), 3) == [
        "Error: Cannot find module '/srv/server.js'"
    ]


def test_the_last_line_of_a_traceback_is_quoted():
    assert choose_error_lines(PYTHON_CRASH.splitlines(), 3) == [
        "psycopg.OperationalError: connection refused"
    ]


def test_the_code_of_an_npm_error_is_quoted_instead_of_its_log_file():
    assert choose_error_lines(NPM_UNKNOWN.splitlines(), 3) == [
        "npm error code E404",
        "npm error 404 Not Found - GET https://registry.npmjs.org/nope - Not found",
        "npm error 404  'nope@*' is not in this registry.",
    ]


def test_without_an_error_the_last_lines_are_quoted():
    assert choose_error_lines(["one", "two", "", "three"], 2) == ["two", "three"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("  Caused by: invalid peer certificate: UnknownIssuer", CERTIFICATE),
        ("npm error code SELF_SIGNED_CERT_IN_CHAIN", CERTIFICATE),
        ("npm ERR! code UNABLE_TO_GET_ISSUER_CERT_LOCALLY", CERTIFICATE),
        ("Error: unable to verify the first certificate", CERTIFICATE),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", CERTIFICATE),
        ("OSError: Tunnel connection failed: 407 authenticationrequired", "the proxy wants"),
        ("npm error 407 Proxy Authentication Required", "the proxy wants"),
        ("OSError: Tunnel connection failed: 503", "the proxy could not be used"),
        ("npm error code ECONNREFUSED", REGISTRY),
        ("npm error request failed, reason: getaddrinfo ENOTFOUND registry.npmjs.org", REGISTRY),
        ("npm error code ETIMEDOUT", REGISTRY),
        ("error: Failed to fetch: `https://pypi.org/simple/mcp/`", REGISTRY),
        ("npm error code E404", "its package was not found"),
        ("npm error code ENOTEMPTY", "the cache of npx is damaged"),
        ("AttributeError: 'Server' object has no attribute 'list_resources'", SDK),
        ("ModuleNotFoundError: No module named 'mcp.server.fastmcp'", SDK),
        ("ImportError: cannot import name 'McpError' from 'mcp' (/srv/mcp/__init__.py)", SDK),
        ("docker: Cannot connect to the Docker daemon at unix:///x", "Docker is not running"),
    ],
)
def test_a_common_cause_is_recognized_and_comes_with_a_remedy(line: str, problem: str):
    found = diagnose(["starting", line])

    assert found is not None
    assert found.problem.startswith(problem)
    assert found.remedy


@pytest.mark.parametrize(
    "line",
    [
        "connect ECONNREFUSED 127.0.0.1:5432",
        "HTTP 404 Not Found",
        "listening on port 4070",
        "ModuleNotFoundError: No module named 'mcp_notes'",
    ],
)
def test_a_failure_of_the_server_itself_is_not_taken_for_one_of_the_network(line: str):
    assert diagnose([line]) is None


def writes(text: str) -> ServerConfig:
    """Return a server that writes a text to stderr and fails."""
    script = f"import sys; sys.stderr.write({text!r}); sys.exit(1)"
    return ServerConfig(
        name="a", transport=Transport.STDIO, command=sys.executable, args=("-S", "-c", script)
    )


def probe(config: ServerConfig) -> ProbeResult:
    async def start() -> ProbeResult:
        async with asyncio.timeout(DEADLINE_SECONDS):
            with closing(Connector(Delays())) as connector:
                return await probe_server(config, connector)

    return asyncio.run(start())


def test_a_server_test_says_which_certificate_variable_to_set():
    trial = probe(
        writes("error: Request failed\n  Caused by: invalid peer certificate: UnknownIssuer")
    )

    assert trial.problem == f"it ended with code 1: {CERTIFICATE}"
    assert "NODE_EXTRA_CA_CERTS" in trial.remedy
    assert "SSL_CERT_FILE" in trial.remedy


def test_a_server_test_quotes_the_error_of_a_crash():
    trial = probe(writes(NODE_CRASH))

    assert trial.notes == ("Error: Cannot find module '/srv/server.js'",)


def test_a_running_gateway_names_the_cause_of_a_failed_start():
    async def work() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            config = writes("npm error code SELF_SIGNED_CERT_IN_CHAIN\n")
            async with Pool((config,), Catalog(), MemoryStore()) as pool:
                await eventually(lambda: pool.servers["a"].phase is Phase.FAILED)
                state = pool.catalog.state("a")

                assert state is not None
                assert state.reason == f"it ended with code 1: {CERTIFICATE}"

    asyncio.run(work())


@pytest.mark.skipif(shutil.which("npx") is None, reason="needs npx")
def test_what_npx_writes_without_a_registry_is_recognized(tmp_path: Path):
    env: dict[str, Any] = {
        "npm_config_registry": "http://127.0.0.1:9/",
        "npm_config_cache": str(tmp_path),
        "npm_config_fetch_retries": "0",
    }
    args = ("-y", "toolscout-no-such-package")
    config = ServerConfig(name="a", transport=Transport.STDIO, command="npx", args=args, env=env)

    assert probe(config).problem == f"it ended with code 1: {REGISTRY}"
