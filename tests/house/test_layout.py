"""How the package is laid out: few modules, each with a name of its own, and tests beside them."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import toolscout

ROOT = Path(__file__).parents[2]
PACKAGE = Path(toolscout.__file__).parent
TESTS = ROOT / "tests"

MOST_MODULES = 195
MOST_IN_A_DIRECTORY = 18
SMALL_LINES = 80
MOST_LINES = 69_600
MOST_WORDS = 60

ISOLATES_A_DEPENDENCY = {
    "encoders/onnx.py": "onnxruntime",
}
"""Small modules with one importer that stand alone because what they import is optional."""

SAME_CONCEPT = {
    "approvals": "which definitions may be used, and the command that decides it",
    "audit": "the audit record, and the command that shows it",
    "call": "the verb of a session and its command",
    "catalog": "the catalogue, its command and its page in the console",
    "describe": "the verb of a session and its command",
    "diff": "comparing catalogues, and showing that",
    "events": "the event stream, and the page's feed of it",
    "gateway": "the gateway and its part of the configuration",
    "hints": "the hints of tools, and the command that shows and writes them",
    "postgres": "the store and the index that are kept in PostgreSQL",
    "replay": "replaying recorded queries, and the command",
    "edits": "changes of a configuration file, and the console that makes them",
    "search": "the verb of a session, its command and its page in the console",
    "servers": "the configuration of servers, their command and their page in the console",
    "skills": "the skills of folders, and the connection that offers them to the gateway",
    "tokens": "counting tokens, and the command that prints what they cost",
}
"""Basenames that occur in several packages because they are one concept at several layers."""

USERS_IMPLEMENT = {"Encoder", "Store"}
"""Protocols that users implement."""

WITHOUT_ADAPTER = {"claude_agent_sdk", "litellm", "mcp1", "plain_loop"}
"""Clients that `tests/adapters` tries although they need no adapter."""


def test_no_directory_is_crowded():
    crowded = {
        str(folder.relative_to(PACKAGE)): len(modules_in(folder))
        for folder in [PACKAGE, *PACKAGE.rglob("*")]
        if folder.is_dir() and len(modules_in(folder)) > MOST_IN_A_DIRECTORY
    }

    assert crowded == {}


def test_the_package_stays_small():
    files = list(PACKAGE.rglob("*.py"))
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)

    assert len([path for path in files if path.name != "__init__.py"]) <= MOST_MODULES
    assert lines <= MOST_LINES


def test_a_small_module_has_more_than_one_importer():
    importers: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for name in imported_names(path):
            importers[name].add(str(path))
    lonely = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.stem not in ("__init__", "__main__")
        and len(path.read_text(encoding="utf-8").splitlines()) < SMALL_LINES
        and len(importers[dotted(path)]) == 1
    ]

    assert sorted(set(lonely) - set(ISOLATES_A_DEPENDENCY)) == []


def test_no_two_packages_have_a_module_of_the_same_name():
    homes: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        if path.stem not in ("__init__", "__main__"):
            homes[path.stem].append(str(path.relative_to(PACKAGE)))

    twice = {name: places for name, places in homes.items() if len(places) > 1}

    assert {name: twice[name] for name in twice.keys() - SAME_CONCEPT.keys()} == {}


def test_a_protocol_has_two_implementations_or_is_for_users():
    classes = list(all_classes([*PACKAGE.rglob("*.py"), *TESTS.rglob("*.py")]))
    for protocol in classes:
        if is_protocol(protocol) and protocol.name not in USERS_IMPLEMENT:
            # Implementations may give a property as a plain attribute.
            wanted = methods_of(protocol) - properties_of(protocol)
            found = {
                other.name
                for other in classes
                if not is_protocol(other) and wanted <= methods_of(other)
            }

            # A protocol of one call is met by functions, which are not counted here.
            assert len(found) >= 2 or wanted == {"__call__"}, f"{protocol.name}: {sorted(found)}"


def test_the_glossary_is_short():
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| (?!Word)([^|]+) \|", page, re.MULTILINE)

    assert words == sorted(words, key=str.casefold)
    assert 20 <= len(words) <= MOST_WORDS


def test_tests_mirror_modules():
    strays = [
        str(path.relative_to(ROOT))
        for path in sorted(TESTS.rglob("test_*.py"))
        if path.relative_to(TESTS).parts[0]
        not in ("house", "integration", "benchmarks", "security")
        and not mirrors_a_module(path)
    ]

    assert strays == []


def mirrors_a_module(test: Path) -> bool:
    """Tell whether a test is named after a module of its package, or after the package itself."""
    folder = PACKAGE / test.parent.relative_to(TESTS)
    names = {path.stem.strip("_") for path in folder.glob("*.py")} | {folder.name}
    names |= {path.name for path in folder.glob("*") if path.is_dir()}
    names |= WITHOUT_ADAPTER if folder.name == "adapters" else set()
    topic = test.stem.removeprefix("test_")
    return any(topic == name or topic.startswith(f"{name}_") for name in names)


def modules_in(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.py") if path.name != "__init__.py"]


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def imported_names(path: Path) -> Iterator[str]:
    """Yield every module that a file may import, also for type checkers and as a string."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Commands and public names are imported by name when they are first used.
            yield node.value.partition(":")[0]
            yield f"toolscout.{node.value}"


def all_classes(paths: list[Path]) -> Iterator[ast.ClassDef]:
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node


def is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases)


def methods_of(node: ast.ClassDef) -> set[str]:
    return {
        member.name
        for member in node.body
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def properties_of(node: ast.ClassDef) -> set[str]:
    return {
        member.name
        for member in node.body
        if isinstance(member, ast.FunctionDef)
        and any(ast.unparse(mark) == "property" for mark in member.decorator_list)
    }
