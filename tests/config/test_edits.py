"""Changes to the configuration file that leave the rest of it alone."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.config.edits import (
    add_server,
    extract_tables,
    put_options,
    read_own_text,
    remove_server,
    write_edit,
)
from toolscout.config.file import find_server, read_config
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig, InvalidFile, UnknownServer

PATH = Path("/home/ann/toolscout.toml")
NEW = ServerConfig(name="new", transport=Transport.STDIO, command="run", env={"A": "${A}"})
FILE = """\
# Mine.
[gateway]
port = 9000   # not the usual one

# The first.
[servers.one]
command = "one"
env = { KEY = "${KEY}" }
# About its arguments.
args = [
    "[servers.two]",
]

# The second.
[servers.two]
command = "two"

[servers.two.env]
A = "b"

# The third.
[ servers . "the third" ]  # spaced
url = "https://third.example/mcp"
"""
WITHOUT_ONE = """\
# Mine.
[gateway]
port = 9000   # not the usual one

# The first.
# The second.
[servers.two]
command = "two"

[servers.two.env]
A = "b"

# The third.
[ servers . "the third" ]  # spaced
url = "https://third.example/mcp"
"""
ADDED = """
[servers.new]
transport = "stdio"
command = "run"

[servers.new.env]
A = "${A}"
"""


def test_a_server_is_added_at_the_end():
    assert add_server(PATH, FILE, NEW) == FILE + ADDED
    assert add_server(PATH, "", NEW) == ADDED.lstrip("\n")
    assert add_server(PATH, FILE.removesuffix("\n"), NEW) == FILE + ADDED


def test_a_server_is_removed_with_its_tables_and_nothing_else():
    two = remove_server(PATH, FILE, "two")
    third = remove_server(PATH, FILE, "the third")

    assert remove_server(PATH, FILE, "one") == WITHOUT_ONE
    assert two == FILE.replace(FILE[FILE.index("[servers.two]\nc") : FILE.index("# The third")], "")
    assert third == FILE[: FILE.index("[ servers")]


def test_windows_line_breaks_stay():
    windows = FILE.replace("\n", "\r\n")

    assert add_server(PATH, windows, NEW) == (FILE + ADDED).replace("\n", "\r\n")
    assert remove_server(PATH, windows, "one") == WITHOUT_ONE.replace("\n", "\r\n")


@given(st.text(min_size=1, max_size=20).filter(lambda name: name.strip() and name.isprintable()))
def test_adding_and_removing_a_server_leaves_the_others_alone(name: str):
    server = ServerConfig(name=name, transport=Transport.STDIO, command="run")
    if name in ("one", "two", "the third"):
        return

    added = add_server(PATH, FILE, server)
    removed = remove_server(PATH, added, name)

    assert name in tomllib.loads(added)["servers"]
    assert tomllib.loads(removed) == tomllib.loads(FILE)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("[servers]\none = { command = 'one' }\n", "[servers]\n"),
        ("servers = { one = { command = 'one' } }\n", "servers = {  }\n"),
        ("servers.one.command = 'one'\n", ""),
        ("[servers.one]\ncommand = 'one'\nargs = [\n'[servers]'\n]\n", ""),
        ("[servers.one]\ncommand = '''\n[servers.x]\n'''\n", ""),
        (
            "[servers.a]\ncommand = 'a'\n[gateway]\nport = 1\n# One.\n[servers.one]\n"
            "command = 'one'\n# Sessions.\n[sessions]\nlimit = 3\n",
            "[servers.a]\ncommand = 'a'\n[gateway]\nport = 1\n# One.\n"
            "# Sessions.\n[sessions]\nlimit = 3\n",
        ),
    ],
)
def test_a_server_is_removed_however_it_is_written(text: str, rest: str):
    assert remove_server(PATH, text, "one") == rest


def test_tables_are_extracted_as_they_are_written():
    text = extract_tables(FILE, "servers", ["two", "the third"])

    assert text == FILE[FILE.index("[servers.two]\nc") :].replace("# The third.\n", "")


def test_a_file_that_cannot_be_extended_has_to_be_edited_by_hand():
    with pytest.raises(InvalidConfig, match="Edit the file by hand"):
        add_server(PATH, "servers = { one = { command = 'one' } }\n", NEW)


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(InvalidConfig, match="exists already"):
        add_server(PATH, "[servers.new]\ncommand = 'old'\n", NEW)


def test_a_file_with_errors_is_not_overwritten():
    with pytest.raises(InvalidConfig, match=r"'colour' in .* does not exist"):
        add_server(PATH, "colour = 'red'\n", NEW)


def test_an_unknown_server_is_refused_with_near_names():
    with pytest.raises(UnknownServer, match="Near: two"):
        remove_server(PATH, FILE, "twoo")


def test_a_server_of_an_included_file_is_removed_there(tmp_path: Path):
    own, other = tmp_path / "toolscout.toml", tmp_path / "mcp.json"
    other.write_text('{"mcpServers": {"far": {"command": "far"}}}')
    own.write_text('include = ["mcp.json"]\n')

    with pytest.raises(InvalidConfig) as caught:
        remove_server(own, own.read_text(), "far")

    assert str(other) in caught.value.problem
    assert read_config(own).origins == {"far": other}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mcp.json", '{"mcpServers": {"a": {"command": "a"}}}'),
        ("config.toml", "[mcp_servers.a]\ncommand = 'a'\n"),
    ],
)
def test_the_file_of_another_program_is_never_written(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)

    with pytest.raises(InvalidFile, match="belongs to another program"):
        read_own_text(tmp_path / name)


def test_the_old_file_is_kept_as_a_backup(tmp_path: Path):
    path = tmp_path / "toolscout.toml"
    path.write_text(FILE)

    write_edit(path, add_server(path, read_own_text(path), NEW))

    assert path.read_text() == FILE + ADDED
    assert (tmp_path / "toolscout.toml.bak").read_text() == FILE
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "toolscout.toml",
        "toolscout.toml.bak",
    ]


LAYOUTS = {
    "tables": '[servers.a]\ncommand = "x"  # why\n\n# About b.\n[servers.b]\ncommand = "y"\n',
    "inline": '[servers]\na = { command = "x" }  # why\nb = { command = "y" }\n',
    "apart": '[servers.a]\ncommand = "x"\n# Far.\n[gateway]\nport = 1\n[servers.b]\nurl = "http://b"\n',
    "nested": '[servers.a]\ncommand = "x"\n[servers.a.env]\nK = "v"\n\n# End.\n',
    "windows": '[servers.a]\r\ncommand = "x"\r\n\r\n# About b.\r\n[servers.b]\r\ncommand = "y"\r\n',
}


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
def test_options_of_a_server_and_its_tools_come_and_go_and_comments_stay(tmp_path: Path, text: str):
    path = tmp_path / "toolscout.toml"
    tool = ("servers", "a", "tools", "git log")

    new = put_options(path, text, ("servers", "a"), {"disabled": True})
    new = put_options(path, new, tool, {"enabled": False, "arguments": {"max": 5}})

    server = find_server(read_config(path, new), "a")
    assert server.disabled
    assert (server.tools["git log"].enabled, server.tools["git log"].arguments) == (
        False,
        {"max": 5},
    )
    comments = [line for line in text.splitlines() if "#" in line]
    assert [line[line.index("#") :] for line in comments] == [
        line[line.index("#") :] for line in new.splitlines() if "#" in line
    ]
    assert ("\r\n" in text) == ("\r\n" in new)
    new = put_options(path, new, tool, {"enabled": None, "arguments": None})
    new = put_options(path, new, ("servers", "a"), {"disabled": None})
    assert read_config(path, new) == read_config(path, text)


def test_a_file_that_somebody_changed_meanwhile_is_not_written(tmp_path: Path):
    path = tmp_path / "toolscout.toml"
    path.write_text("# Mine\n", encoding="utf-8")

    with pytest.raises(InvalidFile, match="changed by somebody else"):
        write_edit(path, "# Yours\n", former="# Older\n")

    assert path.read_text(encoding="utf-8") == "# Mine\n"
