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
import shlex
import tomllib
from abc import ABC
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

import toolscout
from toolscout import demo, encoders, errors, files, stores, testing
from toolscout.cli import main as main_command
from toolscout.clients.discovery import OWN, Source
from toolscout.clients.programs import CLIENTS, Client
from toolscout.clients.rewrite import Launch, add_table, format_manual_change
from toolscout.config.edits import format_toml
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, IssuerConfig, Profile, Rule, TokenConfig
from toolscout.config.servers import (
    REMOTE,
    ServerConfig,
    SkillsConfig,
    ToolOverride,
    Transport,
)
from toolscout.gateway import events as gateway_events
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.metrics import Metrics
from toolscout.options import Option, Options, list_options
from toolscout.schemas import Json
from toolscout.sessions import events as session_events
from toolscout.sessions.events import Called, Described, Event, Ran, Searched
from toolscout.settings import Programs, Route, Settings

DOCS = Path(__file__).parent
TESTS = DOCS.parent / "tests"
ADAPTERS = TESTS / "adapters"
NAMED_TESTS = 2
"""Tests that the requirements page names for each requirement; it counts the others."""
OPTIONS: dict[str, type[Options]] = {
    "servers": ServerConfig,
    "servers.tools": ToolOverride,
    "skills": SkillsConfig,
    "gateway": GatewayConfig,
    "gateway.tokens": TokenConfig,
    "gateway.issuers": IssuerConfig,
    "gateway.profiles": Profile,
    "gateway.rules": Rule,
    "sessions": Settings,
    "sessions.routes": Route,
    "programs": Programs,
}
"""Every class of options, by the table of the configuration file that it describes."""
STABLE = (demo, encoders, files, stores, testing)
"""Modules with stable names besides those of `toolscout` itself."""
LAUNCH = Launch(command="uvx", args=("--from", "toolscout[gateway]", "toolscout", "serve"))
"""How clients start toolscout on the page of clients."""
FOLDERS = {
    "home": "~",
    "config": "~/.config",
    "settings": "SETTINGS",
    "claude": "~",
    "codex": "~/.codex",
    "copilot": "~/.copilot",
}
"""How the page of clients writes the places of `Client`."""
LIST_OF_WORDS = re.compile(r'\[\s*"[^"\\]*"(?:,\s*"[^"\\]*")*\s*\]')


def build_api() -> str:
    """Return the page of all public names with their signatures and docstrings."""
    parts = [
        "# Python API",
        "Everything that `import toolscout` offers, generated from the code by `make docs`. "
        "The modules at the end are stable as well, and so are `toolscout.errors` "
        "([errors](errors.md)) and `toolscout.adapters` ([adapters](adapters.md)). "
        "All other names may change at any time.",
    ]
    for name in toolscout.__all__:
        if not name.startswith("__"):
            parts.extend(describe_name(f"## {name}", name, getattr(toolscout, name)))
    for module in STABLE:
        parts.append(f"## {module.__name__}")
        parts.append(read_doc(module))
        for name in list_public(module):
            found = getattr(module, name)
            if name not in toolscout.__all__:
                parts.extend(describe_name(f"### {name}", name, found))
    return "\n\n".join(parts) + "\n"


def list_public(module: ModuleType) -> list[str]:
    """Return the public names of a module: those that it lists, or those that it defines."""
    if "__all__" in vars(module):
        return sorted(module.__all__)
    return [
        name
        for name, found in vars(module).items()
        if not name.startswith("_")
        and getattr(found, "__module__", "") == module.__name__
        and (inspect.isclass(found) or inspect.isfunction(found))
    ]


def describe_name(heading: str, name: str, found: Any) -> Iterator[str]:
    """Yield the heading, signature and members of one public name."""
    yield heading
    if inspect.isclass(found) and issubclass(found, enum.Enum):
        yield read_doc(found)
        yield "Values: " + ", ".join(f"`{member.value}`" for member in found) + "."
        return
    yield f"```text\n{format_signature(name, found)}\n```"
    yield read_doc(found)
    if inspect.isclass(found):
        rows = list(list_members(found))
        if rows:
            yield "\n".join(["| Member | |", "|---|---|", *rows])


def read_doc(found: object) -> str:
    """Return the docstring of an object without the requirements that it names."""
    return re.sub(r" \(R\d+(?:, R\d+)*\)", "", inspect.getdoc(found) or "")


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
    text = re.sub(r"typing\.Union\[[^|]*Buffer, .*?bytes \| str\]\]", "ArrayLike", text)
    text = re.sub(r"numpy\._typing[\w.]*\._?(\w+)", r"\1", text)
    return re.sub(r"\b(?:toolscout|collections|typing|types)\.[\w.]*?(\w+)(?![\w.])", r"\1", text)


