"""Adapters are written against one internal module and the public names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import pytest

import toolscout

ROOT = Path(__file__).parents[2]
PACKAGE = Path(toolscout.__file__).parent
ADAPTERS = PACKAGE / "adapters"
TOOLKIT = "toolscout.adapters._toolkit"
STABLE = {
    "toolscout",
    *(f"toolscout.{name}" for name in ("demo", "encoders", "errors", "files", "stores", "testing")),
}
LEAN_ON = {
    "langchain": "toolscout.adapters.anthropic",
    "openai_agents": "toolscout.adapters.openai",
}
"""Adapters for SDKs that speak another provider's API; they share that adapter's JSON modules."""
MODULES = sorted(path for path in ADAPTERS.rglob("*.py") if path.name != "_toolkit.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ADAPTERS)))
def test_an_adapter_imports_the_toolkit_and_public_names_only(path: Path):
    assert [name for name in imported_names(path) if not is_allowed(name, path)] == []


def test_the_toolkit_offers_only_names_that_an_adapter_uses():
    toolkit = ADAPTERS / "_toolkit.py"
    own = {n.id for n in ast.walk(ast.parse(toolkit.read_text())) if isinstance(n, ast.Name)}
    borrowed = [name.rpartition(".")[2] for name in imported_names(toolkit)]
    exported = [name for name in borrowed if name not in own] + defined_names(toolkit)
    used = {name for path in MODULES for name in imported_names(path)}

    assert [name for name in exported if f"{TOOLKIT}.{name}" not in used] == []


def test_the_documents_list_every_private_member_that_an_adapter_relies_on():
    listed = {(row["adapter"], name) for row in private_rows() for name in row["members"]}

    assert listed == {(adapter_of(path), name) for path in MODULES for name in relied_on(path)}


def test_the_documents_name_the_locked_versions_of_these_sdks():
    for row in private_rows():
        lock = ROOT / "tests" / "adapters" / "locks" / f"{row['adapter'].replace('_', '-')}.txt"
        package, version = row["checked"].split()

        assert f"{package}=={version}" in lock.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ADAPTERS)))
def test_an_adapter_checks_a_private_member_before_it_uses_it(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {n.name for n in ast.walk(tree) if isinstance(n, ast.AsyncFunctionDef)}
    own |= {ast.unparse(n.target) for n in ast.walk(tree) if isinstance(n, ast.AnnAssign)}
    written = {n.attr for n in ast.walk(tree) if is_private(n) and isinstance(n.ctx, ast.Store)}
    read = {n.attr for n in ast.walk(tree) if is_private(n) and isinstance(n.ctx, ast.Load)}

    assert read - own - written - relied_on(path) == set()


def is_private(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
    )


def relied_on(path: Path) -> set[str]:
    """Return the private members of an SDK that a module requires, or looks for by name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {
        ast.unparse(node.targets[0]): node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("require_members", "getattr"):
            for argument in node.args[1:]:
                if isinstance(argument, ast.Starred):
                    names |= set(ast.literal_eval(constants[ast.unparse(argument.value)]))
                elif isinstance(argument, ast.Constant):
                    names.add(str(argument.value))
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def private_rows() -> list[dict[str, Any]]:
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    table = page.partition("<!-- private: begin -->")[2].partition("<!-- private: end -->")[0]
    rows = [line.strip("| ").split(" | ") for line in table.strip().splitlines()[2:]]
    return [
        {
            "adapter": name.strip("`"),
            "members": re.findall(r"`(_\w+)`", members),
            "checked": checked,
        }
        for name, members, _, checked in rows
    ]


def adapter_of(path: Path) -> str:
    return path.relative_to(ADAPTERS).parts[0].removesuffix(".py")


def imported_names(path: Path) -> Iterator[str]:
    """Yield what a module imports of ours, as `module.name`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolscout"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("toolscout"))


def is_allowed(name: str, path: Path) -> bool:
    module, _, member = name.rpartition(".")
    if module == "toolscout":
        return member in toolscout.__all__
    adapter = adapter_of(path)
    own = f"toolscout.adapters.{adapter}"
    lent = LEAN_ON.get(adapter)
    if lent is not None and module.startswith(f"{lent}."):
        return not needs_sdk(module)
    return module in STABLE | {TOOLKIT} or module == own or module.startswith(f"{own}.")


def needs_sdk(module: str) -> bool:
    source = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
    return "raise MissingExtra(" in source.read_text(encoding="utf-8")


def defined_names(path: Path) -> list[str]:
    """Return the public functions and classes of a module."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [name for name in names if not name.startswith("_")]
