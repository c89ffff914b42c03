"""`Sieve`: takes unusable entries out of a server's lists before the SDK looks at them.

The SDK refuses a whole list for one entry that breaks the protocol. A server with a thousand
tools would be lost for one without a name.
"""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, ValidationError

from toolscout.names import one_line
from toolscout.schemas import is_list, is_object

NAME_CHARS = 60

_ENTRIES: Mapping[str, type[BaseModel]] = {
    "tools": types.Tool,
    "resources": types.Resource,
    "resourceTemplates": types.ResourceTemplate,
    "prompts": types.Prompt,
}


class Sieve:
    """Looks at all that one server sends."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        """What was taken out, and why."""

    def sift(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Return a message without the entries that nobody could use."""
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCResponse):
            for key in _ENTRIES.keys() & message.result.keys():
                self._sift(message.result, key)
        return item

    def _sift(self, result: dict[str, Any], key: str) -> None:
        entries: object = result[key]
        if is_list(entries):
            result[key] = [entry for entry in entries if self._is_usable(entry, key)]

    def _is_usable(self, entry: object, key: str) -> bool:
        try:
            _ENTRIES[key].model_validate(entry, by_name=False)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "it"
            name = entry.get("name") if is_object(entry) else None
            shown = one_line(str(name or "without a name"), NAME_CHARS)
            self.problems.append(f"One of its {key} was left out: {shown!r}, for {where!r}.")
            return False
        return True