def list_members(found: type) -> Iterator[str]:
    """Yield a table row for each public method, property and field of a class of ours."""
    # Of a dataclass, the signature shows the fields already.
    fields: set[str] = set(getattr(found, "__dataclass_fields__", ()))
    members: dict[str, object] = {}
    for base in reversed(found.__mro__):
        if base is found or (base.__module__.startswith("toolscout") and issubclass(base, ABC)):
            members |= vars(base)
    for name, value in sorted(members.items()):
        if name.startswith("_") or name in fields:
            continue
        text = read_doc(value).partition("\n\n")[0].replace("\n", " ")
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
    if isinstance(declared.default, Options):
        return ""
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


def build_clients() -> str:
    """Return the page that shows how to add toolscout to each client."""
    parts = [
        "# Add toolscout to a client",
        "`toolscout init` does this for all your clients at once and moves their servers behind "
        "toolscout; see [clients](gateway.md#clients). Use this page if you prefer to edit the "
        "files yourself. `make docs` generates it from the code.",
        "Run `uvx --from 'toolscout[gateway]' toolscout init` or `toolscout servers add` first. "
        "Either one writes a configuration with your servers, and no client has to wait for the "
        "download later.",
        "`uvx` comes with [uv](https://docs.astral.sh/uv/) and downloads toolscout when it first "
        "starts it. If you have installed toolscout, use `toolscout` as the command and `serve` as "
        "its only argument. If a desktop program does not find `uvx`, use its full path, which "
        "`which uvx` prints.",
        "If the client's file already exists, add the entry to the ones that are there. `SETTINGS` "
        "is `~/.config` on Linux, `~/Library/Application Support` on macOS and `%APPDATA%` on "
        "Windows.",
    ]
    for client in CLIENTS:
        parts.extend(describe_client(client))
    return "\n\n".join(parts) + "\n"


def describe_client(client: Client) -> Iterator[str]:
    """Yield the heading of a client, its command, and the entry for its file."""
    yield f"## {client.title}"
    if client.adds_with:
        command = shlex.join((LAUNCH.command, *LAUNCH.args))
        entry = json.dumps({"name": OWN, **LAUNCH.to_entry(client.title)})
        line = client.adds_with.format(command=command, entry=shlex.quote(entry))
        yield f"```sh\n{line}\n```"
    file = client.files[0].format(**FOLDERS)
    yield f"{'Or in' if client.adds_with else 'In'} `{file}`:"
    kind, text = format_entry(client)
    yield f"```{kind}\n{text}\n```"


def format_entry(client: Client) -> tuple[str, str]:
    """Return the language of a client's file, and the file with the entry for toolscout alone."""
    path = Path(client.files[0])
    if client.is_yaml:
        source = Source(program=client.title, path=path)
        return "yaml", "\n".join(format_manual_change(source, LAUNCH, ())[1:])
    tables: Json = {}
    add_table(tables, client.keys, {OWN: LAUNCH.to_entry(client.title)})
    if path.suffix == ".toml":
        return "toml", format_toml(tables).strip()
    return "json", LIST_OF_WORDS.sub(to_one_line, json.dumps(tables, indent=2))


def to_one_line(found: re.Match[str]) -> str:
    """Return a list in JSON on one line, as people write it."""
    return json.dumps(json.loads(found[0]))


def build_support() -> str:
    """Return the support page with the versions of Python, of MCP and of the SDKs."""
    text = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    parts = {
        "python": list_pythons(project),
        "protocols": list_protocols(),
        "sdks": list_sdks(project),
    }

    def fill(match: re.Match[str]) -> str:
        return match[1] + "".join(f"| {' | '.join(row)} |\n" for row in parts[match[2]])

    page = (DOCS / "support.md").read_text(encoding="utf-8")
    return re.sub(r"^(<!-- (?!end)(\w+) -->\n).*?(?=^<!-- end -->$)", fill, page, flags=re.M | re.S)


def list_pythons(project: Json) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the versions of Python that a package names."""
    yield ("Python", "What is tested")
    yield ("---", "---")
    named = [re.search(r":: (3\.\d+)$", one) for one in project["classifiers"]]
    versions = [found[1] for found in named if found]
    for version in versions:
        first = "; all adapters" if version == versions[0] else ""
        yield (version, f"`make test`, by the workflow `test`{first}")


def list_protocols() -> Iterator[tuple[str, ...]]:
    """Yield the rows of the versions of MCP that the SDK knows."""
    yield ("Version", "Sessions")
    yield ("---", "---")
    for version in sorted((*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS), reverse=True):
        is_modern = version in MODERN_PROTOCOL_VERSIONS
        yield (version, "none on the wire" if is_modern else "begin with a handshake")


def list_sdks(project: Json) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the SDKs: what the extra accepts, and what is tested."""
    table = tomllib.loads((ADAPTERS / "environments.toml").read_text(encoding="utf-8"))
    yield ("Extra", "Accepts", "Tested with")
    yield ("---", "---", "---")
    for name, environment in table["environments"].items():
        if not environment.get("adapter", True):
            continue
        locked = (ADAPTERS / "locks" / f"{name}.txt").read_text(encoding="utf-8")
        pinned = dict[str, str](re.findall(r"^([\w.-]+)==(\S+)", locked, re.M))
        tested = ", ".join(f"{sdk} {pinned[sdk]}" for sdk in environment["sdk"])
        accepted = ", ".join(f"`{one}`" for one in project["optional-dependencies"][name])
        yield (f"`{name}`", accepted, tested)


