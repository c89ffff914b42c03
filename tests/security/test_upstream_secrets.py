"""A server hears secrets: what it says, and errors about it, must not carry them further."""

import asyncio
import json
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from click.testing import CliRunner
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from security.hostile_web import Json, Request, answer_mcp, web_server
from serving import DEADLINE_SECONDS, Served, eventually, served
from toolscout.cli import main
from toolscout.config.file import Config
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig, LoginFailed
from toolscout.servers.oauth.callback import Callback
from toolscout.servers.oauth.login import log_in
from toolscout.servers.oauth.tokens import TokenFile
from toolscout.servers.state import Phase

KEY = "sk%2F7Q-live"
PLAIN_KEY = "sk/7Q-live"
PASSWORD = "hunter2-pass"
SHORT = "pw7x"
OPAQUE = "s3cr3tPathPart0123456789abcdef"
SECRETS = (KEY, PLAIN_KEY, PASSWORD, SHORT, OPAQUE)


def add_secrets(address: str) -> str:
    """Return an address with a secret in every place that an address has for one."""
    parts = urlsplit(address)
    return f"http://ann:{PASSWORD}@{parts.netloc}/{OPAQUE}/mcp?key={KEY}&pin_token={SHORT}"


def far(address: str) -> ServerConfig:
    return ServerConfig(name="far", transport=Transport.HTTP, url=add_secrets(address))


def read_everything(gateway: Served, *calls: tuple[str, Json]) -> str:
    """Return what status, console and model read, as one text."""

    async def talk() -> list[str]:
        async with Client(streamable_http_client(f"{gateway.url}/mcp")) as client:
            return [(await client.call_tool(*call)).model_dump_json() for call in calls]

    texts = asyncio.run(talk())
    for path in ("/status", "/api/servers", "/api/servers/far/log"):
        answer = httpx2.get(f"{gateway.url}{path}")
        assert answer.status_code == 200, path
        texts.append(answer.text)
    return "\n".join(texts)


def wait_for(gateway: Served, phase: Phase) -> None:
    member = gateway.gateway.pool.servers["far"]
    waiting = eventually(lambda: member.phase is phase)
    asyncio.run_coroutine_threadsafe(waiting, gateway.loop).result(DEADLINE_SECONDS)


@pytest.mark.parametrize("status", [302, 404, 500])
def test_secrets_in_an_address_stay_out_of_the_error_of_a_failed_start(status: int):
    def refuse(request: Request) -> None:
        request.reply(status, location=f"http://127.0.0.1:1{request.path}")

    with web_server(refuse) as address, served(far(address), console=True) as gateway:
        wait_for(gateway, Phase.FAILED)
        text = read_everything(gateway, ("tool_call", {"name": "far__x"}))

    assert "far" in text
    assert [secret for secret in SECRETS if secret in text] == []


def test_secrets_that_a_server_repeats_do_not_reach_the_model():
    def repeat(request: Request) -> None:
        def answer(method: str, params: Json) -> Json | None:
            tool = {"name": "x", "inputSchema": {"type": "object"}}
            return {"tools": [tool]} if method == "tools/list" else None

        message = request.read_message()
        if message.get("method") == "tools/call":
            said = f"refused {request.path} of ann:{PASSWORD}"
            error = {"code": -32000, "message": said}
            request.reply_json({"jsonrpc": "2.0", "id": message["id"], "error": error})
        else:
            answer_mcp(request, answer)

    with web_server(repeat) as address, served(far(address), console=True) as gateway:
        assert gateway.known.wait(DEADLINE_SECONDS)
        text = read_everything(gateway, ("tool_call", {"name": "far__x"}))

    assert "refused" in text
    assert [secret for secret in SECRETS if secret in text] == []


def test_secrets_in_the_address_of_a_document_stay_out_of_errors():
    def refuse(request: Request) -> None:
        request.reply(404)

    with web_server(refuse) as address:
        spec = add_secrets(address)
        api = ServerConfig(name="far", transport=Transport.OPENAPI, spec=spec, url=address)
        with served(api, console=True) as gateway:
            wait_for(gateway, Phase.FAILED)
            text = read_everything(gateway)

    assert "its document cannot be used" in text
    assert [secret for secret in SECRETS if secret in text] == []


