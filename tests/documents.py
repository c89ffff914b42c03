"""The scripts that make the documentation, for the tests of what they make."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def load_script(name: str) -> Any:
    """Return a script of docs/ as a module; the folder is no package."""
    module_name = f"docs_{name}"
    spec = importlib.util.spec_from_file_location(module_name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    return module
