"""Generated pages say what the code says; `make docs` writes them again."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

ROOT = Path(__file__).parents[2]


def load_pages() -> dict[str, Callable[[], str]]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("dict[str, Callable[[], str]]", module.PAGES)


PAGES = load_pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str):
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")

    assert written == PAGES[name](), f"Run `make docs` and commit docs/{name}."
