"""`Conversations`: live sessions as rows, for whoever may look at them."""

from collections.abc import Callable

from toolscout.console.activity import Chronicle
from toolscout.console.journals import Journal
from toolscout.console.refusals import no_such
from toolscout.console.views import View
from toolscout.gateway.auth import Principal
from toolscout.schemas import Json
from toolscout.scout import Scout
from toolscout.sessions.record import Record


class Conversations:
    """The sessions of a gateway. `peers` tells whether somebody may look at another's."""

    def __init__(
        self, scout: Scout, chronicle: Chronicle, peers: Callable[[Principal, Principal], bool]
    ) -> None:
        self._scout, self._chronicle, self._peers = scout, chronicle, peers

    def rows(self, view: View) -> list[Json]:
        """Return the visible sessions, the last active first."""
        return [
            journal.row(len(self._record(name).loaded))
            for name, journal in self._chronicle.journals()
            if self._peers(view.principal, journal.principal)
        ]

    def row(self, name: str, journal: Journal) -> Json:
        """Return one session by the gateway's name for it."""
        return journal.row(len(self._record(name).loaded))

    def whole(self, view: View, id_: str) -> Json:
        """Return one session with what it has loaded and done."""
        name, journal = self._find(view, id_)
        record = self._record(name)
        return {
            **journal.row(len(record.loaded)),
            "loaded": [
                {"name": entry.name, "tokens": entry.tokens, "query": entry.query}
                for entry in record.loaded
            ],
            "events": [happening.row() for happening in self._chronicle.happenings(journal)],
        }

    def _find(self, view: View, id_: str) -> tuple[str, Journal]:
        for name, journal in self._chronicle.journals():
            if journal.id == id_ and self._peers(view.principal, journal.principal):
                return name, journal
        raise no_such("session", id_)

    def _record(self, name: str) -> Record:
        """Return what a session has loaded; one that nobody holds open any more has nothing."""
        session = self._scout.live(name)
        return Record(id=name) if session is None else session.record
