"""People who log in elsewhere have a signed token: no other token must let anybody in."""

import asyncio
import base64
import gc
import json
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from gateway.fleet import TIME as TIME_ARGUMENTS
from gateway.fleet import configuration
from gateway.processes import Running
from security.login_service import AUDIENCE, LoginService, run_login_service
from serving import DEADLINE_SECONDS, TIME, Served, served
from toolscout.config.gateway import GatewayConfig, TokenConfig
from toolscout.errors import InvalidConfig
from toolscout.gateway import http, issuers
from toolscout.gateway.audit import read_entries
from toolscout.gateway.middleware import Authenticator
from toolscout.stores.memory import MemoryStore

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
STATIC = "a static token of more than 24 characters"


@pytest.fixture(scope="module")
def login() -> Iterator[LoginService]:
    with run_login_service() as service:
        yield service


def options(login: LoginService) -> dict[str, Any]:
    """Return the options of a gateway whose users log in: engineers see all, others one tool."""
    issuer = {
        "issuer": login.url,
        "audience": AUDIENCE,
        "jwks_url": f"{login.url}/keys",
        "profile_claim": "groups",
        "profiles": {"engineers": "*", "support": "some"},
        "skew_seconds": 5,
    }
    return {
        "issuers": {"corp": issuer},
        "profiles": {"some": {"tools": ["*__convert_time"]}},
        "tokens": {"ci": {"token": STATIC}},
    }


@pytest.fixture(scope="module")
def gateway(login: LoginService) -> Iterator[Served]:
    with served(TIME, **options(login)) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        yield running


def get(gateway: Served, token: str | None, path: str = "/status") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    return httpx2.get(f"{gateway.url}{path}", headers=headers, timeout=DEADLINE_SECONDS)


@asynccontextmanager
async def connected(gateway: Served, token: str) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_SECONDS) as http,
        Client(streamable_http_client(f"{gateway.url}/mcp", http_client=http)) as client,
    ):
        yield client


def test_a_person_who_logged_in_finds_what_their_groups_admit(gateway: Served, login: LoginService):
    async def search(token: str) -> str:
        async with connected(gateway, token) as client:
            found = await client.call_tool("tool_search", {"queries": ["time"]})
            return found.model_dump_json()

    all_tools = asyncio.run(search(login.sign("ann", groups=["staff", "engineers"])))
    one_tool = asyncio.run(search(login.sign("bob", groups=["support"])))

    assert "time__get_current_time" in all_tools
    assert "time__convert_time" in one_tool
    assert "time__get_current_time" not in one_tool


def test_a_key_of_an_elliptic_curve_signs_as_well(gateway: Served, login: LoginService):
    login.add_key("curve", "ES256")
    with served(**options(login)) as fresh:
        assert get(fresh, login.sign(key="curve", groups="engineers")).status_code == 200


def forge(login: LoginService, header: dict[str, Any]) -> str:
    """Return a token whose header says something else, with the old signature."""
    _, payload, signature = login.sign(groups=["engineers"]).split(".")
    encoded = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    return f"{encoded}.{payload}.{signature}"


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://other.example"},
        {"aud": None},
        {"iss": "https://other.example"},
        {"exp": None},
        {"exp": 1_000_000_000},
        {"nbf": 9_000_000_000},
        {"sub": None},
        {"groups": ["guests"]},
        {"groups": {"engineers": True}},
    ],
    ids=str,
)
def test_a_token_for_somebody_else_or_another_time_is_refused(
    gateway: Served, login: LoginService, claims: dict[str, Any]
):
    given: dict[str, Any] = {"groups": ["engineers"], **claims}

    answer = get(gateway, login.sign(**given))

    assert answer.status_code == 401
    assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


