"""A small login service on loopback with real keys, which signs tokens and publishes its keys."""

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "https://tools.example/mcp"
HOUR_SECONDS = 3_600


class LoginService:
    """Signs tokens as a company's login would."""

    def __init__(self) -> None:
        self.fetches = 0
        """How often somebody has asked for its keys."""
        self.url = ""
        self._keys: dict[str, tuple[str, Any]] = {}
        self.add_key("first")

    def add_key(self, name: str, algorithm: str = "RS256") -> None:
        """Make a key pair; its public half is published from now on."""
        if algorithm == "RS256":
            key: Any = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        else:
            key = ec.generate_private_key(ec.SECP256R1())
        self._keys[name] = (algorithm, key)

    def remove_key(self, name: str) -> None:
        """Publish a key no longer."""
        del self._keys[name]

    def sign(self, subject: str = "ann", *, key: str = "first", **claims: Any) -> str:
        """Return a token; claims replace the usual ones, and None leaves one out."""
        algorithm, private = self._keys[key]
        usual = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": subject,
            "exp": int(time.time()) + HOUR_SECONDS,
        }
        given = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(given, private, algorithm=algorithm, headers={"kid": key})

    def list_public_keys(self) -> dict[str, Any]:
        """Return the keys as a JSON Web Key Set."""
        self.fetches += 1
        keys: list[Any] = []
        for name, (algorithm, private) in self._keys.items():
            kind = RSAAlgorithm if algorithm == "RS256" else ECAlgorithm
            public: Any = kind.to_jwk(private.public_key(), as_dict=True)
            keys.append({**public, "kid": name, "use": "sig", "alg": algorithm})
        return {"keys": keys}


@contextmanager
def run_login_service() -> Generator[LoginService]:
    """Serve the keys of a login service."""
    service = LoginService()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps(service.list_public_keys()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
