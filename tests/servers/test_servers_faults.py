"""What the pool does about servers that misbehave, each played by `faulty.py` as a process."""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from serving import eventually
from toolscout.catalog import Catalog
from toolscout.config.servers import ServerConfig, Transport
from toolscout.errors import CallFailed, CallTimedOut, ProtocolError, ServerUnavailable
from toolscout.schemas import Json
from toolscout.servers.connection import Delays
from toolscout.servers.pool import Pool
from toolscout.servers.state import Phase
from toolscout.stores import MemoryStore

FAULTY = Path(__file__).with_name("faulty.py")
DEADLINE_SECONDS = 120
QUICK = Delays(
    first_retry=0.01,
    most_retry=0.05,
    change=0.01,
    most_change=0.05,
    idle_look=0.01,
    gate=0.05,
    drain=5.0,
    exit=0.3,
    kill=0.3,
    rest=0.05,
)


def faulty(mode: str = "fine", *given: str, **options: Any) -> ServerConfig:
    return ServerConfig(
        name=options.pop("name", "faulty"),
        transport=Transport.STDIO,
        command=sys.executable,
        args=("-S", str(FAULTY), mode, *given),
        **options,
    )


@asynccontextmanager
async def pool_of(*configs: ServerConfig, delays: Delays = QUICK) -> AsyncGenerator[Pool]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        async with Pool(configs, Catalog(), MemoryStore(), delays=delays) as pool:
            yield pool


async def call(pool: Pool, tool: str, server: str = "faulty", **arguments: object) -> Json:
    return await pool.request(server, "tools/call", {"name": tool, "arguments": arguments})


async def echoed(pool: Pool, words: str, server: str = "faulty") -> str:
    result = await call(pool, "echo", server, text=words)
    return result["content"][0]["text"]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_server_that_crashes_at_start_fails_with_its_exit_code_and_last_words():
    async def work() -> None:
        async with pool_of(faulty("crash")) as pool:
            with pytest.raises(ServerUnavailable) as caught:
                await echoed(pool, "hello")
            member = pool.servers["faulty"]

            assert caught.value.reason == "it ended with code 3"
            assert member.phase is Phase.FAILED
            assert "cannot start" in member.lines

    run(work())


def test_a_server_whose_command_does_not_exist_says_so():
    async def work() -> None:
        missing = ServerConfig(name="faulty", transport=Transport.STDIO, command="/no/such/file")
        async with pool_of(missing) as pool:
            with pytest.raises(ServerUnavailable) as caught:
                await echoed(pool, "hello")

            assert caught.value.reason == "its command or folder was not found"

    run(work())


def test_a_server_that_hangs_at_start_is_given_up_and_ended():
    async def work() -> None:
        async with pool_of(faulty("hang", start_seconds=0.2)) as pool:
            with pytest.raises(ServerUnavailable) as caught:
                await echoed(pool, "hello")

            assert caught.value.reason == "no answer within 0.2 s (start_seconds)"

    run(work())


@pytest.mark.parametrize("command", ["/no/such/file", "true"])
def test_a_pool_may_end_at_any_moment_of_a_start_without_a_word_from_asyncio(command: str):
    said: list[str] = []

    async def work(turns: int) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: said.append(context["message"]))
        config = ServerConfig(name="faulty", transport=Transport.STDIO, command=command)
        async with pool_of(config):
            for _ in range(turns):
                await asyncio.sleep(0)

    for turns in range(30):
        run(work(turns))
    gc.collect()  # asyncio complains of a task once it is gone

    assert said == []


def test_servers_that_hang_at_start_delay_no_other():
    async def work() -> None:
        hanging = [faulty("hang", name=f"hanging{n}") for n in range(9)]
        async with pool_of(*hanging, faulty()) as pool:
            await eventually(lambda: pool.catalog.get("faulty__echo"))

            assert pool.servers["hanging0"].phase is Phase.STARTING

    run(work())


def test_a_crash_in_a_call_fails_that_call_and_the_next_one_starts_the_server_again():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            with pytest.raises(CallFailed) as caught:
                await call(pool, "crash")

            assert caught.value.said == (
                "the server is gone (it ended with code 7); the call may still have had an effect"
            )
            assert await echoed(pool, "again") == "again"
            assert pool.servers["faulty"].starts == 2

    run(work())


def test_a_server_that_crashes_after_some_calls_serves_as_many_again():
    async def work() -> None:
        async with pool_of(faulty("crash after", "2")) as pool:
            said: list[str] = []
            for number in range(6):
                try:
                    said.append(await echoed(pool, str(number)))
                except CallFailed:
                    said.append("failed")

            assert said == ["0", "1", "failed", "3", "4", "failed"]

    run(work())