def test_a_token_that_the_service_did_not_sign_is_refused(gateway: Served, login: LoginService):
    with run_login_service() as other:
        foreign = other.sign(iss=login.url, groups=["engineers"])
    claims = jwt.decode(login.sign(groups=["engineers"]), options={"verify_signature": False})
    symmetric = jwt.encode(claims, "x" * 64, algorithm="HS256", headers={"kid": "first"})
    unsigned = jwt.encode(claims, "", algorithm="none", headers={"kid": "first"})
    cut = login.sign(groups=["engineers"])[:-8]
    forged = [forge(login, {"alg": name, "kid": "first"}) for name in ("none", "HS256", "ES256")]

    for token in (foreign, symmetric, unsigned, cut, *forged, "a.b.c", "..", "x" * 30_000):
        assert get(gateway, token).status_code == 401


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31mann", "ann\u202e", "x" * 256])
def test_a_name_that_people_cannot_read_is_refused(gateway: Served, login: LoginService, name: str):
    assert get(gateway, login.sign(name, groups=["engineers"])).status_code == 401


def test_clocks_may_differ_a_little(gateway: Served, login: LoginService):
    now = int(time.time())

    assert get(gateway, login.sign(groups="engineers", exp=now - 1)).status_code == 200
    assert get(gateway, login.sign(groups="engineers", exp=now - 60)).status_code == 401


def test_a_new_key_is_fetched_and_unknown_keys_do_not_flood_the_service():
    with run_login_service() as login, served(**options(login)) as gateway:
        login.add_key("never published")
        unknown = [login.sign(key="never published", sub=str(n)) for n in range(20)]
        login.remove_key("never published")
        assert get(gateway, login.sign(groups=["engineers"])).status_code == 200
        fetched = login.fetches

        answers = [get(gateway, token).status_code for token in unknown]

    assert set(answers) == {401}
    assert login.fetches - fetched <= 1


