"""Generated pages say what the code says; `make docs` writes them again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from documents import load_script

ROOT = Path(__file__).parents[2]


PAGES: dict[str, Callable[[], str]] = load_script("generate").PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str):
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")

    assert written == PAGES[name](), f"Run `make docs` and commit docs/{name}."


DIAGRAMS = load_script("diagrams")


@pytest.mark.parametrize("name", DIAGRAMS.DIAGRAMS)
def test_a_diagram_is_up_to_date(name: str):
    written = (ROOT / "docs/images" / f"diagram-{name}.svg").read_text(encoding="utf-8")

    assert written == DIAGRAMS.draw_diagram(DIAGRAMS.DIAGRAMS[name]), "Run `make docs`."
