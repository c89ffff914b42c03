"""The steps of training, each of which can be stopped and taken up again."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks.fitting import read_hints
from toolscout.encoders.encoder import Blended, Encoder
from toolscout.encoders.onnx import OnnxEncoder
from toolscout.evaluate.datasets import read_dataset
from training import corpora, figures, phrases, plots
from training.batches import Batches, keep_visible
from training.distilling import Distilling, Floats, distil
from training.exporting import export_model, export_table
from training.models import Model, find_stock_folder
from training.places import Places, compute_digest_of_data, write_json
from training.recipe import FOLDS, REQUESTS, UNLABELLED, Recipe
from training.shipping import ship
from training.stock import StockTable
from training.tuning import Run, tune

LABELLED = tuple(sorted((*REQUESTS, *(name for names in FOLDS.values() for name in names))))
PHRASES = 14_000
"""Tools of each unlabelled dataset that phrases are made of."""
TAUGHT_AT_ONCE = 1_000
TAUGHT_PHRASES = 40_000
"""Texts of phrases that a table learns from besides those of the labelled datasets."""
TUNED_SHARE = 0.6
"""Of the tuned model in what teaches a table; the stock table, which has read far more, is the
rest."""
FOLD = click.Choice([*FOLDS, "all"])

console = Console()


@click.group()
@click.option("--work", default="build/encoder", type=click.Path(path_type=Path))
@click.option("--threads", default=2, help="Threads of the processor to train with.")
@click.pass_context
def main(context: click.Context, work: Path, threads: int) -> None:
    """Train toolscout's encoders; `make encoder` runs all steps."""
    torch.set_num_threads(threads)
    context.obj = Places(work)


@main.command()
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.option("--hints", default="training/hints", type=click.Path(path_type=Path))
@click.pass_obj
def prepare(places: Places, data: Path, hints: Path) -> None:
    """Read the datasets in DATA: texts, questions, near siblings, hints, phrases."""
    seed = Recipe().seed
    sources: dict[str, Any] = {}
    with Progress(console=console) as progress:
        task = progress.add_task("prepare", total=len(LABELLED) + len(UNLABELLED))
        for name in LABELLED + UNLABELLED:
            folder = data / name
            licence, digest = corpora.read_licence(folder), compute_digest_of_data(folder)
            sources[name] = {"licence": licence, "sha256": digest}
            if name in LABELLED:
                corpora.read_corpus(folder, seed=seed, hints=hints).save(places.corpus(name))
            progress.advance(task)
    phrases.save(_make_phrases(data, hints, seed), places.phrases)
    write_json(places.sources, sources)


def _make_phrases(data: Path, hints: Path, seed: int) -> list[phrases.Phrase]:
    made: list[phrases.Phrase] = []
    for name in UNLABELLED:
        read = read_dataset(data / name)
        order = np.random.default_rng(seed).permutation(len(read.tools))[:PHRASES]
        made += phrases.make_phrases([read.tools[i] for i in order], seed=seed)
        known = read_hints(read, hints)
        listed = [known.get(key, "") for key in read.ids]
        made += phrases.make_hint_phrases(read.tools, listed, seed=seed)
    return made


@main.command("tune")
@click.argument("fold", type=FOLD)
@click.option("--steps", default=Recipe().steps)
@click.pass_obj
def tune_fold(places: Places, fold: str, steps: int) -> None:
    """Tune the transformer without the datasets of FOLD, and export it."""
    recipe = Recipe(steps=steps).without(fold)
    run = Run(places.run(fold), recipe)
    if not run.is_done:
        batches = Batches(recipe, _load_corpora(places), phrases.load(places.phrases))
        _run_with_progress(f"tune {fold}", recipe.steps, tune(run, recipe, batches))
        plots.draw(run.log_file, run.folder / "log.png", title=f"fold {fold}")
    model = Model()
    model.take(torch.load(run.weights_file))
    export_model(model, places.model(fold))


@main.command("stock")
@click.pass_obj
def export_stock(places: Places) -> None:
    """Export the model as it is before tuning, for comparison."""
    export_model(Model(), places.model("stock"))


