"""Workloads: catalogues of any size to search in, and queries to ask of them.

Tools come from files, dataset folders or the demo catalogue, queries from the datasets or from
the tools' own words. They are the same each time, so that two runs measure the same thing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from toolscout.evaluate.datasets import make_names_unique, read_dataset
from toolscout.files import read_tools
from toolscout.tools import Tool

NEW_SERVER = "newcomer"
NEW_TOOLS = 50
SEED = 20260901
OPENINGS = (
    *("can you", "could you please", "find a tool", "help me", "how can I", "how do I"),
    *("I need to", "I want to", "let us", "please help me", "show me", "we have to"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Where catalogues and queries of any size come from; the same each time."""

    tools: tuple[Tool, ...]
    questions: tuple[str, ...] = ()
    """Queries to ask; without any they are made from the tools' own words."""
    grows: bool = False
    """Whether renamed variants fill a catalogue that is larger than `tools`."""

    def draw_tools(self, size: int) -> tuple[Tool, ...]:
        """Return `size` tools, or all there are if they are fewer and do not grow."""
        tools = list(_grow_tools(self.tools, size) if self.grows else self.tools)
        Random(SEED).shuffle(tools)
        return tuple(tools[:size])

    def make_newcomers(self) -> tuple[Tool, ...]:
        """Return the tools of a server that no catalogue has."""
        drawn = Random(SEED).choices(self.tools, k=NEW_TOOLS)
        return make_names_unique([_rename_tool(tool, NEW_SERVER, "newly") for tool in drawn])

    def draw_queries(self, tools: Sequence[Tool], count: int) -> list[str]:
        """Return `count` queries, each question once before any comes again."""
        random = Random(SEED)
        if not self.questions:
            return [make_request(random.choice(tools), random) for _ in range(count)]
        asked: list[str] = []
        while len(asked) < count:
            asked += random.sample(self.questions, len(self.questions))
        return asked[:count]


def read_workload(paths: Sequence[str | Path]) -> Workload:
    """Return the tools and queries of files and dataset folders; of none, the demo catalogue."""
    if not paths:
        from toolscout.demo import load_demo_tools

        return Workload(tools=tuple(load_demo_tools()), grows=True)
    tools: list[Tool] = []
    questions: list[str] = []
    for path in map(Path, paths):
        if path.is_dir():
            dataset = read_dataset(path)
            tools += dataset.tools
            questions += [query.text for query in dataset.queries]
        else:
            tools += read_tools(path)
    return Workload(tools=make_names_unique(tools), questions=tuple(questions))


def _grow_tools(tools: Sequence[Tool], size: int) -> tuple[Tool, ...]:
    """Return at least `size` tools: copies on further servers, each with a word of its own."""
    grown, copy = list(tools), 0
    while len(grown) < size:
        copy += 1
        for tool in tools:
            word = _make_word(Random(f"{SEED} {tool.server} {copy}"))
            grown.append(_rename_tool(tool, f"{tool.server}-{word}", word))
    return make_names_unique(grown)


def _rename_tool(tool: Tool, server: str, word: str) -> Tool:
    return Tool.define(
        tool.leaf,
        server=server,
        description=f"{tool.description} Only for {word}.",
        input_schema=tool.input_schema,
    )


def _make_word(random: Random) -> str:
    return "".join(random.choice("bdfgklmnprstvz") + random.choice("aeiou") for _ in range(3))


def make_request(tool: Tool, random: Random | None = None) -> str:
    """Return a request: an opening, then five to nine words in a row of the tool's description.

    If the description has fewer, it starts with the words of the name.
    """
    random = random or Random(SEED)
    own = re.findall(r"[^\W_]+", tool.description)
    if len(own) < 5:
        own = re.findall(r"[^\W_]+", f"{tool.leaf} {tool.description}")
    count = min(len(own), random.randint(5, 9))
    begin = random.randint(0, len(own) - count)
    return " ".join([random.choice(OPENINGS), *own[begin : begin + count]])
