"""A keychain in a file, for `PYTHON_KEYRING_BACKEND=config.keychain.Keychain` and for tests.

The file is named by KEYCHAIN_FILE. If it does not exist, the keychain is locked.
"""

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, PasswordDeleteError


class Keychain(KeyringBackend):
    """Keeps passwords by service and name."""

    priority = 5  # pyright: ignore[reportAssignmentType]  # as the base class documents it

    def get_password(self, service: str, username: str) -> str | None:
        return self._read().get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._file.write_text(json.dumps({**self._read(), f"{service}/{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        raise PasswordDeleteError(username)

    @property
    def _file(self) -> Path:
        return Path(os.environ["KEYCHAIN_FILE"])

    def _read(self) -> dict[str, str]:
        if not self._file.exists():
            raise KeyringLocked("The collection is locked")
        return json.loads(self._file.read_text())
