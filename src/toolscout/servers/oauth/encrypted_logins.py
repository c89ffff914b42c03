"""`EncryptedLogins`: the logins of the principals of a gateway, in its store.

`UserLogin` is one principal's login at one server. It serves requests as a `TokenFile` does, and
no other principal's tokens can take its place: who and where is part of what the key protects.
"""

import base64
import binascii
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import ValidationError

from toolscout.config.documents import OWNER_ONLY
from toolscout.config.servers import ServerConfig
from toolscout.errors import InvalidConfig, InvalidFile
from toolscout.servers.oauth.tokens import LoginStorage, StoredLogin, TokenFile, hash_server
from toolscout.stores.store import Store

LOGIN_KIND = "login"
KEY_FILE = "users.key"
KEY_BYTES = 32
ID_BYTES = 8
"""The length of a key's id, with which a stored login begins."""
NONCE_BYTES = 12
KEYS_OPTION = "gateway.login_keys"
MAKE_KEY = "Make one with `openssl rand -base64 32`."


class EncryptedLogins:
    """Encrypts logins and keeps them in a store.

    The first key encrypts, and every key decrypts. Without any, a key is made at its first use in
    a file in `folder` that only its owner can read. Everything here blocks.
    """

    def __init__(
        self,
        store: Store,
        keys: Sequence[str] = (),
        *,
        folder: Path | None,
        is_shared: bool = False,
    ) -> None:
        """`is_shared` says that other gateways use this store too, so it has all logins."""
        self.is_shared = is_shared and bool(keys)
        self._store = store
        self._folder = folder
        self._owner = secrets.token_hex(8)
        self._keys = {_hash_key(key): AESGCM(key) for key in map(_parse_key, keys)}

    def find(self, config: ServerConfig, principal: str) -> "UserLogin":
        """Return a principal's login at a server whose references are resolved."""
        return UserLogin(self, config, principal)

    def find_storage(self, config: ServerConfig) -> LoginStorage | None:
        """Return where the login that serves everybody at a server is kept.

        That is the store if other gateways use it too, and a file otherwise. A login that is in a
        file from before is taken over.
        """
        file = None if self._folder is None else TokenFile(self._folder, config)
        return UserLogin(self, config, "", file=file) if self.is_shared else file

    def claim(self, key: str, seconds: float) -> bool:
        """Reserve the renewal of a login; return False if another gateway renews it."""
        return self._store.claim(f"{LOGIN_KIND}/{key}", self._owner, seconds)

    def forget_server(self, config: ServerConfig) -> list[str]:
        """Delete the logins of all principals at a server whose references are resolved.

        Returns the principals.
        """
        before = f"{hash_server(config)}/"
        found = sorted(key for key in self.list_keys() if key.startswith(before))
        for key in found:
            self.write(key, None)
        return [key.removeprefix(before) for key in found]

    def list_keys(self) -> frozenset[str]:
        """Return the keys of all stored logins."""
        return frozenset(self._store.keys(LOGIN_KIND))

    def read(self, key: str) -> bytes | None:
        """Return what is stored, decrypted; raises `InvalidConfig` if no key fits."""
        stored = self._store.read(LOGIN_KIND, key)
        if stored is None:
            return None
        cipher = self._get_keys().get(stored[:ID_BYTES])
        nonce, hidden = stored[ID_BYTES : ID_BYTES + NONCE_BYTES], stored[ID_BYTES + NONCE_BYTES :]
        if cipher is None:
            problem = "lacks the key that encrypted a stored login"
            raise InvalidConfig(KEYS_OPTION, problem, remedy="Add that key to the end of the list.")
        try:
            return cipher.decrypt(nonce, hidden, key.encode())
        except InvalidTag:
            problem = "does not decrypt a stored login, which was damaged or moved"
            remedy = "Log out with `toolscout servers logout NAME --principal NAME`, and in again."
            raise InvalidConfig(KEYS_OPTION, problem, remedy=remedy) from None

    def write(self, key: str, plain: bytes | None) -> None:
        """Store something encrypted; None deletes it."""
        if plain is None:
            self._store.write(LOGIN_KIND, key, None)
            return
        key_id, cipher = next(iter(self._get_keys().items()))
        nonce = secrets.token_bytes(NONCE_BYTES)
        hidden = cipher.encrypt(nonce, plain, key.encode())
        self._store.write(LOGIN_KIND, key, key_id + nonce + hidden)

    def has(self, key: str) -> bool:
        """Tell whether something is stored, whatever key encrypted it."""
        return self._store.read(LOGIN_KIND, key) is not None

    def _get_keys(self) -> dict[bytes, AESGCM]:
        if not self._keys:
            if self._folder is None:
                raise InvalidConfig(KEYS_OPTION, "is missing", remedy=MAKE_KEY)
            key = _parse_key(_read_key_file(self._folder / KEY_FILE))
            self._keys = {_hash_key(key): AESGCM(key)}
        return self._keys


class UserLogin:
    """One principal's login at a server, or everybody's if the principal has no name."""

    def __init__(
        self,
        encrypted_logins: EncryptedLogins,
        config: ServerConfig,
        principal: str,
        *,
        file: TokenFile | None = None,
    ) -> None:
        """`file` has the login from before it was kept in the store."""
        self._file = file
        self.principal = principal
        self.key = f"{hash_server(config)}/{principal}"
        self._encrypted_logins = encrypted_logins
        self._known: StoredLogin | None = None

    @property
    def login(self) -> str:
        """The id of the login that gave the tokens; empty without tokens."""
        return self._known.login if self._known is not None else ""

    def load(self) -> StoredLogin | None:
        """Return the login that is stored now; this blocks."""
        plain = self._encrypted_logins.read(self.key)
        former = self._file.read() if plain is None and self._file is not None else None
        if former is not None:
            self.write(former)
            return former
        try:
            self._known = None if plain is None else StoredLogin.model_validate_json(plain)
        except ValidationError:
            self._known = None
        return self._known

    def read(self) -> StoredLogin | None:
        """Return the login as it was last loaded or written."""
        return self._known

    def write(self, stored: StoredLogin) -> None:
        """Store a login in place of the one before."""
        self._encrypted_logins.write(self.key, stored.model_dump_json(exclude_none=True).encode())
        self._known = stored

    def forget(self) -> bool:
        """Delete the login, and return whether there was one."""
        was_there = self._encrypted_logins.has(self.key)
        if self._file is not None:
            was_there = self._file.forget() or was_there
        self._encrypted_logins.write(self.key, None)
        self._known = None
        return was_there

    def claim(self, seconds: float) -> bool:
        """Reserve the renewal of the tokens; return False if another gateway renews them."""
        return self._encrypted_logins.claim(self.key, seconds)


def _parse_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        problem = f"contains something other than {KEY_BYTES} bytes in base64"
        raise InvalidConfig(KEYS_OPTION, problem, remedy=MAKE_KEY)
    return key


def _hash_key(key: bytes) -> bytes:
    return hashlib.sha256(b"toolscout login key\n" + key).digest()[:ID_BYTES]


def _read_key_file(path: Path) -> str:
    """Return the key in a file; make both if there is none."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
            with os.fdopen(handle, "wb") as file:
                file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            try:
                # Unlike a rename, it fails if another process was first.
                os.link(temporary, path)
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read or written ({error})"
        raise InvalidFile(str(path), problem, remedy="Check its permissions.") from None
