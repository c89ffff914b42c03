"""Bars for what takes longer than a second: making an index, and encoding with a model.

They go to stderr, and only where a person is watching.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolscout.cli.output import bars

if TYPE_CHECKING:
    from toolscout.catalog import Catalog
    from toolscout.encoders.encoder import Encoder, Floats
    from toolscout.scout import Scout

MANY_TOOLS = {"static": 2_000, "none": 2_000, "onnx": 100}
"""From here on, indexing with an encoder takes long enough to show how far it is."""

Step = Callable[[int], None]


def watched_scout(catalog: "Catalog", encoder: str) -> "Scout":
    """Return a scout over a catalogue; whoever waits for its index sees how far it is."""
    from toolscout.scout import Scout

    count = len(catalog)
    with bar(f"Indexing {count:,} tools", count, when=count >= MANY_TOOLS[encoder]) as step:
        return Scout(catalog, encoder=_encoder(encoder, step))


@contextmanager
def bar(text: str, total: int, *, when: bool) -> Generator[Step]:
    """Give a callback that moves a bar on, if a person is watching."""
    if not when:
        yield lambda _: None
        return
    with bars() as progress:
        done = 0
        progress(text, done, total)

        def step(number: int) -> None:
            nonlocal done
            done += number
            progress(text, done, total)

        yield step


def _encoder(name: str, step: Step) -> "Encoder | None":
    # Classes of their own, because the encoders tell the index more than `encode` alone.
    from toolscout.encoders.onnx import OnnxEncoder
    from toolscout.encoders.static import StaticEncoder

    class WatchedStatic(StaticEncoder):
        def encode(self, texts: Sequence[str]) -> "Floats":
            vectors = super().encode(texts)
            step(len(texts))
            return vectors

    class WatchedOnnx(OnnxEncoder):
        def encode(self, texts: Sequence[str]) -> "Floats":
            vectors = super().encode(texts)
            step(len(texts))
            return vectors

    if name == "static":
        return WatchedStatic()
    if name == "onnx":
        return WatchedOnnx()
    return None
