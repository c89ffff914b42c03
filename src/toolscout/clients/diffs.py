"""What changes in a client's file, as lines that a person may see.

Only tables of servers are shown, because nothing else is changed. Every text in them that may be
a secret is masked: what is neither command, argument, address nor kind.
"""

import difflib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from toolscout.clients.rewrite import Keys, parsed, server_places, table_at
from toolscout.config.documents import Document, toml_text
from toolscout.config.secrets import MASK, masked_args, shown_url
from toolscout.names import clean_text
from toolscout.schemas import Json, is_list, is_object

LINE_SHOWN = 400
CONTEXT_LINES = 2
PLAIN = ("type", "transport", "command", "cwd")
ADDRESSES = ("url", "serverUrl", "httpUrl")


_LIST = re.compile(r"\[\n[^\[\]{}]*\]")


def shown_diff(path: Path, old: str, new: str) -> list[str]:
    """Return the difference between two texts of a client's file, without secrets."""
    before, after = parsed(path, old), parsed(path, new)
    every = dict.fromkeys((*server_places(before, None), *server_places(after, None)))
    places = [keys for keys in every if _differs(before, after, keys)]
    lines = difflib.unified_diff(
        _lines(before, places),
        _lines(after, places),
        f"{path} (as it is)",
        f"{path} (as it will be)",
        lineterm="",
        n=CONTEXT_LINES,
    )
    return [clean_text(line, LINE_SHOWN) for line in lines]


def _differs(before: Document, after: Document, keys: Keys) -> bool:
    return table_at(before.tables, keys) != table_at(after.tables, keys)


def _lines(document: Document, places: Iterable[Keys]) -> list[str]:
    shown: Json = {}
    for keys in places:
        inner = shown
        for key in keys:
            inner = inner.setdefault(key, {})
        table = table_at(document.tables, keys)
        inner.update({name: _masked_entry(entry) for name, entry in table.items()})
    if document.is_toml:
        return toml_text(shown).splitlines()
    text = json.dumps(shown, indent=2, ensure_ascii=False)
    return _LIST.sub(_on_one_line, text).splitlines()


def _on_one_line(match: re.Match[str]) -> str:
    return " ".join(match.group().split()).replace("[ ", "[").replace(" ]", "]")


def _masked_entry(entry: object) -> object:
    if not is_object(entry):
        return _masked(entry)
    return {key: _masked_member(key, value) for key, value in entry.items()}


def _masked_member(key: str, value: object) -> object:
    if key == "args" and is_list(value):
        texts = [one for one in value if isinstance(one, str)]
        return list(masked_args(texts)) if len(texts) == len(value) else _masked(value)
    if key in ADDRESSES and isinstance(value, str):
        return shown_url(value)
    return value if key in PLAIN and isinstance(value, str) else _masked(value)


def _masked(value: object) -> object:
    if is_object(value):
        return {key: _masked(member) for key, member in value.items()}
    if is_list(value):
        return [_masked(member) for member in value]
    return MASK if isinstance(value, str) else value
