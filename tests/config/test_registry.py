"""Servers as publishers describe them: what is run, what a person gives, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from toolscout.config.references import expand
from toolscout.config.registry import Offer, read_export, read_offer
from toolscout.config.servers import Transport
from toolscout.errors import InvalidConfig, InvalidFile, UsageError

STDIO = {"type": "stdio"}
OFFICIAL = "io.modelcontextprotocol.registry/official"


def offer_of(folder: Path, **members: Any) -> Offer:
    document = {"name": "io.github.ann/weather", "description": "Weather.", "version": "1.2.3"}
    path = folder / "server.json"
    path.write_text(json.dumps({**document, **members}), encoding="utf-8")
    return read_offer(path)


def package_of(folder: Path, kind: str, identifier: str, version: str = "1.2.3", **members: Any):
    table = {"registryType": kind, "identifier": identifier, "transport": STDIO, **members}
    table |= {"version": version} if version else {}
    return offer_of(folder, packages=[table]).templates[0]


@pytest.mark.parametrize(
    ("kind", "identifier", "version", "line"),
    [
        ("npm", "@ann/weather", "1.2.3", "npx -y @ann/weather@1.2.3 serve"),
        ("pypi", "weather-mcp", "0.5.0rc1", "uvx weather-mcp==0.5.0rc1 serve"),
        ("nuget", "Ann.Weather", "0.4.0-beta", "dnx Ann.Weather@0.4.0-beta --yes -- serve"),
        ("oci", "ghcr.io/ann/weather:1.2.3", "", "docker run -i --rm ghcr.io/ann/weather:1.2.3"),
        ("oci", "ann/weather", "1.2.3", "docker run -i --rm ann/weather:1.2.3"),
    ],
)
def test_a_package_is_run_by_its_runner_in_exactly_one_version(
    tmp_path: Path, kind: str, identifier: str, version: str, line: str
):
    arguments = [{"type": "positional", "value": "serve"}] if "serve" in line else []

    template = package_of(tmp_path, kind, identifier, version, packageArguments=arguments)
    server = template.fill("weather", {})

    assert " ".join((server.command, *server.args)) == line
    assert template.problem == ""


@pytest.mark.parametrize(
    ("kind", "identifier", "version"),
    [
        ("npm", "--call=evil", "1.2.3"),
        ("npm", "-c", "1.2.3"),
        ("npm", "https://evil.example/x.tgz", "1.2.3"),
        ("npm", "weather; rm -rf ~", "1.2.3"),
        ("npm", "weather", "latest"),
        ("npm", "weather", "^1.2.3"),
        ("npm", "weather", "1.2"),
        ("npm", "weather", ""),
        ("pypi", "--from", "1.2.3"),
        ("pypi", "git+https://evil.example/x", "1.2.3"),
        ("pypi", "weather @ https://evil.example", "1.2.3"),
        ("pypi", "weather", "1.*"),
        ("oci", "--privileged", "1.2.3"),
        ("oci", "-v/:/host", "1.2.3"),
        ("oci", "ann/weather", ""),
        ("nuget", "-x", "1.2.3"),
        ("cargo", "weather", "1.2.3"),
        ("mcpb", "https://ann.example/weather.mcpb", ""),
        ("", "weather", "1.2.3"),
    ],
)
def test_a_package_that_is_not_pinned_or_could_be_an_option_is_not_usable(
    tmp_path: Path, kind: str, identifier: str, version: str
):
    template = package_of(tmp_path, kind, identifier, version)

    assert template.problem
    assert not template.command


def test_a_package_of_another_place_or_transport_is_not_usable(tmp_path: Path):
    elsewhere = package_of(tmp_path, "npm", "weather", registryBaseUrl="https://evil.example")
    serving = package_of(
        tmp_path, "npm", "weather", transport={"type": "sse", "url": "http://localhost:1/sse"}
    )

    assert "https://evil.example" in elsewhere.problem
    assert "--url" in serving.problem


def test_what_a_person_gives_becomes_arguments_variables_and_headers(tmp_path: Path):
    template = package_of(
        tmp_path,
        "npm",
        "weather",
        packageArguments=[
            {"type": "named", "name": "--units", "choices": ["metric", "imperial"]},
            {"type": "named", "name": "--quiet", "description": "Say less."},
            {"type": "named", "name": "--log", "description": "A file."},
            {"type": "positional", "valueHint": "folder", "isRequired": True, "isRepeated": True},
        ],
        environmentVariables=[
            {"name": "API_KEY", "isRequired": True, "isSecret": True},
            {"name": "LOG_LEVEL", "default": "info"},
            {"name": "REGION"},
        ],
    )

    least = template.fill("w", {"folder": ["/a"]})
    most = template.fill(
        "w",
        {
            "folder": ["/a", "/b"],
            "units": ["metric"],
            "quiet": ["true"],
            "log": ["/x"],
            "API_KEY": ["${WEATHER_KEY}"],
            "REGION": ["eu"],
        },
    )

    assert least.args[2:] == ("/a",)
    assert least.env == {"LOG_LEVEL": "info"}
    assert most.args[2:] == ("--units", "metric", "--quiet", "--log", "/x", "/a", "/b")
    assert most.env == {"API_KEY": "${WEATHER_KEY}", "LOG_LEVEL": "info", "REGION": "eu"}


@pytest.mark.parametrize(
    ("key", "texts", "expected"),
    [
        ("API_KEY", ["plain"], "a reference"),
        ("units", ["kelvin"], "one of metric, imperial"),
        ("port", ["many"], "a number"),
        ("port", ["1", "2"], "one value only"),
        ("fast", ["perhaps"], "true or false"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    tmp_path: Path, key: str, texts: list[str], expected: str
):
    template = package_of(
        tmp_path,
        "npm",
        "weather",
        packageArguments=[
            {"type": "named", "name": "--units", "choices": ["metric", "imperial"]},
            {"type": "named", "name": "--port", "format": "number"},
            {"type": "named", "name": "--fast", "format": "boolean"},
        ],
        environmentVariables=[{"name": "API_KEY", "description": "Not marked as a secret."}],
    )
    wanted = {one.key: one for one in template.list_inputs()}

    with pytest.raises(UsageError, match=expected) as caught:
        wanted[key].check(texts)

    assert "plain" not in str(caught.value).replace("plain text", "")


def test_a_container_gets_variables_by_name_only(tmp_path: Path):
    template = package_of(
        tmp_path,
        "oci",
        "ghcr.io/ann/weather:1.2.3",
        "",
        runtimeArguments=[
            {"type": "positional", "value": "run"},
            {"type": "named", "name": "--rm"},
            {
                "type": "named",
                "name": "--mount",
                "value": "type=bind,src={source},dst=/data",
                "variables": {"source": {"isRequired": True, "format": "filepath"}},
            },
        ],
        environmentVariables=[{"name": "API_KEY", "isSecret": True}, {"name": "UNSET"}],
    )

    server = template.fill("w", {"API_KEY": ["${KEY}"], "source": ["/home/ann"]})

    assert server.args == (
        *("run", "-i", "--rm", "-e", "API_KEY"),
        *("--mount", "type=bind,src=/home/ann,dst=/data", "ghcr.io/ann/weather:1.2.3"),
    )
    assert server.env == {"API_KEY": "${KEY}"}
    assert "--mount" in template.warnings[0]


def test_a_remote_server_has_an_address_and_headers(tmp_path: Path):
    token = {"isSecret": True, "isRequired": True}
    offer = offer_of(
        tmp_path,
        remotes=[
            {
                "type": "streamable-http",
                "url": "https://{tenant}.ann.example/mcp",
                "variables": {"tenant": {"isRequired": True}},
                "headers": [
                    {"name": "Authorization", "value": "Bearer {key}", "variables": {"key": token}}
                ],
            },
            {"type": "sse", "url": "http://ann.example/sse"},
        ],
    )

    server = offer.templates[0].fill("w", {"tenant": ["acme"], "key": ["${KEY}"]})
    older = offer.templates[1].fill("w", {})

    assert (server.transport, server.url) == (Transport.HTTP, "https://acme.ann.example/mcp")
    assert server.headers == {"Authorization": "Bearer ${KEY}"}
    assert older.transport is Transport.SSE
    assert "without encryption" in offer.templates[1].warnings[0]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a.example", "javascript:1", "", "x"])
def test_an_address_of_another_scheme_is_not_usable(tmp_path: Path, url: str):
    offer = offer_of(tmp_path, remotes=[{"type": "streamable-http", "url": url}])

    assert "https:// or http://" in offer.templates[0].problem


def test_a_header_with_a_line_break_is_refused(tmp_path: Path):
    headers = [{"name": "X-A", "value": "a\r\nHost: evil.example"}]
    other = [{"name": "X A", "value": "a"}]
    url = "https://a.example"

    broken, odd = (
        offer_of(tmp_path, remotes=[{"type": "sse", "url": url, "headers": one}]).templates[0]
        for one in (headers, other)
    )

    assert "control characters" in broken.problem
    with pytest.raises(InvalidConfig, match="header name"):
        odd.fill("w", {})


@pytest.mark.parametrize(
    ("value", "variables"),
    [
        ("${file:SECRET}${HOME}", {}),
        ("$${HOME}", {}),
        ("${start}", {"start": {"value": "{file:SECRET}"}}),
        ("${start}", {"start": {"default": "{file:SECRET}"}}),
        ("{sign}{start}", {"sign": {"default": "$"}, "start": {"default": "{HOME}"}}),
        ("{sign}{HOME}", {"sign": {"default": "$"}}),
    ],
)
def test_nothing_that_a_publisher_writes_is_looked_up(
    tmp_path: Path, value: str, variables: dict[str, Any]
):
    (tmp_path / "secret").write_text("hunter2")
    value = value.replace("SECRET", str(tmp_path / "secret"))
    one = {"value": value, "variables": variables}
    template = package_of(
        tmp_path,
        "npm",
        "weather",
        packageArguments=[{"type": "positional", **one}],
        environmentVariables=[{"name": "A", **one}, {"name": "B", "default": value}],
    )

    server = template.fill("w", {})

    for written in (server.args[-1], server.env["A"], server.env["B"]):
        plain = expand(written, {"HOME": "/home/ann"})
        assert "hunter2" not in plain
        assert "/home/ann" not in plain
        assert "{" in plain


@pytest.mark.parametrize(("value", "given"), [("{price}{HOME}", "5$"), ("${price}", "${PRICE}")])
def test_a_person_is_not_made_to_write_a_reference_of_the_publisher(
    tmp_path: Path, value: str, given: str
):
    one = {"value": value, "variables": {"price": {"isRequired": True}}}
    template = package_of(
        tmp_path, "npm", "weather", packageArguments=[{"type": "positional", **one}]
    )

    with pytest.raises(UsageError, match="may not stand before"):
        template.fill("w", {"price": [given]})


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH", "npm_config_registry"]
)
def test_a_variable_that_loads_code_is_a_warning(tmp_path: Path, name: str):
    variables = [{"name": name, "value": "x"}, {"name": "LOG_LEVEL", "value": "info"}]

    warned = package_of(tmp_path, "npm", "weather", environmentVariables=variables).warnings
    unusable = package_of(tmp_path, "npm", "weather", environmentVariables=[{"name": "A=B"}])

    assert len(warned) == 1
    assert name in warned[0]
    assert "LOG_LEVEL" not in warned[0]
    assert unusable.problem


def test_the_names_of_the_first_schema_are_read_as_well(tmp_path: Path):
    offer = offer_of(
        tmp_path,
        version=None,
        version_detail={"version": "1.0.2"},
        status="deprecated",
        packages=[
            {
                "registry_type": "npm",
                "registry_base_url": "https://registry.npmjs.org",
                "identifier": "weather",
                "version": "1.0.2",
                "environment_variables": [
                    {"name": "TENANT", "is_required": True, "is_secret": True}
                ],
            }
        ],
    )

    [wanted] = offer.templates[0].list_inputs()
    assert (offer.version, offer.status) == ("1.0.2", "deprecated")
    assert (wanted.key, wanted.is_required, wanted.is_secret) == ("TENANT", True, True)


def entry(name: str, version: str, **official: Any) -> dict[str, Any]:
    server = {"name": name, "description": "Weather.", "version": version}
    return {"server": server, "_meta": {OFFICIAL: {"status": "active", **official}}}


@pytest.mark.parametrize("layout", ["page", "pages", "lines", "list", "glued"])
def test_an_export_gives_the_newest_version_of_each_server(tmp_path: Path, layout: str):
    entries = [
        entry("a.b/one", "1.10.0"),
        entry("a.b/one", "1.9.0"),
        entry("a.b/one", "1.10.0-rc1"),
        entry("a.b/two", "3.0.0", publishedAt="2026-01-01T00:00:00Z"),
        entry("a.b/two", "2.0.1", isLatest=True, publishedAt="2025-01-01T00:00:00Z"),
        entry("not a name \x1b[2J", "1.0.0"),
        {"server": 5},
    ]
    pages = [{"servers": entries[:3], "metadata": {"count": 3}}, {"servers": entries[3:]}]
    texts = {
        "page": json.dumps({"servers": entries}),
        "pages": json.dumps(pages),
        "lines": "\n".join(map(json.dumps, entries)) + "\n",
        "list": json.dumps(entries),
        "glued": "".join(map(json.dumps, pages)),
    }
    path = tmp_path / "registry.json"
    path.write_text(texts[layout], encoding="utf-8")

    found = read_export([path])

    assert {name: one.version for name, one in found.items()} == {
        "a.b/one": "1.10.0",
        "a.b/two": "2.0.1",
    }


@pytest.mark.parametrize(
    "text",
    ['{"servers": [', "[" * 100_000, "", "{}", '{"name": "no-namespace"}', "5", '"x"', "\ud800"],
)
def test_a_broken_document_is_an_error_that_names_the_file(tmp_path: Path, text: str):
    path = tmp_path / "registry.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))

    with pytest.raises(InvalidFile, match=r"registry\.json"):
        read_offer(path)
    with pytest.raises(InvalidFile, match=r"registry\.json"):
        read_export([path])


def test_a_document_of_odd_values_is_read_or_refused(tmp_path: Path):
    odd: list[Any] = [None, 5, True, "x", [], {}, [[]], [{}], {"a": 1}, "\x1b[31m", "x" * 100_000]
    keys = ("packages", "remotes", "title", "description", "version", "repository", "_meta")
    inner = ("registryType", "identifier", "version", "packageArguments", "environmentVariables")
    for value in odd:
        for key in keys:
            offer_of(tmp_path, **{key: value})
        for key in (*inner, "transport", "runtimeArguments", "url", "type", "headers"):
            good = {"registryType": "npm", "identifier": "weather", "version": "1.2.3"}
            table = {**good, "type": "sse", "url": "https://a.example", key: value}
            offer = offer_of(tmp_path, packages=[table], remotes=[table])
            for template in offer.templates:
                assert template.problem or template.list_inputs() is not None
