"""`docs/security.md` names a test for each promise, and the test exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_promise_names_a_test_that_exists():
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    section = page.split("## What is promised")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))

    assert len(rows) > 20
    for row in rows:
        [name] = re.findall(r"`(test_\w+)`", row)
        assert f"def {name}(" in tests, name
    for name in re.findall(r"`(test_\w+)`", page):
        assert f"def {name}(" in tests, name
