"""What programs cost and save, compared with calls one by one: tokens, round trips and time.

No model takes part. For tasks whose tools are known, an ideal agent is simulated that makes the
right calls, one after the other, each with a value from the result before. Definitions, searches,
programs and replies are real ones; results are generated in three sizes. `direct` has all
definitions in every request, `search` has the meta-tools, `pick` knows where in a result its value
is, and `program` writes one program. `look` first prints a part of a result, because it does not
know the fields. `batch` makes all calls in one `tool_call`, which only works if none needs the
result of another.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean
from typing import Any

from toolscout.catalog import Catalog
from toolscout.evaluate.datasets import Dataset
from toolscout.evaluate.quality import Table
from toolscout.schemas import Json, list_parameters
from toolscout.scout import Scout
from toolscout.sessions.metatools import build_meta_tools, build_run_tool
from toolscout.settings import ProgramEffects, Programs, Settings
from toolscout.tokens import count_all_definition_tokens, count_definition_tokens, count_tokens
from toolscout.tools import Effect, Tool

SIZES = {"small": 60, "medium": 600, "large": 6_000}
"""Tokens of a generated result."""
MODES = ("direct", "search", "batch", "pick", "program", "look")
LONGEST_CHAIN = 4
"""Longer chains share a row."""
ANSWER_TOKENS = 60
"""What the agent says at the end."""
LOOK_TOKENS = 200
"""What a program prints that looks at a result."""
ROUND_SECONDS = 1.0
INPUT_SPEED = 5_000.0
OUTPUT_SPEED = 60.0
"""Assumed of a model: seconds until it begins to read, and tokens that it reads and writes in one
second."""
TRIALS = 200
CALLS = 10
WORKS = {
    "start": "start of a warm program",
    "monty": f"{CALLS} calls that Monty answers itself",
    "direct": f"{CALLS} calls",
    "program": f"{CALLS} calls in a program",
    "direct_async": f"{CALLS} asynchronous calls",
    "program_async": f"{CALLS} asynchronous calls in a program",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one task costs in one mode."""

    tokens_in: float = 0
    tokens_out: float = 0
    rounds: float = 0

    @property
    def seconds(self) -> float:
        """How long a model would take, without the tools."""
        reading = self.tokens_in / INPUT_SPEED
        return self.rounds * ROUND_SECONDS + reading + self.tokens_out / OUTPUT_SPEED


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Mean costs of tasks with chains of one length and results of one size."""

    dataset: str
    length: str
    size: str
    wants_all: bool
    tasks: int
    costs: Mapping[str, Cost]

    def to_json(self) -> Json:
        """Return the figures."""
        return {
            "dataset": self.dataset,
            "calls": self.length,
            "results": self.size,
            "wants_all": self.wants_all,
            "tasks": self.tasks,
            "modes": {
                mode: {
                    "tokens_in": round(cost.tokens_in),
                    "tokens_out": round(cost.tokens_out),
                    "rounds": round(cost.rounds, 2),
                    "seconds": round(cost.seconds, 2),
                }
                for mode, cost in self.costs.items()
            },
        }


def measure_modes(dataset: Dataset, *, limit: int) -> list[Row]:
    """Return the costs of a dataset's tasks in every mode."""
    return asyncio.run(_measure_modes(dataset, limit))


