"""Put the transcript of a first run into the page that shows it.

The page marks each place with a comment, such as `<!-- first run: doctor -->`; the block behind it
is replaced. Paths of the machine become those of a person called Ada.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from first_run.newcomer import BIN

HOME = "/home/ada"
PROGRAMS = f"{HOME}/.local/bin"
SHOWN = ("init", "doctor", "test", "search", "call")
"""The parts of the transcript, in the order of the page."""

_BLOCK = r"(?<=<!-- first run: {name} -->\n\n)```text\n.*?^```$"
_DIFF = re.compile(r"\n--- .*(?:\n[-+ @].*)*")
_WAITING = re.compile(r"^\S+: (?:npx|uvx) may still be installing it;.*\n", re.MULTILINE)
_SYSTEM_PROGRAM = re.compile(r"(?<=starts )/\S+/(?=npx|uvx)")


def update_page(page: Path, shown: Mapping[str, str], home: Path) -> None:
    """Replace the blocks of a page by what a newcomer with this home folder saw."""
    text = page.read_text(encoding="utf-8")
    for name in SHOWN:
        block = f"```text\n{clean(shown[name], home).strip()}\n```"
        pattern = re.compile(_BLOCK.format(name=name), re.MULTILINE | re.DOTALL)
        text, count = pattern.subn(lambda _, block=block: block, text)
        assert count == 1, f"{page.name} has no place for {name!r}"
    page.write_text(text, encoding="utf-8")


def clean(text: str, home: Path) -> str:
    """Return a transcript without this machine's paths and without what repeats itself."""
    text = text.replace(str(home), HOME).replace(str(BIN), PROGRAMS)
    text = _SYSTEM_PROGRAM.sub("/usr/bin/", text)
    head, *others = text.split(" would start toolscout instead of ")
    first, rest = others[:1], others[1:]
    shortened = [_DIFF.sub("\\n  …", part) for part in rest]
    text = " would start toolscout instead of ".join([head, *first, *shortened])
    waiting = _WAITING.findall(text)
    for line in waiting[1:]:
        text = text.replace(line, "", 1)
    return text
