"""What `call`, `catalog` and `tokens` look like in a terminal."""

import json
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from gateway.fleet import TIME, configuration
from terminals import terminal

TOOLS = [
    {"server": "s", "name": "run", "description": "Paint walls in bright colours."},
    {"server": "s", "name": "count_sheep", "description": "", "effect": "destructive"},
]


@pytest.fixture
def tools(home: Path) -> Path:
    file = home / "tools.json"
    file.write_text(json.dumps(TOOLS))
    return file


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2)])
def test_a_destructive_call_asks_a_person_first(home: Path, answer: str, code: int):
    config = configuration(home, {"time": TIME})
    with config.open("a") as file:
        file.write("[servers.time.effects]\nget_current_time = 'destructive'\n")

    with terminal("call", "time__get_current_time", "timezone=UTC", columns=120) as view:
        shown = view.wait_for("Call it? [y/N]:")
        view.press(answer, "enter")

        assert view.wait() == code, view.text
    assert 'may delete or overwrite something. Arguments: {"timezone": "UTC"}' in shown
    assert (b"Calling time__get_current_time" in view.raw) == (answer == "y")
    assert ('"is_dst"' in view.text) == (answer == "y")
    assert ("Not called." in view.text) == (answer == "n")


def test_findings_are_grouped_by_tool_in_colour_with_bars_that_go_away(tools: Path):
    with terminal("catalog", "lint", "--catalog", tools, columns=60) as view:
        assert view.wait() == 1

    assert b"Reading definitions" in view.raw
    assert b"Trying sentences" in view.raw
    rows = [row for row in view.rows if row]
    first = rows.index("s__count_sheep")
    assert rows[first : first + 3] == [
        "s__count_sheep",
        "  error  empty-description",
        "    It has no description. Say in one sentence what it does,",
    ]
    assert view.style_of("error").fg == "red"
    assert view.style_of("warning").fg == "brown"


def test_no_color_is_obeyed(tools: Path):
    env = {"NO_COLOR": "1"}

    with terminal("describe", "count_sheep", "--catalog", tools, env=env) as view:
        assert view.wait() == 0

    assert view.style_of("destructive").fg == "default"
    assert "(no description)" in view.text


def test_a_difference_is_coloured(tools: Path, home: Path):
    (home / "new.json").write_text(json.dumps([TOOLS[0], {**TOOLS[0], "name": "feed_fish"}]))

    with terminal("catalog", "diff", tools, home / "new.json") as view:
        assert view.wait() == 0

    assert view.style_of("+ s__feed_fish").fg == "green"
    assert view.style_of("- s__count_sheep").fg == "red"


def test_prices_are_a_table_that_fits_the_window(tools: Path):
    with terminal("tokens", "--catalog", tools, "--price", 3, columns=70) as view:
        assert view.wait() == 0

    head = next(row for row in view.rows if "1,000 requests" in row)
    first = next(row for row in view.rows if row.startswith("All 2 definitions"))
    assert len(head) <= 70
    assert len(head) == len(first)
    assert "$" in first
