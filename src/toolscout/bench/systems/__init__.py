"""The tool searches that the benchmark compares, by name.

Four are ours, five are earlier agents' searches written anew from their description, and seven
are the real packages of others, imported only when asked for.
"""

from importlib import import_module
from typing import cast

from toolscout.bench.systems.system import MissingPeer, Ranked, System
from toolscout.errors import UsageError

# Where each system lives; a module is imported when its system is asked for.
_PLACES = {
    "toolscout": ("ours", "Toolscout"),
    "toolscout-lexical": ("ours", "ToolscoutLexical"),
    "toolscout-onnx": ("ours", "ToolscoutOnnx"),
    "toolscout-approximate": ("ours", "ToolscoutApproximate"),
    "oh-my-pi": ("oh_my_pi", "OhMyPi"),
    "claude-code-best": ("claude_code_best", "ClaudeCodeBest"),
    "dirge": ("dirge", "Dirge"),
    "cortex": ("cortex", "Cortex"),
    "deer-flow": ("deer_flow", "DeerFlow"),
    "fastmcp": ("peers", "FastMcp"),
    "pydantic-ai": ("peers", "PydanticAi"),
    "haystack": ("peers", "Haystack"),
    "ratel": ("peers", "Ratel"),
    "graph-tool-call": ("peers", "GraphToolCall"),
    "bm25s": ("bm25", "Bm25s"),
    "rank-bm25": ("bm25", "RankBm25"),
}

SYSTEM_NAMES: tuple[str, ...] = tuple(_PLACES)
"""All systems, in the order of reports."""

__all__ = ["SYSTEM_NAMES", "MissingPeer", "Ranked", "System", "system_named"]


def system_named(name: str) -> System:
    """Return a new, empty system; `MissingPeer` when it needs a package that is not there."""
    if name not in _PLACES:
        known = ", ".join(SYSTEM_NAMES)
        raise UsageError(f"There is no system {name!r}. Known: {known}.")
    module, attribute = _PLACES[name]
    return cast(System, getattr(import_module(f"{__name__}.{module}"), attribute)())
