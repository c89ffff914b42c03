"""Rewriting the files of clients, and undoing that."""

import json
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.clients.discovery import Source
from toolscout.clients.rewrite import Launch, Rewrite, format_diff, plan_rewrite
from toolscout.clients.undo import find_backup, find_undos, put_back, write_rewrite
from toolscout.config.documents import document_from_text
from toolscout.config.file import Config, import_servers
from toolscout.errors import InvalidFile

SECRET = "ghp_0123456789abcdefSECRET"
LAUNCH = Launch(command="/opt/bin/toolscout", args=("serve", "--config", "/etc/t.toml"))
ENTRY = {"command": "/opt/bin/toolscout", "args": ["serve", "--config", "/etc/t.toml"]}
TYPED = {"type": "stdio", **ENTRY}

CURSOR = """\
{
  // what I use
  "mcpServers": {
    "github": { "command": "npx", "args": ["-y", "gh"], "env": {"T": "SECRET"} }, // the best
    /* odd */ "odd": { "command": 7 },
    "web": { "url": "https://web.example/mcp" },
  },
  "other": [1, 2, {"mcpServers": {}}] // stays
}
"""
CURSOR_AFTER = """\
{
  // what I use
  "mcpServers": { // the best
    /* odd */ "odd": { "command": 7 },
    "toolscout": {
      "command": "/opt/bin/toolscout",
      "args": [
        "serve",
        "--config",
        "/etc/t.toml"
      ]
    }
  },
  "other": [1, 2, {"mcpServers": {}}] // stays
}
"""
CODEX = """\
model = "gpt" # mine

[mcp_servers.github]
command = "npx"
args = ["-y", "gh"]

[mcp_servers.github.env]
T = "SECRET"

# trust
[projects."/a"]
trust_level = "trusted"
"""
CODEX_AFTER = """\
model = "gpt" # mine

# trust
[projects."/a"]
trust_level = "trusted"

[mcp_servers.toolscout]
command = "/opt/bin/toolscout"
args = ["serve", "--config", "/etc/t.toml"]
"""


def test_comments_layout_and_unknown_servers_stay(tmp_path: Path):
    plan = planned(tmp_path, "Cursor", ".cursor/mcp.json", CURSOR)

    assert plan.new == CURSOR_AFTER
    assert (plan.taken, plan.kept) == (("github", "web"), ("odd",))


def test_the_tables_of_codex_are_replaced_by_one(tmp_path: Path):
    plan = planned(tmp_path, "Codex", ".codex/config.toml", CODEX)

    assert plan.new == CODEX_AFTER
    assert plan.taken == ("github",)


@pytest.mark.parametrize(
    ("program", "name", "old", "new"),
    [
        (
            "Claude Desktop",
            "Claude/claude_desktop_config.json",
            {"mcpServers": {"a": {"command": "a"}}, "theme": "dark"},
            {"mcpServers": {"toolscout": ENTRY}, "theme": "dark"},
        ),
        (
            "VS Code",
            "Code/User/mcp.json",
            {"servers": {"a": {"type": "stdio", "command": "a"}}, "inputs": []},
            {"servers": {"toolscout": TYPED}, "inputs": []},
        ),
        (
            "VS Code",
            "Code/User/settings.json",
            {"mcp": {"servers": {"a": {"command": "a"}}}, "editor.fontSize": 12},
            {"mcp": {"servers": {"toolscout": TYPED}}, "editor.fontSize": 12},
        ),
        (
            "VS Code",
            "Code/User/settings.json",
            {"mcp.servers": {"a": {"command": "a"}}},
            {"mcp.servers": {"toolscout": TYPED}},
        ),
    ],
)
def test_every_client_has_its_own_table_of_servers(
    tmp_path: Path, program: str, name: str, old: object, new: object
):
    plan = planned(tmp_path, program, name, json.dumps(old, indent="\t"))

    assert json.loads(plan.new) == new


def test_servers_of_unrelated_projects_of_claude_code_stay(tmp_path: Path):
    here, far = str(tmp_path), str(tmp_path.parent / "far")
    old = {"projects": {p: {"mcpServers": {"a": {"command": p}}, "x": 1} for p in (here, far)}}

    plan = planned(tmp_path, "Claude Code", ".claude.json", json.dumps(old))

    assert json.loads(plan.new) == {
        "projects": {
            here: {"mcpServers": {}, "x": 1},
            far: {"mcpServers": {"a": {"command": far}}, "x": 1},
        },
        "mcpServers": {"toolscout": TYPED},
    }


def test_a_server_that_toolscout_does_not_have_is_never_taken(tmp_path: Path):
    source = file_of(tmp_path, "Cursor", "mcp.json", '{"mcpServers": {"a": {"command": "a"}}}')

    plan = plan_rewrite(source, LAUNCH, Config())

    assert not plan.is_change
    assert plan.kept == ("a",)


