"""What the package promises to those who import it."""

import ast
import tomllib
from pathlib import Path

import pytest

import toolscout

ROOT = Path(__file__).parents[2]
PACKAGE = Path(toolscout.__file__).parent


def test_public_names_are_sorted_and_equal_those_that_checkers_see():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "importlib"
        for alias in node.names
    }

    assert toolscout.__all__ == sorted(toolscout.__all__)
    assert set(toolscout.__all__) == imported
    assert len(toolscout.__all__) == 25
    assert dir(toolscout) == toolscout.__all__


@pytest.mark.parametrize("name", toolscout.__all__)
def test_every_public_name_resolves_to_a_documented_object(name: str):
    found = getattr(toolscout, name)

    assert found.__name__ == name
    assert found.__doc__ and not found.__doc__.startswith(f"{name}(")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'toolscout' has no attribute 'Katalog'"):
        getattr(toolscout, "Katalog")  # noqa: B009  # a checker refuses the plain spelling


def test_the_version_is_the_same_in_package_project_and_changelog():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = [line for line in changelog.splitlines() if line.startswith("## ")]
    released = [head for head in heads if head != "## Unreleased"]

    assert toolscout.__version__ == project["project"]["version"]
    assert released[0].split()[1] == project["project"]["version"]
