"""The demo catalogue, indexed once per process, for tests that do not change it."""

from functools import cache
from typing import Any

from toolscout import Catalog, Scout
from toolscout.demo import load_demo_catalog
from toolscout.search.index import Index


@cache
def index_demo() -> tuple[Catalog, Index]:
    """Return the demo catalogue and its index, the same ones each time: change neither."""
    catalog = load_demo_catalog()
    return catalog, Index(catalog)


def make_demo_scout(**options: Any) -> Scout:
    """Return a new scout over the demo catalogue; only the index is shared with others."""
    catalog, index = index_demo()
    return Scout(catalog, index=index, **options)
