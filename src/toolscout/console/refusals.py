"""`Refused`: a request that is not answered, and why, for the reader of a JSON error."""

from starlette.responses import JSONResponse

from toolscout.errors import LoginFailed, ModelError, ToolscoutError, UpstreamError

BAD, FORBIDDEN, NOT_FOUND, CONFLICT = 400, 403, 404, 409


class Refused(Exception):
    """An error of the API: what happened, and what to do next."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        self.status, self.code, self.message, self.hint = status, code, message, hint
        super().__init__(message)

    def response(self) -> JSONResponse:
        """Return it as JSON."""
        told = {"code": self.code, "message": self.message, "hint": self.hint}
        return JSONResponse({"error": told}, self.status)


def refused(error: ToolscoutError) -> Refused:
    """Return what an error of toolscout means to whoever asked the API."""
    message, hint = str(error), str(getattr(error, "remedy", ""))
    if hint and message.endswith(hint):
        message = message.removesuffix(hint).strip()
    message = message.removeprefix("Not called: ")
    code = error.code if isinstance(error, ModelError | UpstreamError) else "usage"
    is_elsewhere = isinstance(error, UpstreamError | LoginFailed)
    return Refused(CONFLICT if is_elsewhere else BAD, code, message[:1].upper() + message[1:], hint)


def no_such(what: str, name: str, near: str = "") -> Refused:
    """Return that a thing does not exist, or not for this caller, which is told the same way."""
    hint = f"Near: {near}." if near else f"Ask for the list of {what}s."
    return Refused(NOT_FOUND, f"unknown_{what}", f"There is no {what} {name[:80]!r}.", hint)
