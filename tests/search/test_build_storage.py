"""Indexes on disk: equal answers, nothing encoded twice, broken files refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscout import Catalog, Index, Tool
from toolscout.demo import load_demo_catalog
from toolscout.encoders.encoder import CallableEncoder
from toolscout.errors import InvalidFile
from toolscout.search import build, shard
from toolscout.search.text import Field

QUERIES = (
    "open a pull request",
    "ping the team",
    "create_issue",
    "+slack message",
    "wether forcast",
)

names = st.text("abcdef_XYZ\u00e9\u6587", min_size=1, max_size=8).filter(
    lambda name: name.strip("_")
)
texts = st.text("abc def ghi \u6587\u5b57 issue", max_size=40)


def answers(index: Index, queries: tuple[str, ...] = QUERIES) -> list[list[tuple[str, float]]]:
    return [[(hit.tool.name, hit.score) for hit in index.search(query)] for query in queries]


class Counting:
    """Remembers every text that it was asked to encode."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.encoder = CallableEncoder(self.encode, name="letters")

    def encode(self, listed: list[str]) -> list[list[float]]:
        self.seen += listed
        return [[float(text.count(letter)) for letter in "aeioustrn"] for text in listed]


def test_a_loaded_index_gives_equal_answers(tmp_path: Path):
    catalog = load_demo_catalog()
    index = Index(catalog)
    index.save(tmp_path / "tools.index")

    assert answers(Index.load(tmp_path / "tools.index", catalog)) == answers(index)


@given(st.dictionaries(names, texts, min_size=1, max_size=8))
@settings(max_examples=40)
def test_any_catalogue_answers_the_same_after_saving_and_loading(
    tmp_path_factory: pytest.TempPathFactory, described: dict[str, str]
):
    catalog = Catalog({"s": [Tool.define(name, description=d) for name, d in described.items()]})
    index = Index(catalog, encoder=None)
    path = tmp_path_factory.mktemp("index") / "tools.index"
    index.save(path)
    queries = (*described, "issue abc")

    assert answers(Index.load(path, catalog, encoder=None), queries) == answers(index, queries)


def test_only_what_is_new_is_encoded_after_loading(tmp_path: Path):
    catalog = load_demo_catalog()
    first = Counting()
    Index(catalog, encoder=first.encoder).save(tmp_path / "tools.index")
    catalog.remove("github")
    catalog.replace("zoo", [Tool.define("feed_animals", description="Feed the animals.")])

    second = Counting()
    index = Index.load(tmp_path / "tools.index", catalog, encoder=second.encoder)

    assert len(second.seen) == 1
    assert len(index) == len(catalog)
    assert answers(index) == answers(Index(catalog, encoder=first.encoder))


def test_a_file_of_another_encoder_is_passed_over(tmp_path: Path):
    catalog = load_demo_catalog()
    Index(catalog, encoder=None).save(tmp_path / "tools.index")

    loaded = Index.load(tmp_path / "tools.index", catalog)

    assert answers(loaded) == answers(Index(catalog))


def test_a_file_of_other_field_weights_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    catalog = load_demo_catalog()
    Index(catalog, encoder=None).save(tmp_path / "tools.index")
    for module in (shard, build):  # what weighs, and what tells whether a file is stale
        monkeypatch.setattr(module, "FIELD_WEIGHTS", np.ones(len(Field)))

    loaded = Index.load(tmp_path / "tools.index", catalog, encoder=None)

    assert answers(loaded) == answers(Index(catalog, encoder=None))


def test_an_index_of_nothing_can_be_saved_and_grows_after_loading(tmp_path: Path):
    catalog = Catalog()
    Index(catalog).save(tmp_path / "tools.index")
    loaded = Index.load(tmp_path / "tools.index", catalog)

    catalog.replace("zoo", [Tool.define("feed_animals", description="Feed the animals.")])

    assert [hit.tool.name for hit in loaded.search("feed the animals")] == ["zoo__feed_animals"]


def test_an_approximate_index_is_saved_with_its_neighbours(tmp_path: Path):
    pytest.importorskip("usearch")
    catalog = load_demo_catalog()
    index = Index(catalog, approximate=True)
    index.save(tmp_path / "tools.index")

    loaded = Index.load(tmp_path / "tools.index", catalog, approximate=True)

    assert answers(loaded) == answers(index)


@pytest.mark.parametrize("kept", [0, 1, 100, 5_000, -1])
def test_a_file_cut_short_is_refused_with_what_to_do(tmp_path: Path, kept: int):
    catalog = load_demo_catalog()
    path = tmp_path / "tools.index"
    Index(catalog, encoder=None).save(path)
    path.write_bytes(path.read_bytes()[:kept])

    with pytest.raises(InvalidFile, match="Delete it"):
        Index.load(path, catalog, encoder=None)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(InvalidFile, match="does not exist"):
        Index.load(tmp_path / "none.index", load_demo_catalog())


def test_a_save_that_fails_leaves_the_file_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "tools.index"
    index = Index(load_demo_catalog(), encoder=None)
    index.save(path)
    before = path.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        index.save(path)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
