"""`Guests`: clients of the handshake era, as they introduced themselves.

Such a client is known by a session id that it was given, so it would be a stranger to a gateway
that has been restarted. What it said of itself is kept in the store, with who it was and when it
was last seen; `revivals` lets it go on. Guests that stay away are forgotten, with their sessions.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from toolscout.schemas import Json, is_object
from toolscout.sessions.session import SESSION_KIND, Store

GUEST_KIND = "guest"
HTTP, SSE = "http:", "sse:"
OWN_SESSION = (HTTP, SSE)
"""How the names of sessions begin that belong to one client."""
DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """One client of the handshake era."""

    seen: float
    """When it last asked, to the day, in seconds since 1970."""
    owner: str | None = None
    """The principal's name, or nothing where no token is asked for."""
    version: str = ""
    """The protocol that was agreed on."""
    hello: Json = field(default_factory=dict[str, Any])
    """The parameters of its `initialize`; without them it cannot come back."""
    resources: tuple[str, ...] = ()
    """What it is subscribed to."""


class Guests:
    """Keeps guests by the names of their sessions. `forget_session` ends one for good."""

    def __init__(
        self,
        store: Store,
        days: float,
        forget_session: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._clock = store, clock
        self._seconds = days * DAY_SECONDS
        self._forget_session = forget_session
        self._fresh: set[str] = set()

    def read(self, name: str) -> Guest | None:
        """Return a guest, unless it is unknown or stayed away for too long."""
        guest = self._read(name)
        return None if guest is None or self._is_old(guest) else guest

    def greet(self, name: str, *, owner: str | None, version: str, hello: Json) -> None:
        """Keep what a client said of itself."""
        before = self._read(name)
        self._fresh.add(name)
        guest = Guest(
            seen=self._clock(),
            owner=owner,
            version=version,
            hello=hello,
            resources=before.resources if before is not None else (),
        )
        self._write(name, guest)

    def subscribe(self, name: str, uri: str, *, wanted: bool) -> None:
        """Note what a guest wants to hear of, or no longer does."""
        guest = self._read(name)
        if guest is not None:
            others = tuple(known for known in guest.resources if known != uri)
            self._write(name, replace(guest, resources=(*others, uri) if wanted else others))

    def touch(self, name: str) -> None:
        """Note that a client has asked; written down once a day."""
        if name in self._fresh:
            return
        self._fresh.add(name)
        guest = self._read(name) or Guest(seen=0.0)
        if self._clock() - guest.seen > DAY_SECONDS:
            self._write(name, replace(guest, seen=self._clock()))

    def forget(self, name: str) -> None:
        """Forget a guest and its session."""
        self._fresh.discard(name)
        self._store.write(GUEST_KIND, name, None)
        self._forget_session(name)

    def sweep(self) -> int:
        """Forget whoever stayed away for too long; return how many."""
        self._fresh.clear()
        known = set(self._store.keys(GUEST_KIND))
        for name in self._store.keys(SESSION_KIND):
            if name.startswith(OWN_SESSION) and name not in known:
                self._write(name, Guest(seen=self._clock()))  # its time begins here
        old = [name for name in known if self.read(name) is None]
        for name in old:
            self.forget(name)
        return len(old)

    def _is_old(self, guest: Guest) -> bool:
        return self._clock() - guest.seen > self._seconds

    def _read(self, name: str) -> Guest | None:
        data = self._store.read(GUEST_KIND, name)
        try:
            value: object = json.loads(data) if data is not None else None
            return _guest_from_json(value) if is_object(value) else None
        except (ValueError, TypeError):
            return None  # of another version; the client introduces itself again

    def _write(self, name: str, guest: Guest) -> None:
        self._store.write(GUEST_KIND, name, json.dumps(asdict(guest)).encode())


def _guest_from_json(value: Json) -> Guest:
    members: Json = value | {"resources": tuple(value["resources"])}
    return Guest(**members)