def build_errors() -> str:
    """Return the page of errors with a table for each kind of reader."""
    tables = {
        "model": errors.ModelError,
        "upstream": errors.UpstreamError,
        "usage": errors.UsageError,
    }

    def fill(match: re.Match[str]) -> str:
        rows = "".join(f"| {' | '.join(row)} |\n" for row in list_errors(tables[match[2]]))
        return f"{match[1]}{rows}"

    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    mark = re.compile(r"^(<!-- errors: (\w+) -->\n).*?(?=^<!-- end -->$)", re.M | re.S)
    return mark.sub(fill, page)


def list_errors(kind: type[errors.ToolscoutError]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a kind of error; those that a model reads have a code."""
    has_code = hasattr(kind, "code")
    yield ("Code", "Error", "") if has_code else ("Error", "")
    yield ("---", "---", "---") if has_code else ("---", "---")
    for found in (kind, *list_subclasses(kind)):
        text = read_doc(found).partition("\n\n")[0].replace("\n", " ")
        code = (f"`{getattr(found, 'code')}`",) if has_code else ()  # noqa: B009  # of its kind only
        yield (*code, f"`{found.__name__}`", text)


def list_subclasses(kind: type) -> Iterator[type]:
    """Yield all classes below one, each before those below it."""
    for found in kind.__subclasses__():
        if found.__module__.startswith("toolscout."):
            yield found
            yield from list_subclasses(found)


def build_events() -> str:
    """Return the page of events with the fields of each."""
    groups = {"sessions": session_events, "gateway": gateway_events}

    def fill(match: re.Match[str]) -> str:
        module = groups[match[2]]
        named = vars(module).values()
        found = [one for one in named if inspect.isclass(one) and issubclass(one, Event)]
        own = [one for one in found if one.__module__ == module.__name__]
        return match[1] + "".join(f"\n{describe_event(one)}\n" for one in own) + "\n"

    page = (DOCS / "events.md").read_text(encoding="utf-8")
    mark = re.compile(r"^(<!-- events: (\w+) -->\n).*?(?=^<!-- end -->$)", re.M | re.S)
    return mark.sub(fill, page)


def describe_event(event: type) -> str:
    """Return the section of an event: its docstring and a row for each field of its own."""
    [tree] = ast.parse(inspect.getsource(event)).body
    assert isinstance(tree, ast.ClassDef)
    rows = ["| Field | Type | |", "|---|---|---|"]
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign):
            shown = ast.unparse(node.annotation).replace("|", "\\|")
            rows.append(
                f"| `{ast.unparse(node.target)}` | `{shown}` | {read_docstring(following)} |"
            )
    base = event.__bases__[0]
    text = read_doc(event)
    if issubclass(base, Event):
        text += f"\n\nAlso has the fields of `{base.__name__}`."
    table = "\n\n" + "\n".join(rows) if len(rows) > 2 else ""
    return f"### {event.__name__}\n\n{text}{table}"


def read_docstring(node: ast.stmt | None) -> str:
    """Return the text of a string that stands alone, on one line."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(inspect.cleandoc(str(node.value.value)).split())
    return ""


def build_metrics() -> str:
    """Return the page of metrics with what a gateway counts after one event of each kind."""
    server = ServerConfig(name="any", transport=Transport.STDIO, command="any")
    metrics = Metrics(Gateway(Config(servers=(server,)), stores.MemoryStore()))
    for event in (Searched(), Described(), Called(), Called(made=False), Ran()):
        metrics.on_event(event)
    rows = ["| Metric | Type | Labels | |", "|---|---|---|---|"]
    found = [one for one in metrics.registry.collect() if one.name.startswith(OWN)]
    for metric in sorted(found, key=lambda one: one.name):
        suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
        labelled = dict.fromkeys(label for sample in metric.samples for label in sample.labels)
        labels = ", ".join(f"`{label}`" for label in labelled if label != "le")
        text = metric.documentation
        rows.append(f"| `{metric.name}{suffix}` | {metric.type} | {labels} | {text} |")
    table = "".join(f"{row}\n" for row in rows)
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    mark = re.compile(r"^(<!-- metrics -->\n).*?(?=^<!-- end -->$)", re.M | re.S)
    return mark.sub(lambda found: f"{found[1]}{table}", page)


PAGES: dict[str, Callable[[], str]] = {
    "api.md": build_api,
    "cli.md": build_cli,
    "clients.md": build_clients,
    "configuration.md": build_configuration,
    "errors.md": build_errors,
    "events.md": build_events,
    "metrics.md": build_metrics,
    "requirements.md": build_requirements,
    "support.md": build_support,
}
"""Every generated page, with the function that builds it."""


def main() -> None:
    """Write all generated pages."""
    for name, build in PAGES.items():
        (DOCS / name).write_text(build(), encoding="utf-8")


if __name__ == "__main__":
    main()
