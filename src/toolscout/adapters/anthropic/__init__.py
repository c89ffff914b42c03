"""Anthropic's SDK: the tool runner, your own loop, or a wrapped client.

The public names are imported on first use, because `toolset` needs the SDK and the modules beside
it, which handle plain JSON, do not.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolscout.adapters.anthropic.toolset import (
        Params,
        ToolScoutMiddleware,
        ToolScoutToolset,
        wrap,
    )

__all__ = ["Params", "ToolScoutMiddleware", "ToolScoutToolset", "wrap"]

if not TYPE_CHECKING:  # a checker that saw this would accept every misspelt name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.toolset"), name)
