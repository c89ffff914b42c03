"""The files of the page, and no others."""

from pathlib import Path

import pytest
from starlette.requests import Request

from toolscout.console.assets import Assets


def request(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "headers": raw})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    static = tmp_path / "static"
    (static / "parts").mkdir(parents=True)
    (static / "index.html").write_text("<h1>page</h1>")
    (static / "parts" / "a.js").write_text("export {}")
    (tmp_path / "secret.txt").write_text("secret")
    return static


def test_a_file_is_served_with_its_type_and_is_not_sent_twice(folder: Path):
    first = Assets(folder).response(request(), "parts/a.js")
    assert first is not None
    tag = first.headers["etag"]

    again = Assets(folder).response(request(if_none_match=f'"x", W/{tag}'), "parts/a.js")
    other = Assets(folder).response(request(if_none_match='"x"'), "parts/a.js")

    assert first.headers["content-type"].startswith("text/javascript")
    assert first.body == b"export {}"
    assert again is not None
    assert (again.status_code, again.body) == (304, b"")
    assert other is not None
    assert other.status_code == 200


@pytest.mark.parametrize(
    "name", ["../secret.txt", "parts/../../secret.txt", "/etc/passwd", "parts", "", "nothing.js"]
)
def test_no_path_leads_out_of_the_folder(folder: Path, name: str):
    assert Assets(folder).response(request(), name) is None


def test_a_changed_file_has_another_tag(folder: Path):
    before = Assets(folder).response(request(), "index.html")
    (folder / "index.html").write_text("<h1>new</h1>")
    after = Assets(folder).response(request(), "index.html")

    assert before is not None
    assert after is not None
    assert before.headers["etag"] != after.headers["etag"]


def test_an_installation_without_a_page_says_where_the_api_is(tmp_path: Path):
    response = Assets(tmp_path / "none").response(request(), "index.html")

    assert response is not None
    assert b"/api/overview" in response.body
