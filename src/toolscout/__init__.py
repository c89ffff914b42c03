"""Tool search for AI agents: the right tool among ten or a hundred thousand, offline.

The public names are imported when they are first asked for, so that `import toolscout` costs
about a millisecond and nothing optional. Whatever is not in `__all__` may change at any time.
"""

from importlib import import_module

TYPE_CHECKING = False  # importing `typing` for it would take longer than all the rest
if TYPE_CHECKING:
    from toolscout.catalog import Catalog
    from toolscout.encoders.encoder import Encoder, EndpointEncoder, StaticEncoder
    from toolscout.encoders.onnx import OnnxEncoder
    from toolscout.errors import ModelError, ToolscoutError, UpstreamError, UsageError
    from toolscout.policies import Permission, Policy
    from toolscout.query import Query
    from toolscout.scout import Scout
    from toolscout.search.hits import Confidence, Hit, Result
    from toolscout.search.index import Index
    from toolscout.sessions.events import Event
    from toolscout.sessions.replies import Reply
    from toolscout.sessions.session import Session
    from toolscout.settings import Mode, Settings
    from toolscout.stores.store import Store
    from toolscout.tools import Effect, Tool

    __version__: str

__all__ = [
    "Catalog",
    "Confidence",
    "Effect",
    "Encoder",
    "EndpointEncoder",
    "Event",
    "Hit",
    "Index",
    "Mode",
    "ModelError",
    "OnnxEncoder",
    "Permission",
    "Policy",
    "Query",
    "Reply",
    "Result",
    "Scout",
    "Session",
    "Settings",
    "StaticEncoder",
    "Store",
    "Tool",
    "ToolscoutError",
    "UpstreamError",
    "UsageError",
]

_NAMES_BY_MODULE = {
    "catalog": ("Catalog",),
    "encoders.encoder": ("Encoder", "EndpointEncoder", "StaticEncoder"),
    "encoders.onnx": ("OnnxEncoder",),
    "errors": ("ModelError", "ToolscoutError", "UpstreamError", "UsageError"),
    "policies": ("Permission", "Policy"),
    "query": ("Query",),
    "scout": ("Scout",),
    "search.hits": ("Confidence", "Hit", "Result"),
    "search.index": ("Index",),
    "sessions.events": ("Event",),
    "sessions.replies": ("Reply",),
    "sessions.session": ("Session",),
    "settings": ("Mode", "Settings"),
    "stores.store": ("Store",),
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
