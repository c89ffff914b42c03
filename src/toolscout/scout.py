"""`Scout`: the front door to search.

Holds a catalogue and its index. What a conversation has loaded is not kept here.
"""

from types import EllipsisType

from toolscout.catalog import Catalog
from toolscout.search.encoders import Encoder
from toolscout.search.index import Index


class Scout:
    """Finds tools of a catalogue."""

    def __init__(self, catalog: Catalog, *, encoder: Encoder | EllipsisType | None = ...) -> None:
        self.catalog = catalog
        self.index = Index(catalog, encoder=encoder)
