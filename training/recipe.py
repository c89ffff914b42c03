"""What a training run depends on: data, folds, numbers, seed.

A recipe has a key, and everything made from it carries that key, so that a step run again takes
up its own work and nobody else's.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace

FOLDS: dict[str, tuple[str, ...]] = {
    "a": ("acebench_en", "azure_mcp", "metatool"),
    "b": ("bfcl_ast", "bfcl_live", "bfcl_multi_turn", "mcp_zero"),
    "c": ("callnavi", "nestful", "seal_tools", "stabletoolbench", "toolalpaca"),
}
"""Datasets left out together: those that share tools or authors share a fold.

`acebench_zh` is in none: the model has no words for Chinese and would learn noise from it.
"""

REQUESTS = (
    "mcp_requests_multi",
    "mcp_requests_oblique",
    "mcp_requests_search",
    "mcp_requests_task",
)
"""Datasets over one shared catalogue, of which each fold leaves out a third of the servers."""

JUDGED = (
    "acebench_en",
    "azure_mcp",
    "bfcl_ast",
    "bfcl_live",
    "bfcl_multi_turn",
    "callnavi",
    "mcp_zero",
    "metatool",
    "seal_tools",
    "stabletoolbench",
)
"""The dev sets of the figures; the others are too small or not in English."""

UNLABELLED = ("mcp_catalog", "openapi_directory")
"""Tools without queries, for pairs made of their own words."""

PERMISSIVE = ("MIT", "Apache-2.0", "CC0-1.0", "BSD")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The numbers of one training run."""

    seed: int = 20261116
    fold: str = "all"
    """Nothing of the datasets and servers of this fold may be seen; `all` leaves nothing out."""
    steps: int = 400
    batch: int = 32
    """Questions in a step; each brings its answer and a near sibling of it."""
    rate: float = 8e-5
    warm_up: float = 0.1
    temperature: float = 0.05
    self_made: float = 0.4
    """Share of steps on pairs that were made of the tools' own words and hints."""
    hinted: float = 0.5
    """Share of steps on requests in which tools are seen with their hints."""
    question_tokens: int = 64
    text_tokens: int = 80

    def without(self, fold: str) -> "Recipe":
        """Return the recipe of a fold; the fold `all` leaves nothing out."""
        return replace(self, fold=fold)

    def key(self) -> str:
        """Return a short name of all that a run depends on."""
        text = json.dumps({**asdict(self), "folds": FOLDS}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]
