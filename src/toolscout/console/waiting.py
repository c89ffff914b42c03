"""Calls that wait because a rule says that a person has to be asked, and the person's answer.

Clients that can ask their user do so themselves. A call of any other client waits in the store:
`toolscout policy` shows and decides the same calls.
"""

from collections.abc import Callable

from toolscout.console.activity import format_time
from toolscout.console.views import ApiError, View
from toolscout.gateway.events import CallDecided
from toolscout.gateway.middleware import ANONYMOUS
from toolscout.gateway.pending import (
    DENIED,
    SCOPES,
    ApprovalRequest,
    decide_request,
    list_requests,
)
from toolscout.names import to_one_line
from toolscout.schemas import Json
from toolscout.stores.store import Store

PLACE = "/#/waiting"
"""Where the console shows these calls."""
ANSWERS = {**{scope: scope for scope in SCOPES}, "deny": DENIED}
"""What a person can answer, and how that is stored."""
STATES = {"": "waiting", **{scope: f"approved {scope}" for scope in SCOPES}, DENIED: DENIED}
NAME_CHARS = 200


class WaitingCalls:
    """The waiting calls in the store of one gateway; everything here reads from the store.

    Only a token without a profile may see and decide them.
    """

    def __init__(self, store: Store, tell: Callable[[CallDecided], None]) -> None:
        self._store = store
        self._tell = tell

    def count(self) -> int:
        """Return how many calls wait for an answer."""
        return sum(not request.scope for request in list_requests(self._store).values())

    def list_rows(self, view: View) -> list[Json]:
        """Return the calls that wait, then those whose answer the model has not used yet."""
        view.refuse_limited("Waiting calls are")
        found = sorted(list_requests(self._store).items(), key=lambda item: bool(item[1].scope))
        return [_build_row(key, request) for key, request in found]

    def decide(self, view: View, digest: str, answer: str) -> list[Json]:
        """Give one of `ANSWERS` about a call, by its id; return what there is then."""
        view.refuse_limited("Waiting calls are")
        decided = decide_request(self._store, digest, ANSWERS[answer], view.principal.name)
        if decided is None:
            message = "This call does not wait any more. Nothing was decided."
            raise ApiError(409, "not_waiting", message, "Look at the list again.")
        self._tell(CallDecided(request=decided))
        return self.list_rows(view)


def _build_row(key: str, request: ApprovalRequest) -> Json:
    return {
        "id": key,
        "principal": to_one_line(request.principal or ANONYMOUS.name, NAME_CHARS),
        "session": request.session,
        "tool": request.tool,
        "server": request.server,
        "arguments": request.arguments,
        "rule": request.rule,
        "asked": format_time(request.asked),
        "state": STATES[request.scope],
        "by": request.by,
    }
