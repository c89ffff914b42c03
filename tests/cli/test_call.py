"""`toolscout call`, against a real server."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.fleet import TIME, configuration
from toolscout.cli import main

WORKER = str(Path(__file__).parents[1] / "gateway/worker.py")
CONVERT = {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}


@pytest.fixture
def config(home: Path) -> Path:
    path = configuration(home, {"time": TIME})
    with path.open("a") as file:
        file.write(
            "[servers.time.effects]\nget_current_time = 'destructive'\n"
            "[servers.missing]\ncommand = 'toolscout-test-no-such-command'\n"
        )
    return path


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["call", *arguments], input=stdin)


def test_a_tool_of_a_server_that_nobody_asked_yet_is_called_by_words(config: Path):
    result = run("time__convert_time", *(f"{key}={value}" for key, value in CONVERT.items()))

    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["target"]["timezone"] == "Asia/Tokyo"


@pytest.mark.parametrize("given", ["word", "stdin"])
def test_arguments_may_be_one_json_object(config: Path, given: str):
    text = json.dumps(CONVERT)
    words, stdin = (["-"], text) if given == "stdin" else ([text], None)

    result = run("time__convert_time", *words, "--json", stdin=stdin)

    told = json.loads(result.stdout)
    assert (result.exit_code, told["code"], told["is_error"]) == (0, "ok", False)
    assert json.loads(told["text"])["time_difference"] == "+9.0h"


def test_arguments_that_do_not_fit_are_not_sent(config: Path):
    result = run("time__convert_time", "source_timezone=UTC")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Not called: the arguments of 'time__convert_time' do not match" in result.stderr


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("UTC", "'UTC' is not an argument. Write key=value"),
        ("{UTC}", "The arguments are not JSON"),
    ],
)
def test_words_that_are_no_arguments_are_a_usage_error(config: Path, word: str, said: str):
    result = run("time__convert_time", word)

    assert result.exit_code == 2
    assert said in result.stderr


def test_a_tool_that_fails_ends_with_exit_code_1(config: Path):
    wrong = json.dumps({**CONVERT, "target_timezone": "Nowhere/Town"})

    result = run("time__convert_time", wrong)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert "Nowhere/Town" in result.stderr


def test_an_unknown_tool_is_exit_code_3(config: Path):
    result = run("time__convert_tme")

    assert result.exit_code == 3
    assert "Near: time__convert_time" in result.stderr


def test_a_server_that_does_not_start_is_exit_code_4(config: Path):
    result = run("missing__thing")

    assert result.exit_code == 4
    assert "Install toolscout-test-no-such-command" in result.stderr


def test_a_destructive_call_in_a_pipe_needs_yes(config: Path):
    refused = run("time__get_current_time", "timezone=UTC")
    made = run("time__get_current_time", "timezone=UTC", "--yes")

    assert refused.exit_code == 2
    assert "Not called: time__get_current_time may delete or overwrite something." in refused.stderr
    assert "--yes" in refused.stderr
    assert made.exit_code == 0
    assert json.loads(made.stdout)["timezone"] == "UTC"


def test_a_short_name_that_several_tools_have_is_not_called(home: Path):
    configuration(home, {"clock": TIME, "time": TIME})
    CliRunner().invoke(main, ["servers", "test"])

    result = run("convert_time")

    assert result.exit_code == 2
    assert "'convert_time' could be clock__convert_time, time__convert_time." in (
        result.stderr.replace("\n", " ")
    )


def test_a_call_that_its_server_answers_with_a_task_waits_for_the_result(home: Path):
    (home / "cake").write_text("baked", encoding="utf-8")
    configuration(home, {"work": (WORKER, str(home), "modern")})

    result = run("work__job", "name=cake", "--yes")

    assert (result.exit_code, result.stdout.strip()) == (0, "baked"), result.stderr
