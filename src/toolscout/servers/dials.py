"""`Dialer`: makes the right kind of connection for a server, and owns what they share."""

from collections.abc import Callable
from pathlib import Path

from toolscout.config.servers import ServerConfig, Transport
from toolscout.servers.connection import Connection
from toolscout.servers.delays import Delays
from toolscout.servers.mcp import Client
from toolscout.servers.oauth.bearers import auth_for
from toolscout.servers.oauth.tokens import TokenFile
from toolscout.servers.openapi.connection import Operations
from toolscout.servers.wardens import Warden


class Dialer:
    """Makes connections; `close` it once they are closed.

    `tokens` is the folder with the tokens of servers that want OAuth.
    """

    def __init__(self, delays: Delays, tokens: Path | None = None) -> None:
        self._delays, self._tokens = delays, tokens
        self._warden = Warden()

    def __call__(
        self,
        config: ServerConfig,
        *,
        on_change: Callable[[], None],
        on_line: Callable[[str], None],
    ) -> Connection:
        """Return a connection to a server whose references are resolved."""
        if config.transport is Transport.OPENAPI:
            return Operations(config)
        return Client(
            config,
            on_change=on_change,
            on_line=on_line,
            warden=self._warden,
            delays=self._delays,
            auth=auth_for(config, self._tokens) if self._tokens is not None else None,
        )

    def token_file(self, config: ServerConfig) -> TokenFile | None:
        """Return where a login at a server leaves its tokens."""
        return TokenFile(self._tokens, config) if self._tokens is not None else None

    def close(self) -> None:
        """Stop watching over processes."""
        self._warden.close()
