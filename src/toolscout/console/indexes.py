"""`Indexes`: one catalogue under several encoders, so that a person can compare them.

The scout's own index is there already; others are made when they are first asked for, which takes
as long as indexing does, and follow the catalogue from then on.
"""

import threading
from importlib.util import find_spec

from toolscout.catalog import Catalog
from toolscout.console.refusals import BAD, Refused
from toolscout.encoders.onnx import PACKAGE, OnnxEncoder
from toolscout.encoders.static import StaticEncoder
from toolscout.search.index import Index

STATIC, LEXICAL, ONNX = "static", "lexical", "onnx"
FAMILIES = {"static": STATIC, "minilm": ONNX}
ONNX_MOST = 3_000
"""Tools up to which a model may encode them on demand; it takes milliseconds for each."""
ONNX_PACKAGES = ("onnxruntime", PACKAGE)


class Indexes:
    """Indexes by the name of their encoder; threads may share it."""

    def __init__(self, catalog: Catalog, index: Index) -> None:
        self._catalog = catalog
        self.main = index
        encoder = index.encoder
        self.main_name = LEXICAL if encoder is None else FAMILIES.get(encoder.family, "own")
        self._made = {self.main_name: index}
        self._making = threading.Lock()

    @property
    def names(self) -> list[str]:
        """The encoders that can be chosen, the scout's own first."""
        further = [STATIC, LEXICAL, *([ONNX] if self._has_onnx() else [])]
        return list(dict.fromkeys((*self._made, *further)))

    def get(self, name: str = "") -> Index:
        """Return an index, made if need be; raises `Refused` for one that cannot be had."""
        name = name or self.main_name
        with self._making:
            if name not in self._made:
                if name not in self.names:
                    hint = f"Use one of: {', '.join(self.names)}."
                    raise Refused(BAD, "unknown_encoder", f"There is no encoder {name!r}.", hint)
                self._made[name] = self._index(name)
            return self._made[name]

    def close(self) -> None:
        """Stop following the catalogue; the scout's own index goes on."""
        for name, index in self._made.items():
            if name != self.main_name:
                index.close()

    def _index(self, name: str) -> Index:
        makers = {STATIC: StaticEncoder, ONNX: OnnxEncoder}
        return Index(self._catalog, encoder=makers[name]() if name in makers else None)

    def _has_onnx(self) -> bool:
        is_small = len(self._catalog) <= ONNX_MOST
        return is_small and all(find_spec(package) is not None for package in ONNX_PACKAGES)
