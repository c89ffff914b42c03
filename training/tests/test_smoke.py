"""Every step of training, for a minute, on the demo catalogue."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from toolscout.demo import load_demo_catalog
from toolscout.encoders.encoder import StaticEncoder
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.errors import InvalidFile
from toolscout.evaluate.datasets import Dataset, make_names_unique, read_dataset
from toolscout.tools import Tool
from training import corpora, judging, phrases
from training.batches import Batches
from training.corpora import Corpus
from training.distilling import Distilling, distil
from training.exporting import export_model, export_table
from training.models import Model, find_stock_folder
from training.plots import draw
from training.recipe import FOLDS, REQUESTS, Recipe
from training.tuning import Run, contrast, tune

GOLDEN = Path(__file__).parents[2] / "tests" / "integration" / "golden.jsonl"
RECIPE = Recipe(steps=12, batch=12, rate=1e-4, question_tokens=24, text_tokens=32)
TOKENIZER = find_stock_folder() / "tokenizer.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo catalogue and its golden questions in the format of datasets."""
    folder = tmp_path_factory.mktemp("data") / "demo"
    folder.mkdir()
    tools = [
        {
            "id": tool.name,
            "name": tool.leaf,
            "server": tool.server,
            "description": tool.description,
            "input_schema": tool.input_schema,
        }
        for tool in load_demo_catalog()
    ]
    golden = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    asked = [
        {"id": str(i), "query": row["query"], "relevant": row["relevant"]}
        for i, row in enumerate(golden)
    ]
    (folder / "tools.jsonl").write_text("\n".join(map(json.dumps, tools)))
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, asked)))
    (folder / "META.md").write_text("- Licence: Apache-2.0\n")
    return folder


@pytest.fixture(scope="module")
def corpus(folder: Path) -> Corpus:
    return corpora.read_corpus(folder, seed=1)


@pytest.fixture(scope="module")
def batches(corpus: Corpus) -> Batches:
    return Batches(RECIPE, [corpus], list(phrases.make_phrases(list(load_demo_catalog()), seed=1)))


@dataclass(frozen=True)
class Trained:
    run: Run
    losses: list[float]
    model: Model


@pytest.fixture(scope="module")
def trained(batches: Batches, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    run = Run(tmp_path_factory.mktemp("run"), RECIPE)
    losses = [loss for _, loss in tune(run, RECIPE, batches, checkpoint_steps=5)]
    model = Model()
    model.take(torch.load(run.weights_file))
    return Trained(run, losses, model)


def measure_loss(model: Model, batches: Batches) -> float:
    """Return the loss of a model over a few batches."""
    losses: list[float] = []
    for batch in map(batches.at, range(8)):
        questions = torch.from_numpy(model.encode(batch.questions, tokens=24))
        texts = torch.from_numpy(model.encode(batch.texts, tokens=32))
        losses.append(contrast(questions @ texts.T / RECIPE.temperature, batch.forbidden).item())
    return float(np.mean(losses))


def test_training_lowers_the_loss_and_leaves_a_log_and_a_curve(
    trained: Trained, batches: Batches
) -> None:
    assert len(trained.losses) == RECIPE.steps
    assert measure_loss(trained.model, batches) < measure_loss(Model(), batches)
    assert trained.run.is_done
    rows = [json.loads(line) for line in trained.run.log_file.read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, RECIPE.steps + 1))
    picture = trained.run.folder / "log.png"
    draw(trained.run.log_file, picture, title="demo")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(
    trained: Trained, batches: Batches, tmp_path: Path
) -> None:
    run = Run(tmp_path, RECIPE)
    for step, _ in tune(run, RECIPE, batches, checkpoint_steps=5):
        if step == 7:
            break
    assert not run.is_done
    again = list(tune(run, RECIPE, batches, checkpoint_steps=5))
    assert [step for step, _ in again] == list(range(6, RECIPE.steps + 1))
    assert np.allclose([loss for _, loss in again], trained.losses[5:], atol=1e-3)


def test_a_run_of_another_recipe_is_not_taken_up(trained: Trained) -> None:
    other = Run(trained.run.folder, replace(RECIPE, rate=1e-5))
    assert not other.is_done


def test_an_exported_model_gives_the_vectors_of_the_trained_one(
    trained: Trained, corpus: Corpus, tmp_path: Path
) -> None:
    export_model(trained.model, tmp_path)
    texts = corpus.texts[:40]
    found = OnnxEncoder(tmp_path).encode(texts, kind="tool")
    likeness = (found * trained.model.encode(texts)).sum(axis=1)
    assert likeness.min() > 0.97


