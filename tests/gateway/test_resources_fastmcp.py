"""Skills of FastMCP's own provider, read through a gateway; see `make test-peers`."""

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client

from serving import DEADLINE_SECONDS, served
from toolscout.config.servers import ServerConfig, Transport

pytestmark = [
    pytest.mark.skipif(find_spec("fastmcp") is None, reason="FastMCP is not installed"),
    pytest.mark.timeout(300),
]
SERVER = """
import sys
from fastmcp import FastMCP
from fastmcp.server.providers.skills import SkillProvider

FastMCP("skills", providers=[SkillProvider(sys.argv[1])]).run(show_banner=False)
"""


@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_a_skill_keeps_its_address_and_its_files_can_be_read(era: str, tmp_path: Path):
    skill = tmp_path / "painting"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\ndescription: Paints.\n---\nSee notes.md.\n")
    (skill / "notes.md").write_text("Use a brush.")
    server = ServerConfig(
        name="art",
        transport=Transport.STDIO,
        command=sys.executable,
        args=("-c", SERVER, str(skill)),
    )

    async def conversation(url: str) -> tuple[list[str], list[str]]:
        async with Client(f"{url}/mcp", mode=era) as client:
            listed = [resource.uri for resource in (await client.list_resources()).resources]
            uris = ("skill://painting/SKILL.md", "skill://painting/notes.md")
            pages: list[Any] = [(await client.read_resource(uri)).contents[0] for uri in uris]
            return listed, [page.text for page in pages]

    with served(server) as running:
        assert running.known.wait(DEADLINE_SECONDS)
        listed, texts = asyncio.run(conversation(running.url))

    assert listed == ["skill://painting/SKILL.md", "skill://painting/_manifest"]
    assert "See notes.md." in texts[0]
    assert texts[1] == "Use a brush."
