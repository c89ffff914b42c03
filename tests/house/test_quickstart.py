"""The page about the first ten minutes shows a complete run, and nothing of one machine."""

import json
import re
from pathlib import Path

import pytest

from first_run.newcomer import BROKEN, CLIENTS, SERVERS
from first_run.quickstart import HOME, SHOWN, clean

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/quickstart.md"


def shown(name: str) -> str:
    found = re.search(
        rf"<!-- first run: {name} -->\n\n```text\n(.*?)^```$",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert found, name
    return found[1]


@pytest.mark.parametrize("name", SHOWN)
def test_each_step_shows_what_it_printed(name: str):
    assert len(shown(name).splitlines()) >= 2


@pytest.mark.parametrize("step", ["init", "test"])
def test_every_server_but_one_works(step: str):
    outcomes = dict(re.findall(r"^([\w-]+) +(ok|failed)  ", shown(step), re.MULTILINE))

    assert outcomes == {name: "failed" if name == BROKEN else "ok" for name in SERVERS}


def test_no_path_of_the_machine_that_wrote_it_is_left():
    paths = re.findall(r"(?<![\w.@:])/[a-z][\w./-]+", PAGE.read_text(encoding="utf-8"))

    assert {
        path for path in paths if not path.startswith((HOME, "/usr/bin/", "/etc/ssl/"))
    } == set()


def test_every_everyday_request_expects_a_tool_of_a_server_that_the_run_has():
    lines = (ROOT / "tests/quality/everyday.jsonl").read_text(encoding="utf-8").splitlines()
    requests = [json.loads(line) for line in lines]
    servers = {tool.partition("__")[0] for request in requests for tool in request["tools"]}

    assert len({request["request"] for request in requests}) == 30
    assert servers == set(SERVERS) - {BROKEN}


def test_the_clients_of_the_run_have_all_servers_between_them():
    assert {name for names in CLIENTS.values() for name in names} == set(SERVERS)


def test_only_the_first_change_of_a_file_is_shown_and_one_wait():
    change = (
        "{} would start toolscout instead of 1 server (a):\n--- f (as it is)\n+++ f\n@@ 1 @@\n-a\n"
    )
    waits = "a: npx may still be installing it; waiting up to 600 s.\n"
    text = f"{change.format('One')}done\n{change.format('Two')}done\n{waits}{waits}  kept\n"

    cleaned = clean(text, Path("/nowhere"))

    assert cleaned.count("-a") == 1
    assert cleaned.count("may still be installing") == 1
    assert cleaned.endswith("  kept\n")
