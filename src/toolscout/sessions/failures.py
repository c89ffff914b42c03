"""What a model is told when a verb fails: its own mistake in full, ours without any detail."""

import logging
from collections.abc import Callable

from toolscout.errors import BrokenPolicy, ModelError
from toolscout.sessions.replies import Reply, refused
from toolscout.sessions.session import Session

_log = logging.getLogger(__name__)

_NOTHING_DONE = (
    "Something broke inside the tool search; nothing was called or loaded. Tell the user."
)
_UNSURE = (
    "Something broke inside the tool search; the tool may have been called. "
    "Check before you call it again, or tell the user."
)


def guarded(session: Session, work: Callable[[], Reply]) -> Reply:
    """Return what the work gives, or a reply that says why it gave nothing."""
    try:
        return work()
    except ModelError as error:
        return mistaken(session, error)
    except Exception as error:
        return broken(session, error)


def mistaken(session: Session, error: ModelError) -> Reply:
    """Return the reply to a mistake that the model can put right."""
    return refused(error, code=error.code, budget=session.settings.reply_tokens)


def broken(session: Session, error: Exception, *, unsure: bool = False) -> Reply:
    """Return a reply that exposes nothing, and log what went wrong (R47).

    `unsure` says that a tool may have run meanwhile.
    """
    _log.error("A request of a session failed with %s.", type(error).__name__)
    _log.debug("The failed request:", exc_info=error)
    policy = isinstance(error, BrokenPolicy)  # always asked before anything is done
    said = _UNSURE if unsure and not policy else _NOTHING_DONE
    code = "broken_policy" if policy else "broken_index"
    return refused(ModelError(said), code=code, budget=session.settings.reply_tokens)
