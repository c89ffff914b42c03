"""What clients save that share a gateway, measured with real clients and servers."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.commands import main
from benchmarks.report import tabulate_sharing


@pytest.mark.timeout(600)
def test_clients_are_measured_with_a_gateway_each_and_with_one_for_all():
    words = ["daemon", "--clients", "2", "--servers", "1", "--json"]
    ran = CliRunner().invoke(main, words, catch_exceptions=False)

    found = json.loads(ran.stdout)
    alone, shared = found["alone"], found["shared"]
    assert alone["processes"] > shared["processes"] > found["clients"]
    assert alone["megabytes"] > shared["megabytes"] > 0
    assert alone["next_seconds"] > shared["next_seconds"] > 0
    table = tabulate_sharing(found)
    assert table.title == "2 clients over stdio, 1 servers"
    assert table.rows[0] == ("processes", str(alone["processes"]), str(shared["processes"]))
