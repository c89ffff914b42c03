"""What clients of `httpx2` ask and get when aiohttp carries their requests; servers are sockets."""

import asyncio
import datetime
import ipaddress
import socket
import ssl
import subprocess
import sys
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from toolscout.servers.transport import AiohttpTransport, make_transport

DEADLINE_SECONDS = 120
HOST = "127.0.0.1"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers each request on a socket as it is told, and keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.port = 0
        self.connections = 0
        self.asked: list[tuple[bytes, bytes]] = []
        """Heads and bodies."""
        self.heard, self.left = asyncio.Event(), asyncio.Event()
        """Set when a request has come, and when a connection has ended."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/mcp"

    async def hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.asked.append((head, await reader.readexactly(_length(head))))
                self.heard.set()
                await self._answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


def says(*parts: bytes) -> Answer:
    """Answer with bytes."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))
        await writer.drain()

    return answer


def hangs_up_after(said: bytes) -> Answer:
    """Say something and close the connection."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()
        await writer.wait_closed()
        raise ConnectionError

    return answer


async def is_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Wait for whatever comes next, which is the client's leaving."""
    await reader.readexactly(1)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


@asynccontextmanager
async def served(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Server]:
    server = Server(answer)
    listener = await asyncio.start_server(server.hear, HOST, 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


def client(**options: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=AiohttpTransport(), **options)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await work

    asyncio.run(limited())


async def failure_of(answer: Answer, **options: Any) -> type[BaseException]:
    """Return the kind of error that reading an answer ends with."""
    async with served(answer) as server, client(**options) as http:
        with pytest.raises(httpx2.TransportError) as caught:
            await http.post(server.url, json={})
    assert HOST not in str(caught.value)
    return caught.type


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_server_is_asked_what_httpx2_itself_would_ask(method: str):
    async def asked(http: httpx2.AsyncClient) -> tuple[list[bytes], bytes]:
        async with served(says(OK)) as server, http:
            url = server.url.replace("//", "//me:pass%20word@") + "/a%2Fb%7E?c=%20d"
            body = b'{"a": 1}' if method == "POST" else None
            await http.request(
                method, url, content=body, headers=[("X-Twice", "1"), ("X-Twice", "2")]
            )
            head, body = server.asked[0]
        port = str(server.port).encode()
        return sorted(head.lower().replace(port, b"PORT").split(b"\r\n")), body

    async def work() -> None:
        own = await asked(httpx2.AsyncClient(headers={"X-Own": "2"}))

        assert await asked(client(headers={"X-Own": "2"})) == own

    run(work())


def test_an_answer_comes_with_its_status_its_headers_and_its_decoded_body():
    body = zlib.compress(b"hello")
    head = (
        b"HTTP/1.1 404 Not Here\r\nContent-Encoding: deflate\r\nX-One: 1\r\nX-One: 2\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )

    async def work() -> None:
        async with served(says(head, body)) as server, client() as http:
            answer = await http.post(server.url, json={})

        assert (answer.status_code, answer.reason_phrase) == (404, "Not Here")
        assert answer.headers.get_list("x-one") == ["1", "2"]
        assert answer.text == "hello"

    run(work())


def test_long_headers_are_taken():
    value = b"v" * 50_000

    async def work() -> None:
        said = OK.replace(b"\r\n\r\n", b"\r\nX-Long: " + value + b"\r\n\r\n")
        async with served(says(said)) as server, client() as http:
            answer = await http.get(server.url)

        assert answer.headers["x-long"] == value.decode()

    run(work())


def test_cookies_are_kept_by_the_client_alone():
    async def work() -> None:
        said = OK.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=1\r\n\r\n")
        async with served(says(said)) as server, client() as http:
            url = server.url.replace(HOST, "localhost")  # addresses have no cookies
            await http.get(url)
            http.cookies.clear()
            await http.get(url)

        assert all(b"cookie" not in head.lower() for head, _ in server.asked)

    run(work())


def test_redirects_are_left_to_the_client():
    async def work() -> None:
        said = b"HTTP/1.1 307 Away\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
        async with served(says(said)) as server, client() as http:
            answer = await http.post(server.url, json={})

        assert (answer.status_code, len(server.asked)) == (307, 1)

    run(work())


def test_a_connection_serves_one_request_after_the_other():
    async def work() -> None:
        async with served(says(OK)) as server, client() as http:
            for _ in range(3):
                await http.post(server.url, json={})

        assert (server.connections, len(server.asked)) == (1, 3)

    run(work())


def test_a_connection_that_the_server_has_closed_is_not_used_again():
    async def work() -> None:
        async with (
            served(hangs_up_after(OK)) as server,
            served(says(OK)) as other,
            client() as http,
        ):
            for _ in range(3):
                await http.post(server.url, json={})
                await server.left.wait()
                server.left.clear()
                await http.post(other.url, json={})  # meanwhile, the end is noticed

        assert server.connections == 3

    run(work())


def test_parts_of_an_answer_arrive_before_its_end():
    has_read = asyncio.Event()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"5\r\nfirst\r\n")
        await has_read.wait()
        writer.write(b"4\r\nlast\r\n0\r\n\r\n")

    async def work() -> None:
        found: list[bytes] = []
        async with (
            served(answer) as server,
            client() as http,
            http.stream("POST", server.url, json={}) as streamed,
        ):
            async for part in streamed.aiter_bytes():
                found.append(part)
                has_read.set()

        assert found == [b"first", b"last"]

    run(work())


def test_closing_an_answer_before_its_end_ends_its_connection():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"5\r\nfirst\r\n")
        await is_silent(reader, writer)

    async def work() -> None:
        async with served(answer) as server, client() as http:
            async with http.stream("POST", server.url, json={}):
                assert not server.left.is_set()
            await server.left.wait()

    run(work())


