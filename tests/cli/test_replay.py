"""`toolscout replay`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolscout.cli import main
from toolscout.search.feedback import hash_query
from toolscout.sessions.usage import UsageLog
from toolscout.stores import SqliteStore

pytestmark = pytest.mark.usefixtures("home")


def tool(name: str, description: str) -> dict[str, str]:
    return {"server": "s", "name": name, "description": description}


BREAD = tool("bake_bread", "Bake a loaf of bread.")
OLD = [
    BREAD,
    tool("paint_wall", "Colour the wall of a room."),
    tool("feed_fish", "Put food into a tank."),
    tool("count_sheep", "Xyzzy."),
    tool("fall_asleep", "Fall asleep at once."),
]
NEW = [
    BREAD,
    tool("paint_wall", "Xyzzy."),
    tool("colour_wall", "Colour the wall of a room."),
    tool("count_sheep", "Fall asleep at once."),
]
RECORDING = [
    {"query": "bake bread", "tool": "s__bake_bread"},
    {"query": "colour the wall", "tool": "s__paint_wall", "times": 2},
    {"query": "food for the tank", "tool": "feed_fish"},
    {"query": "fall asleep at once", "tool": "s__count_sheep"},
]
SHOWN = """\
gone     1  -  feed_fish       food for the tank
missing  1  2  s__paint_wall   colour the wall
found    2  1  s__count_sheep  fall asleep at once

4 queries: 1 gone, 1 missing, 1 found, 1 same.
Found among the first 1: 40.0% (80.0% before).
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["replay", *map(str, arguments)])


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def recording(home: Path) -> Path:
    return write(home / "calls.jsonl", RECORDING)


@pytest.fixture
def old(home: Path) -> Path:
    return write(home / "old.jsonl", OLD)


@pytest.fixture
def new(home: Path) -> Path:
    return write(home / "new.jsonl", NEW)


def test_moves_are_listed_worst_first(recording: Path, old: Path, new: Path):
    result = run(recording, "--catalog", new, "--against", old, "--within", 1)

    assert (result.exit_code, result.stdout) == (0, SHOWN)


def test_what_did_not_move_is_listed_if_asked_for(recording: Path, old: Path, new: Path):
    shown = run(recording, "--catalog", new, "--against", old, "--all").stdout

    assert "s__bake_bread" in shown


def test_json_has_ranks_shares_and_fates(recording: Path, old: Path, new: Path):
    options = ("--against", old, "--within", 1, "--json")

    told = json.loads(run(recording, "--catalog", new, *options).stdout)

    assert (told["queries"], told["found"], told["found_before"]) == (4, 0.4, 0.8)
    assert told["counts"] == {"gone": 1, "missing": 1, "found": 1, "same": 1}
    assert told["moves"][1] == {
        "query": "colour the wall",
        "tool": "s__paint_wall",
        "times": 2,
        "before": 1,
        "after": 2,
        "fate": "missing",
    }


def test_one_catalogue_alone_is_measured_and_not_compared(recording: Path, old: Path):
    result = run(recording, "--catalog", old, "--within", 1)

    assert result.stdout == (
        "unfound  -  2  s__count_sheep  fall asleep at once\n\n"
        "4 queries: 1 unfound, 3 found.\nFound among the first 1: 80.0%.\n"
    )


@pytest.mark.parametrize(("share", "code"), [(0.4, 0), (0.5, 1)])
def test_too_small_a_share_is_exit_code_1(recording: Path, new: Path, share: float, code: int):
    result = run(recording, "--catalog", new, "--within", 1, "--fail-below", share)

    assert result.exit_code == code
    assert ("Found 40.0%, below the required 50.0%." in result.stderr) == bool(code)