def test_a_client_secret_needs_the_issuer_that_receives_it():
    with pytest.raises(InvalidConfig) as caught:
        ServerConfig(
            name="far",
            transport=Transport.HTTP,
            url="https://far.example/mcp",
            oauth_client_id="id",
            oauth_client_secret="${SECRET}",
        )

    assert "servers.far.oauth_issuer" in str(caught.value)
    assert "Write the address of the authorization server" in str(caught.value)


def test_a_client_secret_is_not_sent_to_the_issuer_that_a_server_names(tmp_path: Path):
    asked: list[str] = []

    def answer(request: Request) -> None:
        """Be an MCP server and its authorization server at once."""
        asked.append(f"{request.path} {request.body.decode()} {request.headers}")
        here = f"http://{request.headers['host']}"
        if "oauth-protected-resource" in request.path:
            request.reply_json({"resource": f"{here}/mcp", "authorization_servers": [here]})
        elif "well-known" in request.path:
            request.reply_json(
                {
                    "issuer": here,
                    "authorization_endpoint": f"{here}/authorize",
                    "token_endpoint": f"{here}/token",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                }
            )
        elif request.path.startswith("/authorize"):
            given = dict(parse_qsl(urlsplit(request.path).query))
            back = f"{given['redirect_uri']}?code=c&state={given['state']}"
            request.reply(302, location=back)
        else:
            request.reply(401)

    async def log_in_to(config: ServerConfig) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), Callback(0) as callback:

            async def visit(url: str) -> None:
                callback.expect(url)
                async with httpx2.AsyncClient(follow_redirects=True) as browser:
                    await browser.get(url)

            await log_in(
                config,
                TokenFile(tmp_path, config),
                callback=callback.url,
                redirect=visit,
                answer=lambda: callback.answer(DEADLINE_SECONDS),
            )

    with web_server(answer) as address:
        config = ServerConfig(
            name="far",
            transport=Transport.HTTP,
            url=f"{address}/mcp",
            oauth=True,
            oauth_client_id="id",
            oauth_client_secret="client-secret",
            oauth_issuer="https://login.example",
        )
        with pytest.raises(LoginFailed):
            asyncio.run(log_in_to(config))

    assert asked
    assert "client-secret" not in "".join(asked)


CRY = "import sys; print('started with', *sys.argv[1:], file=sys.stderr); sys.stdin.read()"


def test_secrets_in_arguments_stay_out_of_what_a_server_prints(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    file = tmp_path / "kept"
    file.write_text("from-a-file")
    monkeypatch.setenv("MY_TOKEN", "tk9")
    given = ("--password", "pw7x", f"--key={PLAIN_KEY}", "${MY_TOKEN}", f"${{file:{file}}}")
    told = ServerConfig(
        name="far",
        transport=Transport.STDIO,
        command=sys.executable,
        args=("-c", CRY, "--mode", "tidy", *given),
        env={"DB_PASSWORD": "pq8", "LEVEL": "tidy"},
        lazy=False,
    )

    with served(told, console=True) as gateway:
        member = gateway.gateway.pool.servers["far"]
        waiting = eventually(lambda: any("started" in line for line in member.lines))
        asyncio.run_coroutine_threadsafe(waiting, gateway.loop).result(DEADLINE_SECONDS)
        text = read_everything(gateway)

    assert "--mode tidy --password … --key=… … …" in text
    mask = Config(servers=(told,)).list_secrets()
    assert {"pw7x", PLAIN_KEY, "tk9", "from-a-file", "pq8"} <= set(mask)
    assert "tidy" not in mask
    assert "tk9" not in repr(told.resolve())


GIVEN = ["--api-key", "pw7x", "--token=q8w", "sk-live-12345", "postgres://ann:hunter2@h/db"]


@pytest.mark.parametrize(
    "words", [["servers", "list", "--json"], ["init", "--dry-run"]], ids=" ".join
)
def test_commands_that_list_servers_show_no_secret_in_their_arguments(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    entry = {"command": "run", "args": ["--mode", "tidy", *GIVEN]}
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"db": entry}}))
    if words[0] == "servers":
        CliRunner().invoke(main, ["init", "--yes", "--no-test"])

    result = CliRunner().invoke(main, words)

    assert result.exit_code == 0
    assert "--mode tidy" in result.output
    for secret in ("pw7x", "q8w", "sk-live-12345", "hunter2"):
        assert secret not in result.output
