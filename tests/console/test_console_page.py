"""The page of a running gateway with real servers, as a person with a keyboard meets it."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from console.fixtures import (
    CLOCK,
    GIT,
    GREETING,
    NOW,
    PROFILES,
    TOKENS,
    gateway,
    guarded,
    talk,
)
from console.windows import Window, browsing, window
from servers.oauthserver import oauth_world
from serving import MISSING
from toolscout.config.servers import ServerConfig, Transport
from toolscout.gateway.audit import AuditRecord
from toolscout.servers.approvals import Approvals
from toolscout.servers.manifest import Manifest
from toolscout.sessions.events import Called
from toolscout.stores.memory import MemoryStore

CHANGING = Path(__file__).parents[1] / "security" / "changing_server.py"
OTHER = {"name": "time__get_current_time", "arguments": {"timezone": "Asia/Tokyo\u202e"}}
LATER = re.compile(r"/api/search\?q=commit\+log")
CURRENT = "get_current_time"
PIXELS = """(() => {
  const canvas = document.querySelector("canvas");
  const { width, height } = canvas;
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  return Array.from(new Uint32Array(copy.getImageData(0, 0, width, height).data.buffer));
})()"""
DRAWN = f"{PIXELS}.some(Boolean)"
INKED = f"{PIXELS}.filter((pixel) => pixel === 0xff221f1c).length"
"""How much of the map has the colour of text."""
TITLES = {
    "c": "Catalogue",
    "v": "Servers",
    "e": "Sessions",
    "w": "Waiting calls",
    "u": "Audit",
    "m": "Map",
}
VIEW = "document.querySelector('canvas').toDataURL()"


def expect_place(page: Page, place: str) -> None:
    """Wait until the address says this; a browser goes back in its own time."""
    expect(page).to_have_url(re.compile(f"{re.escape(place)}$"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as running:
        yield running


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with gateway(CLOCK, GIT, MISSING) as address:
        talk(address)
        yield address


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    with guarded() as address:
        yield address


@pytest.fixture
def tab(browser: Browser, url: str) -> Iterator[Window]:
    with window(browser, url) as opened:
        yield opened


def type_query(page: Page, text: str) -> None:
    page.get_by_role("searchbox", name="What should the tool do?").press_sequentially(text)


def tool(page: Page, name: str):
    return page.locator(f"[data-tool='{name}']")


def hold(page: Page, address: str | re.Pattern[str]) -> list[Route]:
    """Keep back what is asked of an address; each goes on when it is told to."""
    held: list[Route] = []

    def keep(route: Route) -> None:
        held.append(route)

    page.route(address, keep)
    return held


def wait_until(page: Page, condition: str, before: str = "") -> None:
    """Wait frame by frame; Playwright's own way compiles text, which the page's policy forbids."""
    frame = "await new Promise(requestAnimationFrame)"
    page.evaluate(f"async (before) => {{ while (!({condition})) {frame}; }}", before)


def test_hits_appear_while_a_query_is_typed_each_with_its_reasons(tab: Window):
    page = tab.open("")

    type_query(page, "current time in a city")
    first = page.locator(".hit").first

    expect(first.locator("a[data-tool]")).to_have_attribute("data-tool", f"time__{CURRENT}")
    expect(first.locator(".signals dt")).to_contain_text(
        ["words", "name", "clause", "meaning", "hint"]
    )
    expect(first.locator("a mark")).to_have_text(["time", "current", "time"])
    expect(first.locator("code.signature")).to_contain_text("timezone*")
    expect(first.locator(".badge").last).to_have_text(re.compile(r"^(strong|likely|weak)\d+ %$"))
    expect(page.locator(".status")).to_have_text(re.compile(r"hits? in .+ ms"))
    expect(page.locator(".side pre")).to_contain_text(f"time__{CURRENT}(timezone*)")
    expect_place(page, "#/search?q=current+time+in+a+city")


def test_an_address_with_a_query_shows_the_same_hits(tab: Window):
    page = tab.open("#/search?q=stage%20files&e=lexical")

    expect(page.get_by_role("searchbox")).to_have_value("stage files")
    expect(page.get_by_label("Encoder")).to_have_value("lexical")
    expect(tool(page, "git__git_add")).to_be_visible()


def test_a_query_for_an_unknown_name_suggests_near_ones(tab: Window):
    page = tab.open("#/search?q=select:time__get_currant_time")

    expect(page.locator(".note").first).to_contain_text(f"Near: time__{CURRENT}")


def test_arrows_choose_a_hit_enter_opens_it_and_escape_comes_back(tab: Window):
    page = tab.open("")
    type_query(page, "commit log")
    # The answer to the first word alone names the tool too, and is then replaced.
    expect(tool(page, "git__git_log").locator("mark", has_text="log").first).to_be_visible()

    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".hit a[data-tool]").first).to_be_focused()
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog")

    expect(drawer.get_by_role("heading", level=2)).to_have_text("gitgit_log")
    expect(drawer).to_contain_text("Number 1 for “commit log”")
    expect(drawer.locator(".schema code").first).to_have_text("repo_path")
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect_place(page, "#/search?q=commit+log")


def test_two_encoders_are_compared_side_by_side(tab: Window):
    page = tab.open("#/search?q=show+history")

    page.get_by_role("button", name="Compare").click()
    panels = page.locator(".panel")

    expect(panels).to_have_count(2)
    expect(panels.nth(0).get_by_label("Encoder")).to_have_value("static")
    expect(panels.nth(1).get_by_label("Encoder")).to_have_value("lexical")
    expect(panels.nth(0).get_by_text("only here").first).to_be_visible()


def test_compare_is_disabled_until_the_encoders_are_known(tab: Window):
    held = hold(tab.page, "**/api/overview")
    page = tab.open("#/search?q=show+history")
    compare = page.get_by_role("button", name="Compare")

    expect(page.locator(".hit").first).to_be_visible()
    expect(compare).to_be_disabled()
    for route in held:
        route.continue_()

    expect(compare).to_be_enabled()


def test_a_focused_hit_stays_focused_when_the_next_answer_arrives(tab: Window):
    page = tab.open("#/search?q=commit")
    expect(tool(page, "git__git_log")).to_be_visible()
    held = hold(page, LATER)

    with page.expect_request(LATER):
        page.get_by_role("searchbox").fill("commit log")
    page.locator("a[data-tool='git__git_log']").focus()
    held.pop().continue_()

    expect(tool(page, "git__git_log").locator("mark", has_text="log").first).to_be_visible()
    expect(page.locator("a[data-tool='git__git_log']")).to_be_focused()


def test_two_queries_are_compared_side_by_side(tab: Window):
    page = tab.open("#/search?compare=1&q=stage+files&q2=convert+a+time")
    first, second = page.locator(".panel").nth(0), page.locator(".panel").nth(1)

    expect(first.locator("[data-tool]").first).to_have_attribute("data-tool", "git__git_add")
    expect(second.locator("[data-tool]").first).to_have_attribute("data-tool", "time__convert_time")


def test_why_not_this_tool_shows_what_holds_it_back(tab: Window):
    page = tab.open("#/search?q=show+the+commit+log")

    page.get_by_label("Why not this tool?").last.fill("time__convert_time")
    page.keyboard.press("Enter")
    told = page.locator(".why")

    expect(told.locator(".reasons li").first).to_contain_text("It does not mention: show")
    expect(told.get_by_text("best hit")).to_be_visible()
    expect(told.locator(".signals")).to_have_count(2)


def test_the_catalogue_is_narrowed_by_server_and_ordered_by_cost(tab: Window):
    page = tab.open("#/catalogue")
    page.locator(".facet-list").first.get_by_role("link", name=re.compile("^time")).click()
    expect(page.locator(".entry")).to_have_count(2)

    page.get_by_label("Order").select_option("tokens")

    expect(page.locator(".entry a").first).to_have_attribute("data-tool", "time__convert_time")
    expect_place(page, "#/catalogue?server=time&sort=tokens")
    page.get_by_label("Filter the tools by words").fill("nothing has this")
    expect(page.get_by_text("No tool passes these filters")).to_be_visible()


def test_a_tool_shows_its_schema_effect_and_neighbours(tab: Window):
    page = tab.open("#/catalogue?tool=time__convert_time")
    drawer = page.get_by_role("dialog")

    fields = drawer.locator(".schema > li")
    expect(fields.filter(has_text="source_timezone").get_by_text("required")).to_be_visible()
    expect(drawer.locator(".near a").first).to_have_attribute("data-tool", f"time__{CURRENT}")
    drawer.get_by_text("Input schema as JSON").click()
    expect(drawer.locator("pre").first).to_contain_text('"source_timezone": {')


def test_a_server_is_stopped_and_started_and_its_log_is_read(tab: Window):
    page = tab.open("#/servers")
    card = page.locator(".server").filter(has=page.get_by_role("heading", name="time"))
    expect(card.locator(".badge")).to_have_text("ready")

    card.get_by_role("button", name="Log of time").click()
    expect(card.get_by_role("log")).to_contain_text(GREETING)
    card.get_by_role("button", name="Stop time").click()
    expect(card.locator(".badge")).to_have_text("stopped")
    card.get_by_role("button", name="Start time").click()

    expect(card.locator(".badge")).to_have_text("ready")


def test_a_server_and_a_tool_are_switched_and_changed_with_the_keyboard(browser: Browser):
    with gateway(GIT) as address, window(browser, address) as tab:
        page = tab.open("#/catalogue?tool=git__git_log")
        page.get_by_role("link", name="Change or switch off").click()

        described = page.get_by_label("Description that models read")
        expect(described).to_be_focused()
        described.fill("Tell who changed what.")
        page.get_by_label("Words that searches find it by").fill("blame")
        page.locator(".argument", has_text="max_count").locator("select").select_option("fixed")
        page.get_by_label("Value of max_count").fill("5")
        page.keyboard.press("Enter")
        edit = page.get_by_role("button", name="Change git_log")
        expect(edit).to_be_focused()
        row = page.locator(".tool-edits > li", has=edit)
        expect(row).to_contain_text("changed: description, search words, fixed arguments")
        switch = page.get_by_role("switch", name="git_log is on")
        switch.focus()
        page.keyboard.press("Space")
        expect(row.locator(".badge").first).to_have_text("off")
        expect(switch).to_be_focused()
        page.keyboard.press("Space")
        expect(switch).to_be_checked()
        page.get_by_role("button", name="Switch off git").press("Enter")
        server = page.locator(".server", has=page.get_by_role("heading", name="git", exact=True))
        expect(server).to_contain_text("It is switched off in the configuration")
        page.get_by_role("button", name="Switch on git").press("Enter")
        expect(page.get_by_role("button", name="Switch off git")).to_be_visible()
        expect(server).not_to_contain_text("It is switched off")


def test_a_change_that_is_refused_is_told_in_the_form(tab: Window):
    page = tab.open("#/servers?tools=git&edit=git_status")
    field = page.locator(".argument", has_text="repo_path")
    field.locator("select").select_option("hidden")
    page.get_by_role("button", name="Save").click()

    expect(page.locator(".tool-form .problem")).to_contain_text("leaves no call")
    expect(field.locator("select")).to_have_value("hidden")
    tab.errors.clear()  # the browser logs the refused request


def test_a_server_that_failed_says_why_and_stands_first(tab: Window):
    page = tab.open("#/servers")
    first = page.locator(".server").first

    expect(first.get_by_role("heading")).to_have_text("missing")
    expect(first.locator(".server-text")).to_contain_text("not found")


def test_a_changed_tool_is_read_and_approved(browser: Browser, tmp_path: Path):
    lists = tmp_path / "lists.json"
    notes = replace(CLOCK, name="notes", args=(str(CHANGING), str(lists)))
    known = {"name": "list_notes", "inputSchema": {"type": "object"}}
    new = {**known, "name": "erase", "description": "Erase <b>all</b>."}
    store = MemoryStore()
    Approvals(store).check(notes, Manifest(tools=(known,)))
    lists.write_text(json.dumps({"tools": [known, new]}))
    with gateway(notes, store=store) as url, window(browser, url) as tab:
        page = tab.open("#/servers")
        page.get_by_role("button", name="Review 1 change of notes").click()
        changed = page.get_by_role("region", name="What changed in notes__erase")
        expect(changed).to_contain_text("+ Erase <b>all</b>.")

        page.get_by_role("button", name="Approve notes__erase").click()

        expect(changed).to_have_count(0)
        expect(page.get_by_role("button", name="Review")).to_have_count(0)
        tab.open("#/catalogue")
        expect(tool(page, "notes__erase")).to_have_count(1)


def test_a_waiting_call_is_answered_with_the_keyboard_and_appears_in_the_audit(browser: Browser):
    rules = {"careful": {"permission": "ask", "tools": ["time__*"]}}
    with gateway(CLOCK, rules=rules) as url, window(browser, url) as tab:
        page = tab.open("#/waiting")
        expect(page.get_by_text("No call waits for you")).to_be_visible()

        talk(url, [("tool_call", NOW), ("tool_call", OTHER)])

        expect(page.locator("#tabs .count.waiting")).to_have_text("2")
        expect(page.get_by_role("group", name="Arguments of")).to_have_count(2)
        expect(page.get_by_role("group").last).to_contain_text('"timezone": "Europe/Berlin"')
        expect(page.get_by_role("group").first).to_contain_text("Asia/Tokyo\\u{202e}")
        page.get_by_role("button", name="Approve once").last.press("Enter")
        expect(page.get_by_role("status").last).to_contain_text("Approved once: time__get_current")
        expect(page.get_by_text("1 call waits for an answer.")).to_be_visible()
        assert page.evaluate("document.activeElement.tagName") == "BUTTON"
        page.get_by_role("button", name="Deny").first.press("Enter")
        expect(page.locator("#tabs .count.waiting")).to_have_count(0)
        talk(url, [("tool_call", NOW), ("tool_call", OTHER)])
        expect(page.get_by_text("The model is told no")).to_be_visible()
        expect(page.get_by_text("The model may make this call")).to_have_count(0)

        tab.open("#/audit?event=approval")
        entries = page.locator(".audit-list summary")
        expect(entries).to_have_count(3)
        expect(entries).to_contain_text(["used", "denied", "approved once"])
        page.get_by_label("Outcome").fill("denied")
        page.keyboard.press("Enter")
        expect(entries).to_have_count(1)
        entries.press("Enter")
        facts = page.locator(".audit-list .facts")
        expect(facts).to_contain_text("careful")
        expect(facts).to_contain_text("sha256:")
        expect_place(page, "#/audit?event=approval&outcome=denied")


def test_the_audit_says_whether_it_is_complete_and_shows_older_entries(browser: Browser):
    store = MemoryStore()
    record = AuditRecord(store)
    for number in range(120):
        record.on_event(Called(tool=f"mail__<b>t{number}</b>", server="mail"))
    record.close()
    with gateway(CLOCK, store=store) as url, window(browser, url) as tab:
        page = tab.open("#/audit?event=call")
        entries = page.locator(".audit-list summary")
        expect(entries).to_have_count(50)
        expect(entries.first).to_contain_text("mail__<b>t119</b>")
        expect(page.get_by_text("Nobody edited or removed any of 121 entries.")).to_be_visible()
        expect(page.get_by_text("Entries are kept for 90 days.")).to_be_visible()

        page.get_by_role("button", name="Show older entries").press("Enter")
        expect(entries).to_have_count(100)
        page.get_by_role("button", name="Show older entries").press("Enter")
        expect(entries).to_have_count(120)
        expect(page.get_by_role("button", name="Show older entries")).to_have_count(0)

        store.append("audit", b"forged")
        page.get_by_role("button", name="Check again").press("Enter")
        expect(page.get_by_text("Entry 122 was edited or damaged.")).to_be_visible()


def test_a_user_is_led_to_the_page_on_which_to_log_in(browser: Browser, tmp_path: Path):
    with oauth_world() as world:
        web = ServerConfig(
            name="web", transport=Transport.HTTP, url=world.url, oauth=True, login="user"
        )
        people: dict[str, Any] = {"tokens": TOKENS, "profiles": PROFILES}
        with (
            gateway(web, CLOCK, token="open sesame", logins=tmp_path, **people) as url,
            window(browser, url) as tab,
        ):
            tab.page.add_init_script("sessionStorage.setItem('toolscout.token', 'open sesame')")
            page = tab.open("#/servers")

            page.get_by_role("link", name="Log in for your calls to web").click()

            expect(page.get_by_text("Server web asks for your login.")).to_be_visible()
            assert tab.violations() == []
            page.get_by_label("Your token of this gateway").fill("open sesame")
            page.keyboard.press("Enter")
            expect(page.get_by_role("link", name="Log in at")).to_be_visible()
            assert tab.violations() == []


def test_a_session_is_followed_as_it_happens(tab: Window, url: str):
    page = tab.open("#/sessions")
    page.locator(".session").first.click()
    timeline = page.locator(".timeline")
    expect(timeline.get_by_text("show the commit log · stage files").first).to_be_visible()
    expect(page.locator(".loaded").get_by_text("git_log")).to_be_visible()

    asked = "which zone is Lisbon in"
    talk(url, [("tool_search", {"queries": [asked]}), ("tool_call", NOW)])

    expect(timeline.locator("li").filter(has_text=asked)).to_be_visible()
    expect(timeline.locator("li").last).to_contain_text(CURRENT)


def test_refused_calls_say_why_and_lead_to_what_can_be_done(tab: Window, url: str):
    talk(url, [("tool_call", {"name": "git__git_rebase", "arguments": {}})])
    page = tab.open("#/sessions")
    page.get_by_role("link", name="Refused calls").click()

    refused = page.locator(".timeline li").first
    expect(refused).to_contain_text("No server offers a tool of this name.")
    refused.get_by_role("link", name="check on the page Servers").click()
    expect_place(page, "#/servers?server=git")


def test_savings_are_a_chart_that_arrows_read_and_a_table(tab: Window):
    page = tab.open("#/savings")
    spared = page.locator(".figure .big").first
    expect(spared).to_have_text(re.compile(r"^[1-9][\d.,]*K? tokens$"))

    page.locator(".chart-box").focus()
    page.keyboard.press("End")
    expect(page.locator(".readout")).to_contain_text("not sent")
    told = page.locator(".readout").inner_text()
    page.get_by_text("The same as a table").click()
    row = page.locator("tbody tr").last

    assert f"{row.locator('td').nth(0).inner_text()} not sent" in told
    expect(page.locator(".by-server li")).to_have_count(2)


def test_the_map_shows_a_query_and_its_hits(tab: Window):
    page = tab.open("#/map")
    expect(page.locator(".map-legend li")).to_have_count(2)
    expect(page.locator(".map-note")).to_be_hidden()
    wait_until(page, DRAWN)
    assert page.evaluate(INKED) == 0

    page.keyboard.press("/")
    page.keyboard.type("show the commit log")

    expect(page.locator(".map-hits li").first).to_have_text("gitgit_log")
    wait_until(page, f"{INKED} > 100")  # a star and names
    page.locator(".map-hits a").first.hover()
    expect(page.locator(".tip")).to_have_text("git / git_log")


def test_the_map_is_zoomed_and_moved_with_keys(tab: Window):
    page = tab.open("#/map")
    wait_until(page, DRAWN)
    page.locator("canvas").focus()

    for key in ("+", "ArrowLeft", "0"):
        before = page.evaluate(VIEW)
        page.keyboard.press(key)
        wait_until(page, f"{VIEW} !== before", before)


def test_keys_lead_from_page_to_page_and_can_be_switched_off(tab: Window):
    page = tab.open("#/savings")
    expect(page.get_by_role("heading", level=1)).to_have_text("Savings")

    for key, title in TITLES.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    page.keyboard.press("?")
    page.get_by_label("Single-letter keys are on").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.keyboard.press("?")

    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_have_text("Map")


def test_the_documentation_is_one_click_away(tab: Window):
    page = tab.open("")

    link = page.get_by_role("link", name="Open the documentation")

    expect(link).to_be_visible()
    expect(link).to_have_attribute("href", re.compile("^https://"))
    expect(link).to_have_attribute("target", "_blank")


def test_chosen_colours_stay(tab: Window):
    page = tab.open("")
    page.keyboard.press("Escape")
    for _ in range(2):
        page.keyboard.press("t")

    page.reload()

    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    dark = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(dark) == "rgb(19, 21, 23)"


def test_a_token_is_asked_for_and_kept_in_this_tab_only(browser: Browser, guarded_url: str):
    with window(browser, guarded_url) as tab:
        page = tab.open("")
        page.get_by_label("Token", exact=True).fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_text("That token is not accepted here")).to_be_visible()
        page.get_by_label("Token", exact=True).fill("open sesame")
        page.keyboard.press("Enter")
        expect(page.get_by_text("2 tools, ranked")).to_be_visible()
        page.reload()
        expect(page.get_by_text("2 tools, ranked")).to_be_visible()

        kept = page.evaluate("[Object.values(localStorage), Object.values(sessionStorage)]")
        assert kept == [[], ["open sesame"]]
        # The browser itself tells of every answer 401.
        tab.errors[:] = [told for told in tab.errors if "401" not in told]


def test_a_token_with_a_profile_is_offered_nothing_that_it_may_not_do(
    browser: Browser, guarded_url: str
):
    with window(browser, guarded_url) as tab:
        tab.page.add_init_script("sessionStorage.setItem('toolscout.token', 'swordfish')")
        page = tab.open("#/servers")
        expect(page.locator(".server")).to_have_count(1)

        expect(page.locator(".server button")).to_have_count(0)
        expect(page.get_by_role("link", name="Savings")).to_be_visible()
        for name in ("Waiting", "Audit"):
            expect(page.get_by_role("link", name=name)).to_have_count(0)
        tab.open("#/catalogue")
        expect(page.locator(".entry")).to_have_count(1)