def test_a_server_that_asks_for_an_input_stays_with_vs_code(tmp_path: Path):
    servers = {"a": {"command": "a", "env": {"K": "${input:key}"}}, "b": {"command": "b"}}

    plan = planned(tmp_path, "VS Code", "mcp.json", json.dumps({"servers": servers}))

    assert (plan.taken, plan.kept) == (("b",), ("a",))


def test_a_second_rewrite_changes_nothing(tmp_path: Path):
    first = planned(tmp_path, "Cursor", "mcp.json", CURSOR)
    write_rewrite(first)

    assert not planned(tmp_path, "Cursor", "mcp.json", first.new).is_change


def test_a_named_client_without_servers_gets_toolscout(tmp_path: Path):
    for text in ("", "{}", '{"theme": "dark"}', '{"mcpServers": {}}'):
        source = file_of(tmp_path, "Cursor", ".cursor/mcp.json", text)

        plan = plan_rewrite(source, LAUNCH, Config(), always=True)

        assert json.loads(plan.new)["mcpServers"] == {"toolscout": ENTRY}


def test_tables_that_cannot_be_changed_safely_are_refused(tmp_path: Path):
    text = 'mcp_servers = { a = { command = "a" } }\n'

    with pytest.raises(InvalidFile, match="cannot change safely"):
        planned(tmp_path, "Codex", "config.toml", text)


@pytest.mark.parametrize("text", ["\ufeff" + CURSOR, CURSOR.replace("\n", "\r\n")])
def test_line_breaks_and_byte_order_marks_stay(tmp_path: Path, text: str):
    new = planned(tmp_path, "Cursor", "mcp.json", text).new

    assert new.startswith("\ufeff") == text.startswith("\ufeff")
    assert new.count("\n") == CURSOR_AFTER.count("\n")
    assert new.count("\r\n") == ("\r\n" in text) * new.count("\n")


def test_a_diff_shows_commands_and_no_secrets(tmp_path: Path):
    old = {
        "mcpServers": {
            "a": {
                "command": "npx",
                "args": ["-y", "gh", "--api-key", SECRET],
                "env": {"HARMLESS": SECRET},
                "note": SECRET,
                "headers": {"x": SECRET},
            },
            "b": {"url": f"https://web.example/mcp?k={SECRET}", "deep": [{"z": SECRET}]},
        }
    }
    plan = planned(tmp_path, "Cursor", "mcp.json", json.dumps(old))

    shown = format_diff(plan.source.path, plan.old, plan.new)

    assert SECRET not in "\n".join(shown)
    assert '-      "args": ["-y", "gh", "--api-key", "…"],' in shown
    assert '+      "args": ["serve", "--config", "/etc/t.toml"]' in shown


def test_an_undo_restores_bytes_and_mode(tmp_path: Path):
    for name, text in (("mcp.json", CURSOR.replace("\n", "\r\n")), ("config.toml", CODEX)):
        path = tmp_path / name
        plan = planned(tmp_path, "Codex" if name.endswith("toml") else "Cursor", name, text)
        path.chmod(0o640)

        backup = write_rewrite(plan)
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(backup.stat().st_mode) == 0o640
        assert path.read_bytes().decode() == plan.new
        (undo,) = find_undos([plan.source])
        put_back(undo)

        assert undo.is_exact
        assert path.read_bytes().decode() == text
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert find_backup(path) is None


def test_an_undo_keeps_later_edits_of_the_client(tmp_path: Path):
    plan = planned(tmp_path, "Claude Code", "claude.json", CURSOR)
    write_rewrite(plan)
    added = '"new": {"command": "n"},\n    "toolscout": {'
    later = plan.new.replace('"toolscout": {', added).replace("[1, 2,", "[3,")
    plan.source.path.write_text(later, encoding="utf-8")

    (undo,) = find_undos([plan.source])
    put_back(undo)

    text = plan.source.path.read_text(encoding="utf-8")
    assert not undo.is_exact
    assert document_from_text(plan.source.path, text).tables == {
        "mcpServers": {
            "github": {"command": "npx", "args": ["-y", "gh"], "env": {"T": "SECRET"}},
            "odd": {"command": 7},
            "web": {"url": "https://web.example/mcp"},
            "new": {"command": "n"},
        },
        "other": [3, {"mcpServers": {}}],
    }
    assert "// stays" in text
    assert find_backup(plan.source.path) is None


def test_an_undo_keeps_later_edits_of_codex(tmp_path: Path):
    plan = planned(tmp_path, "Codex", "config.toml", CODEX)
    write_rewrite(plan)
    later = plan.new.replace('"gpt" # mine', '"newer"')
    plan.source.path.write_text(later, encoding="utf-8")

    (undo,) = find_undos([plan.source])
    put_back(undo)

    tables = tomllib.loads(plan.source.path.read_text(encoding="utf-8"))
    assert tables == {**tomllib.loads(CODEX), "model": "newer"}


