"""The README leads a newcomer to a working gateway in five commands, and its picture is true."""

import asyncio
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from documents import load_script
from serving import DEADLINE_SECONDS

ROOT = Path(__file__).parents[2]
recording = load_script("recording")
STEPS = recording.steps_from_json(recording.RECORDING.read_text(encoding="utf-8"))
WAITING = re.compile(r"^\S+: uvx may still be installing it")
"""What a slow machine prints besides."""
CHANGING = re.compile(r"\([\d.]+ s\)|\d{4}-\d\d-\d\dT[\d:+]+|[A-Z][a-z]+day\b")
"""Times, which differ from run to run."""


def read_commands() -> list[str]:
    """Return the commands of the README's first block, which is about the gateway."""
    found = re.search(r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)
    assert found is not None
    return found[1].splitlines()


def read_screen(step: Any) -> list[str]:
    """Return what a command printed, without what changes; servers answer in any order."""
    lines = [CHANGING.sub("…", recording.to_text(line)) for line in step.lines]
    kept = [line for line in lines if not WAITING.match(line)]
    return sorted(kept) if step.command.endswith(" test") else kept


@dataclass(frozen=True)
class Replay:
    """The commands of the picture, run once more in an empty home."""

    environment: dict[str, str]
    steps: dict[str, list[str]]
    """What each command printed."""


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    environment = recording.make_environment(tmp_path_factory.mktemp("newcomer"))
    steps = [recording.run_command(command, environment) for command in recording.COMMANDS]
    return Replay(environment, {step.command: read_screen(step) for step in steps})


def test_five_commands_of_the_readme_put_two_real_servers_behind_a_gateway(replay: Replay):
    install, first, second, test, client = read_commands()

    assert install == "pip install 'toolscout[gateway]'"  # done already, where tests run
    commands = [command for command in replay.steps if " servers " in command]
    assert commands == [first, second, test]
    assert len(re.findall(r"^\w+ +ok +\d+ tools", "\n".join(replay.steps[test]), re.M)) == 2

    adds, _, started = client.partition(" -- ")
    assert adds.startswith("claude mcp add ")
    texts = asyncio.run(use_gateway(shlex.split(started), replay.environment))

    assert "Asia/Tokyo" in texts["time"]
    assert "No commits yet" in texts["git"]


async def use_gateway(command: list[str], environment: dict[str, str]) -> dict[str, str]:
    """Start a gateway as a client does, find a tool of each server and call it."""
    project = Path(environment["HOME"]) / "project"
    made = await asyncio.create_subprocess_exec("git", "init", "--quiet", str(project))
    await made.wait()
    program = StdioServerParameters(
        command="/usr/bin/env", args=[*command, "--no-daemon"], env=environment, cwd=project
    )
    requests = {
        "time": ("what time is it in a city", "time__get_current_time", {"timezone": "Asia/Tokyo"}),
        "git": ("status of the working tree", "git__git_status", {"repo_path": str(project)}),
    }
    texts = dict[str, str]()
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        Client(stdio_client(program)) as client,
    ):
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["tool_search", "tool_describe", "tool_call"]
        for server, (query, name, arguments) in requests.items():
            found = await client.call_tool("tool_search", {"queries": [query]})
            assert name in to_text(found)
            called = await client.call_tool("tool_call", {"name": name, "arguments": arguments})
            texts[server] = to_text(called)
    return texts


def to_text(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


@pytest.mark.parametrize("step", STEPS, ids=recording.COMMANDS)
def test_the_picture_of_the_readme_shows_what_the_command_prints(step: Any, replay: Replay):
    assert replay.steps[step.command] == read_screen(step), "Run `make recording`."


def test_the_picture_is_drawn_from_the_recording():
    drawn = recording.draw_picture(STEPS)

    assert recording.PICTURE.read_text(encoding="utf-8") == drawn, "Run `make docs`."
    assert len(drawn) < 40_000
    assert [step.command for step in STEPS] == list(recording.COMMANDS)
