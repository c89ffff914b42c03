"""Which headers a request may carry, and who may set them."""

import re
from collections.abc import Mapping

from toolscout.errors import InvalidConfig
from toolscout.names import clean_text

# The first three are not for parameters to set, says OpenAPI; the others would change where a
# request goes or where it ends.
NO_PARAMETERS = frozenset(
    (
        *("accept", "authorization", "content-type", "host", "cookie", "connection", "upgrade"),
        *("content-length", "transfer-encoding", "te", "trailer", "expect", "proxy-authorization"),
    )
)

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return configured headers by lower-case name, or raise `InvalidConfig`."""
    for name, value in headers.items():
        if not TOKEN.fullmatch(name) or CONTROL.search(value):
            # The value may be a secret, so it is not told.
            raise InvalidConfig(
                f"headers.{clean_text(name, 80)}",
                "is no HTTP header",
                remedy="Use letters, digits and hyphens in the name and one line of text.",
            )
    return {name.lower(): value for name, value in headers.items()}