def test_a_server_that_crashes_in_every_call_is_refused_until_its_delay_is_over():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            for _ in range(3):
                with pytest.raises(CallFailed):
                    await call(pool, "crash")
            pool.servers["faulty"].retry_at += 60
            starts = pool.servers["faulty"].starts
            with pytest.raises(ServerUnavailable):
                await echoed(pool, "hello")

            assert pool.servers["faulty"].starts == starts == 3

    run(work())


def test_the_death_of_a_server_is_noticed_without_a_call():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            assert await call(pool, "answer_and_end") == {
                "content": [{"type": "text", "text": "last words"}]
            }
            member = pool.servers["faulty"]
            await eventually(lambda: member.phase is Phase.FAILED)
            await eventually(lambda: member.reason == "it ended with code 0")

    run(work())


def test_a_call_without_an_answer_is_cancelled_at_the_server_after_its_time():
    async def work() -> None:
        async with pool_of(faulty(call_seconds=2.0)) as pool:
            with pytest.raises(CallTimedOut):
                await call(pool, "hang")
            lines = pool.servers["faulty"].lines
            await eventually(lambda: any(line.startswith("cancelled") for line in lines))

            assert await echoed(pool, "still there") == "still there"
            assert pool.servers["faulty"].starts == 1

    run(work())


def test_a_server_that_leaves_three_calls_unanswered_is_started_anew():
    async def work() -> None:
        async with pool_of(faulty(call_seconds=1.0)) as pool:
            await echoed(pool, "hello")
            for _ in range(3):
                with pytest.raises(CallTimedOut):
                    await call(pool, "hang")
            await eventually(lambda: pool.servers["faulty"].reason.startswith("it left 3 calls"))

    run(work())


def test_cancelling_a_call_cancels_it_at_the_server():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            task = asyncio.create_task(call(pool, "hang"))
            lines = pool.servers["faulty"].lines
            await eventually(lambda: "hanging" in lines)
            task.cancel()
            await eventually(lambda: any(line.startswith("cancelled") for line in lines))

            assert pool.servers["faulty"].running == 0

    run(work())


@pytest.mark.parametrize("tool", ["half", "wrong_id"])
def test_half_a_message_and_a_wrong_id_are_no_answer(tool: str):
    async def work() -> None:
        async with pool_of(faulty(call_seconds=0.1)) as pool:
            with pytest.raises(CallTimedOut):
                await call(pool, tool)

    run(work())


def test_lines_that_are_no_messages_are_passed_over():
    async def work() -> None:
        async with pool_of(faulty("greet")) as pool:
            result = await call(pool, "garbage")

            assert result == {"content": [{"type": "text", "text": "after garbage"}]}
            assert "Welcome to the faulty server!" in pool.servers["faulty"].lines

    run(work())


def test_a_result_of_fifty_megabytes_arrives_whole():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            result = await call(pool, "big", size=50_000_000)

            assert len(result["content"][0]["text"]) == 50_000_000

    run(work())


def test_a_message_beyond_all_measure_ends_the_server_and_fails_the_call():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            with pytest.raises(CallFailed) as caught:
                await call(pool, "big", size=70_000_000)

            assert "it sent a message of more than 67,108,864 bytes" in caught.value.said
            assert await echoed(pool, "again") == "again"

    run(work())


def test_a_result_of_another_form_is_a_protocol_error():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            with pytest.raises(ProtocolError):
                await call(pool, "odd")

    run(work())


def test_an_error_answer_is_no_failure_of_the_server():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            with pytest.raises(MCPError) as caught:
                await call(pool, "refuse")

            assert caught.value.error.message == "I would rather not"
            assert pool.servers["faulty"].phase is Phase.READY

    run(work())


def test_of_two_tools_with_one_name_the_first_counts_and_nameless_ones_are_left_out():
    async def work() -> None:
        async with pool_of(faulty("duplicates")) as pool:
            assert await echoed(pool, "hello") == "hello"
            assert len(pool.servers["faulty"].problems) == 2

    run(work())


@pytest.mark.requirement("R82")
def test_a_thousand_tools_are_taken():
    """R82: all tools of a server are there once it is."""

    async def work() -> None:
        async with pool_of(faulty("thousand")) as pool:
            await eventually(lambda: pool.catalog.get("faulty__tool_999"))

    run(work())


