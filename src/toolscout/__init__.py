"""Tool search for AI agents: the right tool among ten or a hundred thousand, offline.

The public names are imported when they are first asked for, so that `import toolscout` costs
about a millisecond and nothing optional. Whatever is not in `__all__` may change at any time.
"""

from importlib import import_module

TYPE_CHECKING = False  # importing `typing` for it would take longer than all the rest
if TYPE_CHECKING:
    from toolscout.catalog import Catalog, Change
    from toolscout.demo import load_demo_catalog
    from toolscout.dialects import Dialect
    from toolscout.encoders.encoder import (
        Blended,
        CallableEncoder,
        Encoder,
        EndpointEncoder,
    )
    from toolscout.encoders.onnx import OnnxEncoder
    from toolscout.encoders.static import StaticEncoder
    from toolscout.errors import ToolscoutError
    from toolscout.files import read_tools, write_tools
    from toolscout.policies import Permission, Policy
    from toolscout.query import Query, query_from_text
    from toolscout.scout import Scout
    from toolscout.search.hits import Confidence, Hit, Result, Why
    from toolscout.search.index import Index
    from toolscout.sessions.events import Event
    from toolscout.sessions.replies import Reply
    from toolscout.sessions.session import Session, Store
    from toolscout.settings import Hiding, Mode, Route, Scope, Settings
    from toolscout.tools import Effect, Tool

    __version__: str

__all__ = [
    "Blended",
    "CallableEncoder",
    "Catalog",
    "Change",
    "Confidence",
    "Dialect",
    "Effect",
    "Encoder",
    "EndpointEncoder",
    "Event",
    "Hiding",
    "Hit",
    "Index",
    "Mode",
    "OnnxEncoder",
    "Permission",
    "Policy",
    "Query",
    "Reply",
    "Result",
    "Route",
    "Scope",
    "Scout",
    "Session",
    "Settings",
    "StaticEncoder",
    "Store",
    "Tool",
    "ToolscoutError",
    "Why",
    "__version__",
    "load_demo_catalog",
    "query_from_text",
    "read_tools",
    "write_tools",
]

_NAMES_BY_MODULE = {
    "catalog": ("Catalog", "Change"),
    "demo": ("load_demo_catalog",),
    "dialects": ("Dialect",),
    "errors": ("ToolscoutError",),
    "sessions.events": ("Event",),
    "files": ("read_tools", "write_tools"),
    "policies": ("Permission", "Policy"),
    "query": ("Query", "query_from_text"),
    "sessions.replies": ("Reply",),
    "scout": ("Scout",),
    "encoders.encoder": (
        *("Blended", "CallableEncoder", "Encoder"),
        "EndpointEncoder",
    ),
    "search.hits": ("Confidence", "Hit", "Result", "Why"),
    "search.index": ("Index",),
    "encoders.static": ("StaticEncoder",),
    "encoders.onnx": ("OnnxEncoder",),
    "sessions.session": ("Session", "Store"),
    "settings": ("Hiding", "Mode", "Route", "Scope", "Settings"),
    "tools": ("Effect", "Tool"),
}
_HOMES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

if not TYPE_CHECKING:  # a checker that saw this would take every misspelt name for real

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value = import_module("importlib.metadata").version(__name__)
        elif name in _HOMES:
            value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
