"""Somebody has changed a file that toolscout reads: an error, and nothing else, must come of it."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolscout import Catalog, Index, Tool
from toolscout.errors import InvalidFile

Arrays = dict[str, Any]
NAMES = ("create_issue", "delete_repo", "list_notes", "send_mail")
HUGE = b"{'descr': '<f4', 'fortran_order': False, 'shape': (400000000000,), }"


def make_catalog() -> Catalog:
    tools = [Tool.define(n, server="s", description=f"{n} of the user") for n in NAMES]
    return Catalog({"s": tools})


def save(path: Path) -> Arrays:
    Index(make_catalog()).save(path)
    with np.load(path) as arrays:
        return dict(arrays)


def replace_header(arrays: Arrays, text: bytes) -> Arrays:
    return {**arrays, "header": np.frombuffer(text, np.uint8)}


def fill_list(arrays: Arrays, name: str, value: object) -> Arrays:
    """Return arrays with a header in which all items of a list are the same."""
    header = json.loads(bytes(arrays["header"]))
    header[name] = [value] * len(header[name])
    return replace_header(arrays, json.dumps(header).encode())


DAMAGES: dict[str, Callable[[Arrays], Arrays]] = {
    "weights that are no numbers": lambda a: {**a, "weights": a["weights"] * np.nan},
    "weights that are texts": lambda a: {**a, "weights": np.full(a["weights"].shape, "x")},
    "large masks": lambda a: {**a, "masks": np.full(a["masks"].shape, 2**62)},
    "vectors that are no numbers": lambda a: {**a, "vectors": a["vectors"] * np.nan},
    "a nested header": lambda a: replace_header(a, b"[" * 100_000),
    "words that are none": lambda a: fill_list(a, "words", None),
    "terms that are objects": lambda a: fill_list(a, "terms", dict[str, str]()),
    "one tool twice": lambda a: fill_list(a, "fingerprints", "the same"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_index_that_somebody_made_up_is_a_clear_error(
    tmp_path: Path, damage: Callable[[Arrays], Arrays]
):
    path = tmp_path / "tools.index"
    damaged = damage(save(path))
    with path.open("wb") as file:
        np.savez(file, **damaged)

    with pytest.raises(InvalidFile, match="is not a complete index file"):
        Index.load(path, make_catalog())


def test_an_index_that_claims_to_be_huge_is_a_clear_error(tmp_path: Path):
    path = tmp_path / "tools.index"
    arrays = save(path)
    with zipfile.ZipFile(path, "w") as file:
        for name, array in arrays.items():
            data = io.BytesIO()
            np.save(data, array)
            head = HUGE.ljust(117) + b"\n"
            claim = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
            file.writestr(f"{name}.npy", claim if name == "vectors" else data.getvalue())

    with pytest.raises(InvalidFile, match="is not a complete index file"):
        Index.load(path, make_catalog())