def test_a_recording_is_built_from_the_store_of_a_gateway(home: Path, new: Path):
    config = home / "toolscout.toml"
    config.write_text("[gateway]\ncache = 'gateway.db'\n")
    with SqliteStore(home / "gateway.db") as store:
        past = UsageLog(store, lambda: 1.0)
        for _ in range(2):
            past.add("c", "bake bread", "s__bake_bread", "ok")
        past.add("c", "bake bread", "s__bake_bread", "tool_error")
        past.add("c", hash_query("secret"), "s__paint_wall", "ok")
        past.add("c", "", "s__paint_wall", "ok")

    made = run("--record", "calls.jsonl")
    replayed = run("calls.jsonl", "--catalog", new)

    assert made.exit_code == 0, made.stderr
    assert made.stderr.startswith("Wrote 1 queries to calls.jsonl.\nSkipped 1 calls whose query")
    assert json.loads((home / "calls.jsonl").read_text()) == {
        "query": "bake bread",
        "tool": "s__bake_bread",
        "times": 2,
    }
    assert "Found among the first 5: 100.0%." in replayed.stdout


def test_recording_without_a_gateways_store_says_what_to_do(home: Path):
    (home / "toolscout.toml").write_text("[gateway]\ncache = 'gateway.db'\n")

    result = run("--record", "calls.jsonl")

    assert result.exit_code == 2
    assert "Run the gateway with `toolscout serve` first." in result.stderr


@pytest.mark.parametrize("words", [(), ("calls.jsonl", "--record", "x.jsonl")])
def test_either_a_recording_is_replayed_or_one_is_made(recording: Path, words: tuple[str, ...]):
    result = run(*words)

    assert result.exit_code == 2
    assert "Give either a RECORDING to replay or --record FILE to make one." in result.stderr


@pytest.fixture
def store(home: Path) -> Path:
    """Return the store of a gateway that two users have taught."""
    (home / "toolscout.toml").write_text("[gateway]\ncache = 'gateway.db'\n")
    with SqliteStore(home / "gateway.db") as store:
        past = UsageLog(store, lambda: 1.0)
        past.add("c", "bake bread", "s__bake_bread", "ok", principal="alice")
        past.add("c", "bake bread", "s__bake_bread", "ok", principal="bob")
        past.add("c", "colour the wall", "s__paint_wall", "ok")
    return home / "gateway.db"


def run_learned(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["learned", *arguments])


def list_learned() -> list[tuple[str, str, int]]:
    rows = json.loads(run_learned("list", "--json").stdout)["learned"]
    return [(row["tool"], row["request"], row["principals"]) for row in rows]


@pytest.mark.usefixtures("store")
def test_what_was_learned_is_listed_by_tool():
    shown = run_learned().stdout

    assert list_learned() == [
        ("s__bake_bread", "bake bread", 2),
        ("s__paint_wall", "colour the wall", 1),
    ]
    assert [line.split()[0] for line in shown.splitlines()] == ["s__bake_bread", "s__paint_wall"]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["s__bake_bread"], ["s__paint_wall"]),
        (["--request", "Colour the  wall"], ["s__bake_bread"]),
        (["--all"], []),
    ],
)
def test_what_was_learned_is_forgotten_for_good(arguments: list[str], left: list[str]):
    done = run_learned("forget", *arguments)

    assert done.exit_code == 0, done.output
    assert [tool for tool, _, _ in list_learned()] == left


@pytest.mark.usefixtures("store")
def test_forgetting_what_nobody_learned_says_so():
    done = run_learned("forget", "s__unknown")

    assert done.exit_code == 3
    assert "Forgot 0 requests." in done.stdout
    assert "toolscout learned" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["a", "--all"], ["a", "--request", "b"]])
def test_one_thing_is_forgotten_at_a_time(arguments: list[str]):
    done = run_learned("forget", *arguments)

    assert done.exit_code == 2
    assert "Name a TOOL, or use --request TEXT or --all." in done.stderr


def test_without_a_gateway_nothing_has_been_learned(home: Path):
    (home / "toolscout.toml").write_text("[gateway]\ncache = 'gateway.db'\n")

    assert run_learned().stdout == "Nothing has been learned yet.\n"
