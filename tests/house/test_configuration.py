"""Options are declared once, and docs/configuration.md shows them all."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import click
import mcp_types as types
import pytest
from mcp.client import Client

from documents import load_script
from gateway.fleet import always
from house.test_generated import ROOT
from servers.openapi.services import Service
from serving import DEADLINE_SECONDS, eventually
from toolscout.cli import main
from toolscout.config.file import read_config
from toolscout.config.gateway import GatewayConfig
from toolscout.config.references import anchor_options, resolve_options
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import InvalidConfig
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import ANONYMOUS
from toolscout.gateway.server import build_server
from toolscout.options import TEXT, Options, check_whole, declare, list_options
from toolscout.servers.openapi.document import read_document
from toolscout.servers.openapi.operations import tools_from_openapi
from toolscout.stores import MemoryStore
from toolscout.tools import Effect

GENERATOR = load_script("generate")
GROUPS: dict[str, type[Options]] = GENERATOR.OPTIONS
PAGE = ROOT / "docs" / "configuration.md"
PYTHON_ONLY = {"name", "hide", "revealed", "withheld"}
"""Fields that no file can set: the key of a table, a function, what is worked out later."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LargerConfig(ServerConfig):
    """A server with one more option of each kind."""

    passphrase: str = declare("", TEXT, "…", secret=True, reference=True, needs_restart=True)
    folder: str = declare("", TEXT, "…", path=True)
    tries: int = declare(3, check_whole(1, 9), "…")


def larger(**values: Any) -> LargerConfig:
    return LargerConfig(name="a", transport=Transport.STDIO, command="run", **values)


def test_one_declaration_is_enough_for_reading_checking_and_errors():
    assert larger(tries=5).tries == 5
    with pytest.raises(InvalidConfig, match=r"'servers\.a\.tries' is 10\. Use a whole number"):
        larger(tries=10)
    with pytest.raises(InvalidConfig, match=r"'trys' does not exist\. Use 'tries'"):
        LargerConfig.from_mapping({"trys": 5})


def test_one_declaration_is_enough_for_secrets_references_and_paths():
    server = larger(passphrase="${PASS}", folder="data")

    moved = anchor_options(server, Path("/etc/toolscout"))
    plain = resolve_options(moved, {"PASS": "open sesame"}, key="servers.a")

    assert (plain.passphrase, plain.folder) == ("open sesame", "/etc/toolscout/data")
    assert plain.list_secrets() == ("open sesame",)
    assert "sesame" not in repr(plain)
    assert server.build_mask({"PASS": "open sesame"}).apply("said open sesame") == "said …"


def test_one_declaration_is_enough_for_restarts_and_writing():
    server = larger(passphrase="${PASS}", tries=5)

    assert server.needs_restart(larger(tries=5))
    assert not server.needs_restart(larger(passphrase="${PASS}"))
    assert server.to_mapping() == {
        "transport": "stdio",
        "command": "run",
        "passphrase": "${PASS}",
        "tries": 5,
    }


def test_one_declaration_is_enough_for_the_page():
    assert "| `tries` | a whole number from 1 to 9 | `3` |  | … |" in GENERATOR.format_options(
        LargerConfig
    )
    assert "secret, reference, restart" in GENERATOR.format_options(LargerConfig)


def test_every_field_that_a_file_can_set_is_a_declared_option():
    for group in GROUPS.values():
        declared = {item.name for item in list_options(group)}

        assert {item.name for item in fields(cast("Any", group))} - PYTHON_ONLY == declared


def test_every_option_has_a_line_of_documentation():
    for group in GROUPS.values():
        for declared in list_options(group):
            assert re.fullmatch(r"[A-Z].*[.)…`]", declared.doc), declared.name


def test_the_page_shows_the_options_as_they_are():
    page = PAGE.read_text(encoding="utf-8")

    for name, group in GROUPS.items():
        assert f"<!-- options: {name} -->\n{GENERATOR.format_options(group)}<!-- end -->" in page


def test_every_group_of_options_is_on_the_page():
    ours = {group.__name__ for group in subclasses(Options)}

    assert ours - {"LargerConfig"} == {group.__name__ for group in GROUPS.values()}


def test_the_examples_of_the_page_are_configurations(tmp_path: Path):
    examples = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) == 5

    for number, example in enumerate(examples):
        path = tmp_path / f"{number}.toml"
        path.write_text(re.sub(r"^include.*\n", "", example), encoding="utf-8")
        assert read_config(path) != read_config(tmp_path / "empty.toml", "")


def test_the_openapi_example_gives_the_tools_that_the_page_names(tmp_path: Path):
    page = PAGE.read_text(encoding="utf-8")
    [document] = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    path = tmp_path / "pets.yaml"
    path.write_text(document, encoding="utf-8")

    for tool in tools_from_openapi(read_document(path), "pets"):
        assert f"`{tool.name}`" in page


def test_the_openapi_example_calls_an_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = PAGE.read_text(encoding="utf-8")
    [document] = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    [example] = re.findall(r"^```toml\n(\[servers\.pets\].*?)^```", page, re.M | re.S)
    (tmp_path / "pets.yaml").write_text(document, encoding="utf-8")
    monkeypatch.setenv("PETS_TOKEN", "s3cret-pets")
    asked: list[str] = []

    async def refuse(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="decline")

    async def work(service: Service) -> None:
        file = tmp_path / "toolscout.toml"
        config = read_config(file, example.replace("https://pets.example/v1", service.url))
        async with asyncio.timeout(DEADLINE_SECONDS), Gateway(config, MemoryStore()) as gateway:
            await eventually(lambda: len(gateway.catalog) == 2)
            listed = gateway.catalog.get("pets__listPets")
            deleted = gateway.catalog.get("pets__delete_pets_id")
            assert listed is not None
            assert deleted is not None
            assert (listed.effect, deleted.effect) == (Effect.READ, Effect.DESTRUCTIVE)
            assert listed.input_schema["properties"] == {}
            session = gateway.open_session("ann")
            gateway.restrict_session(session, ANONYMOUS)
            server = build_server(gateway, always(session))
            async with Client(server, elicitation_callback=refuse) as client:
                call = {"name": listed.name}
                found = await client.call_tool("tool_call", call)
                assert found.structured_content == {"ok": True}
                call = {"name": deleted.name, "arguments": {"id": 7}}
                assert (await client.call_tool("tool_call", call)).is_error

    with closing(Service()) as service:
        asyncio.run(work(service))
    [seen] = service.seen
    assert (seen.method, seen.target) == ("GET", "/base/pets?kind=cat")
    assert seen.headers["authorization"] == "Bearer s3cret-pets"
    assert seen.headers["x-team"] == "blue"
    assert len(asked) == 1


@pytest.mark.parametrize("name", ["host", "port", "mode", "split_calls"])
def test_options_of_serve_say_what_the_configuration_says(name: str):
    serve = main.get_command(click.Context(main), "serve")
    assert serve is not None
    [parameter] = [parameter for parameter in serve.params if parameter.name == name]
    [declared] = [item for item in list_options(GatewayConfig) if item.name == name]

    assert isinstance(parameter, click.Option)
    assert str(parameter.help).startswith(declared.doc.replace("`", ""))
    if isinstance(parameter.type, click.IntRange):
        assert (parameter.type.min, parameter.type.max) == declared.check.bounds
    if isinstance(parameter.type, click.Choice):
        assert declared.check.expected == f"one of {', '.join(parameter.type.choices)}"


def subclasses(kind: type[Options]) -> Iterator[type[Options]]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)
