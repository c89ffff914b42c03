"""Every page on every screen: nothing that axe objects to, nothing too wide, no error.

With `TOOLSCOUT_SCREENSHOTS` set to a folder, what is looked at is also kept there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

from console.fixtures import CLOCK, GIT, console, gateway, talk
from console.windows import SCREENS, Screen, Window, browsing, window
from serving import MISSING


def nothing(page: Page) -> None:
    """Do nothing before looking."""


def choose_session(page: Page) -> None:
    page.locator(".session").first.click()


def show_keys(page: Page) -> None:
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Show the keys").click()


def open_table(page: Page) -> None:
    page.get_by_text("The same as a table").click()
    page.evaluate("scrollTo(0, 0)")


@dataclass(frozen=True, slots=True)
class Sight:
    """Something to look at, and the sign that it is there."""

    name: str
    path: str
    sign: str
    before: Callable[[Page], None] = nothing


QUERY = "q=open+a+pull+request"
OF_CATALOGUE = (
    Sight("search", f"#/search?{QUERY}", ".hit:nth-child(5)"),
    Sight("compare", f"#/search?{QUERY}&compare=1&e2=lexical", ".panel:nth-child(2) .hit"),
    Sight("why", f"#/search?{QUERY}&why=github__create_issue", ".why .reasons"),
    Sight("begin", "#/search", ".chip"),
    Sight("keys", "#/search", "dialog .keys", show_keys),
    Sight("catalogue", "#/catalogue", ".entry"),
    Sight("tool", "#/catalogue?tool=github__create_pull_request", "dialog .near"),
    Sight("map", f"#/map?{QUERY}", ".map-hits li"),
    Sight("no-servers", "#/servers", ".empty"),
    Sight("no-sessions", "#/sessions", ".empty"),
    Sight("no-savings", "#/savings", ".empty"),
)
OF_GATEWAY = (
    Sight("servers", "#/servers?server=time", ".server-log"),
    Sight("sessions", "#/sessions", ".timeline", choose_session),
    Sight("savings", "#/savings", "tbody td", open_table),
)


KEPT = {
    *(f"{one.name}-desk" for one in (*OF_CATALOGUE[:2], *OF_CATALOGUE[5:8], *OF_GATEWAY)),
    "search-desk-dark",
    "search-phone",
    "map-phone-dark",
}
"""The pictures that the documents show."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as running:
        yield running


@pytest.fixture(scope="module")
def catalogue() -> Iterator[str]:
    with console() as url:
        yield url


@pytest.fixture(scope="module")
def live() -> Iterator[str]:
    with gateway(CLOCK, GIT, MISSING) as url:
        talk(url)
        yield url


def every_screen() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)


@every_screen()
@pytest.mark.parametrize("sight", OF_CATALOGUE, ids=lambda sight: sight.name)
def test_a_page_of_a_catalogue_is_accessible(
    browser: Browser, catalogue: str, screen: Screen, sight: Sight
):
    with window(browser, catalogue, screen) as tab:
        assert_sound(tab, screen, sight)


@every_screen()
@pytest.mark.parametrize("sight", OF_GATEWAY, ids=lambda sight: sight.name)
def test_a_page_of_a_gateway_is_accessible(
    browser: Browser, live: str, screen: Screen, sight: Sight
):
    with window(browser, live, screen) as tab:
        assert_sound(tab, screen, sight)


def assert_sound(tab: Window, screen: Screen, sight: Sight) -> None:
    page = tab.open(sight.path)
    expect(page.locator(".live.on")).to_be_visible()
    expect(page.locator("#version")).not_to_be_empty()
    sight.before(page)
    expect(page.locator(sight.sign).first).to_be_visible()
    name = f"{sight.name}-{screen.name}"
    if name in KEPT:
        tab.keep_picture(name)

    assert tab.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "It is too wide."
