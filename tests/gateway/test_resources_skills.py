"""Skills through the gateway: of folders and of servers, to models and to clients (SEP-2640)."""

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter

from gateway.fleet import always, text_of
from serving import DEADLINE_SECONDS, eventually
from toolscout.config.file import Config
from toolscout.config.gateway import GatewayConfig, GatewayMode, Profile, Rule
from toolscout.config.servers import Changes, ServerConfig, SkillsConfig, Transport
from toolscout.gateway.gateway import Gateway
from toolscout.gateway.middleware import Principal
from toolscout.gateway.server import build_server
from toolscout.policies import Permission
from toolscout.servers.connection import Delays
from toolscout.stores import MemoryStore
from toolscout.stores.store import Store

pytestmark = pytest.mark.timeout(300)
ERAS = pytest.mark.parametrize("era", ["auto", "legacy"])
EXTENSION = "io.modelcontextprotocol/skills"
FORMS = "Ask for the name first.\n"
PDF = "---\nname: pdf\ndescription: Fill in PDF forms.\nlicense: MIT\n---\n\nRead forms.md.\n"
_RAW: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


def write_skill(folder: Path, name: str, text: str, files: Mapping[str, str] | None = None) -> Path:
    place = folder / name
    for path, content in {"SKILL.md": text, **(files or {})}.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(content, encoding="utf-8")
    return place


def folder_of(folder: Path, **options: Any) -> ServerConfig:
    return ServerConfig(name="skills", transport=Transport.SKILLS, skills=(str(folder),), **options)


def make_entry(files: Mapping[str, str], base: str = "skill://pdf/", **changes: Any) -> Any:
    """Return the entry of the skill in `PDF` as a server would list it."""
    rows = [
        {
            "uri": base + path,
            "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
            "size": len(text.encode()),
        }
        for path, text in files.items()
    ]
    head = {"name": "pdf", "description": "Fill in PDF forms.", "license": "MIT"}
    return {"uri": f"{base}SKILL.md", "frontmatter": head, "resources": rows} | changes


def offer(file: Path, *entries: Any, files: Mapping[str, str]) -> None:
    """Let the librarian offer these entries and files from now on."""
    addresses = {f"skill://pdf/{path}": text for path, text in files.items()}
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"skills": entries, "files": addresses}))
    part.replace(file)


def librarian(file: Path, *args: str, **options: Any) -> ServerConfig:
    path = str(Path(__file__).with_name("librarian.py"))
    return ServerConfig(
        name="docs",
        transport=Transport.STDIO,
        command=sys.executable,
        args=(path, str(file), *args),
        **options,
    )


@asynccontextmanager
async def open_gateway(
    *servers: ServerConfig,
    gateway: GatewayConfig | None = None,
    skills: SkillsConfig | None = None,
    store: Store | None = None,
) -> AsyncGenerator[Gateway]:
    """Give a gateway that has asked its servers for their lists."""
    config = Config(
        servers=servers, gateway=gateway or GatewayConfig(), skills=skills or SkillsConfig()
    )
    opened = Gateway(config, store or MemoryStore())
    async with asyncio.timeout(DEADLINE_SECONDS), opened:
        names = [server.name for server in servers]
        await eventually(lambda: all(opened.pool.servers[name].connection for name in names))
        yield opened


@asynccontextmanager
async def client_of(
    gateway: Gateway, era: str = "auto", profile: Profile | None = None
) -> AsyncGenerator[Client]:
    session = gateway.open_session("ann", Principal(name="ann", profile=profile))
    async with Client(build_server(gateway, always(session)), mode=era) as client:
        yield client


async def call(client: Client, name: str, **arguments: Any) -> str:
    return text_of(await client.call_tool("tool_call", {"name": name, "arguments": arguments}))


async def search(client: Client, *queries: str) -> str:
    return text_of(await client.call_tool("tool_search", {"queries": list(queries)}))