def test_a_distilled_table_ranks_as_its_teacher_does(
    trained: Trained, folder: Path, corpus: Corpus, tmp_path: Path
) -> None:
    export_model(trained.model, tmp_path)
    teacher = OnnxEncoder(tmp_path)
    texts = [*corpus.texts, *(one.text for one in corpus.asked)]
    taught = teacher.encode(texts, kind="tool")
    settings = Distilling(width=64, epochs=40, batch=64)
    *_, (_, table) = distil(teacher, TOKENIZER, texts, taught, settings)
    export_table(table, tmp_path / "table.npz", TOKENIZER)
    found = judging.score_alone(read_dataset(folder), StaticEncoder(tmp_path / "table.npz"))
    assert found[:, judging.NDCG].mean() > 0.6


def test_a_dataset_without_a_permissive_licence_is_refused(tmp_path: Path) -> None:
    (tmp_path / "META.md").write_text("- Licence: none stated\n")
    with pytest.raises(InvalidFile, match="no permissive licence"):
        corpora.read_licence(tmp_path)


def test_siblings_are_near_but_neither_wanted_nor_twins(corpus: Corpus) -> None:
    assert sum(bool(one.near) for one in corpus.asked) > 0.9 * len(corpus.asked)
    for one in corpus.asked:
        assert not {corpus.groups[place] for place in one.near} & set(one.relevant)


def test_a_left_out_dataset_is_in_no_batch(corpus: Corpus) -> None:
    seen = replace(corpus, name="seen", leaves=("other",) * len(corpus.leaves))
    seen = replace(seen, servers=("visible",) * len(seen.servers))
    hidden = replace(
        corpus,
        name="hidden",
        texts=tuple(f"hidden {text}" for text in corpus.texts),
        folds=("a",) * len(corpus.texts),
    )
    namesake = phrases.Phrase("a question", "hidden in other words", "server", hidden.leaves[0])
    other = phrases.Phrase("a question", "another text", "server", "other name")
    neighbour = phrases.Phrase("a question", "hidden by its server", hidden.servers[0], "own name")
    drawn = Batches(RECIPE.without("a"), [seen, hidden], [namesake, neighbour, other])
    texts = [text for step in range(30) for text in drawn.at(step).texts]
    assert texts
    assert not any(text.startswith("hidden") for text in texts)


def test_a_fold_leaves_out_some_servers_of_a_shared_catalogue(corpus: Corpus) -> None:
    servers = sorted(set(corpus.servers))
    out = set(servers[::2])
    folds = tuple("b" if server in out else "a" for server in corpus.servers)
    shared = replace(corpus, folds=folds)
    hidden = {text for text, fold in zip(shared.texts, folds, strict=True) if fold == "b"}
    drawn = Batches(RECIPE.without("b"), [shared], [])
    texts = {text for step in range(30) for text in drawn.at(step).texts}
    assert texts
    assert texts.isdisjoint(hidden)


def test_copies_of_a_server_are_left_out_together() -> None:
    names = ("read_page", "write_page", "delete_page")
    copies = [Tool.define(name, server=server) for server in ("notes", "fork") for name in names]
    others = [Tool.define(name, server="mail") for name in ("send", "read_page")]
    tools = make_names_unique([*copies, *others])
    catalogue = Dataset(
        name=REQUESTS[0],
        tools=tools,
        ids=tuple(tool.name for tool in tools),
        groups=tuple(range(len(tools))),
        queries=(),
    )
    folds = corpora.assign_folds(catalogue)
    assert len(set(folds[:6])) == 1
    assert set(folds) <= set(FOLDS)


def test_tools_are_seen_with_their_hints_in_some_batches(corpus: Corpus) -> None:
    hinted = replace(corpus, hints=tuple(f"hint {place}" for place in range(len(corpus.texts))))
    drawn = Batches(RECIPE, [hinted], [])
    shares = {
        sum(map(bool, drawn.at(step).hints)) / len(drawn.at(step).hints) for step in range(40)
    }
    assert 0.0 in shares
    assert 1.0 in shares
    assert any(0.2 < share < 0.8 for share in shares)


def test_what_also_answers_a_question_counts_neither_for_nor_against() -> None:
    scores = torch.tensor([[5.0, 0.0, 9.0], [0.0, 5.0, 0.0]])
    free = torch.zeros(2, 3, dtype=torch.bool)
    barred = free.clone()
    barred[0, 2] = True
    assert contrast(scores, barred) < 0.02 < contrast(scores, free)


def test_batches_are_the_same_each_time(batches: Batches) -> None:
    first, again = batches.at(3), batches.at(3)
    assert _said(first.questions) == _said(again.questions)
    assert _said(first.questions) != _said(batches.at(4).questions)


def _said(texts: Sequence[str]) -> str:
    return "\n".join(texts)
