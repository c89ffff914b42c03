"""stdin of a person, handed on through a pipe that Ctrl-C ends.

Whoever reads a terminal waits for the next line and hears of nothing else. A pipe can be closed
at its other end, so that its reader comes to an orderly end.
"""

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType

READ_BYTES = 65_536


@contextmanager
def typed_stdin() -> Generator[None]:
    """Let stdin be a pipe with what is typed; Ctrl-C is its end in place of an exception."""
    terminal, (reading, writing) = os.dup(0), os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        if not ended.is_set():
            ended.set()
            os.close(writing)

    old = signal.signal(signal.SIGINT, end)
    # A daemon, because nothing ends its waiting for a key.
    threading.Thread(target=_hand_on, args=(terminal, writing, ended), daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)
        os.dup2(terminal, 0)


def _hand_on(terminal: int, writing: int, ended: threading.Event) -> None:
    with suppress(OSError):  # the reader went away
        while (data := os.read(terminal, READ_BYTES)) and not ended.is_set():
            os.write(writing, data)
        if not ended.is_set():
            ended.set()
            os.close(writing)
