"""Which headers the configuration may set."""

import pytest

from servers.openapi.samples import operation
from toolscout.errors import InvalidConfig
from toolscout.servers.openapi import OpenApi


def test_a_header_that_is_none_is_refused_without_its_value():
    for name, value in (("a b", "s3cret"), ("a", "s3cret\r\nb: c")):
        with pytest.raises(InvalidConfig) as caught:
            OpenApi(operation(), server="api", base_url="http://h/", headers={name: value})

        assert "s3cret" not in str(caught.value)
