"""Who may ask, with which token and from where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.config.gateway import GatewayConfig, Profile, TokenConfig
from toolscout.errors import InvalidConfig
from toolscout.gateway.middleware import ANONYMOUS, Authenticator, Principal, is_loopback

LONG = "open sesame, said he, and it opened"
READING = Profile(servers=("docs",))
CONFIG = GatewayConfig(
    tokens={
        "ann": TokenConfig(token="open sesame"),
        "bob": TokenConfig(token="${BOB}", profile="reading"),
    },
    profiles={"reading": READING},
    hosts=("tools.example", "other.example:81", "far.example:*"),
    origins=("https://app.example",),
)
ACCESS = Authenticator(CONFIG, {"BOB": "swordfish"})


def test_without_tokens_every_client_on_loopback_sees_everything():
    access = Authenticator(GatewayConfig())

    assert access.authenticate(None) == access.authenticate("Bearer whatever") == ANONYMOUS
    assert ANONYMOUS.profile is None


def test_a_token_determines_who_asks_and_what_they_see():
    assert ACCESS.authenticate("Bearer open sesame") == Principal(name="ann")
    assert ACCESS.authenticate("bearer  swordfish ") == Principal(
        name="bob", profile=READING, profile_name="reading"
    )


@pytest.mark.requirement("R79")
@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "swordfish", "Basic swordfish", "Bearer Swordfish", "Bearer é"],
)
def test_anything_else_identifies_nobody(header: str | None):
    """R79"""
    assert ACCESS.authenticate(header) is None


@given(st.text())
def test_no_text_but_a_token_is_a_token(text: str):
    known = text.strip() in ("open sesame", "swordfish")

    assert (ACCESS.authenticate(f"Bearer {text}") is not None) == known


@pytest.mark.requirement("R79")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "tools.example"])
def test_an_address_that_others_reach_needs_a_token(host: str):
    """R79: nothing is exposed by accident."""
    with pytest.raises(InvalidConfig) as caught:
        Authenticator(GatewayConfig(host=host))

    assert str(caught.value) == (
        f"Setting 'gateway.host' is {host!r}, which other machines can reach, and there is no "
        'token. Add [gateway.tokens.NAME] with token = "${VAR}", or use 127.0.0.1.'
    )
    Authenticator(GatewayConfig(host=host, tokens={"ann": TokenConfig(token=LONG)}))


def test_two_names_for_one_token_are_refused_without_revealing_it():
    tokens = {"ann": TokenConfig(token="swordfish"), "bob": TokenConfig(token="${BOB}")}

    with pytest.raises(InvalidConfig) as caught:
        Authenticator(GatewayConfig(tokens=tokens), {"BOB": "swordfish"})

    assert "'gateway.tokens.bob' has the same token as 'ann'" in str(caught.value)
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "  "])
def test_a_token_that_turns_out_empty_is_refused(value: str):
    with pytest.raises(InvalidConfig):
        Authenticator(GatewayConfig(tokens={"bob": TokenConfig(token="${BOB}")}), {"BOB": value})


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:8765", "LOCALHOST:1", "127.0.0.1:9", "[::1]", "[::1]:8765"),
        *("tools.example", "tools.example:443", "other.example:81", "far.example:9"),
    ],
)
def test_loopback_names_and_configured_hosts_are_admitted(host: str):
    assert ACCESS.admits_host(host)


@pytest.mark.parametrize(
    "host",
    [
        *(None, "", ":", ":80", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example"),
        *(
            "other.example",
            "other.example:82",
            "tools.example.evil",
            "[::1",
            "[::2]",
            "localhost@x",
        ),
    ],
)
def test_other_hosts_are_not(host: str | None):
    assert not ACCESS.admits_host(host)


def test_the_listening_address_is_an_allowed_host_if_it_is_one_address():
    tokens = {"ann": TokenConfig(token=LONG)}

    assert Authenticator(GatewayConfig(host="192.0.2.7", tokens=tokens)).admits_host(
        "192.0.2.7:8765"
    )
    assert Authenticator(GatewayConfig(host="2001:db8::7", tokens=tokens)).admits_host(
        "[2001:db8::7]:1"
    )
    assert not Authenticator(GatewayConfig(host="0.0.0.0", tokens=tokens)).admits_host(
        "0.0.0.0:8765"
    )


def test_the_address_at_which_a_connection_came_in_is_an_allowed_host():
    access = Authenticator(GatewayConfig(host="0.0.0.0", tokens={"ann": TokenConfig(token=LONG)}))

    assert access.admits_host("192.0.2.7:8765", "192.0.2.7")
    assert access.admits_host("[2001:db8::7]:8765", "2001:db8::7")
    assert not access.admits_host("192.0.2.8:8765", "192.0.2.7")
    assert not access.admits_host("evil.example", "192.0.2.7")
    assert not access.admits_host("", "")


@pytest.mark.parametrize(
    "origin",
    [
        *(None, "http://localhost:8765", "https://LOCALHOST:8765"),
        *("https://app.example", "HTTPS://APP.EXAMPLE"),
    ],
)
def test_programs_own_pages_and_configured_origins_may_ask(origin: str | None):
    assert ACCESS.admits_origin(origin, "localhost:8765")


@pytest.mark.parametrize(
    "origin",
    [
        *("null", "", "https://evil.example", "http://app.example", "https://app.example:444"),
        *("http://localhost.evil.example", "file://localhost", "http://[::1"),
        *("http://localhost", "http://localhost:3000", "http://127.0.0.1:8765", "http://[::1]:1"),
    ],
)
def test_pages_from_elsewhere_may_not(origin: str):
    assert not ACCESS.admits_origin(origin, "localhost:8765")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *(("localhost", True), ("127.8.9.1", True), ("::1", True), ("[::1]", True)),
        *(("0.0.0.0", False), ("::", False), ("", False), ("10.0.0.1", False), ("my.box", False)),
    ],
)
def test_only_the_address_decides_what_is_loopback(host: str, expected: bool):
    assert is_loopback(host) is expected
