"""The tools that commands work on, and where they come from."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.fleet import TIME, configuration
from toolscout.cli import main
from toolscout.cli.inputs import import_tools
from toolscout.errors import InvalidFile


def test_tools_that_name_a_server_keep_it_and_others_get_the_one_given(tmp_path: Path):
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"name": "a"}, {"name": "b", "server": "own"}]))

    assert [tool.name for tool in import_tools(file, "given")] == ["given__a", "own__b"]
    assert [tool.name for tool in import_tools(file)] == ["a", "own__b"]


def test_an_old_document_is_refused_as_a_document_not_as_tools(tmp_path: Path):
    file = tmp_path / "api.json"
    file.write_text(json.dumps({"swagger": "2.0", "paths": {}}))

    with pytest.raises(InvalidFile, match=r"is Swagger 2\.0, not OpenAPI 3"):
        import_tools(file)


def test_a_file_that_is_nothing_is_refused_as_tools(tmp_path: Path):
    file = tmp_path / "tools.json"
    file.write_text("{")

    with pytest.raises(InvalidFile, match="is not JSON"):
        import_tools(file)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration of a server whose tools are known, and of one whose tools are not."""
    folder = tmp_path_factory.mktemp("known")
    servers = {"time": TIME, "late": ("-c", "raise SystemExit(1)")}
    config = configuration(folder, servers, encoder="none")
    CliRunner().invoke(main, ["servers", "test", "time", "--config", str(config)])
    return config


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


COMMANDS = {
    "search": ("search", "current time"),
    "describe": ("describe", "get_current_time"),
    "call": ("call", "time__get_current_time", "timezone=Asia/Tokyo"),
    "tokens": ("tokens",),
    "export": ("catalog", "export"),
    "lint": ("catalog", "lint", "--fail-on", "never", "--show", "info"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_works_on_the_configured_servers_and_says_so(
    words: tuple[str, ...], known: Path, home: Path
):
    shutil.copy(known, home / "toolscout.toml")

    result = run(*words)

    assert result.exit_code == 0, result.stderr
    assert "time" in result.stdout or "2 tools: " in result.stdout
    assert result.stderr.splitlines() == [
        f"Using 2 tools of 1 server in {home / 'toolscout.toml'}.",
        "The tools of late are not known yet. Run `toolscout servers test` to fetch them.",
    ]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_takes_a_configuration(words: tuple[str, ...], known: Path):
    result = run(*words, "--config", known)

    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith(f"Using 2 tools of 1 server in {known}.\n")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", ["search", "describe", "tokens", "export", "lint"])
def test_every_command_that_reads_tools_takes_files_of_them(command: str, tmp_path: Path):
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"name": "get_current_time", "server": "time"}]))

    result = run(*COMMANDS[command], "--catalog", file)

    assert result.exit_code == 0, result.stderr
    assert result.stderr == f"Using 1 tool of 1 server in {file}.\n"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", ["search", "tokens", "lint"])
def test_a_configuration_given_as_a_catalogue_is_sent_to_its_own_option(command: str, known: Path):
    result = run(*COMMANDS[command], "--catalog", known)

    assert result.exit_code == 2
    assert f"{known} is a configuration. Name it with --config." in result.stderr


def test_a_configuration_without_servers_leaves_the_demo_catalogue(home: Path):
    (home / "toolscout.toml").write_text("[gateway]\n")

    result = run("search", "open a pull request")

    assert "github__create_pull_request" in result.stdout
    assert result.stderr.startswith("Using the demo catalogue; ")


@pytest.mark.usefixtures("home")
def test_a_search_uses_the_encoder_of_the_configuration(known: Path):
    def sum_meaning(*options: str) -> float:
        query = ("search", "hour of day in a city", "--all", "--json", "--config", known)
        hits = json.loads(run(*query, *options).stdout)["hits"]
        return sum(abs(hit["why"]["shares"]["meaning"]) for hit in hits)

    assert sum_meaning() == 0
    assert sum_meaning("--encoder", "static") > 0
