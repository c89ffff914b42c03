"""Which values are taken for secrets, and which are not."""

import base64
import json
import random
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.counting import DOUBLE, count_lines
from toolscout.config.redaction import DEEPEST, TOO_DEEP, SecretKind, redact_json, redact_text
from toolscout.config.secrets import SecretMask
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig

ALL = tuple(SecretKind)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def make(length: int, letters: str = LETTERS) -> str:
    """Return random characters, always the same ones, so that no real token is in this file."""
    return "".join(random.Random(length).choices(letters, k=length))


SECRETS = {
    "GitHub token": ["ghp_" + make(36), "gho_" + make(40), "github_pat_" + make(60)],
    "GitLab token": ["glpat-" + make(20)],
    "Slack token": [
        "xoxb-" + make(12, "0123456789") + "-" + make(24),
        "https://hooks.slack.com/services/T" + make(8, "ABC012") + "/B1/" + make(24),
    ],
    "AWS access key": ["AKIA" + make(16, "ABCDEFGHIJKLMNOP234567")],
    "Google key": ["AIza" + make(35), "ya29." + make(40), "GOCSPX-" + make(28)],
    "OpenAI key": ["sk-proj-" + make(48), "sk-" + make(48)],
    "Anthropic key": ["sk-ant-api03-" + make(80)],
    "Stripe key": ["sk_live_" + make(24), "rk_test_" + make(24), "whsec_" + make(32)],
    "npm token": ["npm_" + make(36)],
    "PyPI token": ["pypi-AgEI" + make(80)],
    "JWT": ["eyJ" + make(20) + ".eyJ" + make(400) + "." + make(43)],
    "private key": [
        f"-----BEGIN {kind}PRIVATE KEY-----\n{make(64)}\n{make(40)}==\n"
        f"-----END {kind}PRIVATE KEY-----"
        for kind in ("", "RSA ", "OPENSSH ", "EC ")
    ],
}
HARMLESS = [
    str(uuid.UUID(int=random.Random(1).getrandbits(128))),
    f"commit {make(40, '0123456789abcdef')}",
    f"sha256:{make(64, '0123456789abcdef')}",
    "data:image/png;base64," + base64.b64encode(random.Random(2).randbytes(3_000)).decode(),
    "next_page_token: " + make(40),
    '{"nextPageToken": "' + make(60) + '", "tokens": 4096, "max_tokens": 100000}',
    "token_type: bearer, expires_in: 3600",
    "Set api_key=YOUR_API_KEY_GOES_HERE12 first.",
    "password: string, token: Optional[str], secret: SecretStr",
    "Authorization: Bearer <your-token-goes-here>",
    "Authorization: Bearer ${GITHUB_TOKEN_VARIABLE}",
    "postgres://user:password@localhost:5432/shop",
    "https://example.com:8080/@scope/package",
    "ssh://git@github.com:22/owner/repo.git",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "The file begins with `-----BEGIN PRIVATE KEY-----` or -----BEGIN RSA PRIVATE KEY-----.",
    "The password must have at least 8 characters and 1 digit.",
    "secret-management-for-kubernetes, token-bucket-2024",
    "Order ch_3MmlLrLkdIwHu7ix0snN0B15 of cus_NffrFeUfNV2Hib",
    "pk_live_" + make(24),
    "arn:aws:secretsmanager:eu-central-1:123456789012:secret:prod/db-AbCdEf",
    "task-list sk-learn sk-toolbelt desk-1234567890123456789012",
]


@pytest.mark.parametrize(("label", "secret"), [(k, s) for k, all_ in SECRETS.items() for s in all_])
@pytest.mark.parametrize("around", ["{}", "It is {}.", '{{"note": "{}"}}', "a\n{}\nb", "key={}"])
def test_a_token_of_a_known_format_is_replaced_by_a_mark_with_its_name(
    label: str, secret: str, around: str
):
    assert redact_text(around.format(secret), ALL) == around.format(f"[redacted: {label}]")


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_resembles_a_secret_stays(text: str):
    assert redact_text(text, ALL) == text


def test_the_password_of_a_connection_is_replaced_and_the_rest_stays():
    text = "postgresql://app:x9K-2pQ7vL@db.example:5432/shop?sslmode=require"

    expected = "postgresql://app:[redacted: password in a URL]@db.example:5432/shop?sslmode=require"
    assert redact_text(text, ALL) == expected


