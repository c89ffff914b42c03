"""Cut a long text so that the piece stays readable.

`cut` takes a text, a start and a number of tokens, and returns where to stop: after a paragraph,
a line, a JSON element, a sentence or a word, and never inside a character as people see it.
It reads no more of the text than could fit.
"""

import re
import unicodedata

from toolscout.tokens import count_tokens

CHARACTERS_PER_TOKEN = 8
"""Longer tokens are rare; a text full of them is cut a little early."""
MAX_CLUSTER = 64

_SENTENCE_END = re.compile(r"[.!?]\s|[\u3002\uff01\uff1f]")
_JSON_PART = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?$)|[\[\]{},]')
_JOINER = "\u200d"
_FLAG_HALVES = "".join(map(chr, range(0x1F1E6, 0x1F200)))
_MARKS = frozenset(("Mn", "Me", "Mc"))


def cut(text: str, start: int, limit: int, stop: int | None = None) -> int:
    """Return where a piece from `start` of at most `limit` tokens ends; `stop` if all fits."""
    stop = len(text) if stop is None else stop
    window = text[start : min(stop, start + CHARACTERS_PER_TOKEN * limit)]
    room = _measure_room(window, limit)
    if start + room >= stop:
        return stop
    is_json = text[:1] in ("[", "{")
    size = _round_to_character(_find_boundary(window[:room], is_json), text, start)
    # A cut through a token can leave more tokens than before.
    while size > 1 and count_tokens_safely(window[:size]) > limit:
        size = _round_to_character(size * 9 // 10, text, start)
    return start + size


def count_tokens_safely(text: str) -> int:
    """Count the tokens of a text that may hold lone surrogates."""
    return count_tokens(text.encode("utf-8", "replace").decode())


def _measure_room(window: str, limit: int) -> int:
    """Return how many characters from the left certainly fit."""
    room = len(window)
    if len(window.encode("utf-8", "replace")) <= limit:
        return room  # a token is at least one byte
    while room > 1:
        tokens = count_tokens_safely(window[:room])
        if tokens <= limit:
            break
        room = max(1, min(room - 1, room * limit // tokens))
    return room


def _find_boundary(piece: str, is_json: bool) -> int:
    """Return the best place to end a piece, in its later half if possible."""
    half = len(piece) // 2
    for mark in ("\n\n", "\n"):
        at = piece.rfind(mark, half)
        if at >= 0:
            return at + len(mark)
    if is_json and (at := _find_element_end(piece, half)):
        return at
    ends = [found.end() for found in _SENTENCE_END.finditer(piece, half)]
    return ends[-1] if ends else (piece.rfind(" ", half) + 1 or len(piece))


def _find_element_end(piece: str, half: int) -> int:
    """Return where the last of the outermost elements in the later half ends, or 0.

    Depth counts from the start of the piece, which itself begins between two elements.
    """
    depth, best, best_depth = 0, 0, 0
    for found in _JSON_PART.finditer(piece):
        match found.group()[0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case ",":
                if found.end() > half and (not best or depth <= best_depth):
                    best, best_depth = found.end(), depth
            case _:
                pass
    return best


def _round_to_character(size: int, text: str, start: int) -> int:
    """Return the size, reduced if it would split what people see as one character."""
    for fewer in range(min(MAX_CLUSTER, size)):
        if not _is_joined(text, start + size - fewer):
            return size - fewer
    return size


def _is_joined(text: str, at: int) -> bool:
    if at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    near = text[max(0, at - MAX_CLUSTER) : at]
    return (
        _JOINER in (before, after)
        or unicodedata.category(after) in _MARKS
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
        or (before, after) == ("\r", "\n")
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
        or (after in _FLAG_HALVES and (len(near) - len(near.rstrip(_FLAG_HALVES))) % 2 == 1)
    )
