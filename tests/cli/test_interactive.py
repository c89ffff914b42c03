"""`toolscout search --interactive`, in a terminal as a person has it."""

import signal
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolscout.cli import main

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from terminals import Terminal, terminal
from toolscout.cli.screens import keys_of
from toolscout.files import write_tools
from toolscout.tools import Tool

PULL = "github__create_pull_request"


def opened(view: Terminal) -> None:
    view.wait_for("esc leave")


def test_results_come_as_you_type_and_escape_leaves_the_terminal_as_it_was():
    with terminal("search", "--interactive") as view:
        opened(view)
        assert view.rows[0] == ">"
        assert "Type what a tool should do" in view.text
        assert not view.is_as_before()

        view.press("open a pull requ")
        view.wait_for(lambda: view.rows[0] == "> open a pull requ")
        assert view.rows[2].startswith(f"▸ {PULL}")
        assert (view.screen.cursor.x, view.screen.cursor.y) == (len("> open a pull requ"), 0)

        view.press("escape")
        assert view.wait() == 0
        assert view.is_as_before()
        assert view.raw.endswith(b"\x1b[?25h\x1b[?1049l")


def test_arrows_choose_and_enter_shows_the_definition():
    with terminal("search", "--interactive", "open a pull request") as view:
        opened(view)
        first = view.rows[2].split()[1]
        second = view.rows[4].split()[0]
        view.press("down")
        view.wait_for(f"▸ {second}")
        assert f"▸ {first}" not in view.text

        view.press("enter")
        view.wait_for("esc back")
        assert view.rows[0] == second
        assert f"{second}(" in view.text
        assert '"properties": {' in view.text

        view.press("down", "down")
        view.wait_for(lambda: f"{second}(" in view.text and "esc back" in view.text)
        view.press("escape")
        view.wait_for(f"▸ {second}")
        view.press("escape")
        assert view.wait() == 0


def test_a_long_definition_is_scrolled_to_its_end(tmp_path: Path):
    properties = {f"field_{n}": {"type": "string"} for n in range(40)}
    schema = {"type": "object", "properties": properties}
    write_tools(tmp_path / "t.json", [Tool.define("long", server="s", input_schema=schema)])

    with terminal("search", "-i", "long", "--tools", tmp_path / "t.json") as view:
        opened(view)
        view.press("enter")
        view.wait_for("esc back")
        assert 'field_39": {' not in view.text
        view.press(*["\x1b[6~"] * 20)
        view.wait_for('"field_39": {')
        assert view.rows[0] == "s__long"


def test_ctrl_c_leaves_with_130_and_gives_the_terminal_back():
    with terminal("search", "--interactive") as view:
        opened(view)
        view.press("mail", "ctrl-c")

        assert view.wait() == 130
        assert view.is_as_before()
        assert b"Traceback" not in view.raw


def test_a_terminal_is_given_back_when_the_program_is_told_to_end():
    with terminal("search", "--interactive") as view:
        opened(view)
        view.process.send_signal(signal.SIGTERM)

        assert view.wait() == 128 + signal.SIGTERM
        assert view.is_as_before()
        assert view.raw.endswith(b"\x1b[?25h\x1b[?1049l")


def test_half_a_query_that_is_none_is_a_message_and_no_end():
    with terminal("search", "--interactive") as view:
        opened(view)
        view.press("server:nobody x")
        view.wait_for("There is no server 'nobody'")
        view.press(*["backspace"] * 20, "weather")
        view.wait_for("▸ weather__")


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (20, 6), (8, 4)])
def test_every_line_fits_the_window(columns: int, lines: int):
    with terminal("search", "-i", "--explain", columns=columns, lines=lines) as view:
        view.wait_for(">")
        view.press("pull request")
        view.wait_for(lambda: view.rows[2].startswith("▸ gith"))

        assert view.rows[0].startswith("> ")
        assert view.screen.cursor.y == 0
        view.press("escape")
        assert view.wait() == 0


def test_a_resized_window_is_drawn_anew():
    with terminal("search", "--interactive", "open a pull request") as view:
        opened(view)
        assert "(owner*" in view.rows[2]

        view.resize(50, 12)
        view.wait_for(lambda: "(owner*" not in view.text and view.rows[11].startswith("up/down"))
        assert view.rows[2].startswith(f"▸ {PULL}")

        view.resize(120, 30)
        view.wait_for(lambda: view.rows[29].startswith("up/down"))
        assert "(owner*" in view.rows[2]


def test_tab_shows_each_signal_as_a_bar():
    with terminal("search", "--interactive", "open a pull request") as view:
        opened(view)
        assert "█" not in view.text
        view.press("tab")
        view.wait_for("█")
        assert f"why {PULL}:" in view.text


def test_colour_is_left_out_where_nobody_wants_it():
    with terminal("search", "-i", "open a pull request") as coloured:
        opened(coloured)
        assert coloured.style_of("github__list").fg == "cyan"
    with terminal("search", "-i", "open a pull request", env={"NO_COLOR": "1"}) as plain:
        opened(plain)
        assert plain.style_of("github__list").fg == "default"
        assert f"▸ {PULL}" in plain.text


def test_a_long_query_keeps_its_cursor_in_the_window():
    with terminal("search", "--interactive", columns=30) as view:
        opened_narrow = "up/down choose"
        view.wait_for(opened_narrow)
        view.press("tell the team in chat that the release is out")
        view.wait_for(lambda: view.rows[0].endswith("release is out"))
        assert view.screen.cursor.x == len(view.rows[0])


def test_wide_characters_count_as_two_columns():
    with terminal("search", "--interactive") as view:
        opened(view)
        view.press("天気")
        view.wait_for(lambda: "気" in view.rows[0])
        view.wait_for(lambda: view.screen.cursor.x == 2 + 4)


def test_a_definition_cannot_steer_the_terminal(tmp_path: Path):
    # JSON writes U+009B as it is, and terminals take it for the beginning of a command.
    about = "clear\x9b2J\x1b[2J\u202e"
    schema = {"type": "object", "properties": {"x": {"type": "string", "description": about}}}
    tool = Tool.define("evil", server="s", description=about, input_schema=schema)
    write_tools(tmp_path / "t.json", [tool])

    with terminal("search", "-i", "evil", "--tools", tmp_path / "t.json", lines=40) as view:
        opened(view)
        view.press("enter")
        view.wait_for("esc back")
        assert '"description": "clear' in view.text
        assert b"\x1b[2J" not in view.raw
        assert "\x9b".encode() not in view.raw
        assert "\u202e".encode() not in view.raw


def test_without_a_terminal_it_says_what_to_do():
    result = CliRunner().invoke(main, ["search", "--interactive"])

    assert result.exit_code == 2
    assert "--interactive needs a terminal. Leave it out, and give a QUERY." in result.stderr


def test_a_terminal_without_a_cursor_is_refused():
    with terminal("search", "--interactive", env={"TERM": "dumb"}) as view:
        assert view.wait() == 2
        assert "can move its cursor" in view.text


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("ab", ["a", "b"]),
        ("\x1b[A\x1bOB", ["up", "down"]),
        ("\x1b", ["escape"]),
        ("\x1b[1;5C\x1b[200~x", ["x"]),
        ("é天\r", ["é", "天", "enter"]),
        ("\x00\x02", []),
    ],
)
def test_keys_are_told_as_words_and_unknown_ones_type_nothing(sent: str, keys: list[str]):
    assert list(keys_of(sent)) == keys
