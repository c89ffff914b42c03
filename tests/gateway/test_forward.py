"""What goes through the gateway, against a server that offers a bit of everything."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client

from gateway.fleet import Keeper, client_of, keep_open, known, text_of
from serving import eventually

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


Conversation = Callable[[Client], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Gateways:
    """A gateway process for each era of clients, with one client each, which all tests share."""

    keeper: Keeper
    folder: Path
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has heard a log message."""

    def talk(self, conversation: Conversation, mode: str = "auto") -> None:
        """Hold a conversation with the client of an era."""
        client = self.keeper.open(mode, lambda: self._open(mode))
        self.keeper.run(lambda: conversation(client))

    @asynccontextmanager
    async def _open(self, mode: str) -> AsyncGenerator[Client]:
        async def logged(params: types.LoggingMessageNotificationParams) -> None:
            self.heard.set()

        config = self.folder / f"{mode}.toml"
        config.write_text(
            f'[servers.all]\ncommand = "node"\nargs = ["{EVERYTHING}"]\n'
            f'[gateway]\ncache = "{self.folder}/{mode}.db"\n',
            encoding="utf-8",
        )
        async with client_of(config, mode=mode, logging_callback=logged) as client:
            await known(client, "all__echo")
            yield client


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Generator[Gateways]:
    with keep_open() as keeper:
        yield Gateways(keeper, tmp_path_factory.mktemp("forward"))


async def call(client: Client, name: str, **arguments: Any) -> Any:
    return await client.call_tool("tool_call", {"name": f"all__{name}", "arguments": arguments})


@MODES
def test_text_and_structured_content_arrive_as_they_were_sent(mode: str, gateways: Gateways):
    async def conversation(client: Client) -> None:
        summed = await call(client, "get-sum", a=2, b=40)
        weather = await call(client, "get-structured-content", location="New York")

        assert text_of(summed) == "The sum of 2 and 40 is 42."
        assert set(weather.structured_content) == {"temperature", "conditions", "humidity"}

    gateways.talk(conversation, mode)


@MODES
def test_images_links_and_annotations_keep_their_place(mode: str, gateways: Gateways):
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

    gateways.talk(conversation, mode)


@MODES
def test_progress_reaches_the_client_that_asked(mode: str, gateways: Gateways):
    seen: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async def conversation(client: Client) -> None:
        long = {"name": "all__trigger-long-running-operation", "arguments": LONG}
        await client.call_tool("tool_call", long, progress_callback=progressed)
        await eventually(lambda: len(seen) >= 4)

    gateways.talk(conversation, mode)
    assert seen == [1, 2, 3, 4]


LONG = {"duration": 0.2, "steps": 4}


@MODES
def test_resources_are_listed_read_and_found(mode: str, gateways: Gateways):
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

    gateways.talk(conversation, mode)


@MODES
def test_prompts_are_listed_filled_in_and_completed(mode: str, gateways: Gateways):
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

    gateways.talk(conversation, mode)


def test_an_unknown_resource_or_prompt_is_an_error_that_says_what_exists(gateways: Gateways):
    async def conversation(client: Client) -> None:
        with pytest.raises(Exception, match="Use an address that resources/list shows"):
            await client.read_resource("toolscout://nobody/x")
        with pytest.raises(Exception, match="Near: all__simple-prompt"):
            await client.get_prompt("all__simple-promt")

    gateways.talk(conversation)


def test_log_messages_of_a_server_reach_the_client(gateways: Gateways):
    async def conversation(client: Client) -> None:
        gateways.heard.clear()
        await call(client, "toggle-simulated-logging")
        async with asyncio.timeout(120):
            while not gateways.heard.is_set():
                await call(client, "trigger-long-running-operation", duration=0.2, steps=1)
        await call(client, "toggle-simulated-logging")

    gateways.talk(conversation, "legacy")
