"""Requests to have hints written by the model of a connected client.

Only a gateway can reach the model of a client (MCP sampling), so the command leaves a request in
the store. A gateway with such a client claims it, carries it out and notes there how far it is.
Whoever asks deletes the request at the end, or before that to stop the work.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import cast

from toolscout.errors import ToolscoutError
from toolscout.hints.hints import Hints, digest_definition
from toolscout.hints.writing import (
    Answer,
    Ask,
    Batch,
    FindAttack,
    Written,
    split_batches,
    write_hints,
)
from toolscout.schemas import Json, is_list, is_object
from toolscout.stores.store import Store
from toolscout.tools import Tool

REQUESTS_KIND = "hint-requests"
UNCLAIMED_SECONDS = 60.0
"""How long a request waits for a gateway."""
SILENT_SECONDS = 600.0
"""A claimed request that nobody has touched for so long is given up."""
REFUSED_KEPT = 100
ID_BYTES = 8
GATEWAY_STOPPED = "The gateway was stopped. Run the command again to go on."


class Progress(StrEnum):
    """How far a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """The definitions for which hints are wanted, and what came of it."""

    id: str
    digests: tuple[str, ...]
    touched: float
    """When anybody last changed it, in seconds since 1970."""
    progress: Progress = Progress.WAITING
    gateway: str = ""
    """Which gateway has claimed it."""
    answered: int = 0
    written: int = 0
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why tools got no hint, by name; the first ones."""
    problem: str = ""
    """Why it has failed."""


class WriteRequests:
    """The requests in a store. Everything but `update` may block."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    def leave(self, digests: Iterable[str]) -> str:
        """Ask for the hints of some definitions; return the id of the request."""
        id_ = secrets.token_hex(ID_BYTES)
        self.update(WriteRequest(id=id_, digests=tuple(digests), touched=0.0))
        return id_

    def read(self, id_: str) -> WriteRequest | None:
        """Return a request, or None if it was deleted."""
        data = self._store.read(REQUESTS_KIND, id_)
        return None if data is None else _request_from_json(id_, json.loads(data))

    def take(self, gateway: str) -> WriteRequest | None:
        """Claim a request for a gateway, and delete those that nobody waits for.

        If several gateways do so at the same moment, the last one has it: `carry_out` looks.
        """
        for id_ in self._store.keys(REQUESTS_KIND):
            request = self.read(id_)
            if request is None:
                continue
            is_new = request.progress is Progress.WAITING
            limit = UNCLAIMED_SECONDS if is_new else SILENT_SECONDS
            if self._clock() - request.touched > limit:
                self.delete(id_)
            elif is_new:
                claimed = replace(request, progress=Progress.RUNNING, gateway=gateway)
                self.update(claimed)
                return claimed
        return None

    async def carry_out(
        self,
        request: WriteRequest,
        hints: Hints,
        tools: Sequence[Tool],
        ask: Ask,
        *,
        find_attack: FindAttack,
    ) -> None:
        """Ask a model about those of some tools that a claimed request is about.

        Notes in the request how far it is, and stops if the request is deleted.
        """
        latest = Written()
        is_wanted = True

        async def look() -> None:
            nonlocal is_wanted
            known = await asyncio.to_thread(self.read, request.id)
            is_wanted = known is not None and known.gateway == request.gateway

        def note(written: Written, progress: Progress = Progress.RUNNING, why: str = "") -> None:
            nonlocal latest
            latest = written
            if not is_wanted:  # or it would come back
                return
            found = replace(request, answered=written.answered, written=written.count)
            self.update(replace(found, progress=progress, refused=written.refused, problem=why))

        async def ask_if_wanted(instructions: str, batch: Batch) -> Answer:
            await look()
            if not is_wanted:
                raise _NotWanted
            answer = await ask(instructions, batch)
            await look()
            return answer

        wanted = set(request.digests)
        missing = await asyncio.to_thread(hints.list_missing, tools)
        batches = split_batches(tool for tool in missing if digest_definition(tool) in wanted)
        try:
            written = await write_hints(
                hints, batches, ask_if_wanted, find_attack=find_attack, at_once=1, on_done=note
            )
        except _NotWanted:
            return
        except ToolscoutError as error:
            note(latest, Progress.FAILED, str(error))
        except asyncio.CancelledError:
            note(latest, Progress.FAILED, GATEWAY_STOPPED)
            raise
        else:
            note(written, Progress.DONE)

    def update(self, request: WriteRequest) -> None:
        """Store how far a request is."""
        row = asdict(replace(request, touched=self._clock()))
        row["refused"] = dict(list(request.refused.items())[:REFUSED_KEPT])
        del row["id"]
        self._store.write(REQUESTS_KIND, request.id, json.dumps(row).encode())

    def delete(self, id_: str) -> None:
        """Forget a request; a gateway that works on it stops."""
        self._store.write(REQUESTS_KIND, id_, None)


class _NotWanted(Exception):
    """A request was deleted, or another gateway has it."""


def _request_from_json(id_: str, value: object) -> WriteRequest | None:
    """Return a request as the store has it, or None if it cannot be read."""
    row: Json = value if is_object(value) else {}
    digests: object = row.get("digests")
    try:
        progress = Progress(str(row.get("progress")))
        return WriteRequest(
            id=id_,
            digests=tuple(map(str, cast("list[object]", digests))) if is_list(digests) else (),
            touched=float(row["touched"]),
            progress=progress,
            gateway=str(row["gateway"]),
            answered=int(row["answered"]),
            written=int(row["written"]),
            refused={str(name): str(text) for name, text in dict(row["refused"]).items()},
            problem=str(row["problem"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
