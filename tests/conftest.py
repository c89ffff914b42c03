"""What holds for all tests: which of them run when, and the same examples on every machine.

`make quick` runs tests without the marks `processes` and `slow`, `make test` those without `slow`,
and `make test-slow` the rest. Whole files get their marks here, single tests where they are.
"""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolscout.encoders import encoder

SLOW = """
console/test_app_hosts.py console/test_console_page.py console/test_console_screens.py
daemon/test_daemon.py daemon/test_relay.py
gateway/test_gateway_clients.py gateway/test_gateway_replicas.py
integration/test_node_servers.py integration/test_packages.py integration/test_readme.py
security/test_isolation.py
stores/test_postgres_failover.py stores/test_stores_killed.py
cli/test_cli_terminal.py cli/test_search_try.py
"""
"""Files whose tests take seconds of processor time: browsers, terminals, kills, builds, Node."""
PROCESSES = """
cli/test_approvals.py cli/test_call.py cli/test_cli_commands_page.py cli/test_describe.py
cli/test_policy.py cli/test_search.py
cli/test_cli_main.py cli/test_doctor.py cli/test_inputs.py cli/test_inputs_completion.py
cli/test_output.py cli/test_serve_console.py cli/test_servers.py cli/test_servers_add.py
cli/test_servers_login.py cli/test_status.py clients/test_permissions.py
config/test_references.py
console/test_app_stream.py console/test_edits.py
console/test_routes.py console/test_servers.py console/test_sessions.py
gateway/test_*.py
integration/test_deployment.py integration/test_examples.py integration/test_listings.py
house/test_imports.py house/test_walks.py
security/test_asking.py security/test_changed_definitions.py security/test_identity.py
security/test_limited_token.py security/test_model.py security/test_network.py
security/test_redaction.py
security/test_repository.py security/test_upstream*.py
servers/test_connection*.py servers/test_diagnosis.py servers/test_listings.py
servers/test_manifest.py servers/test_mcp_requests.py servers/test_probe_calls.py
servers/test_process_*.py servers/test_servers_faults.py servers/test_state_watched.py
servers/test_transport.py
stores/test_postgres*.py stores/test_sqlite.py
"""
"""Files whose tests start servers, gateways or databases."""
LONG = """
console/test_map.py integration/test_nonsense.py integration/test_translated.py
search/test_index_threads.py
servers/oauth/test_login_bearer.py servers/openapi/test_document.py
sessions/test_prompt_listing.py skills/test_skills_quality.py
"""
"""Files that start no process but take seconds; `make test` runs them and `make quick` does not."""
PROCESS_FIXTURES = {"postgres_url", "site"}
"""Fixtures that start a database or build the documentation site."""
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("quick", settings.get_profile("steady"), max_examples=5)
settings.load_profile("steady")

_started: list[str] = []


def _note_process(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen":
        _started.append(str(arguments[1])[:200])


sys.addaudithook(_note_process)


def _is_quick(config: pytest.Config) -> bool:
    return "not processes" in config.option.markexpr


def pytest_configure(config: pytest.Config) -> None:
    if _is_quick(config):
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the files that `make quick` or `make test` leaves out."""
    if _is_quick(config):
        left_out = SLOW + PROCESSES + LONG
    elif config.option.markexpr == "not slow":
        left_out = SLOW
    else:
        return None
    return True if _is_listed(collection_path, left_out) else None


@cache
def _is_listed(path: Path, patterns: str) -> bool:
    return any(path.match(f"tests/{pattern}") for pattern in patterns.split())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for patterns, mark in ((SLOW, pytest.mark.slow), (PROCESSES, pytest.mark.processes)):
            if _is_listed(item.path, patterns):
                item.add_marker(mark)
        if _is_quick(config):
            _limit_examples(item)
        if item.get_closest_marker("slow") is not None or PROCESS_FIXTURES & _list_fixtures(item):
            item.add_marker(pytest.mark.processes)


def _limit_examples(item: pytest.Item) -> None:
    """Try no more examples of a property than the profile, whatever the test itself asks for."""
    test = getattr(item, "obj", None)
    own = getattr(test, "_hypothesis_internal_use_settings", None)
    if own is not None:
        most = settings.get_profile("quick").max_examples
        limited = settings(own, max_examples=min(most, own.max_examples))
        vars(test)["_hypothesis_internal_use_settings"] = limited


def pytest_collection_finish() -> None:
    """Keep the garbage collector from visiting all tests and modules again and again."""
    _start_hypothesis()
    gc.collect()
    gc.freeze()


@settings(max_examples=1, database=None)
@given(st.none())
def _start_hypothesis(_: None) -> None:
    """Let Hypothesis make its generators, which with Python 3.14 it warns about once frozen."""


def _list_fixtures(item: pytest.Item) -> set[str]:
    return set(getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    return (yield from _watch_processes(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    return (yield from _watch_processes(item))


def _watch_processes(item: pytest.Item) -> Generator[None]:
    """Fail a test of `make quick` that starts a process, which would make it slow for everybody."""
    before = len(_started)
    yield
    if _is_quick(item.config) and len(_started) > before:
        remedy = "Mark it with @pytest.mark.processes, or add its file to PROCESSES."
        pytest.fail(f"This test started a process: {_started[before]}. {remedy}")


# A job that a shell started in the background ignores Ctrl-C, and so would all its children.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def static_table() -> Iterator[None]:
    """Read the table of the default encoder once per process; every `Scout` would take 0.1 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "check_file", cache(encoder.check_file))
        patch.setattr(encoder.Table, "load", cache(encoder.Table.load))
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """Read the trusted certificates once per process; every HTTP client would take 0.03 s."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("httpcore2") is not None:  # an extra
            make = import_module("httpcore2").default_ssl_context

            @cache
            def remember(_files: tuple[str | None, ...], **options: Any) -> Any:
                return make(**options)

            def remember_for_files(**options: Any) -> Any:
                files = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
                return remember(files, **options)

            patch.setattr("httpcore2.default_ssl_context", remember_for_files)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_daemon_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """See to it that no test leaves a gateway in the background behind."""
    yield
    ours = str(tmp_path_factory.getbasetemp())
    listed = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True).stdout
    assert [line for line in listed.splitlines() if ours in line and "--as-daemon" in line] == []


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Give the address of a real PostgreSQL server, from a wheel, on a socket of its own."""
    # The environments of adapters have no driver of PostgreSQL.
    from databases import run_postgres

    with run_postgres() as url:
        yield url
