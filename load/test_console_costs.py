"""What the console takes over a catalogue of 22,665 tools, beside what a search alone takes."""

import time
from collections.abc import Callable

import pytest

from load.gateways import tell
from toolscout.catalog import Catalog
from toolscout.config.gateway import GatewayConfig
from toolscout.console.app import Console, build_console
from toolscout.demo import load_demo_catalog
from toolscout.gateway.middleware import ANONYMOUS

TOOLS = 22_665
QUERIES = ("s", "send", "send an email", "refund a customer's order", "list open pull requests")
SEARCH_RATIO = 25.0
"""How many times as long as the search a keystroke may take: reasons and the reply are made too."""
MAP_RATIO = 2.0
"""How many times as long as indexing the first map may take."""


@pytest.fixture(scope="module")
def built() -> tuple[Console, float]:
    """A console over many tools, and the seconds that indexing them took."""
    catalog = _many()
    began = time.process_time()
    console = build_console(catalog, GatewayConfig(port=0))
    return console, time.process_time() - began


@pytest.mark.timeout(300)
def test_a_keystroke_takes_a_small_multiple_of_the_search(built: tuple[Console, float]):
    """The search, its reasons, and the reply that a model would read."""
    console, _ = built
    view = console.get_view(ANONYMOUS)
    for text in QUERIES:
        console.search.search(view, text)

    alone = _seconds(lambda: [console.indexes.get().search(text, 20) for text in QUERIES])
    shown = _seconds(lambda: [console.search.search(view, text) for text in QUERIES])
    each = 1e3 / len(QUERIES)
    tell("console, keystroke", search_ms=alone * each, answer_ms=shown * each, ratio=shown / alone)

    assert shown < SEARCH_RATIO * alone


@pytest.mark.timeout(300)
def test_the_first_map_takes_about_as_long_as_indexing(built: tuple[Console, float]):
    """It is drawn once for each content; after that it is only told."""
    console, indexing = built
    view = console.get_view(ANONYMOUS)

    first = _seconds(lambda: console.maps.list_places(view), times=1)
    again = _seconds(lambda: console.maps.list_places(view))
    tell("console, map", indexing_s=indexing, first_s=first, again_s=again)

    assert first < MAP_RATIO * indexing
    assert again < 0.1 * first


@pytest.mark.timeout(300)
def test_pages_of_the_catalogue_cost_less_than_the_first_look(built: tuple[Console, float]):
    """What each definition costs is estimated once."""
    console, _ = built
    view = console.get_view(ANONYMOUS)

    first = _seconds(lambda: console.tools.list_page(view, sort="tokens"), times=1)
    again = _seconds(lambda: console.tools.list_page(view, sort="tokens"))
    plain = _seconds(lambda: console.tools.list_page(view))
    tell("console, catalogue", first_ms=first * 1e3, again_ms=again * 1e3, by_name_ms=plain * 1e3)

    assert again < first
    assert plain < again


def _many() -> Catalog:
    """Return the demo catalogue many times over, each time as other servers."""
    demo = load_demo_catalog().tools
    by_server: dict[str, list[object]] = {}
    for number in range(TOOLS):
        tool, copy = demo[number % len(demo)], number // len(demo)
        server = f"{tool.server}_{copy}"
        by_server.setdefault(server, []).append(tool.move_to(server))
    return Catalog(by_server)


def _seconds(work: Callable[[], object], times: int = 3) -> float:
    """Return the least processor time that some work took; others' work does not count."""
    found: list[float] = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)