def test_cancelling_a_request_ends_its_connection():
    async def work() -> None:
        async with served(is_silent) as server, client() as http:
            asking = asyncio.create_task(http.post(server.url, json={}))
            await server.heard.wait()
            asking.cancel()
            await server.left.wait()

        assert asking.cancelled()

    run(work())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (hangs_up_after(b""), httpx2.RemoteProtocolError),
        (
            hangs_up_after(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
            httpx2.RemoteProtocolError,
        ),
        (says(b"no HTTP at all\r\n\r\n"), httpx2.RemoteProtocolError),
        (says(CHUNKED + b"not a length\r\n"), httpx2.RemoteProtocolError),
    ],
)
def test_an_answer_that_breaks_off_or_cannot_be_read_fails(answer: Answer, error: type[Exception]):
    async def work() -> None:
        assert await failure_of(answer) is error

    run(work())


def test_a_header_that_cannot_be_sent_fails():
    async def work() -> None:
        kind = await failure_of(says(OK), headers={"X-Two": "one\r\nX-Other: two"})

        assert kind is httpx2.LocalProtocolError

    run(work())


def test_a_server_that_does_not_answer_in_time_fails():
    async def work() -> None:
        limits = httpx2.Timeout(DEADLINE_SECONDS, read=0.05)

        assert await failure_of(is_silent, timeout=limits) is httpx2.ReadTimeout

    run(work())


def test_nobody_listening_is_told_apart_from_a_failed_request():
    async def work() -> None:
        async with client() as http:
            with pytest.raises(httpx2.ConnectError, match=r"^no connection came about$"):
                await http.post(f"http://{HOST}:1/mcp", json={})

    run(work())


def test_a_connection_that_does_not_come_about_in_time_is_told_apart_from_a_failed_request():
    async def work(port: int) -> None:
        async with client(timeout=httpx2.Timeout(DEADLINE_SECONDS, connect=0.05)) as http:
            with pytest.raises(httpx2.ConnectTimeout, match=r"^no connection came about in time$"):
                await http.post(f"http://{HOST}:{port}/mcp", json={})

    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind((HOST, 0))
        listener.listen(0)
        for waiting in (first, second):  # whoever comes after them gets no answer
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        run(work(listener.getsockname()[1]))


def test_a_server_whose_certificate_nobody_vouches_for_is_not_talked_to(tmp_path: Path):
    async def work() -> None:
        async with served(says(OK), certified(tmp_path)) as server, client() as http:
            with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await http.post(server.url.replace("http:", "https:"), json={})

        assert not server.asked

    run(work())


def test_certificates_that_the_environment_names_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def work() -> None:
        tls = certified(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        async with served(says(OK), tls) as server, client() as http:
            answer = await http.post(server.url.replace("http:", "https:"), json={})

        assert answer.text == "ok"

    run(work())


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_used(name: str, monkeypatch: pytest.MonkeyPatch):
    async def work() -> None:
        async with served(says(OK)) as proxy:
            monkeypatch.setenv(name, f"http://{HOST}:{proxy.port}")
            async with httpx2.AsyncClient(transport=make_transport()) as http:
                await http.post("http://far.invalid/mcp", json={})

        # Other libraries in this process see the variable too, and may use the proxy for their own.
        heads = [head.partition(b"\r\n")[0] for head, _ in proxy.asked]
        assert b"POST http://far.invalid/mcp HTTP/1.1" in heads

    without_proxies(monkeypatch)
    run(work())


def test_without_a_proxy_requests_are_carried(monkeypatch: pytest.MonkeyPatch):
    without_proxies(monkeypatch)

    assert isinstance(make_transport(), AiohttpTransport)


def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def certified(folder: Path) -> ssl.SSLContext:
    """Return what a server needs for TLS; its certificate is left in the folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return tls


def test_without_aiohttp_an_error_says_what_to_install():
    code = "import sys; sys.modules['aiohttp'] = None; import toolscout.servers.transport"

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert ended.returncode == 1
    assert "'aiohttp' is not installed. Run `pip install 'toolscout[gateway]'`" in ended.stderr
