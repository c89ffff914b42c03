"""The files in which tokens are kept."""

import stat
from pathlib import Path

import pytest
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from toolscout.config.servers import ServerConfig, Transport
from toolscout.servers.oauth.tokens import EARLY_SECONDS, StoredLogin, TokenFile

CONFIG = ServerConfig(name="web", transport=Transport.HTTP, url="http://web/mcp", oauth=True)
KEPT = StoredLogin(
    tokens=OAuthToken(access_token="good", refresh_token="more"),
    login="first",
    expires_at=1_000.0,
    client=OAuthClientInformationFull(client_id="us"),
)


def test_what_is_kept_is_read_back_from_a_file_of_the_owner_alone(tmp_path: Path):
    file = TokenFile(tmp_path / "tokens", CONFIG)
    file.write(KEPT)

    assert TokenFile(tmp_path / "tokens", CONFIG).read() == KEPT
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert list(file.path.parent.iterdir()) == [file.path]


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"tokens": 1}', '{"tokens": {}}'])
def test_a_file_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, content: str):
    file = TokenFile(tmp_path, CONFIG)
    file.path.write_text(content)

    assert file.read() is None
    assert file.login == ""


@pytest.mark.parametrize(("name", "url"), [("web", "http://other/mcp"), ("two", "http://web/mcp")])
def test_another_name_or_address_has_a_file_of_its_own(tmp_path: Path, name: str, url: str):
    other = ServerConfig(name=name, transport=Transport.HTTP, url=url, oauth=True)

    assert TokenFile(tmp_path, CONFIG).path != TokenFile(tmp_path, other).path


def test_what_is_forgotten_is_gone(tmp_path: Path):
    file = TokenFile(tmp_path, CONFIG)
    file.write(KEPT)

    assert file.forget()
    assert file.read() is None
    assert not file.forget()


def test_tokens_are_over_a_little_before_their_end():
    assert not KEPT.is_over(1_000.0 - EARLY_SECONDS)
    assert KEPT.is_over(1_000.0 - EARLY_SECONDS + 0.1)
    assert not StoredLogin(tokens=KEPT.tokens).is_over(1e12)


def test_no_token_shows_where_it_is_printed():
    assert "good" not in repr(KEPT)
