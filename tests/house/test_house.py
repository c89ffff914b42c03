"""Rules about errors, commands, texts and marks that no linter knows."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
from click.testing import CliRunner

import toolscout
from toolscout import errors
from toolscout.cli import COMMANDS, main
from toolscout.errors import ToolscoutError

ROOT = Path(__file__).parents[2]
SCANNED = (
    "src",
    "benchmarks",
    "tests",
    "docs",
    "examples",
    "plugins",
    ".ci",
    ".claude-plugin",
    ".github",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "GOVERNANCE.md",
    "README.md",
    "SECURITY.md",
    "THIRD_PARTY.md",
    "Makefile",
    "pyproject.toml",
    "server.json",
)
TEXT_ENDINGS = ("", ".json", ".jsonl", ".md", ".py", ".toml", ".txt", ".yml")
WORK_MACHINE = re.compile(r"(?<![\w.])/(?:work|root)/")
REQUIREMENTS = 109


def test_every_error_is_in_the_tree_under_its_parent():
    tree = re.findall(r"^ {4}([\s│├└─]*)([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    drawn: dict[str, str] = {}
    path: list[str] = []
    for indent, name in tree:
        path[len(indent) // 4 :] = [name]
        drawn[name] = path[-2] if len(path) > 1 else "Exception"

    real = {cls.__name__: cls.__bases__[0].__name__ for cls in error_classes(errors.__name__)}

    assert drawn == real


def test_errors_live_in_one_module():
    for module in pkgutil.walk_packages(toolscout.__path__, "toolscout."):
        if not module.name.startswith("toolscout.adapters."):  # each needs an SDK
            importlib.import_module(module.name)

    elsewhere = {c.__name__ for c in descendants(ToolscoutError) if is_ours(c)}

    assert elsewhere == {c.__name__ for c in error_classes(errors.__name__)}


def test_every_command_has_an_example_in_its_help():
    for words in commands(main):
        result = CliRunner().invoke(main, [*words, "--help"])
        shown = " ".join(("toolscout", *words))

        assert re.search(rf"Example:\n +{shown}", result.stdout), f"{shown} --help has no example"


def test_the_list_of_commands_has_the_first_sentence_of_each_help():
    context = click.Context(main)
    for name, (_, _, text) in COMMANDS.items():
        command = main.get_command(context, name)

        assert command is not None
        assert command.get_short_help_str(limit=100) == text


def test_no_file_names_a_path_of_a_work_machine():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in text_files()
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
        )
        if WORK_MACHINE.search(line)
    ]

    assert found == []


def test_marks_cite_requirements_that_exist():
    real = {f"R{number}" for number in range(1, REQUIREMENTS + 1)}

    for path in (ROOT / "tests").rglob("*.py"):
        if ".requirement(" in path.read_text(encoding="utf-8"):
            for name in cited_requirements(path):
                assert name in real, f"{path.name} cites {name}"


def test_every_requirement_has_a_test_that_names_it_and_a_line_in_the_document():
    page = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    shown = {test: set(ids) for path in modules_of_tests() for test, ids in marked_tests(path)}

    for number in range(1, REQUIREMENTS + 1):
        line = re.search(rf"^\| R{number} \|.*$", page, re.MULTILINE)
        assert line, f"docs/requirements.md has no line for R{number}"
        named = re.findall(r"`(tests/[^`]+)`", line[0])
        assert named, f"docs/requirements.md names no test for R{number}"
        for test in named:
            assert f"R{number}" in shown.get(test, ()), f"{test} does not show R{number}"


def test_a_test_that_is_marked_with_a_requirement_names_it_in_its_docstring():
    for path in modules_of_tests():
        for node in functions(path):
            for name in requirements_of(node):
                assert name in (ast.get_docstring(node) or ""), f"{path.name}::{node.name}"


def modules_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def requirements_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    marks = [d for d in node.decorator_list if isinstance(d, ast.Call)]
    return [name for mark in marks for name in cited_in(mark)]


def marked_tests(path: Path) -> Iterator[tuple[str, list[str]]]:
    for node in functions(path):
        yield f"{path.relative_to(ROOT)}::{node.name}", requirements_of(node)


def error_classes(module: str) -> list[type[ToolscoutError]]:
    return [cls for cls in descendants(ToolscoutError) if cls.__module__ == module]


def descendants(cls: type[ToolscoutError]) -> Iterator[type[ToolscoutError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from descendants(child)


def is_ours(cls: type) -> bool:
    return cls.__module__.startswith("toolscout.")


def commands(command: click.Command, *words: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command; of a group, those of its commands."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, *words, name)
    else:
        yield words


def text_files() -> Iterator[Path]:
    for place in map(ROOT.joinpath, SCANNED):
        inside = place.rglob("*") if place.is_dir() else [place]
        for path in inside:
            if path.is_file() and path.suffix in TEXT_ENDINGS and "__pycache__" not in path.parts:
                yield path


def cited_requirements(path: Path) -> Iterator[str]:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call):
            yield from cited_in(node)


def cited_in(call: ast.Call) -> Iterator[str]:
    if isinstance(call.func, ast.Attribute) and call.func.attr == "requirement":
        for argument in call.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value
