"""How well skills are found, and what many of them cost in every prompt.

`skills.txt` has 500 skills, a name and a description each. `requests.txt` has 200 requests as a
user puts them to an agent, and `queries.txt` what an agent then searches for, both written for this
benchmark. The queries were written once, from the requests, after those had been measured.
`hints.txt` has a line of hints for each skill, written once from names and descriptions alone.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolscout.cli.tokens import GATEWAY, measure_costs
from toolscout.evaluate.quality import RANKING_DEPTH, Table, compute_ndcg
from toolscout.hints.hints import Hints, digest_definition
from toolscout.scout import Scout
from toolscout.search.text import drop_stop_words, split_words, stem
from toolscout.skills import SkillFolder
from toolscout.tools import Tool

FOLDER = Path(__file__).parent
SETS = {"requests of users": "requests.txt", "queries of agents": "queries.txt"}
SIZES = (10, 50, 100, 250, 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillQuality:
    """How well one set of requests finds its skills."""

    name: str
    requests: int
    ndcg: float
    first: float
    """The share whose skill is the first hit."""
    found: float
    """The share whose skill is among the first ten."""
    unshared: float
    """The share that has no word in common with the name, description and hint of its skill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCost:
    """Tokens in every prompt for a number of skills."""

    skills: int
    announced: int
    """If a client puts all names and descriptions there."""
    toolscout: int


def read_pairs(name: str) -> list[tuple[str, str]]:
    """Return the lines of a file: a skill, and its description or a request for it."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [(skill, text) for skill, _, text in (line.partition(" | ") for line in lines)]


def write_skills(folder: Path, count: int = SIZES[-1]) -> SkillFolder:
    """Write the first skills into a folder, and return that folder of skills."""
    for name, description in read_pairs("skills.txt")[:count]:
        place = folder / name
        place.mkdir()
        head = f'---\nname: {name}\ndescription: "{description}"\n---\n'
        (place / "SKILL.md").write_text(f"{head}\n# {name}\n", encoding="utf-8")
    return SkillFolder(folder)


def measure_skills(
    tools: Sequence[Tool], *, encoder: Literal["static", "onnx"] = "static"
) -> list[SkillQuality]:
    """Search for every request of every set, without hints and then with a hint on every skill."""
    hints = dict(read_pairs("hints.txt"))
    written = Hints()
    scout = Scout({"skills": tools}, encoder=encoder, hints=written)
    found = _search_all(scout, {})
    written.add({digest_definition(tool): hints[tool.leaf] for tool in tools}, by="benchmark")
    return found + _search_all(scout, hints)


def _search_all(scout: Scout, hints: Mapping[str, str]) -> list[SkillQuality]:
    names = [tool.leaf for tool in scout.catalog.tools]
    groups = {name: place for place, name in enumerate(names)}
    words = {
        name: _stem_words(f"{name} {text} {hints.get(name, '')}")
        for name, text in read_pairs("skills.txt")
    }
    found: list[SkillQuality] = []
    for title, file in SETS.items():
        pairs = read_pairs(file)
        rankings = [
            [groups[hit.tool.leaf] for hit in scout.index.search(text, limit=RANKING_DEPTH)]
            for _, text in pairs
        ]
        wanted = [groups[name] for name, _ in pairs]
        both = list(zip(rankings, wanted, strict=True))
        gains = [compute_ndcg(ranking, frozenset((one,)), RANKING_DEPTH) for ranking, one in both]
        found.append(
            SkillQuality(
                name=f"{title}, with hints" if hints else title,
                requests=len(pairs),
                ndcg=sum(gains) / len(pairs),
                first=sum(ranking[:1] == [one] for ranking, one in both) / len(pairs),
                found=sum(one in ranking for ranking, one in both) / len(pairs),
                unshared=sum(not words[n] & _stem_words(t) for n, t in pairs) / len(pairs),
            )
        )
    return found


def _stem_words(text: str) -> set[str]:
    return set(map(stem, drop_stop_words(split_words(text))))


def measure_prompts(sizes: Sequence[int] = SIZES) -> list[PromptCost]:
    """Count the tokens of every prompt for growing numbers of skills."""
    found: list[PromptCost] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as place:
            tools = write_skills(Path(place), size).tools
        costs = measure_costs(Scout({"skills": tools}, encoder=None), lambda done: None)
        found.append(
            PromptCost(
                skills=costs.skills, announced=costs.announced, toolscout=costs.requests[GATEWAY]
            )
        )
    return found


def tabulate_skills(quality: Sequence[SkillQuality], costs: Sequence[PromptCost]) -> list[Table]:
    """Return both measurements as tables."""
    return [
        Table(
            title=f"Search among {SIZES[-1]} skills",
            head=("", "requests", f"nDCG@{RANKING_DEPTH}", "first", "in ten", "no word shared"),
            rows=tuple(
                (
                    one.name,
                    str(one.requests),
                    f"{one.ndcg:.3f}",
                    f"{one.first:.1%}",
                    f"{one.found:.1%}",
                    f"{one.unshared:.1%}",
                )
                for one in quality
            ),
        ),
        Table(
            title="Tokens in every prompt",
            head=("skills", "all announced", "with toolscout"),
            rows=tuple(
                (str(one.skills), f"{one.announced:,}", f"{one.toolscout:,}") for one in costs
            ),
        ),
    ]
