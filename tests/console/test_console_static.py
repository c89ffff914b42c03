"""The files of the page: small, complete, and without anything from other sites."""

import re
from pathlib import Path

from toolscout.console.routes import FOLDER

MOST_BYTES = 300_000
PAGES = ("index.html", "login.html")
NAMESPACE = "http://www.w3.org/2000/svg"
_ADDRESS = re.compile(r"(?:https?:)?//[a-z0-9][\w.-]*\.[a-z]{2,}[^\s\"'`)]*", re.IGNORECASE)
_IMPORT = re.compile(r'from "\./([\w.]+)"')
_LINKED = re.compile(r'(?:src|href)="/static/([\w.]+)"')


def files() -> dict[str, Path]:
    return {path.name: path for path in FOLDER.iterdir()}


def test_the_page_is_small():
    assert sum(path.stat().st_size for path in files().values()) < MOST_BYTES


def test_nothing_is_loaded_from_other_sites():
    for name, path in files().items():
        named = set(_ADDRESS.findall(path.read_text(encoding="utf-8"))) - {NAMESPACE}

        assert not named, name


def test_every_file_is_used_and_every_used_file_exists():
    text = "".join(path.read_text(encoding="utf-8") for path in files().values())
    used = {*_IMPORT.findall(text), *_LINKED.findall(text), *PAGES}

    assert used == set(files())


def test_the_page_has_no_inline_script_or_style():
    for name in PAGES:
        page = (FOLDER / name).read_text(encoding="utf-8")

        assert not re.search(r"<style|\sstyle=|\son\w+=|<script>", page)
