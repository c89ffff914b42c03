"""The package registries of this machine, behind a certificate that nobody knows by default.

A reverse proxy on the loopback address passes requests on to the registries that pip and npm are
configured with here, and rewrites the addresses in their answers so that everything goes through
it. Its certificate is signed by an authority made for the run: a client that does not know
`Registry.authority` cannot install anything, as in a company that inspects encrypted traffic.
"""

import asyncio
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

HOST = "127.0.0.1"
START_SECONDS = 60
STOP_SECONDS = 5
ANSWER_SECONDS = 300
PASSED_ON = ("accept", "range", "if-none-match", "if-modified-since")
HANDED_BACK = (
    "accept-ranges",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "etag",
    "last-modified",
)

_LINK = re.compile(r'(href="|"(?:tarball|url)":\s*")(https?)://([^/"]+)/')
_DEFAULT_INDEX = re.compile(r"--index-url <url>.*?\(default (\S+?)\)")


@dataclass(slots=True, kw_only=True)
class Registry:
    """A running proxy."""

    url: str
    authority: Path
    """The certificate that signs the one of the proxy."""
    index: str
    npm: str
    """What the proxy passes requests on to."""
    hosts: set[str] = field(default_factory=set[str])
    """Other hosts that answers have named."""
    broken: list[str] = field(default_factory=list[str])
    """Downloads that a client left before they were complete."""

    def find_target(self, path: str) -> str:
        """Return the address that a path stands for; empty if it stands for none."""
        kind, _, rest = path.lstrip("/").partition("/")
        if kind in ("index", "npm"):
            return f"{(self.index if kind == 'index' else self.npm).rstrip('/')}/{rest}"
        host, _, rest = rest.partition("/")
        return f"{kind}://{host}/{rest}" if host in self.hosts else ""

    def rewrite_links(self, text: str) -> str:
        """Return a text whose links to packages lead through the proxy."""

        def rewrite(match: re.Match[str]) -> str:
            start, scheme, host = match.groups()
            self.hosts.add(host)
            return f"{start}{self.url}/{scheme}/{host}/"

        return _LINK.sub(rewrite, text)


def find_index() -> str:
    """Return the package index that pip is configured with; empty if there is none."""
    words = [sys.executable, "-m", "pip", "download", "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=START_SECONDS).stdout
    found = _DEFAULT_INDEX.search(" ".join(shown.split()))
    return _keep_address(found[1] if found else "")


def find_npm() -> str:
    """Return the registry that npm is configured with; empty if there is none."""
    npm = shutil.which("npm")
    if npm is None:
        return ""
    words = [npm, "config", "get", "registry"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=START_SECONDS)
    return _keep_address(ran.stdout.strip())


def _keep_address(text: str) -> str:
    return text if urlsplit(text).scheme in ("http", "https") else ""


@contextmanager
def serve_registry(folder: Path, *, index: str, npm: str) -> Generator[Registry]:
    """Serve a proxy for an index and an npm registry, in a thread of its own."""
    authority, certificate = make_certificates(folder)
    with socket.create_server((HOST, 0)) as listener:
        url = f"https://{HOST}:{listener.getsockname()[1]}"
        registry = Registry(url=url, authority=authority, index=index, npm=npm)
        config = uvicorn.Config(
            _make_app(registry),
            ssl_certfile=str(certificate),
            ssl_keyfile=str(certificate),
            log_level="error",
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        server = uvicorn.Server(config)
        ended: Future[None] = Future()
        thread = threading.Thread(target=lambda: _run(server, listener, ended))
        thread.start()
        try:
            yield registry
        finally:
            server.should_exit = True
            thread.join(START_SECONDS)
        ended.result(START_SECONDS)


def _run(server: uvicorn.Server, listener: socket.socket, ended: "Future[None]") -> None:
    try:
        asyncio.run(server.serve(sockets=[listener]))
        ended.set_result(None)
    except BaseException as error:
        ended.set_exception(error)


def _make_app(registry: Registry) -> Starlette:
    client = httpx2.AsyncClient(follow_redirects=True, timeout=ANSWER_SECONDS)

    @asynccontextmanager
    async def keep_client(app: Starlette) -> AsyncGenerator[None]:
        async with client:
            yield

    async def answer(request: Request) -> Response:
        target = registry.find_target(request.scope["raw_path"].decode())
        if not target:
            return Response(status_code=404)
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        asked = client.build_request(request.method, target, headers=headers)
        found = await client.send(asked, stream=True)
        kept = {name: found.headers[name] for name in HANDED_BACK if name in found.headers}
        is_text = "json" in kept.get("content-type", "") or "html" in kept.get("content-type", "")
        if request.method == "GET" and is_text:
            await found.aread()
            await found.aclose()
            text = registry.rewrite_links(found.text)
            plain = {name: kept[name] for name in ("content-type", "cache-control") if name in kept}
            return Response(text, found.status_code, plain)
        return StreamingResponse(stream(found, target), found.status_code, kept)

    async def stream(found: httpx2.Response, target: str) -> AsyncGenerator[bytes]:
        is_complete = False
        try:
            async for data in found.aiter_raw():
                yield data
            is_complete = True
        finally:
            await found.aclose()
            if not is_complete:
                registry.broken.append(target)

    routes = [Route("/{path:path}", answer, methods=["GET", "HEAD"])]
    return Starlette(routes=routes, lifespan=keep_client)


def make_certificates(folder: Path) -> tuple[Path, Path]:
    """Write an authority's certificate, and a certificate with its key for the loopback address."""
    now = datetime.now(UTC)
    signer = ec.generate_private_key(ec.SECP256R1())
    own = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "First run authority")])
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])

    def begin(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder(issuer_name=issuer, subject_name=name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )

    root = (
        begin(issuer, signer)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(signer, hashes.SHA256())
    )
    leaf = (
        begin(subject, own)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    key = own.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    pem = serialization.Encoding.PEM
    authority = folder / "authority.pem"
    authority.write_bytes(root.public_bytes(pem))
    certificate = folder / "registry.pem"
    certificate.write_bytes(leaf.public_bytes(pem) + key)
    ssl.create_default_context(cafile=authority)  # fails here if it is not usable
    return authority, certificate
