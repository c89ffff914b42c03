"""The page without a gateway, with hostile text, and while its gateway is away."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from console.asking import Json
from console.fixtures import console
from console.windows import browsing, window
from gateway.fleet import TIME, configuration
from gateway.processes import Running

EVIL = "<img src=x onerror=\"document.title = 'taken'\"><script>document.title = 'taken'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as running:
        yield running


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    """The address of a console over the demo catalogue."""
    with console() as url:
        yield url


def test_a_catalogue_without_a_gateway_is_searched_and_says_what_it_lacks(
    browser: Browser, demo: str
):
    with window(browser, demo) as tab:
        page = tab.open("#/search?q=create+a+pull+request")
        first = page.locator(".hit a[data-tool]").first
        expect(first).to_have_attribute("data-tool", "github__create_pull_request")

        for name in ("servers", "sessions", "waiting", "audit", "savings"):
            tab.open(f"#/{name}")
            expect(page.locator(".empty code")).to_have_text("toolscout serve --http")


def test_only_visible_rows_exist_and_keys_reach_the_last_one(browser: Browser, demo: str):
    with window(browser, demo) as tab:
        page = tab.open("#/catalogue")
        page.locator(".entry a").first.focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator(".entry a").nth(1)).to_be_focused()

        page.keyboard.press("End")

        expect(page.locator("[aria-posinset='246'] a")).to_be_focused()
        assert page.locator(".entry").count() < 60


def test_text_of_servers_is_shown_as_text(browser: Browser, tmp_path: Path):
    tool: Json = {"name": "look", "server": "evil", "description": EVIL, "input_schema": {}}
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([tool]), encoding="utf-8")

    with console("--catalog", str(path)) as url, window(browser, url) as tab:
        page = tab.open("#/search?q=look&tool=evil__look")
        expect(page.get_by_role("dialog").locator(".prose")).to_contain_text("<img src=x")
        expect(page.locator(".hit")).to_be_attached()

        assert page.locator("main img, dialog img, main script, dialog script").count() == 0
        assert "taken" not in page.title()


def test_an_unknown_tool_is_an_error_that_says_what_to_do(browser: Browser, demo: str):
    with window(browser, demo) as tab:
        page = tab.open("#/catalogue?tool=github__create_pull_requests")

        expect(page.get_by_role("alert")).to_contain_text("Near: github__create_pull_request")
        tab.errors[:] = [error for error in tab.errors if "404" not in error]


def test_the_page_waits_for_a_gateway_that_is_away_and_goes_on_when_it_is_back(
    browser: Browser, tmp_path: Path
):
    running = Running(configuration(tmp_path, {"time": TIME}))
    with running as gateway, window(browser, gateway.url) as tab:
        page = tab.open("#/servers")
        expect(page.locator(".live-text")).to_have_text("Live")
        gateway.kill()
        expect(page.locator(".live-text")).to_have_text("Reconnecting")
        page.keyboard.press("g")
        page.keyboard.press("c")
        expect(page.get_by_role("alert").first).to_contain_text("toolscout does not answer")

        gateway.start()

        expect(page.locator(".live-text")).to_have_text("Live")
        expect(page.locator(".entry")).to_have_count(2)
        tab.errors[:] = [error for error in tab.errors if "net::ERR" not in error]