async def _measure_modes(dataset: Dataset, limit: int) -> list[Row]:
    # A program calls only what is known to read; whether these tools do is not the question here.
    tools = [replace(tool, effect=Effect.READ) for tool in dataset.tools]
    by_id = dict(zip(dataset.ids, tools, strict=True))
    catalog = Catalog()
    for server in dict.fromkeys(tool.server for tool in tools):
        catalog.replace(server, [tool for tool in tools if tool.server == server])
    results = {size: make_result(tokens) for size, tokens in SIZES.items()}
    size = "small"

    def execute(tool: Tool, arguments: Json) -> object:
        return results[size]

    settings = Settings(programs=Programs(enabled=True), calls_by_name=True)
    scout = Scout(catalog, executors=execute, settings=settings)
    fixed = _count_fixed(tools, scout)
    found: dict[tuple[str, str, bool], list[dict[str, Cost]]] = defaultdict(list)
    for number, query in enumerate(dataset.sample(limit).queries):
        chain = [by_id[key] for key in query.relevant if key in by_id]
        if not chain:
            continue
        session = scout.session(f"task {number}")
        reply = await session.handle("tool_search", {"queries": [query.text]})
        task = _Task(
            fixed=fixed,
            text=count_tokens(query.text),
            asked=count_tokens(json.dumps({"queries": [query.text]})),
            found=reply.tokens,
            chain=chain,
        )
        length = str(len(chain)) if len(chain) < LONGEST_CHAIN else f"{LONGEST_CHAIN}+"
        for size in SIZES:
            for wants_all in (False, True):
                code = write_program(chain, wants_all=wants_all)
                ran = await session.run(code)
                if ran.code != "ok" or len(ran.details["calls"]) != len(chain):
                    raise RuntimeError(f"The program of {query.id} failed: {ran.text}")
                whole = count_tokens(json.dumps(results[size]))
                shown = min(whole, settings.result_tokens)
                together = min(whole * len(chain), settings.result_tokens)
                costs = task.count(code, whole, shown, together, ran.tokens, wants_all=wants_all)
                found[length, size, wants_all].append(costs)
        scout.forget(session.id)
    await scout.close()
    return [
        Row(
            dataset=dataset.name,
            length=length,
            size=size,
            wants_all=wants_all,
            tasks=len(rows),
            costs={mode: _average([row[mode] for row in rows]) for mode in MODES},
        )
        for (length, size, wants_all), rows in sorted(found.items())
    ]


