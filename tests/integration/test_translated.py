"""Everyday requests in seven languages to the English tools of the demo catalogue.

Run with `-s` to see the table. The floors only guard against losing what there is.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pytest

from toolscout.demo import load_demo_catalog
from toolscout.search.hits import Result
from toolscout.search.index import EncoderChoice, Index

TRANSLATED = Path(__file__).parent / "translated.jsonl"
DEPTH = 5
ENGLISH_SHARE = 0.9
ALLOWANCE = 0.08
MEASURED = {
    "en": (0.958, 0.924),
    "zh": (0.917, 0.762),
    "ja": (0.875, 0.770),
    "ko": (0.875, 0.743),
    "de": (0.750, 0.674),
    "fr": (0.833, 0.764),
    "es": (0.792, 0.747),
}
"""For each language: the share found in the first five, and the mean reciprocal rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    query: str
    language: str
    relevant: list[str]
    source: str
    """Which request this is, whatever the language."""


REQUESTS = [
    Request(**json.loads(line)) for line in TRANSLATED.read_text(encoding="utf-8").splitlines()
]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(load_demo_catalog())


def measured(index: Index, language: str) -> tuple[float, float]:
    """Return how much is found in the first five, and the mean reciprocal rank."""
    ranks = [
        rank(index.search(one.query), one.relevant) for one in REQUESTS if one.language == language
    ]
    return mean(0 < one <= DEPTH for one in ranks), mean(1 / one if one else 0.0 for one in ranks)


def rank(result: Result, wanted: list[str]) -> int:
    """Return the place of the first wanted tool, counted from 1; 0 if there is none."""
    places = (place for place, hit in enumerate(result, start=1) if hit.tool.name in wanted)
    return next(places, 0)


def test_every_request_names_tools_that_exist():
    names = {tool.name for tool in load_demo_catalog()}

    assert [one for one in REQUESTS if not one.relevant or not names.issuperset(one.relevant)] == []


def test_every_request_is_told_once_in_every_language_and_wants_the_same():
    told: dict[str, list[str]] = {}
    wanted: dict[str, set[tuple[str, ...]]] = {}
    for one in REQUESTS:
        told.setdefault(one.source, []).append(one.language)
        wanted.setdefault(one.source, set()).add(tuple(one.relevant))

    assert len(told) == 24
    assert {tuple(sorted(languages)) for languages in told.values()} == {tuple(sorted(MEASURED))}
    assert {len(kinds) for kinds in wanted.values()} == {1}


@pytest.mark.parametrize("encoder", ["static", None], ids=["default", "words alone"])
def test_no_query_raises_in_any_language(encoder: EncoderChoice):
    index = Index(load_demo_catalog(), encoder=encoder)

    results = [index.search(one.query) for one in REQUESTS]

    assert len(results) == len(REQUESTS)


def test_quality_is_printed_for_every_language(index: Index):
    print(f"\n{'language':<10}{'queries':>8}{'found@5':>9}{'mrr':>7}")  # noqa: T201 - what it is for
    for language in MEASURED:
        count = sum(one.language == language for one in REQUESTS)
        found, reciprocal = measured(index, language)
        print(f"{language:<10}{count:>8}{found:>9.3f}{reciprocal:>7.3f}")  # noqa: T201 - likewise

    assert {one.language for one in REQUESTS} == MEASURED.keys()


def test_english_requests_find_their_tools(index: Index):
    found, _ = measured(index, "en")

    assert found >= ENGLISH_SHARE


@pytest.mark.parametrize("language", MEASURED)
def test_no_language_finds_much_less_than_was_measured(index: Index, language: str):
    """The floors only guard against losing what there is with the default encoder."""
    found, reciprocal = measured(index, language)

    assert found >= MEASURED[language][0] - ALLOWANCE
    assert reciprocal >= MEASURED[language][1] - ALLOWANCE
