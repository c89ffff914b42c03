"""Secrets: masking known values, and guessing which values are secret."""

from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, TokenConfig
from toolscout.config.secrets import SecretMask
from toolscout.config.servers import ServerConfig, Transport


def server(token: str) -> ServerConfig:
    url = "https://far.example/a"
    return ServerConfig(name="far", transport=Transport.HTTP, url=url, token=token)


def test_a_mask_hides_values_but_not_short_ones():
    mask = SecretMask(["1", "", "abcdef-1234", "longer-secret-abcdef-1234"])

    assert mask.apply("1 of 11") == "1 of 11"
    assert mask.apply("sent abcdef-1234, longer-secret-abcdef-1234") == "sent …, …"


def test_a_mask_without_secrets_changes_nothing():
    assert SecretMask().apply("plain text") == "plain text"


def test_secrets_of_a_new_configuration_replace_the_old_ones():
    mask = SecretMask(["first-secret"])

    mask.update(["second-secret"])

    assert mask.apply("first-secret second-secret") == "first-secret …"


def test_the_mask_of_a_server_resolves_its_references_and_shortens_its_url():
    mask = server(token="${KEY}").build_mask({"KEY": "from-the-environment"})

    assert mask.apply("GET https://far.example/a with from-the-environment") == (
        "GET https://far.example/… with …"
    )


def test_a_reference_that_cannot_be_resolved_leaves_plain_values_masked():
    far = ServerConfig(
        name="far",
        transport=Transport.HTTP,
        url="https://far.example/mcp",
        headers={"X-Key": "${MISSING}"},
        token="literal-token",
    )

    assert far.build_mask({}).apply("bad literal-token") == "bad …"


def test_a_configuration_lists_the_secrets_of_servers_and_tokens():
    config = Config(
        servers=(server(token="${KEY}"),),
        gateway=GatewayConfig(
            tokens={"ci": TokenConfig(token="${CI}"), "lost": TokenConfig(token="${LOST}")}
        ),
    )

    assert config.list_secrets({"KEY": "one", "CI": "two"}) == ("one", "two")
