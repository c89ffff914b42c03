"""Write the generated pages of the documentation: `python docs/generate.py`, or `make docs`.

Each page is a function that returns its text, so that `tests/house/test_generated.py` can compare
the files with what the code says now. A page that is partly written by hand keeps its text outside
the marks of its generated parts, such as `<!-- options: NAME -->` and `<!-- end -->`.
"""

import ast
import enum
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

import toolscout
from toolscout.cli import main as main_command
from toolscout.config.gateway import GatewayConfig, IssuerConfig, Profile, Rule, TokenConfig
from toolscout.config.servers import REMOTE, ServerConfig, ToolOverride
from toolscout.options import Option, Options, list_options
from toolscout.settings import Route, Settings

DOCS = Path(__file__).parent
TESTS = DOCS.parent / "tests"
NAMED_TESTS = 2
"""Tests that the requirements page names for each requirement; it counts the others."""
OPTIONS: dict[str, type[Options]] = {
    "servers": ServerConfig,
    "servers.tools": ToolOverride,
    "gateway": GatewayConfig,
    "gateway.tokens": TokenConfig,
    "gateway.issuers": IssuerConfig,
    "gateway.profiles": Profile,
    "gateway.rules": Rule,
    "sessions": Settings,
    "sessions.routes": Route,
}
"""Every class of options, by the table of the configuration file that it describes."""


def build_api() -> str:
    """Return the page of all public names with their signatures and docstrings."""
    parts = [
        "# Python API",
        "Everything that `import toolscout` offers, generated from the code by `make docs`. "
        "Names that are not on this page may change at any time; "
        "`toolscout.adapters`, `.demo`, `.encoders`, `.errors`, `.files`, `.stores` and "
        "`.testing` are stable as well.",
    ]
    for name in toolscout.__all__:
        if not name.startswith("__"):
            parts.extend(describe_name(name, getattr(toolscout, name)))
    return "\n\n".join(parts) + "\n"


def describe_name(name: str, found: Any) -> Iterator[str]:
    """Yield the heading, signature and members of one public name."""
    yield f"## {name}"
    if inspect.isclass(found) and issubclass(found, enum.Enum):
        yield inspect.getdoc(found) or ""
        yield "Values: " + ", ".join(f"`{member.value}`" for member in found) + "."
        return
    yield f"```text\n{format_signature(name, found)}\n```"
    yield inspect.getdoc(found) or ""
    if inspect.isclass(found):
        rows = list(list_members(found))
        if rows:
            yield "\n".join(rows)


def format_signature(name: str, found: Any) -> str:
    """Return a call with its parameters, one per line if there are many."""
    if inspect.isclass(found) and issubclass(found, Exception):
        return f"class {name}({found.__bases__[0].__name__})"
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return name
    parameters = [str(p) for p in signature.parameters.values() if p.name != "self"]
    marks = [str(p.kind) for p in signature.parameters.values() if p.name != "self"]
    if "KEYWORD_ONLY" in " ".join(marks) and "*args" not in parameters:
        first = next(i for i, mark in enumerate(marks) if "KEYWORD" in mark and "POS" not in mark)
        parameters.insert(first, "*")
    text = f"{name}({', '.join(parameters)})"
    if len(text) > 90:
        text = f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + ")"
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)
    text = re.sub(r"numpy\._typing[\w.]*\._?(\w+)", r"\1", text)
    return re.sub(r"\b(?:toolscout|collections|typing|types)\.[\w.]*?(\w+)(?![\w.])", r"\1", text)


def list_members(found: type) -> Iterator[str]:
    """Yield a table row for each public method, property and field that a class adds."""
    # Of a dataclass, the signature shows the fields already.
    fields: set[str] = set(getattr(found, "__dataclass_fields__", ()))
    yield "| Member | |\n|---|---|"
    for name, value in sorted(vars(found).items()):
        if name.startswith("_") or name in fields:
            continue
        text = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
        if isinstance(value, property):
            yield f"| `{name}` | {text} |"
        elif callable(value) or isinstance(value, classmethod | staticmethod):
            yield f"| `{name}()` | {text} |"


