"""The documents keep their word: blocks run, commands, tests and pages that they name exist."""

import ast
import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from toolscout.cli import main

ROOT = Path(__file__).parents[2]
PAGES = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "plugins").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
SHELLS = ("sh", "console")
SHOWN = ("", "json", "python", "python no-run", "text", "toml", "yaml")

_BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_NAMED_TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and the line of its page on which its text begins."""

    info: str
    text: str
    line: int


def every_page() -> pytest.MarkDecorator:
    names = [str(page.relative_to(ROOT)) for page in PAGES]
    return pytest.mark.parametrize("page", PAGES, ids=names)


@every_page()
def test_the_python_blocks_of_a_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem}

    needs_sdk = page.parent.name == "adapters"  # run in their own environments, as examples
    for block in blocks(page):
        if block.info == "python" and not needs_sdk:
            # Blank lines in front, so that a traceback shows the line of the page.
            exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), names)


@every_page()
def test_blocks_that_do_not_run_use_names_that_exist(page: Path):
    for block in blocks(page):
        if block.info == "python no-run":
            for node in ast.walk(ast.parse(block.text)):  # which fails unless it is Python
                if isinstance(node, ast.ImportFrom) and str(node.module).startswith("toolscout"):
                    known = find_names(str(node.module))
                    assert {alias.name for alias in node.names} <= known, f"line {block.line}"


def find_names(module: str) -> set[str]:
    """Return the names in a module of ours, which may need an SDK that is not installed."""
    path = ROOT / "src" / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return set(re.findall(r"\w+", file.read_text(encoding="utf-8")))


def test_the_loop_of_the_library_page_answers_a_model():
    page = ROOT / "docs/start/library.md"
    first = next(block for block in blocks(page) if "session = scout.session" in block.text)
    [loop] = [block for block in blocks(page) if block.info == "python no-run"]
    order = {"order_id": "A-7", "cents": 500}
    answers = iter(
        [
            write_call("tool_search", {"queries": ["give the money back"]}),
            write_call("tool_call", {"name": "refund_order", "arguments": order}),
            {"role": "assistant", "content": "Done."},
        ]
    )

    def call_model(messages: object, tools: object) -> dict[str, Any]:
        return next(answers)

    names: dict[str, Any] = {"call_model": call_model}
    exec(first.text, names)
    asyncio.run(eval(compile(loop.text, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names))

    *_, called, last = names["messages"]
    assert "Refunded 500 cents of order A-7." in called["content"]
    assert last["content"] == "Done."


def write_call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a message of a model that calls a tool, in the format of Chat Completions."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}


@every_page()
def test_console_blocks_show_what_the_command_prints(page: Path):
    for block in blocks(page):
        if block.info == "console":
            command, _, shown = block.text.partition("\n")
            result = CliRunner().invoke(main, shlex.split(command)[2:])

            assert result.stdout == shown, f"{command} prints something else now"


@every_page()
def test_every_command_that_a_page_names_exists(page: Path):
    if page.name == "CHANGELOG.md":
        return  # past releases had commands that are gone
    for line in commands(page):
        command, rest = found_command(line)
        options = {name for parameter in command.params for name in parameter.opts}

        for word in rest:
            assert not word.startswith("-") or word in {*options, "--help"}, line


@every_page()
def test_links_between_pages_resolve(page: Path):
    for target in _LINK.findall(without_blocks(page)):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            linked = (page.parent / path).resolve() if path else page

            assert linked.is_file(), target
            assert not anchor or anchor in anchors(linked), target


@every_page()
def test_every_test_that_a_page_names_exists(page: Path):
    for path, name in _NAMED_TEST.findall(page.read_text(encoding="utf-8")):
        source = (ROOT / path).read_text(encoding="utf-8")

        assert not name or f"def {name}(" in source, f"{path}::{name}"


def test_a_block_from_the_page_of_an_adapter_is_still_on_that_page():
    page = ROOT / "docs/start/adapter.md"
    found = re.findall(
        r"^<!-- from: (\w+) -->\n\n```python no-run\n(.*?)^```$",
        page.read_text("utf-8"),
        re.M | re.S,
    )

    assert found
    for name, text in found:  # where it runs with the SDK
        assert text in (ROOT / f"docs/adapters/{name}.md").read_text(encoding="utf-8")


def test_only_known_blocks_are_skipped():
    for page in PAGES:
        for block in blocks(page):
            assert block.info in (*SHOWN, *SHELLS), page.name


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        yield Block(match[1].strip(), match[2], text.count("\n", 0, match.start(2)) + 1)


def without_blocks(page: Path) -> str:
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors that a page's headings get."""
    headings = _HEADING.findall(without_blocks(page))
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words after `toolscout` of every command line, in blocks and in running text."""
    lines = [line for block in blocks(page) if block.info in SHELLS for line in text_lines(block)]
    for line in (*lines, *_INLINE.findall(without_blocks(page))):
        program, *words = shlex.split(line, comments=True) if "toolscout " in line else [""]
        if program == "toolscout" and words:
            yield words


def text_lines(block: Block) -> Iterator[str]:
    for line in block.text.splitlines():
        if block.info != "console":
            yield line
        elif line.startswith("$ "):
            yield line[2:]


def found_command(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that the first words name, and the words behind it."""
    command: click.Command = main
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        inner = command.get_command(click.Context(command), name)
        assert inner is not None, f"There is no command {name!r} in {' '.join(words)!r}."
        command = inner
    return command, rest