@pytest.mark.requirement("R82")
def test_a_storm_of_notices_is_one_reading_of_the_lists():
    """R82: changed tools are there without a restart."""

    async def work() -> None:
        delays = replace(QUICK, change=0.3, most_change=0.3)
        async with pool_of(replace(faulty(), changes="allow"), delays=delays) as pool:
            await call(pool, "storm", notices=500)
            await eventually(lambda: pool.catalog.get("faulty__grown"))
            lines = pool.servers["faulty"].lines

            assert [line for line in lines if line == "listed"] == ["listed"] * 2

    run(work())


def test_a_server_that_tells_a_change_at_every_reading_is_read_ever_less_often():
    async def work() -> None:
        delays = replace(QUICK, change=0.005, most_change=60.0)
        async with pool_of(faulty("always changed"), delays=delays) as pool:
            lines = pool.servers["faulty"].lines
            await eventually(lambda: list(lines).count("listed") >= 4)

            assert await echoed(pool, "hello") == "hello"

    run(work())


def test_lists_without_an_end_fail_the_start():
    async def work() -> None:
        async with pool_of(faulty("endless", start_seconds=200)) as pool:
            with pytest.raises(ServerUnavailable) as caught:
                await echoed(pool, "hello")

            assert "repeats the cursor" in caught.value.reason

    run(work())


def test_a_server_that_dies_while_it_is_stopped_is_stopped():
    async def work() -> None:
        async with pool_of(faulty("dies in shutdown")) as pool:
            await echoed(pool, "hello")
            await pool.stop("faulty")

            assert pool.servers["faulty"].phase is Phase.STOPPED

    run(work())


def test_a_server_that_ignores_the_end_of_its_input_and_signals_is_killed():
    async def work() -> None:
        async with pool_of(faulty("stubborn")) as pool:
            await echoed(pool, "hello")
            pids = _children()
            assert pids
            await pool.stop("faulty")

            assert not any(map(is_alive, pids))

    run(work())


def test_a_server_that_closes_its_output_is_ended():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            with pytest.raises(CallFailed):
                await call(pool, "close_stdout")

            assert await echoed(pool, "again") == "again"

    run(work())


def test_a_grandchild_ends_with_its_server():
    async def work() -> None:
        async with pool_of(faulty("leak")) as pool:
            await echoed(pool, "hello")
            lines = pool.servers["faulty"].lines
            pid = next(int(line.split()[1]) for line in lines if line.startswith("grandchild"))
            assert is_alive(pid)
            await pool.stop("faulty")
            await eventually(lambda: not is_alive(pid))

    run(work())


def test_the_death_of_a_server_is_noticed_though_a_grandchild_holds_its_pipes():
    async def work() -> None:
        async with pool_of(faulty("leak")) as pool:
            with pytest.raises(CallFailed):
                await call(pool, "crash")

            assert await echoed(pool, "again") == "again"

    run(work())


@pytest.mark.requirement("R108")
def test_secrets_do_not_show_in_what_a_server_writes():
    """R108: logs hold no secrets."""

    async def work() -> None:
        secret = {"SECRET_TOKEN": "hunter2hunter2"}
        async with pool_of(faulty("secret", env=secret)) as pool:
            await echoed(pool, "hello")

            assert "my token is …" in pool.servers["faulty"].lines

    run(work())


def test_of_what_a_server_writes_to_stderr_the_last_fifty_lines_are_kept_and_cut():
    async def work() -> None:
        async with pool_of(faulty("chatter", "500")) as pool:
            await echoed(pool, "hello")
            lines = pool.servers["faulty"].lines

            assert len(lines) == 50
            assert max(map(len, lines)) == 4_000

    run(work())


def test_stopping_waits_for_running_calls():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            running = asyncio.create_task(call(pool, "later", seconds=0.2))
            await eventually(lambda: "working" in pool.servers["faulty"].lines)
            await pool.stop("faulty")

            assert (await running)["content"][0]["text"] == "done"

    run(work())


def test_leaving_the_pool_waits_for_running_calls_and_leaves_no_process():
    async def work() -> None:
        async with pool_of(faulty()) as pool:
            running = asyncio.create_task(call(pool, "later", seconds=0.2))
            await eventually(lambda: "working" in pool.servers["faulty"].lines)
            pids = _children()

        assert (await running)["content"][0]["text"] == "done"
        assert not any(map(is_alive, pids))

    run(work())


def test_a_call_made_while_a_server_comes_back_waits_for_it(tmp_path: Path):
    async def work() -> None:
        async with pool_of(faulty("crash first", str(tmp_path / "started"))) as pool:
            await eventually(lambda: pool.catalog.get("faulty__echo"))

            assert await echoed(pool, "hello") == "hello"
            assert pool.servers["faulty"].starts == 2

    run(work())


def _children() -> list[int]:
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in listed.split()}
    return [pid for pid, command in commands.items() if FAULTY.name.encode() in command]
