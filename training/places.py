"""Where each step keeps what it made, under one folder."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Places:
    """The files of one training, made where they are asked for."""

    root: Path

    def corpus(self, name: str) -> Path:
        """A labelled dataset as the trainer sees it."""
        return self._in("corpora") / f"{name}.json"

    @property
    def phrases(self) -> Path:
        """Pairs made of tools' own words."""
        return self._in(".") / "phrases.json"

    @property
    def sources(self) -> Path:
        """Licences and checksums of the data."""
        return self._in(".") / "sources.json"

    def run(self, fold: str) -> Path:
        """The folder of a fold's training run."""
        return self._in(f"runs/{fold}")

    def model(self, fold: str) -> Path:
        """The folder of a fold's exported model; `stock` is the model before tuning."""
        return self._in(f"models/{fold}")

    def table(self, fold: str) -> Path:
        """The table distilled from a fold's model."""
        return self._in("tables") / f"{fold}.npz"

    @property
    def report(self) -> Path:
        """All figures."""
        return self._in(".") / "report.json"

    def _in(self, folder: str) -> Path:
        place = self.root / folder
        place.mkdir(parents=True, exist_ok=True)
        return place


def compute_digest_of_data(folder: Path) -> str:
    """Return one checksum for the files of a dataset."""
    digest = sha256()
    for file in sorted(folder.iterdir()):
        if file.is_file():
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write a value, whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def read_jsons(path: Path) -> Sequence[Any]:
    """Read a file of one JSON value a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