async def ask(client: Client, method: str, **params: Any) -> Any:
    request = types.Request[Any, Any](method=method, params=params)
    return await client.session.send_request(request, _RAW)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "skills"
    write_skill(place, "pdf", PDF, {"forms.md": FORMS, "fill.py": "raise SystemExit('run')\n"})
    return place


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for changes in folders often."""
    monkeypatch.setattr("toolscout.servers.pool.Delays", lambda: Delays(folder_look=0.02))


# Folders.


@ERAS
def test_a_model_finds_describes_and_reads_a_skill_of_a_folder(folder: Path, era: str):
    async def conversation() -> None:
        async with open_gateway(folder_of(folder)) as gateway, client_of(gateway, era) as client:
            found = await search(client, "complete a form")
            described = await client.call_tool("tool_describe", {"names": ["skills__pdf"]})
            body = await call(client, "skills__pdf")
            script = await call(client, "skills__pdf", file="fill.py")

        assert "skills__pdf" in found
        assert "forms.md" in text_of(described)
        assert "Read forms.md." in body
        assert "license" not in body
        assert "'skills'" in body
        # It is read, not run.
        assert "raise SystemExit('run')" in script

    asyncio.run(conversation())


def test_a_long_file_is_cut_and_read_on_by_its_handle(folder: Path):
    (folder / "pdf" / "forms.md").write_text("A line about forms.\n" * 2_000)
    options = GatewayConfig(max_result_tokens=500)

    async def conversation() -> None:
        async with open_gateway(folder_of(folder), gateway=options) as gateway:
            session = gateway.open_session("ann")
            async with Client(build_server(gateway, always(session))) as client:
                first = await client.call_tool(
                    "tool_call", {"name": "skills__pdf", "arguments": {"file": "forms.md"}}
                )
                handle = text_of(first).split('name="')[1].split('"')[0]
                rest = await call(client, handle, start=20_000)

        assert "Read on with tool_call" in text_of(first)
        assert "A line about forms." in rest

    asyncio.run(conversation())


@pytest.mark.usefixtures("quick")
def test_a_changed_skill_waits_for_approval_and_the_others_stay(folder: Path):
    write_skill(folder, "tea", "---\nname: tea\ndescription: Brew tea.\n---\nBoil water.\n")

    async def conversation() -> None:
        async with open_gateway(folder_of(folder)) as gateway, client_of(gateway) as client:
            state = gateway.pool.servers["skills"]
            (folder / "pdf" / "forms.md").write_text("Send it to the author.\n")
            await eventually(lambda: state.held_definitions)
            held = state.held_definitions[0]
            other = gateway.open_session("other")  # the index follows a moment later
            await eventually(lambda: "skills__pdf" not in other.search("fill in a form").text)
            refused = await call(client, "skills__pdf", file="forms.md")
            found = await search(client, "fill in a form")
            tea = await call(client, "skills__tea")
            with pytest.raises(MCPError):
                await client.read_resource("skill://pdf/forms.md")
            await gateway.pool.decide("skills", {held.id}, approve=True, by="ann")
            allowed = await call(client, "skills__pdf", file="forms.md")

        assert held.label == "skills__pdf"
        assert any("forms.md" in line for line in held.list_differences())
        assert "waits for the approval" in refused
        assert "skills__pdf" not in found
        assert "Boil water." in tea
        assert "Send it to the author." in allowed

    asyncio.run(conversation())


def test_a_file_that_changed_a_moment_ago_is_not_read(folder: Path):
    async def conversation() -> None:
        async with open_gateway(folder_of(folder)) as gateway, client_of(gateway) as client:
            (folder / "pdf" / "forms.md").write_text("Other forms.\n")
            told = await call(client, "skills__pdf", file="forms.md")
            with pytest.raises(MCPError, match="has changed"):
                await client.read_resource("skill://pdf/forms.md")

        assert "has changed since the skill was listed" in told
        assert "Other forms" not in told

    asyncio.run(conversation())


@pytest.mark.usefixtures("quick")
def test_new_skills_are_found_and_deleted_ones_are_not(folder: Path):
    config = folder_of(folder, changes=Changes.ALLOW)

    async def conversation() -> None:
        async with open_gateway(config) as gateway, client_of(gateway) as client:
            write_skill(folder, "tea", "---\nname: tea\ndescription: Brew tea.\n---\nBoil.\n")
            await eventually(lambda: gateway.scout.preview("select:skills__tea").hits)
            found = await search(client, "select:skills__tea")
            for path in (folder / "tea" / "SKILL.md", *(folder / "pdf").iterdir()):
                path.unlink()
            await eventually(lambda: not gateway.catalog.get("skills__tea"))
            await eventually(lambda: not gateway.catalog.get("skills__pdf"))

        assert "Brew tea" in found

    asyncio.run(conversation())


def test_rules_and_profiles_hold_for_skills(folder: Path):
    write_skill(folder, "tea", "---\nname: tea\ndescription: Brew tea.\n---\nBoil water.\n")
    rule = Rule(permission=Permission.DENY, tools=("skills__tea",))
    options = GatewayConfig(rules={"no tea": rule})
    nothing = Profile(servers=("other",))

    async def conversation() -> None:
        async with open_gateway(folder_of(folder), gateway=options) as gateway:
            async with client_of(gateway) as client:
                refused = await call(client, "skills__tea")
                listed = await ask(client, "skills/list")
                with pytest.raises(MCPError):
                    await client.read_resource("skill://tea/SKILL.md")
            async with client_of(gateway, profile=nothing) as client:
                hidden = await ask(client, "skills/list")
                unread = await call(client, "skills__pdf")
                with pytest.raises(MCPError):
                    await ask(client, "skills/get", uri="skill://pdf/SKILL.md")

        assert "no tool 'skills__tea'" in refused
        assert [entry["uri"] for entry in listed["skills"]] == ["skill://pdf/SKILL.md"]
        assert hidden["skills"] == []
        assert "Not called" in unread

    asyncio.run(conversation())


def test_a_client_reads_only_files_that_skills_list(folder: Path, tmp_path: Path):
    (folder / "pdf" / ".env").write_text("KEY=secret")
    (folder / "notes.md").write_text("Not part of a skill.")
    (tmp_path / "secret.txt").write_text("secret")
    addresses = [
        "skill://pdf/.env",
        "skill://pdf/../notes.md",
        "skill://pdf/../../secret.txt",
        "skill://pdf/%2e%2e/%2e%2e/secret.txt",
        "skill://toolscout/skills/pdf/../../secret.txt",
        "skill://notes.md",
        f"file://{tmp_path}/secret.txt",
    ]

    async def conversation() -> None:
        async with open_gateway(folder_of(folder)) as gateway, client_of(gateway) as client:
            for uri in addresses:
                with pytest.raises(MCPError):
                    await client.read_resource(uri)
            known = await client.read_resource("skill://pdf/forms.md")

        assert known.contents[0].model_dump()["text"] == FORMS

    asyncio.run(conversation())


# Clients that know skills.


@ERAS
def test_a_client_lists_and_gets_skills_and_their_digests_fit(folder: Path, era: str):
    async def conversation() -> None:
        async with open_gateway(folder_of(folder)) as gateway, client_of(gateway, era) as client:
            declared = client.server_capabilities
            listed = await ask(client, "skills/list")
            got = await ask(client, "skills/get", uri="skill://pdf/SKILL.md")
            pages = {
                row["uri"]: (await client.read_resource(row["uri"])).contents[0].model_dump()
                for row in got["skill"]["resources"]
            }
            with pytest.raises(MCPError) as unknown:
                await ask(client, "skills/get", uri="skill://pdf/forms.md")

        # Earlier protocols have no place for extensions.
        assert (EXTENSION in (declared.extensions or {})) == (era == "auto")
        assert declared.resources is not None
        assert listed["skills"] == [got["skill"]]
        assert got["skill"]["frontmatter"] == {
            "name": "pdf",
            "description": "Fill in PDF forms.",
            "license": "MIT",
        }
        for row in got["skill"]["resources"]:
            data = pages[row["uri"]]["text"].encode()
            assert row["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
            assert row["size"] == len(data)
        assert len(pages) == 3
        assert unknown.value.code == types.INVALID_PARAMS
        if era == "auto":
            assert (listed["ttlMs"], listed["cacheScope"]) == (60_000, "private")
            assert listed["resultType"] == "complete"

    asyncio.run(conversation())


def test_many_skills_are_not_listed_but_can_be_had_by_address(folder: Path):
    few = SkillsConfig(listed_tokens=0)
    pinned = folder_of(folder, pins=("pdf",))

    async def list_skills(config: ServerConfig, mode: GatewayMode) -> list[str]:
        options = GatewayConfig(mode=mode)
        opened = open_gateway(config, gateway=options, skills=few)
        async with opened as gateway, client_of(gateway) as client:
            listed = await ask(client, "skills/list")
            got = await ask(client, "skills/get", uri="skill://pdf/SKILL.md")
            assert got["skill"]["uri"] == "skill://pdf/SKILL.md"
            return [entry["uri"] for entry in listed["skills"]]

    assert asyncio.run(list_skills(folder_of(folder), GatewayMode.SEARCH)) == []
    for config, mode in ((pinned, GatewayMode.SEARCH), (folder_of(folder), GatewayMode.DIRECT)):
        assert asyncio.run(list_skills(config, mode)) == ["skill://pdf/SKILL.md"]


def test_a_skill_whose_name_breaks_the_rules_is_found_but_not_listed(folder: Path):
    write_skill(folder, "Tea_Time", "---\ndescription: Brew tea.\n---\nBoil water.\n")

    async def conversation() -> None:
        async with open_gateway(folder_of(folder)) as gateway, client_of(gateway) as client:
            listed = await ask(client, "skills/list")
            tea = await call(client, "skills__Tea_Time")

        assert [entry["frontmatter"]["name"] for entry in listed["skills"]] == ["pdf"]
        assert "Boil water." in tea

    asyncio.run(conversation())


# Servers that have skills.


@pytest.fixture
def offered(tmp_path: Path) -> Path:
    files = {"SKILL.md": PDF, "forms.md": FORMS}
    offer(tmp_path / "offer.json", make_entry(files), files=files)
    return tmp_path / "offer.json"


@ERAS
def test_a_skill_of_a_server_is_found_read_and_served_on(offered: Path, era: str):
    async def conversation() -> None:
        async with open_gateway(librarian(offered)) as gateway, client_of(gateway, era) as client:
            found = await search(client, "complete a form")
            body = await call(client, "docs__pdf")
            forms = await call(client, "docs__pdf", file="forms.md")
            listed = await ask(client, "skills/list")
            resources = (await client.list_resources()).resources

        assert "docs__pdf" in found
        assert "Read forms.md." in body
        # The model can tell whose it is.
        assert "'docs'" in body
        assert FORMS in forms
        assert [entry["uri"] for entry in listed["skills"]] == ["skill://pdf/SKILL.md"]
        # Its files are reached through the skill.
        assert resources == []

    asyncio.run(conversation())


def test_all_pages_of_a_servers_skills_are_read(tmp_path: Path):
    files = {"SKILL.md": PDF}
    other = make_entry(files, "skill://more/pdf/")
    offer(tmp_path / "offer.json", make_entry(files), other, files=files)

    async def conversation() -> list[str]:
        async with open_gateway(librarian(tmp_path / "offer.json", "pages")) as gateway:
            return sorted(tool.name for tool in gateway.catalog.tools)

    # The second has the same name, so it is named by its path.
    assert asyncio.run(conversation()) == ["docs__more_pdf", "docs__pdf"]


def test_skills_of_two_servers_with_one_address_are_told_apart(offered: Path, folder: Path):
    servers = (librarian(offered), folder_of(folder))

    async def conversation() -> None:
        async with open_gateway(*servers) as gateway, client_of(gateway) as client:
            listed = await ask(client, "skills/list")
            uris = [entry["uri"] for entry in listed["skills"]]
            got = [(await ask(client, "skills/get", uri=uri))["skill"] for uri in uris]
            pages = [await client.read_resource(uri) for uri in uris]
            with pytest.raises(MCPError):
                await ask(client, "skills/get", uri="skill://pdf/SKILL.md")

        assert uris == [
            "skill://toolscout/docs/pdf/SKILL.md",
            "skill://toolscout/skills/pdf/SKILL.md",
        ]
        assert got == listed["skills"]
        assert len(pages) == 2

    asyncio.run(conversation())


def test_content_that_a_server_did_not_list_is_refused_and_the_change_waits(offered: Path):
    changed = {"SKILL.md": PDF, "forms.md": "Send the forms to me.\n"}

    async def conversation() -> None:
        async with open_gateway(librarian(offered)) as gateway, client_of(gateway) as client:
            await call(client, "docs__pdf")
            entry = make_entry({"SKILL.md": PDF, "forms.md": FORMS})
            offer(offered, entry, files=changed)
            lied = await call(client, "docs__pdf", file="forms.md")
            offer(offered, make_entry(changed), files=changed)
            stale = await call(client, "docs__pdf", file="forms.md")
            await eventually(lambda: gateway.pool.servers["docs"].held_definitions)
            held = await call(client, "docs__pdf", file="forms.md")

        assert "has changed since the skill was listed" in lied
        assert "has changed since the skill was listed" in stale
        assert "waits for the approval" in held

    asyncio.run(conversation())


def test_a_frontmatter_that_differs_from_the_entry_is_refused(tmp_path: Path):
    files = {"SKILL.md": PDF.replace("license: MIT", "license: GPL")}
    offer(tmp_path / "offer.json", make_entry(files), files=files)

    async def conversation() -> str:
        opened = open_gateway(librarian(tmp_path / "offer.json"))
        async with opened as gateway, client_of(gateway) as client:
            return await call(client, "docs__pdf")

    assert "has changed since the skill was listed" in asyncio.run(conversation())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"resources": "dynamic"}, "generates its files"),
        ({"resources": []}, "does not list its SKILL.md"),
        ({"uri": "skill://pdf/README.md"}, "does not end in /SKILL.md"),
        ({"uri": "skill://other/SKILL.md"}, "does not end with its name"),
        ({"frontmatter": {"name": "pdf"}}, "has no description"),
        ({"frontmatter": {"name": "P D F", "description": "x"}}, "has no name"),
    ],
)
def test_an_entry_that_breaks_the_protocol_costs_no_other_skill(
    tmp_path: Path, changes: dict[str, Any], said: str
):
    files = {"SKILL.md": PDF}
    good = make_entry(files, "skill://good/pdf/")
    offer(tmp_path / "offer.json", make_entry(files, **changes), good, files=files)

    async def conversation() -> None:
        async with open_gateway(librarian(tmp_path / "offer.json")) as gateway:
            skills = [tool for tool in gateway.catalog.tools if tool.kind == "skill"]
            problems = gateway.pool.servers["docs"].problems

        assert [tool.extras["skill"]["uri"] for tool in skills] == ["skill://good/pdf/SKILL.md"]
        assert any(said in problem for problem in problems)

    asyncio.run(conversation())
