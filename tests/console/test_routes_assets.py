"""The files of the page: cached, never stale, and nothing outside their folder."""

import asyncio
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from toolscout import Catalog
from toolscout.config.gateway import GatewayConfig
from toolscout.console import routes
from toolscout.console.app import build_app, build_console

READS = ("open", "os.scandir", "os.listdir")


class FileAccess:
    """Counts what this process opens and lists under a folder.

    An audit hook cannot be removed, so one of them serves all tests and is switched on and off.
    """

    def __init__(self) -> None:
        self.folder = ""
        self.seen: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.folder and event in READS and str(arguments[0]).startswith(self.folder):
            self.seen.append(f"{event} {arguments[0]}")

    @contextmanager
    def count(self, folder: Path) -> Generator[list[str]]:
        self.folder, self.seen = str(folder), []
        try:
            yield self.seen
        finally:
            self.folder = ""


ACCESS = FileAccess()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    static = tmp_path / "static"
    (static / "parts").mkdir(parents=True)
    (static / "index.html").write_text("<h1>page</h1>")
    (static / "parts" / "a.js").write_text("export {}")
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr(routes, "FOLDER", static)
    return static


def get(*paths: str, **headers: str) -> list[httpx2.Response]:
    """Ask a console for some paths, one after the other."""

    async def ask() -> list[httpx2.Response]:
        app = build_app(build_console(Catalog({}), GatewayConfig(port=0)))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            return [await client.get(path, headers=sent) for path in paths]

    return asyncio.run(ask())


def test_a_known_file_is_neither_read_nor_looked_for_again(folder: Path):
    [first] = get("/static/parts/a.js")

    with ACCESS.count(folder) as seen:
        again = get(*["/static/parts/a.js"] * 50, if_none_match=first.headers["etag"])

    assert {response.status_code for response in again} == {304}
    assert seen == []


def test_a_file_is_served_with_its_type_and_the_headers_that_protect_the_page(folder: Path):
    page, script = get("/", "/static/parts/a.js")

    assert (page.text, script.text) == ("<h1>page</h1>", "export {}")
    assert page.headers["content-type"].startswith("text/html")
    assert script.headers["content-type"].startswith("text/javascript")
    for response in (page, script):
        assert response.headers["cache-control"] == "no-cache"
        assert response.headers["content-security-policy"].startswith("default-src 'self'")
        assert response.headers["x-content-type-options"] == "nosniff"


def test_a_file_is_sent_again_only_if_it_has_changed(folder: Path):
    [first] = get("/static/parts/a.js")
    tag = first.headers["etag"]

    [known] = get("/static/parts/a.js", if_none_match=f'"x", W/{tag}')
    [other] = get("/static/parts/a.js", if_none_match='"x"')

    assert (known.status_code, known.content) == (304, b"")
    assert known.headers["x-content-type-options"] == "nosniff"
    assert other.status_code == 200


def test_an_upgrade_that_keeps_size_and_time_of_a_file_still_shows_the_new_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    page = folder / "index.html"
    os.utime(page, (1, 1))
    [old] = get("/")

    page.write_text("<h1>next</h1>")
    os.utime(page, (1, 1))
    monkeypatch.setattr(routes, "version", {"toolscout": "99.0"}.__getitem__)
    [new] = get("/", if_none_match=old.headers["etag"])
    [dated] = get("/", if_modified_since=old.headers.get("last-modified", ""))

    assert (new.status_code, new.text) == (200, "<h1>next</h1>")
    assert (dated.status_code, dated.text) == (200, "<h1>next</h1>")


@pytest.mark.parametrize(
    "path",
    [
        *("..%2Fsecret.txt", "parts%2F..%2F..%2Fsecret.txt", "%2Fetc%2Fpasswd", "%00"),
        *("parts", "", "nothing.js", "parts/a.js/b", "x" * 300),
    ],
)
def test_no_path_leads_out_of_the_folder(folder: Path, path: str):
    [response] = get(f"/static/{path}")

    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    assert response.headers["x-content-type-options"] == "nosniff"
