"""Kill a process in the middle of its work, and hear what it had said until then.

A child says on its stdout what it is about to do and what it has done, a line for each. It is
killed after a given line, not after a time, so that a run can be repeated.
"""

import subprocess
import sys
from pathlib import Path
from typing import IO


def run_and_kill(
    code: str, folder: Path, after_lines: int, *, further_bytes: int = 0, turns: int = 0
) -> list[str]:
    """Return the whole lines that a child printed before SIGKILL took it.

    `code` is Python; it finds `folder` in `sys.argv[1]`, prints with `flush=True` and must not
    end by itself; to read its stdin is a way to wait. It is killed as soon as `after_lines`
    lines and `further_bytes` bytes of the next have been read. To strike within a write, let the
    last of these lines be one that is printed just before it; `turns` of an empty loop reach
    different depths of the same write.
    """
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout and child.stderr
        try:
            heard = _heard(child.stdout, after_lines, further_bytes)
            for _ in range(turns):
                pass
        finally:
            child.kill()
        heard += child.stdout.read()  # said before the kill, so it counts
        complaint = child.stderr.read().decode()
    assert heard.count(b"\n") >= after_lines, f"The child ended by itself: {complaint}"
    return heard.decode().split("\n")[:-1]


def _heard(said: IO[bytes], lines: int, further_bytes: int) -> bytes:
    whole = b"".join(said.readline() for _ in range(lines))
    return whole + said.read(further_bytes)
