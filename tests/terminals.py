"""A program in a pseudo-terminal, and what a person would see there.

The screen is modelled by pyte. Waiting is for what is shown, up to a deadline.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyte

DEADLINE_SECONDS = 120.0
STEP_SECONDS = 0.2
# A machine that stands still between two looks has used up one look, not the deadline.
LONGEST_LOOK_SECONDS = 1.0
RAW_SHOWN = 400
FRAME_BEGINS, FRAME_ENDS = b"\x1b[?2026h", b"\x1b[?2026l"
# What the tests run in may have these, and programs heed them.
OVERRIDES = ("NO_COLOR", "COLUMNS", "LINES")
# A new session gets the terminal as its own, so that resizing and Ctrl-C reach the program.
_START = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)

KEYS = {
    "up": "\x1b[A",
    "down": "\x1b[B",
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "backspace": "\x7f",
    "ctrl-c": "\x03",
}


class Terminal:
    """One program, its keyboard and its screen."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], columns: int, lines: int, cwd: Path
    ) -> None:
        self._master, self._slave = pty.openpty()
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._set_size(columns, lines)
        self.settings = termios.tcgetattr(self._slave)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, *command],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )

    @property
    def text(self) -> str:
        """What is on the screen, without blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def rows(self) -> list[str]:
        """The lines of the screen."""
        return [line.rstrip() for line in self.screen.display]

    def style_of(self, text: str) -> Any:
        """Return how the first character of some text is drawn."""
        row = next(n for n, line in enumerate(self.screen.display) if text in line)
        return self.screen.buffer[row][self.screen.display[row].index(text)]

    def press(self, *keys: str) -> None:
        """Type text, or keys by name."""
        for key in keys:
            os.write(self._master, KEYS.get(key, key).encode())

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size."""
        self.screen.resize(lines, columns)
        self._set_size(columns, lines)
        # The kernel tells the program's group only where it is in the foreground.
        os.killpg(self.process.pid, signal.SIGWINCH)

    def wait_for(self, wanted: str | Callable[[], bool]) -> str:
        """Wait until some text is shown, or something holds, and return the screen."""
        holds = (lambda: wanted in self.text) if isinstance(wanted, str) else wanted

        def is_there() -> bool:
            return self._is_whole() and holds()

        looks = _looks()
        while not is_there():
            if not self._take(STEP_SECONDS) and self.process.poll() is not None:
                self._take(0)
                assert is_there(), f"it ended; {self._seen()}"
            assert next(looks, False), f"not shown: {wanted!r}; {self._seen()}"
        return self.text

    def wait(self) -> int:
        """Wait until the program ends and return its exit code."""
        looks = _looks()
        while self.process.poll() is None:
            self._take(STEP_SECONDS)
            assert next(looks, False), f"it does not end; {self._seen()}"
        while self._take(0):
            pass
        return self.process.wait()

    def is_as_before(self) -> bool:
        """Tell whether the terminal is set as it was."""
        return termios.tcgetattr(self._slave) == self.settings

    def close(self) -> None:
        """End the program, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    def _seen(self) -> str:
        return f"the screen is\n{self.text}\nand the last that came\n{self.raw[-RAW_SHOWN:]!r}"

    def _is_whole(self) -> bool:
        """Tell whether all of what is drawn at once has come; half a frame proves nothing."""
        return self.raw.rfind(FRAME_BEGINS) <= self.raw.rfind(FRAME_ENDS)

    def _set_size(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, size)

    def _take(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        data = os.read(self._master, 65_536)
        self.raw += data
        self._stream.feed(data)
        return True


def _looks() -> Iterator[bool]:
    """Yield true while there is time to look once more."""
    looked, before = 0.0, time.monotonic()
    while looked < DEADLINE_SECONDS:
        yield True
        now = time.monotonic()
        looked += min(now - before, LONGEST_LOOK_SECONDS)
        before = now


@contextmanager
def terminal(
    *arguments: object,
    columns: int = 80,
    lines: int = 24,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Generator[Terminal]:
    """Run toolscout in a terminal; `env` is added to the environment."""
    usual = {key: value for key, value in os.environ.items() if key not in OVERRIDES}
    usual |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **(env or {})}
    command = [sys.executable, "-m", "toolscout", *map(str, arguments)]
    opened = Terminal(command, usual, columns, lines, cwd or Path.cwd())
    try:
        yield opened
    finally:
        opened.close()
