"""The console's page with 22,665 tools: the first paint, and from a keystroke to its hits.

`TOOLSCOUT_CATALOG` names a folder with a dataset of tools; without it, the demo catalogue is
repeated. `make bench-console` runs it and shows its figures.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from console.fixtures import console
from console.windows import browsing, window
from toolscout.demo import load_demo_catalog
from toolscout.evaluate.datasets import read_dataset
from toolscout.tools import Tool

TOOLS = 22_665
PAINT_MILLISECONDS = 1_000
KEY_MILLISECONDS = 100
QUERY = "open a pull request for the branch"
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
WAITED = """performance.getEntriesByType("resource")
  .filter((one) => one.name.includes("/api/search"))
  .map((one) => one.duration)"""
"""How long the page waited for the API, for each key."""
KEY = """async (text) => {
  const input = document.querySelector("input.ask");
  const panel = document.querySelector(".panel");
  const began = performance.now();
  const answered = new Promise((done) => {
    const watcher = new MutationObserver(() => {
      if (panel.querySelector(".hits") && !panel.hasAttribute("aria-busy")) {
        watcher.disconnect();
        done();
      }
    });
    watcher.observe(panel, { subtree: true, childList: true, attributes: true });
  });
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  await answered;
  return performance.now() - began;
}"""


@pytest.mark.timeout(300)
def test_a_large_catalogue_is_painted_and_searched_at_once(tmp_path: Path):
    path = tmp_path / "tools.jsonl"
    path.write_text("\n".join(map(json.dumps, definitions())), encoding="utf-8")
    with console("--catalog", str(path)) as url, browsing() as browser:
        with window(browser, url) as tab:
            page = tab.open("#/catalogue")
            expect(page.locator(".facet-list a").first).to_be_visible()
            paint = page.evaluate(PAINT)
            rows = page.locator(".entry").count()
        with window(browser, url) as tab:
            page = tab.open("#/search")
            expect(page.locator(".chip").first).to_be_visible()
            page.locator("input.ask").focus()
            keys = sorted(typed(page))
            waited = median(page.evaluate(WAITED))
    p95 = keys[int(0.95 * len(keys))]
    told = f"a key p50 {median(keys):.0f} ms ({waited:.0f} ms of it the API), p95 {p95:.0f} ms"
    sys.stderr.write(f"\n{TOOLS:,} tools: first paint {paint:.0f} ms, {told}\n")

    assert rows < 60
    assert paint < PAINT_MILLISECONDS
    assert median(keys) < KEY_MILLISECONDS


def typed(page: Page) -> Iterator[float]:
    """Type a query; yield what each key but a space took until its hits stood."""
    for end in range(3, len(QUERY) + 1):
        if QUERY[end - 1] != " ":
            yield page.evaluate(KEY, QUERY[:end])


def definitions() -> Iterator[dict[str, Any]]:
    folder = os.environ.get("TOOLSCOUT_CATALOG")
    tools = read_dataset(folder).tools if folder else tuple(repeated())
    taken: set[tuple[str, str]] = set()
    for tool in tools[:TOOLS]:
        server, leaf = re.sub(r"\W", "_", tool.server), tool.leaf
        while (server, leaf) in taken:
            leaf += "_"
        taken.add((server, leaf))
        yield {
            "name": leaf,
            "server": server,
            "description": tool.description,
            "input_schema": tool.input_schema,
        }


def repeated() -> Iterator[Tool]:
    tools = load_demo_catalog().tools
    for number in range(TOOLS):
        yield tools[number % len(tools)]
