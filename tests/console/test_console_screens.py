"""Every page on every screen: nothing that axe objects to, nothing too wide, no error.

With `TOOLSCOUT_SCREENSHOTS` set to a folder, what is looked at is also kept there.
"""

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import Browser, Page, expect

from console.asking import Json
from console.fixtures import CLOCK, GIT, TALK, console, gateway, talk
from console.windows import SCREENS, Screen, Window, browsing, window
from daemon.test_daemon import Machine
from gateway.fleet import TIME, configuration
from serving import MISSING


def nothing(page: Page) -> None:
    """Do nothing before looking."""


def choose_session(page: Page) -> None:
    page.locator(".session").first.click()


def open_legend(page: Page) -> None:
    page.get_by_text("What the states mean").click()


def choose_fixed(page: Page) -> None:
    page.locator(".argument", has_text="repo_path").locator("select").select_option("fixed")
    page.get_by_label("Value of repo_path").fill("/home/ann/shop")


def show_keys(page: Page) -> None:
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Show the keys").click()


def open_entry(page: Page) -> None:
    expect(page.get_by_text("Nobody edited or removed")).to_be_visible()
    page.locator(".audit-list summary", has_text="call").first.click()


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


RULES = {"careful": {"permission": "ask", "tools": ["git__git_reset", "git__git_commit"]}}
WAITING = [
    ("tool_call", {"name": "git__git_reset", "arguments": {"repo_path": "/home/ann/shop"}}),
    (
        "tool_call",
        {
            "name": "git__git_commit",
            "arguments": {"repo_path": "/home/ann/shop", "message": "Round prices up"},
        },
    ),
]
OFF = replace(MISSING, name="later", disabled=True)
TYPO: tuple[str, Json] = ("tool_call", {"name": "git__git_stats", "arguments": {}})
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
    Sight("no-waiting", "#/waiting", ".empty"),
    Sight("no-audit", "#/audit", ".empty"),
    Sight("no-savings", "#/savings", ".empty"),
)
OF_GATEWAY = (
    Sight("servers", "#/servers?server=time", ".server-log"),
    Sight("states", "#/servers", "details[open] .facts", open_legend),
    Sight("tools", "#/servers?tools=git&edit=git_diff_unstaged", ".argument", choose_fixed),
    Sight("sessions", "#/sessions", ".timeline", choose_session),
    Sight("refused", "#/sessions?show=refused", ".timeline"),
    Sight("savings", "#/savings", "tbody td", open_table),
    Sight("waiting", "#/waiting", ".facts"),
    Sight("audit", "#/audit", ".audit-list details[open] .facts", open_entry),
)


OF_DAEMON = (Sight("clients", "#/sessions", "tbody td"),)
KEPT = {
    *(
        f"{one.name}-desk"
        for one in (*OF_CATALOGUE[:2], *OF_CATALOGUE[5:8], *OF_GATEWAY, *OF_DAEMON)
    ),
    "search-desk-dark",
    "search-phone",
    "map-phone-dark",
} - {"states-desk"}
"""The pictures that the documents show."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as running:
        yield running


Tabs = Callable[[Screen], Window]


@contextmanager
def keep_tabs(browser: Browser, url: str) -> Generator[Tabs]:
    """Keep one tab for each screen: a profile of its own for each test costs more than its page."""
    with ExitStack() as kept:

        @cache
        def open_tab(screen: Screen) -> Window:
            return kept.enter_context(window(browser, url, screen))

        def open_blank(screen: Screen) -> Window:
            tab = open_tab(screen)
            tab.leave()
            tab.errors.clear()  # of a test that failed
            tab.wear(screen.schemes[0])
            return tab

        yield open_blank


@pytest.fixture(scope="module")
def catalogue(browser: Browser) -> Iterator[Tabs]:
    with console() as url, keep_tabs(browser, url) as tabs:
        yield tabs


@pytest.fixture(scope="module")
def live(browser: Browser) -> Iterator[Tabs]:
    with gateway(CLOCK, GIT, MISSING, OFF, rules=RULES) as url:
        talk(url, [*TALK, *WAITING, TYPO])
        with keep_tabs(browser, url) as tabs:
            yield tabs


@pytest.fixture(scope="module")
def background(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabs]:
    """The console of a gateway in the background that two clients use, opened with its token."""
    config = configuration(tmp_path_factory.mktemp("background"), {"time": TIME})
    with TemporaryDirectory() as home:
        machine = Machine(Path(home), config)
        with ExitStack() as opened:
            for name in ("Editor", "Terminal"):
                opened.enter_context(open_client(machine, name))
            shown = opened.enter_context(console("--config", str(config), env=machine.env))
            url, _, token = shown.partition("/#token=")
            tabs = opened.enter_context(keep_tabs(browser, url))

            def open_tab(screen: Screen) -> Window:
                tab = tabs(screen)
                tab.open(f"#token={token}")
                expect(tab.page.locator("#version")).to_contain_text("daemon")
                tab.leave()
                return tab

            yield open_tab
        assert machine.run("stop", "--config", str(config)).returncode == 0


@contextmanager
def open_client(machine: Machine, name: str) -> Generator[None]:
    """Connect to the gateway as a client does that lists tools and searches."""
    info = {"clientInfo": {"name": name, "version": "1.2"}}
    search = {"name": "tool_search", "arguments": {"queries": ["what time is it"]}}
    with machine.start(**info) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        sent: list[Json] = [
            {"method": "notifications/initialized"},
            {"method": "tools/list", "id": 2},
            {"method": "tools/call", "id": 3, "params": search},
        ]
        for message in sent:
            client.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        client.stdin.flush()
        while b'"id":3' not in client.stdout.readline():
            pass  # the test's own time limit is the deadline
        yield


def every_screen() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)


@every_screen()
@pytest.mark.parametrize("sight", OF_CATALOGUE, ids=lambda sight: sight.name)
def test_a_page_of_a_catalogue_is_accessible_in_light_and_dark(
    catalogue: Tabs, screen: Screen, sight: Sight
):
    assert_sound(catalogue(screen), screen, sight)


@every_screen()
@pytest.mark.parametrize("sight", OF_GATEWAY, ids=lambda sight: sight.name)
def test_a_page_of_a_gateway_is_accessible_in_light_and_dark(
    live: Tabs, screen: Screen, sight: Sight
):
    assert_sound(live(screen), screen, sight)


@every_screen()
@pytest.mark.parametrize("sight", OF_DAEMON, ids=lambda sight: sight.name)
def test_a_page_of_a_gateway_in_the_background_is_accessible_in_light_and_dark(
    background: Tabs, screen: Screen, sight: Sight
):
    assert_sound(background(screen), screen, sight)


def assert_sound(tab: Window, screen: Screen, sight: Sight) -> None:
    page = tab.open(sight.path)
    expect(page.locator(".live.on")).to_be_visible()
    expect(page.locator("#version")).not_to_be_empty()
    sight.before(page)
    for scheme in screen.schemes:
        tab.wear(scheme)
        expect(page.locator(sight.sign).first).to_be_visible()
        name = f"{sight.name}-{screen.name}" + ("-dark" if scheme == "dark" else "")
        if name in KEPT:
            tab.keep_picture(name)

        assert tab.violations() == [], f"{scheme} on the {screen.name}"
        width = "document.documentElement.scrollWidth <= innerWidth"
        assert page.evaluate(width), f"It is too wide: {scheme} on the {screen.name}."
    tab.leave()
    tab.check_errors()