def test_a_running_gateway_fetches_a_key_that_was_rotated_in(monkeypatch: pytest.MonkeyPatch):
    # The keys were fetched a moment ago, which a gateway that has run for a while has not.
    monkeypatch.setattr(issuers, "REFETCH_SECONDS", 0.001)
    with run_login_service() as login, served(**options(login)) as gateway:
        assert get(gateway, login.sign(groups=["engineers"])).status_code == 200
        fetched = login.fetches
        login.add_key("second")

        answers = [get(gateway, login.sign(key="second", groups=["engineers"])) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert login.fetches == fetched + 1


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.filterwarnings("ignore:Unclosed <Memory:ResourceWarning")  # the SDK's, for /sse
def test_a_stream_ends_when_its_token_expires(
    login: LoginService, path: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http, "EXPIRY_SECONDS", 0.05)

    async def read(gateway: Served, token: str) -> None:
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "text/event-stream, application/json",
        }
        async with (
            asyncio.timeout(DEADLINE_SECONDS),
            httpx2.AsyncClient(headers=headers, base_url=gateway.url) as client,
        ):
            if path == "/mcp":
                opened = await client.post(path, json=INITIALIZE)
                client.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
            async with client.stream("GET", path, timeout=DEADLINE_SECONDS) as stream:
                assert stream.status_code == 200
                async for _ in stream.aiter_text():
                    pass

    changed = options(login)
    changed["issuers"]["corp"]["skew_seconds"] = 0
    with served(**changed) as gateway:
        expires = int(time.time()) + 5
        asyncio.run(read(gateway, login.sign(groups=["engineers"], exp=expires)))

        assert time.time() >= expires
    gc.collect()


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1_000_000_000}, "Signature has expired"),
        ({"aud": "https://other.example"}, "Audience doesn't match"),
        ({"iss": "https://other.example"}, "The issuer is not configured"),
        ({"groups": ["guests"]}, "its claims give it no profile"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_refused_token_of_an_issuer_is_recorded_with_the_reason(
    login: LoginService, claims: dict[str, Any], reason: str
):
    store = MemoryStore()
    given: dict[str, Any] = {"groups": ["engineers"], **claims}
    token = login.sign(**given)
    with served(store=store, **options(login)) as gateway:
        assert get(gateway, token).status_code == 401

    [entry] = [entry for entry in read_entries(store) if entry["event"] == "token"]
    assert entry["reason"] == reason
    assert entry["source"] == "127.0.0.1"
    assert token.rpartition(".")[2] not in json.dumps(entry)


def test_a_client_without_a_token_learns_where_to_log_in(gateway: Served, login: LoginService):
    refused = get(gateway, None)
    challenge = refused.headers["WWW-Authenticate"]
    address = challenge.partition('resource_metadata="')[2].partition('"')[0]

    metadata = httpx2.get(address, timeout=DEADLINE_SECONDS)

    assert refused.status_code == 401
    assert address == f"{gateway.url}/.well-known/oauth-protected-resource/mcp"
    assert metadata.json()["resource"] == f"{gateway.url}/mcp"
    assert metadata.json()["authorization_servers"] == [login.url]
    root = get(gateway, None, "/.well-known/oauth-protected-resource")
    assert root.json() == metadata.json()


def test_static_tokens_stay_valid_beside_an_issuer(gateway: Served):
    assert get(gateway, STATIC).status_code == 200


def test_a_person_whose_issuer_is_removed_is_refused_at_once(login: LoginService):
    token = login.sign(groups=["engineers"])
    with served(**options(login)) as gateway:
        before = get(gateway, token).status_code
        config = gateway.gateway.config
        changed = replace(config, gateway=replace(config.gateway, issuers={}))
        reloading = asyncio.run_coroutine_threadsafe(gateway.gateway.reload(changed), gateway.loop)
        reloading.result(DEADLINE_SECONDS)

        assert (before, get(gateway, token).status_code) == (200, 401)


def test_an_issuer_without_a_profile_for_its_users_is_refused():
    issuer = {"issuer": "https://login.example", "audience": "x", "jwks_url": "https://x.example"}

    with pytest.raises(InvalidConfig, match=r"issuers\.corp\.profile' is missing"):
        GatewayConfig(issuers={"corp": issuer})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("algorithm", ["HS256", "none"])
def test_only_private_keys_may_sign(algorithm: str):
    issuer = {
        "issuer": "https://login.example",
        "audience": "x",
        "jwks_url": "https://login.example/keys",
        "profile": "*",
        "algorithms": [algorithm],
    }

    with pytest.raises(InvalidConfig, match="algorithms"):
        GatewayConfig(issuers={"corp": issuer})  # pyright: ignore[reportArgumentType]


def test_a_short_token_is_refused_where_other_machines_can_guess_it():
    short = {"ann": TokenConfig(token="12345")}

    with pytest.raises(InvalidConfig, match="openssl rand -hex 32"):
        Authenticator(GatewayConfig(host="0.0.0.0", tokens=short))

    Authenticator(GatewayConfig(host="127.0.0.1", tokens=short))


@pytest.mark.parametrize("port", [1, 3000, 8080])
def test_a_page_of_another_port_of_this_machine_may_not_use_the_gateway(gateway: Served, port: int):
    headers = {"Authorization": f"Bearer {STATIC}", "Origin": f"http://localhost:{port}"}

    answer = httpx2.get(f"{gateway.url}/status", headers=headers, timeout=DEADLINE_SECONDS)

    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_configuration_that_everybody_may_change_is_not_reloaded(tmp_path: Path, place: str):
    path = configuration(tmp_path, {"time": TIME_ARGUMENTS})
    path.write_text(f'{path.read_text()}[gateway.tokens.ann]\ntoken = "{STATIC}"\n')
    with Running(path) as gateway:
        (path if place == "file" else tmp_path).chmod(0o777)
        path.write_text(f'{path.read_text()}[gateway.tokens.eve]\ntoken = "planted-by-eve"\n')
        said = gateway.wait_for_line("The configuration was not reloaded")
        headers = {"Authorization": "Bearer planted-by-eve"}
        answer = httpx2.get(f"{gateway.url}/status", headers=headers, timeout=DEADLINE_SECONDS)

    assert "can be changed by every user of this machine" in said
    assert answer.status_code == 401
