"""Generated pages say what the code says; `make docs` writes them again."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def load_generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES: dict[str, Callable[[], str]] = load_generator().PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str):
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")

    assert written == PAGES[name](), f"Run `make docs` and commit docs/{name}."
