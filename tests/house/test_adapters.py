"""Adapters are written against one internal module and the public names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolscout

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
    exported = ast.literal_eval(assigned_value(ADAPTERS / "_toolkit.py", "__all__"))
    used = {name for path in MODULES for name in imported_names(path)}

    assert [name for name in exported if f"{TOOLKIT}.{name}" not in used] == []


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
    adapter = path.relative_to(ADAPTERS).parts[0].removesuffix(".py")
    own = f"toolscout.adapters.{adapter}"
    lent = LEAN_ON.get(adapter)
    if lent is not None and module.startswith(f"{lent}."):
        return not needs_sdk(module)
    return module in STABLE | {TOOLKIT} or module == own or module.startswith(f"{own}.")


def needs_sdk(module: str) -> bool:
    source = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
    return "raise MissingExtra(" in source.read_text(encoding="utf-8")


def assigned_value(path: Path, name: str) -> ast.expr:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    raise AssertionError(f"{path.name} has no {name}")
