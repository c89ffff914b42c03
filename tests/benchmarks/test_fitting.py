import numpy as np
import pytest

from benchmarks.fitting import (
    Examples,
    build_examples,
    compute_standing,
    cross_validate,
    fit,
    rank_groups,
)
from toolscout.evaluate.datasets import Dataset, Question, make_names_unique
from toolscout.evaluate.quality import METRICS
from toolscout.search.fusion import CERTAINTY, LEXICAL, WEIGHTS, Fusion, Signal
from toolscout.tools import Tool

NOTHING = Fusion(weights=(0.0,) * WEIGHTS, calibration=(0.0,) * (2 + len(CERTAINTY)))

CODE = (
    ("create_issue", "Open an issue in a repository.", "open a new issue about a crash"),
    ("list_issues", "List the issues of a repository.", "which issues does the repository have"),
    ("merge_branch", "Merge one branch into another.", "merge my branch"),
    ("delete_branch", "Delete a branch of a repository.", "delete the old branch"),
    ("search_code", "Search code in all repositories.", "search for code that parses dates"),
    ("list_commits", "List the commits of a branch.", "list the last commits of a branch"),
)
MAIL = (
    ("send_mail", "Send a mail to one or more people.", "send a mail to Ann"),
    ("search_mail", "Search the mails of a folder.", "search mails about the invoice"),
    ("delete_mail", "Delete a mail for good.", "delete that mail"),
    ("move_mail", "Move a mail into a folder.", "move the mail into the archive folder"),
    ("create_folder", "Create a folder for mails.", "create a folder for mails of the team"),
    ("list_folders", "List all folders.", "list my folders"),
)
FILES = (
    ("read_file", "Read the text of a file.", "read the file with the notes"),
    ("write_file", "Write text into a file.", "write text into a new file"),
    ("list_folder", "List the files of a folder.", "list files of the folder"),
    ("copy_file", "Copy a file to another place.", "copy a file"),
    ("delete_file", "Delete a file.", "delete the file"),
    ("search_files", "Search files by their text.", "search all files by text"),
)


def dataset(name: str, rows: tuple[tuple[str, str, str], ...]) -> Dataset:
    tools = make_names_unique(
        [Tool.define(leaf, server=name, description=said) for leaf, said, _ in rows]
    )
    ids = tuple(f"{name}/{leaf}" for leaf, _, _ in rows)
    queries = [
        Question(id=str(number), text=text, relevant=(ids[number],))
        for number, (_, _, text) in enumerate(rows)
    ]
    groups = tuple(range(len(tools)))
    return Dataset(name=name, tools=tools, ids=ids, groups=groups, queries=tuple(queries))


@pytest.fixture(scope="module")
def sets() -> list[Examples]:
    all_sets = [dataset("code", CODE), dataset("mail", MAIL), dataset("files", FILES)]
    return [
        build_examples(
            one,
            None,
            limit=100,
            strangers=[tool for other in all_sets if other is not one for tool in other.tools],
        )
        for one in all_sets
    ]


def test_examples_hold_the_evidence_of_each_query_alone_and_among_strangers(sets: list[Examples]):
    for examples in sets:
        assert len(examples.alone) == len(examples.crowded) == 6
        assert examples.both == examples.alone + examples.crowded
        for example in examples.both:
            assert example.evidence.shape == (len(example.groups), len(Signal))
            assert np.isfinite(example.evidence).all()
            assert -1 <= example.length <= 1
            assert example.wanted.sum() == 1


def test_strangers_answer_nothing(sets: list[Examples]):
    own = set(range(6))

    for example in sets[0].crowded:
        assert example.relevant <= own
        assert [group in own for group in example.groups].count(True) <= len(own)
    assert any(set(example.groups) - own for example in sets[0].crowded)
    assert all(set(example.groups) <= own for example in sets[0].alone)


def test_at_most_the_limit_of_queries_is_looked_at():
    counts: list[tuple[int, int]] = []

    def note(stage: str, done: int, total: int) -> None:
        counts.append((done, total))

    examples = build_examples(dataset("mail", MAIL), None, limit=4, progress=note)

    assert len(examples.alone) == 4
    assert examples.crowded == ()
    assert counts == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_fit_is_finite_and_of_the_right_size(sets: list[Examples]):
    fusion = fit(sets, "")

    assert len(fusion.weights) == WEIGHTS
    assert len(fusion.calibration) == 2 + len(CERTAINTY)
    assert np.isfinite(fusion.weights).all()
    assert np.isfinite(fusion.calibration).all()


def test_a_fit_without_an_encoder_weighs_words_alone(sets: list[Examples]):
    fusion = fit(sets, "")

    for signal in Signal:
        assert signal in LEXICAL or fusion.weights[signal] == 0
    for number, signal in zip(fusion.calibration[2:], CERTAINTY, strict=True):
        assert signal in LEXICAL or number == 0


@pytest.mark.parametrize("family", ["", "static"])
def test_a_fit_ranks_at_least_as_well_as_no_weights(sets: list[Examples], family: str):
    fusion = fit(sets, family)

    for examples in sets:
        fitted, plain = compute_standing(examples, fusion), compute_standing(examples, NOTHING)
        for metric in ("hit@1", "ndcg@5", "mrr"):
            assert fitted.metrics[metric] >= plain.metrics[metric]
            assert fitted.crowded[metric] >= plain.crowded[metric]
        assert fitted.metrics["mrr"] > 0.8


def test_the_same_sets_give_the_same_fit(sets: list[Examples]):
    assert fit(sets, "") == fit(sets, "")


def test_queries_that_nothing_answers_do_not_break_a_fit(sets: list[Examples]):
    lost = dataset("lost", (*MAIL, ("quux", "Grumble.", "zzzz qqqq")))
    examples = build_examples(lost, None, limit=100)

    assert not all(example.wanted.any() for example in examples.alone)
    assert np.isfinite(fit([*sets, examples], "").weights).all()
    assert 0 < compute_standing(examples, fit([*sets, examples], "")).metrics["mrr"] < 1


def test_each_set_stands_under_the_fit_of_the_others(sets: list[Examples]):
    standings = cross_validate(sets, "")

    assert list(standings) == ["code", "mail", "files"]
    for examples in sets:
        others = [other for other in sets if other is not examples]
        assert standings[examples.name] == compute_standing(examples, fit(others, ""))


def test_a_standing_has_every_metric_and_how_often_labels_hold(sets: list[Examples]):
    standing = compute_standing(sets[0], fit(sets, ""))

    assert standing.metrics.keys() == standing.crowded.keys() == METRICS.keys()
    assert sum(count for _, count in standing.reliability.values()) == len(sets[0].both)
    for share, count in standing.reliability.values():
        assert 0 <= share <= 1
        assert count >= 1


def test_a_standing_without_strangers_says_nothing_of_them(sets: list[Examples]):
    alone = Examples(name="alone", alone=sets[0].alone, crowded=())

    assert compute_standing(alone, NOTHING).crowded == {}


def test_candidates_of_equal_score_keep_their_order(sets: list[Examples]):
    for example in sets[0].both:
        assert rank_groups(example, NOTHING) == list(example.groups[:10])
