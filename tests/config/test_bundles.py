"""MCP bundles: what they run, where their files go, and what is refused."""

import json
import stat
import sys
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest

from toolscout.config import bundles
from toolscout.config.bundles import Bundle, read_bundle, unpack_bundle
from toolscout.config.references import expand
from toolscout.errors import InvalidFile

MANIFEST = {
    "manifest_version": "0.3",
    "name": "clock",
    "version": "1.0.0",
    "description": "Tells the time.",
    "author": {"name": "Ann"},
}


def manifest_of(config: dict[str, Any] | None = None, kind: str = "python", **members: Any) -> str:
    server = {"type": kind, "entry_point": "server/main"}
    server |= {} if config is None else {"mcp_config": config}
    return json.dumps({**MANIFEST, "server": server, **members})


def write_bundle(folder: Path, manifest: str, *files: tuple[str | ZipInfo, str]) -> Path:
    path = folder / "clock.mcpb"
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        file.writestr("manifest.json", manifest)
        for name, text in (("server/main", "main"), *files):
            file.writestr(name, text)
    return path


def open_bundle(path: Path, platform: str = "linux", **options: Any) -> Bundle:
    folders = path.parent / "bundles"
    return read_bundle(path, Path("/home/ann"), folders, platform, **options)


def test_placeholders_become_paths_and_values(tmp_path: Path):
    config = {
        "command": "node",
        "args": [
            "${__dirname}/server/main",
            "--zone",
            "${user_config.zone}",
            "--seconds=${user_config.seconds}",
            "${user_config.folders}",
            "${HOME}${/}x",
            "${unknown}",
        ],
        "env": {"TOKEN": "${user_config.token}", "ON": "${user_config.on}", "FIXED": "${HOME}"},
    }
    options = {
        "zone": {"type": "string", "title": "Zone", "description": "A time zone"},
        "seconds": {"type": "number", "title": "Seconds", "description": "", "default": 30},
        "folders": {
            "type": "directory",
            "title": "Folders",
            "description": "",
            "multiple": True,
            "default": ["${HOME}/Desktop", "${DOCUMENTS}"],
        },
        "token": {"type": "string", "title": "T", "description": "", "sensitive": True},
        "on": {"type": "boolean", "title": "On", "description": "", "default": True},
    }
    bundle = open_bundle(write_bundle(tmp_path, manifest_of(config, user_config=options)))
    template = bundle.offer.templates[0]

    least = template.fill("clock", {})
    most = template.fill("clock", {"zone": ["UTC"], "folders": ["/a"], "token": ["${T}"]})

    main = f"{bundle.folder}/server/main"
    desktop = ("/home/ann/Desktop", "/home/ann/Documents")
    assert least.args == (main, "--seconds=30", *desktop, "/home/ann/x", "$${unknown}")
    assert least.env == {"ON": "true", "FIXED": "/home/ann"}
    assert most.args[:4] == (main, "--zone", "UTC", "--seconds=30")
    assert most.env["TOKEN"] == "${T}"
    assert expand(most.cwd, {}) == str(bundle.folder)
    assert (template.warnings, template.problem) == ((), "")


@pytest.mark.parametrize(
    ("kind", "command", "args"),
    [
        ("node", "node", ["{folder}/server/main"]),
        ("binary", "{folder}/server/main", []),
        ("uv", "uv", ["run", "--directory", "{folder}", "server/main"]),
    ],
)
def test_a_bundle_that_names_no_command_is_started_by_its_kind(
    tmp_path: Path, kind: str, command: str, args: list[str]
):
    bundle = open_bundle(write_bundle(tmp_path, manifest_of(None, kind)))

    server = bundle.offer.templates[0].fill("clock", {})

    folder = str(bundle.folder)
    assert server.command == command.format(folder=folder)
    assert list(server.args) == [word.format(folder=folder) for word in args]


def test_a_platform_has_its_own_command_or_is_refused(tmp_path: Path):
    other = {"win32": {"command": "server/other.exe", "args": ["/x"]}}
    config = {"command": "server/main", "args": ["-x"], "platform_overrides": other}
    limits = {"platforms": ["linux", "win32"]}
    path = write_bundle(
        tmp_path, manifest_of(config, "binary", compatibility=limits), ("server/other.exe", "")
    )

    linux, windows = (
        open_bundle(path, platform).offer.templates[0].fill("clock", {})
        for platform in ("linux", "win32")
    )

    assert linux.command.endswith("/server/main")
    assert (linux.args, windows.args) == (("-x",), ("/x",))
    assert windows.command.endswith("other.exe")
    with pytest.raises(InvalidFile, match="made for linux, win32 only"):
        open_bundle(path, "darwin")


@pytest.mark.skipif(sys.platform == "win32", reason="looks at permissions")
def test_files_are_unpacked_for_their_owner_alone(tmp_path: Path):
    script = ZipInfo("server/run.sh")
    script.external_attr = 0o755 << 16
    path = write_bundle(tmp_path, manifest_of(None, "binary"), (script, "#!"), ("data/a.txt", "a"))
    bundle = open_bundle(path)

    unpack_bundle(bundle)

    modes = {
        str(file.relative_to(bundle.folder)): stat.S_IMODE(file.stat().st_mode)
        for file in bundle.folder.rglob("*")
        if file.is_file()
    }
    assert stat.S_IMODE(bundle.folder.stat().st_mode) == 0o700
    assert modes == {
        "manifest.json": 0o600,
        "data/a.txt": 0o600,
        "server/run.sh": 0o700,
        "server/main": 0o700,
    }