@pytest.mark.parametrize(
    "text",
    [
        "password={}",
        "DB_PASSWORD: {}",
        '{{"client_secret": "{}"}}',
        '\\"api_key\\": \\"{}\\"',
        "aws_secret_access_key = {}",
        "export SERVICE_TOKEN='{}'",
        "Authorization: Bearer {}",
        'curl -H "authorization: token {}"',
    ],
)
def test_a_random_value_beside_a_telling_name_is_replaced(text: str):
    redacted = redact_text(text.format(make(30)), ALL)

    assert make(30) not in redacted
    assert "[redacted: " in redacted


def test_structured_content_is_redacted_by_the_names_of_its_members():
    result: Any = {
        "content": [
            {"type": "text", "text": f"token {SECRETS['GitHub token'][0]}"},
            {"type": "image", "mimeType": "image/png", "data": "AKIA" + make(16, "ABCDEF")},
        ],
        "structuredContent": {"user": {"password": "Tr0ub4dor&3x", "name": "ada", "age": 36}},
    }
    before = json.dumps(result)

    redacted = redact_json(result, ALL)

    assert redacted["content"][0]["text"] == "token [redacted: GitHub token]"
    assert redacted["content"][1] == result["content"][1]
    assert redacted["structuredContent"]["user"] == {
        "password": "[redacted: secret]",
        "name": "ada",
        "age": 36,
    }
    assert json.dumps(result) == before


def test_only_the_chosen_kinds_are_redacted():
    text = f"{SECRETS['GitHub token'][0]} {SECRETS['npm token'][0]}"

    expected = f"{SECRETS['GitHub token'][0]} [redacted: npm token]"
    assert redact_text(text, [SecretKind.NPM]) == expected
    assert redact_text(text, ()) == text


def test_what_is_nested_too_deep_to_check_does_not_pass():
    value: Any = SECRETS["GitHub token"][0]
    for _ in range(DEEPEST * 10):
        value = [value]

    assert TOO_DEEP in str(redact_json(value, ALL))
    assert SECRETS["GitHub token"][0] not in str(redact_json(value, ALL))


@pytest.mark.parametrize(
    "piece",
    [
        "password=x9K2pQ7vL1mN8bV4 ",
        "-----BEGIN PRIVATE KEY-----\n",
        "eyJaaaaaaaaa.eyJ",
        "http://a:b",
        "token: ",
        "sk-",
        "a",
    ],
)
def test_twice_the_text_is_at_most_twice_the_work(piece: str):
    def work(times: int) -> int:
        return count_lines(lambda: redact_text(piece * times, ALL))

    work(10)
    assert work(4_000) <= DOUBLE * work(2_000)


@pytest.mark.parametrize("around", ["\ud800{}", "{}\udfff", "\U0001f600 é {} \ud83d"])
def test_a_token_beside_half_a_character_is_found(around: str):
    token = SECRETS["npm token"][0]

    assert redact_text(around.format(token), ALL) == around.format("[redacted: npm token]")


@given(st.text(st.characters()))
def test_any_text_without_a_secret_comes_back_unchanged(text: str):
    assert redact_text(text, [SecretKind.GITHUB, SecretKind.JWT]) == text


def test_a_mask_for_logs_redacts_too():
    mask = SecretMask(["configured-value"], kinds=[SecretKind.GITHUB])

    line = mask.apply(f"got {SECRETS['GitHub token'][0]} and configured-value")

    assert line == "got [redacted: GitHub token] and …"


def test_a_server_redacts_nothing_all_or_some_kinds():
    def read(value: object) -> tuple[SecretKind, ...]:
        given: Any = value
        return ServerConfig(
            name="any", transport=Transport.STDIO, command="any", redact=given
        ).redact

    assert ServerConfig(name="any", transport=Transport.STDIO, command="any").redact == ()
    assert read(True) == ALL
    assert read(False) == ()
    assert read(["github", "jwt"]) == (SecretKind.GITHUB, SecretKind.JWT)
    with pytest.raises(InvalidConfig, match="redact"):
        read(["bitcoin"])