@main.command("distil")
@click.argument("fold", type=FOLD)
@click.pass_obj
def distil_fold(places: Places, fold: str) -> None:
    """Distil a table from the tuned model of FOLD and the stock table."""
    tuned = OnnxEncoder(places.model(fold), threads=torch.get_num_threads())
    teacher = Blended(StockTable(), tuned, share=TUNED_SHARE)
    texts = _collect_texts(places, fold)
    taught = _encode_with_teacher(places, fold, teacher, texts)
    settings = Distilling()
    tokenizer_file = find_stock_folder() / "tokenizer.json"
    steps = settings.epochs * -(-len(texts) // settings.batch)
    made = distil(teacher, tokenizer_file, texts, taught, settings)
    table = _run_with_progress(f"distil {fold}", steps, made)
    export_table(table, places.table(fold), tokenizer_file)


def _encode_with_teacher(places: Places, fold: str, teacher: Encoder, texts: list[str]) -> Floats:
    """Return the teacher's vectors, from the cache if nothing has changed since."""
    file = places.run(fold) / "taught.npz"
    stamp = f"{teacher.name} {sha256(chr(0).join(texts).encode()).hexdigest()}"
    if file.exists():
        with np.load(file) as kept:
            if str(kept["stamp"]) == stamp:
                return kept["vectors"]
    batches = [texts[i : i + TAUGHT_AT_ONCE] for i in range(0, len(texts), TAUGHT_AT_ONCE)]
    found = (teacher.encode(batch, kind="tool") for batch in batches)
    rows: list[Floats] = []
    _run_with_progress(f"teach {fold}", len(batches), ((0, rows.append(row)) for row in found))
    vectors = np.concatenate(rows)
    np.savez(file, vectors=vectors, stamp=np.array(stamp))
    return vectors


def _collect_texts(places: Places, fold: str) -> list[str]:
    """Return what a table learns from: tools, hints and questions, none that a fold leaves out."""
    read = _load_corpora(places)
    found: dict[str, None] = {}
    for one in read:
        rows = zip(one.texts, one.hints, one.folds, strict=True)
        found |= dict.fromkeys(
            text for *both, hidden_in in rows if hidden_in != fold for text in both if text
        )
        found |= dict.fromkeys(asked.text for asked in keep_visible(one, fold).asked)
    others = phrases.drop_hidden(phrases.load(places.phrases), read, fold)
    made = dict.fromkeys(text for one in others for text in (one.text, one.question))
    new = [text for text in made if text not in found]
    return [*found, *Random(Recipe().seed).sample(new, min(len(new), TAUGHT_PHRASES))]


def _load_corpora(places: Places) -> list[corpora.Corpus]:
    return [corpora.Corpus.load(places.corpus(name)) for name in LABELLED]


def _run_with_progress(label: str, total: int, steps: Iterator[tuple[Any, Any]]) -> Any:
    """Go through steps with a progress bar and return the last one's second value."""
    found: Any = None
    with Progress(console=console) as progress:
        task = progress.add_task(label, total=total)
        for _, made in steps:
            found = made
            progress.advance(task)
    return found


@main.command()
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.option("--hints", default="training/hints", type=click.Path(path_type=Path))
@click.option("--stock/--no-stock", default=True, help="Compare with the stock encoders too.")
@click.pass_obj
def judge(places: Places, data: Path, hints: Path, stock: bool) -> None:
    """Measure the encoders on datasets in DATA that were left out, and fit the fusions."""
    found: dict[str, Any] = {"tiers": figures.measure_tiers(places, data, hints, say=console.print)}
    console.print(figures.tabulate_tiers(found["tiers"]), markup=False)
    for family, tier in found["tiers"].items():
        console.print(f"{family}\n{tier['weights']}\n{tier['calibration']}", markup=False)
    if stock:
        found |= figures.measure_encoders(places, data, say=console.print)
        console.print(figures.table(found), markup=False)
    write_json(places.report, found)


@main.command("ship")
@click.pass_obj
def ship_final(places: Places) -> None:
    """Put the final model and table into the packages."""
    sources = json.loads(places.sources.read_text())
    report = json.loads(places.report.read_text()) if places.report.exists() else None
    for name, digest in ship(places, sources, report).items():
        console.print(f"{digest}  {name}")


@main.command("all")
@click.argument("data", type=click.Path(exists=True, path_type=Path))
@click.pass_context
def all_steps(context: click.Context, data: Path) -> None:
    """Do everything: prepare, tune and distil each fold and the final model, judge."""
    places: Places = context.obj
    if not places.sources.exists():
        context.invoke(prepare, data=data)
    context.invoke(export_stock)
    for fold in (*FOLDS, "all"):
        context.invoke(tune_fold, fold=fold)
        context.invoke(distil_fold, fold=fold)
    context.invoke(judge, data=data)
    context.invoke(ship_final)


if __name__ == "__main__":
    main()