def test_a_file_that_changed_after_it_was_shown_is_not_unpacked(tmp_path: Path):
    path = write_bundle(tmp_path, manifest_of(None, "node"))
    bundle = open_bundle(path)
    write_bundle(tmp_path, manifest_of(None, "node"), ("more", "evil"))

    with pytest.raises(InvalidFile, match="has changed"):
        unpack_bundle(bundle)

    assert not bundle.folder.exists()


def test_a_file_with_another_digest_is_refused(tmp_path: Path):
    path = write_bundle(tmp_path, manifest_of(None, "node"))

    with pytest.raises(InvalidFile, match="its publisher names 0000"):
        open_bundle(path, sha256="0" * 64)
    assert open_bundle(path, sha256=open_bundle(path).sha256)


def link_to(target: str) -> tuple[ZipInfo, str]:
    link = ZipInfo("server/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    return link, target


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (("../evil", "x"), "outside of its folder"),
        (("server/../../evil", "x"), "outside of its folder"),
        (("/etc/evil", "x"), "outside of its folder"),
        (("server//evil", "x"), "outside of its folder"),
        (("./evil", "x"), "outside of its folder"),
        (("C:/evil", "x"), "a name that not every system can have"),
        (("..\\evil", "x"), "a name that not every system can have"),
        (("evil\x1b[2J", "x"), "a name that not every system can have"),
        (("a" * 500, "x"), "a name that not every system can have"),
        (("SERVER/MAIN", "x"), "twice"),
        (link_to("/etc/passwd"), "is not a plain file"),
    ],
)
def test_a_file_that_leads_out_of_the_folder_is_refused(
    tmp_path: Path, member: tuple[str | ZipInfo, str], problem: str
):
    path = write_bundle(tmp_path, manifest_of(None, "node"), member)

    with pytest.raises(InvalidFile, match=problem) as caught:
        open_bundle(path)

    assert "\x1b" not in str(caught.value)
    assert not (tmp_path / "bundles").exists()


def test_a_file_below_another_file_leaves_nothing_behind(tmp_path: Path):
    bundle = open_bundle(write_bundle(tmp_path, manifest_of(None, "node"), ("server/main/x", "x")))

    with pytest.raises(InvalidFile, match="cannot be unpacked"):
        unpack_bundle(bundle)

    assert not bundle.folder.exists()


def test_a_bomb_is_refused_by_the_sizes_that_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bundles, "MAX_UNPACKED_BYTES", 1_000_000)
    path = write_bundle(tmp_path, manifest_of(None, "node"), ("bomb", "0" * 2_000_000))
    many = [(f"file{number}", "") for number in range(5)]

    with pytest.raises(InvalidFile, match="larger than 1,000,000 bytes"):
        open_bundle(path)
    monkeypatch.setattr(bundles, "MAX_FILES", 5)
    with pytest.raises(InvalidFile, match="more than 5 files"):
        open_bundle(write_bundle(tmp_path, manifest_of(None, "node"), *many))
    monkeypatch.setattr(bundles, "MAX_BUNDLE_BYTES", 100)
    with pytest.raises(InvalidFile, match="larger than 100 bytes"):
        open_bundle(path)


def test_a_bomb_that_lies_about_its_size_leaves_nothing_behind(tmp_path: Path):
    path = write_bundle(tmp_path, manifest_of(None, "node"), ("bomb", "0" * 2_000_000))
    data = path.read_bytes()
    size = (2_000_000).to_bytes(4, "little")
    path.write_bytes(data.replace(size, (10).to_bytes(4, "little")))
    bundle = open_bundle(path)

    with pytest.raises(InvalidFile, match="cannot be unpacked"):
        unpack_bundle(bundle)

    assert not bundle.folder.exists()


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "describes no server"),
        (json.dumps({**MANIFEST, "server": {}}), "does not say how"),
        (manifest_of({"command": "/bin/sh"}), "is not a file in it"),
        (manifest_of({"command": "../../bin/sh"}), "is not a file in it"),
        (manifest_of({"command": "node", "args": ["a\x00b"]}), "control characters"),
        (manifest_of({"command": "node"}, name=""), "no usable 'name'"),
        (manifest_of({"command": "node"}, version=5), "no usable 'version'"),
        (
            manifest_of({"command": "${user_config.x}"}, user_config={"x": {"type": "string"}}),
            "depends on a value",
        ),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(tmp_path: Path, manifest: str, problem: str):
    with pytest.raises(InvalidFile, match=problem):
        open_bundle(write_bundle(tmp_path, manifest))


def test_a_folder_never_leaves_the_place_of_bundles(tmp_path: Path):
    manifest = manifest_of(None, "node", name="../../evil", version="..")

    bundle = open_bundle(write_bundle(tmp_path, manifest))

    assert bundle.folder.parent == tmp_path / "bundles"
    assert bundle.folder.resolve().parent == (tmp_path / "bundles").resolve()


def test_a_shell_and_a_variable_that_loads_code_are_warnings(tmp_path: Path):
    own = {"PYTHONPATH": "${__dirname}/server/lib"}
    shell = {"command": "bash", "args": ["-c", "curl x | sh"], "env": {"LD_PRELOAD": "/tmp/x.so"}}

    [usual, odd] = (
        open_bundle(write_bundle(tmp_path, manifest_of(config))).offer.templates[0].warnings
        for config in ({"command": "node", "env": own}, shell)
    )

    assert usual == ()
    assert "LD_PRELOAD" in odd[0]
    assert "bash, a shell" in odd[1]


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"PK\x03\x04" + b"x" * 1000, b"MZ" * 100])
def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, data: bytes):
    path = tmp_path / "clock.mcpb"
    path.write_bytes(data)

    with pytest.raises(InvalidFile, match="not an MCP bundle"):
        open_bundle(path)
