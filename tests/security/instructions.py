"""Count the machine instructions of the works in `test_growth.py`, with all that native code does.

`make fuzz` runs this. Valgrind counts exactly and the same each time, however busy the machine is,
but runs everything fifty times slower, which is too slow for the tests.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from security.counting import DOUBLE
from security.test_growth import WORKS, Work
from toolscout.errors import ModelError

SIZE = 1_500
SMALL = 10
"""The size that is done first, so that what all sizes share is not counted."""
LEAST = 1_000_000
"""Fewer instructions say nothing about growth."""
_TOTAL = re.compile(r"^summary: (\d+)$", re.MULTILINE)


def _do_in_child(work: Work, size: int) -> int:
    """Do a work in a process of its own; return its id, with which Valgrind names the count."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(SMALL)
            if size != SMALL:
                with suppress(ModelError):  # to refuse is work too
                    work(size)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return child if status == 0 else 0


def _count(names: list[str], size: int, folder: Path) -> dict[str, list[int]]:
    """Return the instructions for each size of each work, without those of its beginning."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        sys.exit("Valgrind is missing. Install it, on Debian with: apt-get install valgrind")
    output = f"--callgrind-out-file={folder}/%p"
    command = [valgrind, "--quiet", "--tool=callgrind", output]
    own = [sys.executable, "-m", "security.instructions", "--children", f"--size={size}", *names]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run([*command, *own], env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, list[int]] = {}
    for line in done.stdout.decode().splitlines():
        name, child = line.split("\t")
        match = _TOTAL.search((folder / child).read_text()) if int(child) else None
        found.setdefault(name, []).append(int(match[1]) if match else 0)
    return found


def main() -> int:
    """Print how each work grows, and return how many grow too fast."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=SIZE, help="of the smaller input")
    parser.add_argument("--children", action="store_true", help="do the works, under Valgrind")
    parser.add_argument("works", nargs="*", default=list(WORKS))
    options = parser.parse_args()
    if options.children:
        for name in options.works:
            for size in (SMALL, options.size, 2 * options.size):
                sys.stdout.write(f"{name}\t{_do_in_child(WORKS[name], size)}\n")
                sys.stdout.flush()
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (small, once, twice) in _count(options.works, options.size, Path(folder)).items():
            once -= small
            twice -= small
            growth = twice / once if once > 0 else 0
            is_bad = min(small, once, twice) <= 0 or (growth >= DOUBLE and twice > LEAST)
            failed += is_bad
            sys.stdout.write(
                f"{name:30} {once:>14,} and {twice:>14,} instructions {growth:>6.2f} times"
                f"{'  TOO MANY' if is_bad else ''}\n"
            )
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