def build_requirements() -> str:
    """Return the requirements page with the tests that are marked with each requirement."""
    marked = dict[str, list[str]]()
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, requirement in read_marks(path):
            marked.setdefault(requirement, []).append(f"{path.relative_to(DOCS.parent)}::{name}")

    def fill(match: re.Match[str]) -> str:
        tests = marked.get(match[2], [])
        named = ", ".join(f"`{test}`" for test in tests[:NAMED_TESTS])
        rest = len(tests) - NAMED_TESTS
        return f"{match[1]}{named}{f' and {rest} more' if rest > 0 else ''} |"

    page = (DOCS / "requirements.md").read_text(encoding="utf-8")
    return re.sub(r"^(\| (R\d+) \|[^|]*\|[^|]*\| ).*\|$", fill, page, flags=re.MULTILINE)


def read_marks(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each test of a file with each requirement that it is marked with."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith(".requirement"):
                    for argument in mark.args:
                        yield node.name, str(ast.literal_eval(argument))


def build_configuration() -> str:
    """Return the configuration page with a table for every class of options."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}{format_options(OPTIONS[match[2]])}"

    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    mark = re.compile(r"^(<!-- options: ([\w.]+) -->\n).*?(?=^<!-- end -->$)", re.M | re.S)
    return mark.sub(fill, page)


def format_options(group: type[Options]) -> str:
    """Return the table of a class of options."""
    head = "| Option | Value | Default | Notes | |\n|---|---|---|---|---|\n"
    return head + "".join(f"| {' | '.join(list_cells(one))} |\n" for one in list_options(group))


def list_cells(declared: Option) -> Iterator[str]:
    """Yield the cells of an option's row."""
    yield f"`{declared.name}`"
    yield declared.check.expected + (f" ({declared.unit})" if declared.unit else "")
    yield format_default(declared)
    only = "remote" if declared.only == REMOTE else " ".join(declared.only)
    notes = {
        only: bool(declared.only),
        "secret": declared.secret,
        "path": declared.path,
        "reference": declared.reference and not declared.path,
        "restart": declared.needs_restart,
    }
    yield ", ".join(note for note, applies in notes.items() if applies)
    yield declared.doc


def format_default(declared: Option) -> str:
    """Return a default as TOML writes it, nothing for an empty one."""
    if declared.is_required:
        return "required"
    if declared.default in ("", (), {}, None):
        return ""
    if isinstance(declared.default, float):
        return f"`{declared.default:g}`"
    return f"`{json.dumps(declared.default)}`"


def build_cli() -> str:
    """Return the page of all commands with their arguments and options."""
    parts = [
        "# Command line",
        "Every command of `toolscout` with its arguments and options, generated from the code by "
        "`make docs`. [Commands](commands.md) shows how to use them.",
    ]
    for context in list_commands(click.Context(main_command, info_name="toolscout")):
        parts.extend(describe_command(context))
    return "\n\n".join(parts) + "\n"


def list_commands(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of a command; of a group, those of its commands."""
    command = context.command
    if not isinstance(command, click.Group):
        yield context
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from list_commands(click.Context(inner, info_name=name, parent=context))


def describe_command(context: click.Context) -> Iterator[str]:
    """Yield the heading, usage, help and parameters of one command."""
    command = context.command
    yield f"## {context.command_path}"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```"
    yield inspect.cleandoc(command.help or "").partition("\b")[0].strip()
    rows = [describe_option(option, context) for option in command.params]
    rows = [f"| {left} | {text} |" for left, text in filter(None, rows)]
    if rows:
        yield "\n".join(["| Option | |", "|---|---|", *rows])


def describe_option(option: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    """Return the two cells of an option, or nothing for an argument, which the usage shows."""
    record = option.get_help_record(context)
    if record is None:
        return None
    left, text = record
    return f"`{left}`".replace("|", "\\|"), " ".join(text.split()).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {
    "api.md": build_api,
    "cli.md": build_cli,
    "configuration.md": build_configuration,
    "requirements.md": build_requirements,
}
"""Every generated page, with the function that builds it."""


def main() -> None:
    """Write all generated pages."""
    for name, build in PAGES.items():
        (DOCS / name).write_text(build(), encoding="utf-8")


if __name__ == "__main__":
    main()
