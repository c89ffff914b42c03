"""A real browser that opens the console and collects the errors of its page."""

import os
import shutil
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
AXE = ROOT / ".npm-servers" / "node_modules" / "axe-core" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome")
DEADLINE_MILLISECONDS = 90_000
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PICTURES = os.environ.get("TOOLSCOUT_SCREENSHOTS", "")
"""The folder for screenshots; none are kept without it."""

Scheme = Literal["light", "dark"]


@dataclass(frozen=True, slots=True)
class Screen:
    """The screen on which a person sees the page."""

    name: str
    width: int
    height: int
    schemes: tuple[Scheme, Scheme]
    """Its colours when the page is loaded, and those to which it then changes."""

    @property
    def is_phone(self) -> bool:
        return self.width < 500


DESK = Screen("desk", 1280, 860, ("light", "dark"))
SCREENS = (DESK, Screen("phone", 360, 740, ("dark", "light")))


@dataclass(slots=True)
class Window:
    """A tab at one address."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list[str])

    def open(self, path: str) -> Page:
        """Go to a place of the page, as a link would."""
        self.page.goto(f"{self.url}/{path}")
        return self.page

    def leave(self) -> None:
        """Leave the page, so that it is loaded anew when it is opened again."""
        self.page.goto("about:blank")

    def wear(self, scheme: Scheme) -> None:
        """Take the colours of a scheme, as when the system changes them."""
        self.page.emulate_media(color_scheme=scheme)
        dark = "matchMedia('(prefers-color-scheme: dark)').matches"
        next_frame = "new Promise(requestAnimationFrame)"  # the page hears of it before
        assert self.page.evaluate(f"{next_frame}.then(() => {dark})") is (scheme == "dark")

    def check_errors(self) -> None:
        """Fail if the page logged an error since the last check."""
        errors, self.errors[:] = list(self.errors), []
        assert errors == []

    def violations(self) -> list[str]:
        """Return what axe finds wrong with what is shown."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(axe_source())
        run = "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations)"
        found: Any = self.page.evaluate(run)
        return [
            f"{one['id']}: {node['html'][:160]} {node['failureSummary']}"
            for one in found
            for node in one["nodes"]
        ]

    def keep_picture(self, name: str) -> None:
        """Keep what is shown for the documents, if somebody wants pictures."""
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(PICTURES) / f"console-{name}.png", animations="disabled")


@cache
def axe_source() -> str:
    assert AXE.is_file(), "axe-core is missing. Run `make .npm-servers/.installed`."
    return AXE.read_text(encoding="utf-8")


def chromium() -> str:
    """Return the path of the browser; fails with advice if there is none."""
    found = os.environ.get("TOOLSCOUT_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "")
    if not found:
        pytest.fail("Chromium is missing. Run `make browser`, or `apt-get install chromium`.")
    return found


@contextmanager
def browsing() -> Generator[Browser]:
    """Run a browser for some tests."""
    with sync_playwright() as playwright:
        expect.set_options(DEADLINE_MILLISECONDS)
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def window(browser: Browser, url: str, screen: Screen = DESK) -> Generator[Window]:
    """Open a tab in a fresh profile; fails at the end if the page logged an error."""
    context = browser.new_context(
        viewport={"width": screen.width, "height": screen.height},
        color_scheme=screen.schemes[0],
        is_mobile=screen.is_phone,
        has_touch=screen.is_phone,
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(DEADLINE_MILLISECONDS)
    opened = Window(context.new_page(), url)

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            opened.errors.append(message.text)

    opened.page.on("console", hear)
    opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))
    try:
        yield opened
    finally:
        context.close()
    opened.check_errors()


def in_thread(work: Callable[[], None]) -> None:
    """Run something that needs an event loop; the browser's has this thread."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result(DEADLINE_MILLISECONDS / 1000)