def test_an_undo_that_would_lose_a_server_is_refused_unless_forced(tmp_path: Path):
    plan = planned(tmp_path, "Cursor", "mcp.json", CURSOR)
    backup = write_rewrite(plan)
    later = (
        '{"mcpServers": {"github": {"command": "other"}, "toolscout": {"command": "toolscout"}}}'
    )
    plan.source.path.write_text(later, encoding="utf-8")

    (undo,) = find_undos([plan.source])

    assert undo.conflicts == ("github",)
    with pytest.raises(InvalidFile, match="would undo that: github"):
        put_back(undo)
    assert plan.source.path.read_text(encoding="utf-8") == later
    assert backup.exists()
    put_back(undo, force=True)
    assert plan.source.path.read_text(encoding="utf-8") == CURSOR
    assert (tmp_path / "mcp.json.bak").read_text(encoding="utf-8") == later


def test_a_file_that_has_become_invalid_is_not_overwritten(tmp_path: Path):
    plan = planned(tmp_path, "Cursor", "mcp.json", CURSOR)
    write_rewrite(plan)
    plan.source.path.write_text('{"mcpServers": ', encoding="utf-8")

    (undo,) = find_undos([plan.source])

    with pytest.raises(InvalidFile, match="is not JSON"):
        put_back(undo)


def test_servers_of_two_rewrites_are_all_restored(tmp_path: Path):
    plan = planned(tmp_path, "Cursor", "mcp.json", CURSOR)
    first = write_rewrite(plan)
    added = '"new": {"command": "n"},\n    "toolscout": {'
    again = planned(tmp_path, "Cursor", "mcp.json", plan.new.replace('"toolscout": {', added))
    second = write_rewrite(again)

    (undo,) = find_undos([plan.source])
    put_back(undo)

    assert again.taken == ("new",)
    assert not first.exists() and not second.exists()
    text = plan.source.path.read_text(encoding="utf-8")
    names = document_from_text(plan.source.path, text).tables["mcpServers"]
    assert set(names) == {"github", "odd", "web", "new"}


def test_a_file_that_changed_since_it_was_read_is_not_written(tmp_path: Path):
    plan = planned(tmp_path, "Cursor", "mcp.json", CURSOR)
    plan.source.path.write_text("{}", encoding="utf-8")

    with pytest.raises(InvalidFile, match="changed in the meantime"):
        write_rewrite(plan)
    assert plan.source.path.read_text(encoding="utf-8") == "{}"


def test_a_link_stays_a_link(tmp_path: Path):
    (tmp_path / "real").mkdir()
    plan = planned(tmp_path / "real", "Cursor", "mcp.json", CURSOR)
    link = tmp_path / "mcp.json"
    link.symlink_to(plan.source.path)
    linked = Source(program="Cursor", path=link)

    config = import_servers(link)
    write_rewrite(plan_rewrite(linked, LAUNCH, config))
    (undo,) = find_undos([linked])
    put_back(undo)

    assert link.is_symlink()
    assert link.read_text(encoding="utf-8") == CURSOR


_keys = st.sampled_from(["a", "b", "c", "odd", "é", 'q"uote'])
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab{}[],:"/*\\é', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=6,
)


@given(
    servers=st.dictionaries(_keys, st.just({"command": "x"}) | _values, max_size=4),
    rest=st.dictionaries(_keys, _values, max_size=3),
    indent=st.sampled_from([None, 1, 4, "\t"]),
)
def test_any_file_keeps_everything_else_and_can_be_restored(
    tmp_path_factory: pytest.TempPathFactory, servers: object, rest: object, indent: int | str
):
    folder = tmp_path_factory.mktemp("client")
    old = {"rest": rest, "mcpServers": servers, "last": rest}
    plan = planned(folder, "Cursor", "mcp.json", json.dumps(old, indent=indent))
    new = json.loads(plan.new)

    assert (new["rest"], new["last"]) == (rest, rest)
    assert [name for name in new["mcpServers"] if name != "toolscout"] == list(plan.kept)

    if plan.is_change:
        write_rewrite(plan)
        plan.source.path.write_text(plan.new + "\n", encoding="utf-8")
        (undo,) = find_undos([plan.source])
        assert json.loads(undo.restored) == old


def file_of(folder: Path, program: str, name: str, text: str) -> Source:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return Source(program=program, path=path)


def planned(folder: Path, program: str, name: str, text: str) -> Rewrite:
    """Return the change of a file whose servers toolscout has taken over."""
    source = file_of(folder, program, name, text)
    return plan_rewrite(source, LAUNCH, import_servers(source.path, [folder]), [folder])