def _count_fixed(tools: Sequence[Tool], scout: Scout) -> dict[str, int]:
    """Return the tokens that every request of a mode carries."""
    session = scout.session("fixed")
    meta = build_meta_tools(session.get_listing(), runs_calls=True)
    search = sum(map(count_definition_tokens, meta)) + count_tokens(session.system_prompt())
    run = count_definition_tokens(build_run_tool(ProgramEffects.READ))
    return {
        "direct": count_all_definition_tokens(tools),
        "search": search,
        "batch": search,
        "pick": search,
        "program": search + run,
        "look": search + run,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    fixed: Mapping[str, int]
    text: int
    asked: int
    found: int
    """Tokens of the reply to the search."""
    chain: Sequence[Tool]

    def count(
        self, code: str, whole: int, shown: int, together: int, printed: int, *, wants_all: bool
    ) -> dict[str, Cost]:
        """Return the costs of the task in each mode.

        A result has `whole` tokens, of which a reply shows `shown`, and `together` of all of them
        in one reply; the program's has `printed`.
        """
        calls = [count_tokens(json.dumps(_make_arguments(tool))) + 20 for tool in self.chain]
        search = (self.asked, self.found)
        value = count_tokens('"id-0"')
        last = shown if wants_all else value
        picked = [value] * (len(calls) - 1) + [last]
        program = (count_tokens(json.dumps({"code": code})), printed)
        looking = count_tokens(json.dumps({"code": f"print(str({code.splitlines()[0]})[:600])"}))
        steps: dict[str, list[tuple[int, int]]] = {
            "direct": [(call, whole) for call in calls],
            "search": [search, *((call, shown) for call in calls)],
            "batch": [search, (sum(calls), together)],
            "pick": [search, *((c + 8, p) for c, p in zip(calls, picked, strict=True))],
            "program": [search, program],
            "look": [search, (looking, min(whole, LOOK_TOKENS)), program],
        }
        return {mode: self._add_up(self.fixed[mode], rows) for mode, rows in steps.items()}

    def _add_up(self, fixed: int, steps: Sequence[tuple[int, int]]) -> Cost:
        """Return the cost of requests that each carry everything before them."""
        carried = fixed + self.text
        tokens_in = carried
        tokens_out = ANSWER_TOKENS
        for said, read in steps:
            carried += said + read
            tokens_in += carried
            tokens_out += said
        return Cost(tokens_in=tokens_in, tokens_out=tokens_out, rounds=len(steps) + 1)


def _average(costs: Sequence[Cost]) -> Cost:
    return Cost(
        tokens_in=mean(cost.tokens_in for cost in costs),
        tokens_out=mean(cost.tokens_out for cost in costs),
        rounds=mean(cost.rounds for cost in costs),
    )


def make_result(tokens: int) -> Json:
    """Return a list of rows that costs about as many tokens."""
    rows: list[Json] = []
    cost = 0
    while cost < tokens:
        number = len(rows)
        row = {"id": f"id-{number}", "name": f"Item {number}", "state": "open", "size": number * 7}
        rows.append(row)
        cost += count_tokens(json.dumps(row)) + 1
    return {"items": rows}


def write_program(chain: Sequence[Tool], *, wants_all: bool) -> str:
    """Return a program that calls tools in order, each with a value from the result before."""
    lines: list[str] = []
    for number, tool in enumerate(chain):
        given = _make_arguments(tool)
        texts = [key for key, value in given.items() if isinstance(value, str)]
        parts = {key: repr(value) for key, value in given.items()}
        if number and texts:
            parts[texts[0]] = f"r{number - 1}['items'][0]['id']"
        pairs = ", ".join(f"{key!r}: {value}" for key, value in parts.items())
        lines.append(f"r{number} = call({tool.name!r}, {{{pairs}}})")
    last = f"r{len(chain) - 1}"
    return "\n".join([*lines, last if wants_all else f"{last}['items'][0]['id']"])


def _make_arguments(tool: Tool) -> Json:
    """Return arguments for the required parameters, as the schema wants them."""
    given: Json = {}
    for parameter in list_parameters(tool.input_schema, max_depth=1):
        if parameter.depth or not parameter.required:
            continue
        given[parameter.name] = _make_value(tool.input_schema, parameter.name, parameter.enum)
    return given


def _make_value(schema: Json, name: str, enum: Sequence[str]) -> Any:
    members: Json = schema.get("properties", {})
    member: Json = members.get(name, {})
    if member.get("enum"):
        return member["enum"][0]
    match member.get("type"):
        case "integer" | "number":
            return member.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            items: Json = member.get("items") or {}
            return [_make_value({"properties": {"x": items}}, "x", ())]
        case "object":
            wanted: list[str] = member.get("required") or []
            return {key: _make_value(member, key, ()) for key in wanted}
        case _:
            return enum[0] if enum else "value"


def tabulate_modes(rows: Sequence[Row], *, wants_all: bool) -> Table:
    """Return a row for each length of chain and size of results: tokens in, and what is saved."""
    shown = [row for row in rows if row.wants_all is wants_all]
    return Table(
        title="Tokens in" + (", the whole last result is wanted" if wants_all else ""),
        head=("dataset", "calls", "results", "tasks", *MODES, "program : search", "look : search"),
        rows=tuple(
            (
                row.dataset,
                row.length,
                row.size,
                str(row.tasks),
                *(f"{row.costs[mode].tokens_in:,.0f}" for mode in MODES),
                *(f"{_compare(row, mode):+.0%}" for mode in ("program", "look")),
            )
            for row in shown
        ),
    )


def tabulate_rounds(rows: Sequence[Row]) -> Table:
    """Return round trips, tokens out and seconds, by length of chain, of all datasets together."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if not row.wants_all and row.size == "large":
            groups[row.length].append(row)
    body: list[tuple[str, ...]] = []
    for length, group in sorted(groups.items()):
        for mode in MODES:
            cost = _average([row.costs[mode] for row in group])
            figures = (f"{cost.rounds:.1f}", f"{cost.tokens_out:.0f}", f"{cost.seconds:.1f}")
            body.append((length, mode, *figures))
    head = ("calls", "mode", "round trips", "tokens out", "seconds of the model")
    return Table(title="Round trips, large results", head=head, rows=tuple(body))


def _compare(row: Row, mode: str) -> float:
    return row.costs[mode].tokens_in / row.costs["search"].tokens_in - 1


# How fast programs are.


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Milliseconds of one kind of work: the fastest trial, and the processor time of a mean one.

    Processor time is that of this process, without the worker's.
    """

    fastest: float
    processor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How long programs take, and the same calls made directly, in process."""

    start: Timing
    """A warm program without calls."""
    monty: Timing
    """Ten calls that Monty answers with a constant: without session and event loop."""
    direct: Timing
    program: Timing
    direct_async: Timing
    program_async: Timing

    def to_json(self) -> Json:
        """Return the figures."""
        figures: Json = {name: asdict(getattr(self, name)) for name in WORKS}
        return figures | {
            "ratio": round(self.program.fastest / self.direct.fastest, 2),
            "asynchronous_ratio": round(self.program_async.fastest / self.direct_async.fastest, 2),
        }


def measure_speed_of_programs(trials: int = TRIALS) -> Speed:
    """Return how long programs and trivial calls take.

    Whatever else runs on the machine slows down every switch between processes.
    """
    return asyncio.run(_measure_speed(trials))


async def _measure_speed(trials: int) -> Speed:
    from pydantic_monty import Monty, MontyComplete  # of the extra `programs`

    def add(number: int) -> int:
        """Add one."""
        return number + 1

    async def add_later(number: int) -> int:
        """Add one, asynchronously."""
        return number + 1

    tools = [replace(Tool.from_any(one), effect=Effect.READ) for one in (add, add_later)]
    settings = Settings(programs=Programs(enabled=True), calls_by_name=True)
    scout = Scout(Catalog({"": tools}), settings=settings)
    session = scout.session("speed")

    async def call(name: str) -> None:
        for number in range(CALLS):
            await session.call(name, {"number": number})

    async def run(code: str) -> None:
        reply = await session.run(code)
        if reply.code != "ok":
            raise RuntimeError(reply.text)

    def loop(name: str) -> str:
        return f"for n in range({CALLS}):\n    {name}(number=n)"

    async def run_bare() -> None:
        with pool.checkout() as worker:
            step: Any = worker.feed_start(loop("add"))
            while not isinstance(step, MontyComplete):
                step = step.resume({"return_value": 1})

    works: dict[str, Callable[[], Any]] = {
        "start": lambda: run("1"),
        "monty": run_bare,
        "direct": lambda: call("add"),
        "program": lambda: run(loop("add")),
        "direct_async": lambda: call("add_later"),
        "program_async": lambda: run(loop("add_later")),
    }
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with Monty(min_processes=1) as pool:
        for trial in range(trials + 5):
            # In turn, so that whatever else the machine does slows all of them down alike.
            for name, work in works.items():
                before = time.perf_counter(), time.process_time()
                await work()
                after = time.perf_counter(), time.process_time()
                if trial >= 5:
                    times[name].append((after[0] - before[0], after[1] - before[1]))
    await scout.close()
    return Speed(**{name: _sum_up(values) for name, values in times.items()})


def _sum_up(trials: Sequence[tuple[float, float]]) -> Timing:
    fastest = min(seconds for seconds, _ in trials) * 1e3
    processor = mean(seconds for _, seconds in trials) * 1e3
    return Timing(fastest=round(fastest, 3), processor=round(processor, 3))


def tabulate_speed(speed: Speed) -> Table:
    """Return the speed of programs."""
    direct = {"program": speed.direct, "program_async": speed.direct_async}
    rows: list[tuple[str, ...]] = []
    for name, title in WORKS.items():
        one: Timing = getattr(speed, name)
        other = direct.get(name)
        row = (title, f"{one.fastest:.2f}", _times(one.fastest, other and other.fastest))
        rows.append(
            (*row, f"{one.processor:.2f}", _times(one.processor, other and other.processor))
        )
    head = ("", "ms, fastest", "times direct", "processor ms, mean", "times direct")
    return Table(title="Speed", head=head, rows=tuple(rows))


def _times(one: float, other: float | None) -> str:
    return f"{one / other:.2f}" if other else ""
