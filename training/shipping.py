"""Put the final encoders where the packages take them, with what they were made of."""

import re
import shutil
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from toolscout.encoders import encoder, onnx
from toolscout.encoders.encoder import hash_file
from training.distilling import Distilling
from training.places import Places, write_json
from training.recipe import Recipe

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "packages" / "toolscout-encoder" / "src" / "toolscout_encoder"
LIBRARIES = ("numpy", "onnx", "onnxruntime", "tokenizers", "torch", "transformers")


def ship(places: Places, sources: Any, report: Any) -> dict[str, str]:
    """Copy model and table, pin their checksums in the code, and return those by file."""
    for name in (onnx.MODEL_FILE, onnx.TOKENIZER_FILE):
        shutil.copyfile(places.model("all") / name, PACKAGE / name)
    shutil.copyfile(places.table("all"), encoder.TABLE_FILE)
    sums = {
        file.name: hash_file(file)
        for file in (
            PACKAGE / onnx.MODEL_FILE,
            PACKAGE / onnx.TOKENIZER_FILE,
            encoder.TABLE_FILE,
        )
    }
    _pin(Path(encoder.__file__), "TABLE_SHA256", sums[encoder.TABLE_FILE.name])
    _pin(Path(onnx.__file__), "MODEL_SHA256", sums[onnx.MODEL_FILE])
    _pin(Path(onnx.__file__), "TOKENIZER_SHA256", sums[onnx.TOKENIZER_FILE])
    write_json(PACKAGE / "record.json", _record(sums, sources, report))
    return sums


def _pin(module: Path, constant: str, digest: str) -> None:
    text = module.read_text(encoding="utf-8")
    line = f'{constant} = "{digest}"'
    changed, count = re.subn(rf'^{constant} = "\w*"$', line, text, flags=re.MULTILINE)
    if count != 1:
        raise SystemExit(f"{module.name} has no line for {constant}; write `{line}` there.")
    module.write_text(changed, encoding="utf-8")


def _record(sums: dict[str, str], sources: Any, report: Any) -> dict[str, Any]:
    libraries = {name: version(name) for name in LIBRARIES}
    return {
        "files": sums,
        "recipe": asdict(Recipe()),
        "distilling": asdict(Distilling()),
        "versions": {"python": sys.version.split()[0], **libraries},
        "data": sources,
        "figures": report,
    }
