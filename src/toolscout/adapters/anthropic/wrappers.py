"""`Wrapper`: what a wrapped client of Anthropic's API knows between its requests.

It begins the interlude of each request that is about tools, keeps the lists of tools that it was
given indexed, and takes a request up where it failed when the SDK repeats it. What a conversation
has found is not among it: that is read from the messages of each request.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any

from toolscout.adapters.anthropic.definitions import Declarations
from toolscout.adapters.anthropic.foldings import is_folded
from toolscout.adapters.anthropic.rounds import ROUNDS, Interlude
from toolscout.errors import UsageError
from toolscout.schemas import is_list, is_object

LISTS_KEPT = 8
INTERRUPTED_KEPT = 64


class Wrapper:
    """The interludes of one client."""

    def __init__(
        self,
        make: Callable[[Iterable[object]], Declarations[Any]],
        *,
        rounds: int = ROUNDS,
        kept: int = LISTS_KEPT,
    ) -> None:
        """`make` gives the declarations of a request's tools, of which `kept` stay indexed."""
        self._make, self._rounds, self._kept = make, rounds, kept
        self._declared: OrderedDict[str, Declarations[Any]] = OrderedDict()
        self._interrupted: OrderedDict[str, Interlude] = OrderedDict()
        self._lock = Lock()

    def begin(self, path: str, body: object, key: str) -> Interlude | None:
        """Return the interlude of a request, or nothing for one that is not about tools.

        `key` names the request; a repetition has the same.
        """
        if not path.endswith(("/messages", "/count_tokens")) or not is_object(body):
            return None
        tools, messages = body.get("tools"), body.get("messages")
        if not tools and not (is_list(messages) and any(map(is_folded, messages))):
            return None
        _check_whole(body)
        with self._lock:
            interrupted = self._interrupted.pop(key, None)
        if interrupted is not None:
            return interrupted
        declarations = self._declarations(tools if is_list(tools) else [])
        return Interlude(declarations.kit, body, declarations.definitions, rounds=self._rounds)

    def keep(self, key: str, interlude: Interlude) -> None:
        """Note that a request has more rounds to go, should one of them fail."""
        with self._lock:
            self._interrupted[key] = interlude
            while len(self._interrupted) > INTERRUPTED_KEPT:
                self._interrupted.popitem(last=False)

    def forget(self, key: str) -> None:
        """Note that a request is done."""
        with self._lock:
            self._interrupted.pop(key, None)

    def _declarations(self, tools: list[object]) -> Declarations[Any]:
        key = json.dumps(tools, sort_keys=True)
        with self._lock:
            declarations = self._declared.pop(key, None) or self._make(tools)
            self._declared[key] = declarations
            while len(self._declared) > self._kept:
                self._declared.popitem(last=False)
            return declarations


def _check_whole(body: Mapping[str, Any]) -> None:
    if is_object(body.get("thread")):
        raise UsageError(
            "A wrapped client needs the whole conversation in every request, and this request "
            "has a server thread. Pass `thread=False`, or use ToolScoutToolset in the runner."
        )
