"""What goes through the gateway, against a server that offers a bit of everything."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client

from gateway.fleet import client_of, known, text_of

EVERYTHING = (
    Path(__file__).parents[2]
    / ".npm-servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)
needs_node = pytest.mark.skipif(
    not EVERYTHING.exists() or shutil.which("node") is None,
    reason="needs Node and `make .npm-servers/.installed`",
)
pytestmark = [needs_node, pytest.mark.timeout(300)]
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "toolscout.toml"
    path.write_text(
        f'[servers.all]\ncommand = "node"\nargs = ["{EVERYTHING}"]\n'
        f'[gateway]\ncache = "{tmp_path}/gateway.db"\n',
        encoding="utf-8",
    )
    return path


def talk(config: Path, conversation: Any, **settings: Any) -> None:
    async def run() -> None:
        async with client_of(config, **settings) as client:
            await known(client, "all__echo")
            await conversation(client)

    asyncio.run(run())


async def call(client: Client, name: str, **arguments: Any) -> Any:
    return await client.call_tool("tool_call", {"name": f"all__{name}", "arguments": arguments})


@MODES
def test_text_and_structured_content_arrive_as_they_were_sent(mode: str, config: Path):
    async def conversation(client: Client) -> None:
        summed = await call(client, "get-sum", a=2, b=40)
        weather = await call(client, "get-structured-content", location="New York")

        assert text_of(summed) == "The sum of 2 and 40 is 42."
        assert set(weather.structured_content) == {"temperature", "conditions", "humidity"}

    talk(config, conversation, mode=mode)


@MODES
def test_images_links_and_annotations_keep_their_place(mode: str, config: Path):
    async def conversation(client: Client) -> None:
        image = await call(client, "get-tiny-image")
        links = await call(client, "get-resource-links", count=2)
        message = await call(
            client, "get-annotated-message", messageType="error", includeImage=True
        )

        assert [block.type for block in image.content] == ["text", "image", "text"]
        assert image.content[1].mime_type == "image/png"
        assert [block.type for block in links.content] == ["text", "resource_link", "resource_link"]
        assert message.content[0].annotations.priority == 1.0

    talk(config, conversation, mode=mode)


@MODES
def test_progress_reaches_the_client_that_asked(mode: str, config: Path):
    seen: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async def conversation(client: Client) -> None:
        long = {"name": "all__trigger-long-running-operation", "arguments": LONG}
        await client.call_tool("tool_call", long, progress_callback=progressed)

    talk(config, conversation, mode=mode)
    assert seen == [1, 2, 3, 4]


LONG = {"duration": 0.2, "steps": 4}


@MODES
def test_resources_are_listed_read_and_found(mode: str, config: Path):
    async def conversation(client: Client) -> None:
        listed = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        read = await client.read_resource(listed[0].uri)
        found = await client.call_tool("tool_search", {"queries": ["kind:resource architecture"]})
        opened = await call(client, "architecture_md")
        filled = await client.read_resource("toolscout://all/demo://resource/dynamic/text/1")

        assert listed[0].uri.startswith("toolscout://all/demo://resource/static/")
        assert templates[0].uri_template.startswith("toolscout://all/demo://resource/dynamic/")
        assert read.contents[0].uri == listed[0].uri
        assert "all__architecture_md" in text_of(found)
        assert opened.is_error is False
        assert filled.contents

    talk(config, conversation, mode=mode)


@MODES
def test_prompts_are_listed_filled_in_and_completed(mode: str, config: Path):
    async def conversation(client: Client) -> None:
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        filled = await client.get_prompt("all__args-prompt", {"city": "Oslo"})
        reference = types.PromptReference(type="ref/prompt", name="all__completable-prompt")
        completed = await client.complete(reference, {"name": "department", "value": "E"})
        found = await client.call_tool("tool_search", {"queries": ["kind:prompt city"]})

        assert "all__simple-prompt" in names
        assert "Oslo" in str(filled.messages[0].content)
        assert "Engineering" in completed.completion.values
        assert "all__args-prompt" in text_of(found)

    talk(config, conversation, mode=mode)


def test_an_unknown_resource_or_prompt_is_an_error_that_says_what_exists(config: Path):
    async def conversation(client: Client) -> None:
        with pytest.raises(Exception, match="Use an address that resources/list shows"):
            await client.read_resource("toolscout://nobody/x")
        with pytest.raises(Exception, match="Near: all__simple-prompt"):
            await client.get_prompt("all__simple-promt")

    talk(config, conversation)


def test_log_messages_of_a_server_reach_the_client(config: Path):
    heard = asyncio.Event()

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        heard.set()

    async def conversation(client: Client) -> None:
        await call(client, "toggle-simulated-logging")
        async with asyncio.timeout(120):
            while not heard.is_set():
                await call(client, "trigger-long-running-operation", duration=0.2, steps=1)

    talk(config, conversation, mode="legacy", logging_callback=logged)
