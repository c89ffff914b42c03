"""What the tests of calls share: a server to call."""

from collections.abc import Iterator

import pytest

from servers.openapi.services import Service


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("NO_PROXY", "*")
    service = Service()
    yield service
    service.close()
