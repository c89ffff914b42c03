"""A terminal taken over for a while: keys as they are pressed, and lines drawn in place.

`Screen` gives back what it took, however it is left. Keys are told as words; what is drawn and
what a key means is its user's business.
"""

import codecs
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from types import FrameType
from typing import Any, Self

ESCAPE_SECONDS = 0.05
"""How long the rest of an escape sequence may take; a lone escape is the key."""
READ_BYTES = 4096

KEYS = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "ctrl-c",
    "\x04": "ctrl-d",
    "\x01": "home",
    "\x05": "end",
    "\x15": "clear",
    "\x17": "word",
    "\x10": "up",
    "\x0e": "down",
    "\x1b": "escape",
}
SEQUENCES = {
    **{f"\x1b{lead}A": "up" for lead in "[O"},
    **{f"\x1b{lead}B": "down" for lead in "[O"},
    **{f"\x1b{lead}C": "right" for lead in "[O"},
    **{f"\x1b{lead}D": "left" for lead in "[O"},
    **{f"\x1b{lead}H": "home" for lead in "[O"},
    **{f"\x1b{lead}F": "end" for lead in "[O"},
    "\x1b[3~": "delete",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
}
RESIZED = "resized"

_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
# Terminals that know it show what stands between the two at once; others pass over it.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"


def why_not() -> str:
    """Return why there is no terminal to take over, or nothing."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return "needs a terminal."
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        return "needs a terminal that can move its cursor (TERM is unset or 'dumb')."
    return "" if find_spec("termios") else "works on Linux and macOS only."


def keys_of(text: str) -> Iterator[str]:
    """Yield the keys of what a terminal sent: words for special ones, else the character."""
    place = 0
    while place < len(text):
        end = _end_of_key(text, place)
        part, place = text[place:end], end
        if part in SEQUENCES:
            yield SEQUENCES[part]
        elif part in KEYS:
            yield KEYS[part]
        elif len(part) == 1 and part.isprintable():
            yield part


def _end_of_key(text: str, place: int) -> int:
    """Return where a key ends; an unknown sequence is one key, so that it types nothing."""
    if text[place] != "\x1b" or text[place + 1 : place + 2] not in ("[", "O"):
        return place + 1
    end = place + 2
    while end < len(text) and not "@" <= text[end] <= "~":
        end += 1
    return min(end + 1, len(text))


class Screen:
    """The terminal of stdin and stdout, in which lines are drawn from the top."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._wake, self._woken = os.pipe()
        self._saved: Any = None
        self._old_handlers: dict[int, Any] = {}

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are at this moment."""
        with suppress(OSError):
            found = os.get_terminal_size(self._out.fileno())
            if found.columns and found.lines:
                return found.columns, found.lines
        return 80, 24

    def __enter__(self) -> Self:
        import termios

        self._saved = termios.tcgetattr(self._in)
        taken = termios.tcgetattr(self._in)
        # Keys come one by one, are not shown, and none of them is a signal.
        taken[0] &= ~(termios.IXON | termios.ICRNL)
        taken[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        termios.tcsetattr(self._in, termios.TCSADRAIN, taken)
        for number in (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP):
            self._old_handlers[number] = signal.signal(number, self._hear)
        self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        import termios

        with suppress(OSError):  # a window that was closed
            self._write(_LEAVE)
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._saved)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        os.close(self._wake)
        os.close(self._woken)

    def batches(self) -> Iterator[list[str]]:
        """Yield the keys that have come since, at least one at a time; ends with the terminal."""
        while True:
            ready, _, _ = select.select([self._in, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, READ_BYTES)
                yield [RESIZED]
            if self._in in ready:
                text = self._read()
                if not text:
                    return
                yield list(keys_of(text))

    def draw(self, lines: Sequence[str], cursor: tuple[int, int] | None = None) -> None:
        """Show lines in place of what was there; the cursor at column and line, or nowhere."""
        parts = [f"\x1b[{row};1H\x1b[0m{line}\x1b[0m\x1b[K" for row, line in enumerate(lines, 1)]
        parts.append("\x1b[J" if len(lines) < self.size[1] else "")
        parts.append(f"\x1b[{cursor[1] + 1};{cursor[0] + 1}H\x1b[?25h" if cursor else "\x1b[?25l")
        self._write(f"{_BEGIN}\x1b[?25l{''.join(parts)}{_END}")

    def _hear(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGWINCH:
            os.write(self._woken, b"w")
        else:
            raise SystemExit(128 + number)  # on the way out the terminal is given back

    def _read(self) -> str:
        try:
            data = os.read(self._in, READ_BYTES)
            # A lone escape is a key; one that begins a sequence has the rest close behind it.
            if data.endswith(b"\x1b") and select.select([self._in], [], [], ESCAPE_SECONDS)[0]:
                data += os.read(self._in, READ_BYTES)
        except OSError:
            return ""
        text = self._decoder.decode(data)
        # Half a character is no end; nothing is shown for it.
        return text or ("\0" if data else "")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
