"""Count how much work a piece of code does, so that tests can assert how the work grows."""

import sys
import threading
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

DOUBLE = 2.5
"""How much more work twice the input may be."""


def count_lines(work: Callable[[], object]) -> int:
    """Return how many lines of Python some work runs through, in all threads that it starts.

    A turn of a comprehension counts as a line. What native code does is not counted.
    """
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    previous = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(previous)
        threading.settrace(previous)  # pyright: ignore[reportArgumentType]  # None switches it off
    return lines


def measure_memory(work: Callable[[], object]) -> int:
    """Return how many bytes some work holds at most, beyond what there was before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
