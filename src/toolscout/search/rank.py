"""Rank the candidates of a question, and explain a ranking.

`Ranker` combines question, candidates, evidence and fusion for one encoder. If nothing matches
well, it also tries the question in English and with typing errors corrected; only whole words of
names serve as corrections (R32). `explain` says in words why a candidate got its rank. `index`
turns rankings into hits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import process
from rapidfuzz.distance import OSA

from toolscout.encoders.encoder import Encoder
from toolscout.encoders.static import WordMemory
from toolscout.search.candidates import (
    Similarities,
    choose_candidates,
    count_candidates,
    find_best,
    score_lexically,
)
from toolscout.search.evidence import fill_lexical, fill_meaning, fill_name_meaning, find_matches
from toolscout.search.fusion import (
    LATIN_FAMILIES,
    LIKELY,
    Doubles,
    Fusion,
    Signal,
    choose_fusion,
    compute_gate,
)
from toolscout.search.hits import Why
from toolscout.search.lexical import Floats
from toolscout.search.question import Question, read_question
from toolscout.search.shard import Mask, State
from toolscout.search.text import STOP_WORDS, Field, drop_stop_words, split_words, stem
from toolscout.search.translate import Lexicon
from toolscout.search.vectors import encode_questions
from toolscout.tools import Tool

SHORTEST = 4
"""Letters of the shortest word that is corrected."""
KNOWN_SHARE = 0.2
"""A question is not translated if tools have more than this share of its foreign words."""
ASKED_WORDS = 64
"""How many words of a question are compared with the words of names."""


@dataclass(frozen=True)
class Ranking:
    """The candidates of one question, with the evidence for each."""

    question: Question
    places: NDArray[np.int64]
    evidence: Doubles
    fusion: Fusion
    scores: Doubles
    order: NDArray[np.int64]
    """Rows of all candidates, highest score first; equal scores are sorted by name."""
    total: int
    best: NDArray[np.int64]
    """The first rows of `order`, as many as were requested."""
    chances: list[float]
    """How likely each of `best` is the wanted tool, in falling order, rounded to six digits."""

    @property
    def top_chance(self) -> float:
        """How likely the best candidate is the wanted tool; 0 if there is no candidate."""
        return self.chances[0] if self.chances else 0.0


class Ranker:
    """Ranks with one encoder and one fusion."""

    def __init__(
        self, encoder: Encoder | None, word_vectors: WordMemory | None, fusion: Fusion | None
    ) -> None:
        family = encoder.family if encoder else ""
        self._encoder = encoder
        self._fusion = fusion or choose_fusion(family)
        self._latin_only = family in LATIN_FAMILIES
        self._word_vectors = word_vectors

    def rank_corrected(
        self, state: State, text: str, mask: Mask, wanted: int
    ) -> tuple[Ranking, Mapping[str, str]]:
        """Return the best ranking of a text and the words that were replaced to get it."""
        ranking = self.rank(state, text, mask, wanted=wanted)
        if not ranking.question.unknown:
            return ranking, {}
        english, read = self._translate(state, ranking.question)
        if read:
            better = self.rank(state, english, mask, wanted=wanted)
            if better.top_chance > ranking.top_chance:
                return better, read
        swap = self._find_corrections(state, ranking)
        if swap:
            better = self.rank(state, text, mask, wanted=wanted, swap=swap)
            if better.top_chance > ranking.top_chance:
                return better, swap
        return ranking, {}

    def _translate(self, state: State, question: Question) -> tuple[str, Mapping[str, str]]:
        """Return a question's text in English, and its foreign words with their translations."""
        if self._encoder is not None and not self._latin_only:
            return "", {}  # an encoder that may know the language needs no help
        foreign = [stem(word) for word in question.words if not word.isascii()]
        if len(state.number_terms(foreign)) > KNOWN_SHARE * len(foreign):
            return "", {}  # tools are described in the question's own language

        def is_unknown(word: str) -> bool:
            return not state.number_terms([stem(part) for part in split_words(word)])

        lexicon = Lexicon.load()
        read = lexicon.find_foreign(question.text, is_unknown)
        # Related languages share words with English, but English text has English stop words.
        if _is_latin(question.text) and len(read) < sum(
            w in STOP_WORDS for w in split_words(question.text)
        ):
            return "", {}
        return lexicon.translate(question.text, is_unknown), read

    def _find_corrections(self, state: State, ranking: Ranking) -> Mapping[str, str]:
        """Return corrections of words that no tool has, unless the question matched well."""
        if ranking.top_chance >= LIKELY:
            return {}
        unknown = [w for w in ranking.question.words if state.find(stem(w)) is None]
        return find_corrections(unknown, state.live_words)

    def rank(
        self,
        state: State,
        text: str,
        mask: Mask,
        *,
        wanted: int = 1,
        also: Sequence[int] = (),
        swap: Mapping[str, str] | None = None,
    ) -> Ranking:
        """Return the ranking of a text among the places of a mask.

        Places in `also` are always candidates; `swap` maps words to the words to read instead.
        """
        question = read_question(text, state.number_terms, swap)
        count = count_candidates(wanted)
        places, lines, total = self._find_candidates(state, question, mask, also, count)
        table = self._collect_evidence(state, question, places, lines)
        fusion = self._fusion if lines is not None else choose_fusion("")
        scores = fusion.score(table.T, question.length, compute_gate(table.T)).round(9)
        order, rivals = _sort_by_score(state, places, scores)
        best = order[:wanted]
        found = fusion.list_chances(table.take(best, axis=1).T, rivals[:wanted], rivals)
        chances = [round(chance * 1e6) / 1e6 for chance in accumulate(found, min)]
        return Ranking(question, places, table.T, fusion, scores, order, total, best, chances)

    def _find_candidates(
        self, state: State, question: Question, mask: Mask, also: Sequence[int], count: int
    ) -> tuple[NDArray[np.int64], Floats | None, int]:
        """Return the candidates, their similarities, and how many tools match at all.

        Similarities are None if only words count for this question.
        """
        if not state.shards:
            return np.zeros(0, np.int64), None, 0
        lexical = score_lexically(state, question)
        if mask is not state.open or state.count < len(mask):
            lexical *= mask
        matched = int(np.count_nonzero(lexical > 0))  # much faster on booleans than on floats
        # An encoder trained on English sees only noise in other scripts; matching words are better.
        if self._encoder is None or (matched and self._latin_only and not _is_latin(question.text)):
            found = lexical.nonzero()[0]
            places = found[find_best(state, lexical[found], found, count=count)]
            return np.union1d(places, also) if also else places, None, matched
        similar = self._compare_meaning(state, question, self._encoder)
        places, lines = choose_candidates(state, lexical, similar, mask, also, count)
        return places, lines, max(matched, len(places))

    def _compare_meaning(self, state: State, question: Question, encoder: Encoder) -> Similarities:
        texts = list(dict.fromkeys((question.text, question.plain, *question.clauses)))
        vectors = encode_questions(encoder, texts)
        lines = [texts.index(t) for t in (question.text, question.plain, *question.clauses)]
        return Similarities(state, vectors, lines)

    def _collect_evidence(
        self,
        state: State,
        question: Question,
        places: NDArray[np.int64],
        lines: Floats | None,
    ) -> Doubles:
        """Return the evidence: a row for each signal, a column for each candidate."""
        table = np.zeros((len(Signal), len(places)))
        if len(places):
            fill_lexical(table, question, state, places)
            if lines is not None:
                fill_meaning(table, lines)
                if question.words and self._word_vectors:
                    asked = self._word_vectors.get(question.words[:ASKED_WORDS])
                    vectors = np.concatenate(asked).reshape(len(asked), -1)
                    fill_name_meaning(table, question, state, places, vectors)
        return table


def _sort_by_score(
    state: State, places: NDArray[np.int64], scores: Doubles
) -> tuple[NDArray[np.int64], Doubles]:
    """Return the rows, highest score first and ties by name, and the scores in that order."""
    order = scores.argsort()[::-1]
    ranked = scores.take(order)
    if np.logical_and.reduce(ranked[1:] < ranked[:-1]):
        return order, ranked
    listed: list[int] = places.tolist()
    names = [state.tools[place].name for place in listed]
    by_name = sorted(range(len(names)), key=lambda row: (-scores[row], names[row]))
    return np.array(by_name), ranked


def _is_latin(text: str) -> bool:
    """Tell whether most letters of a text are Latin."""
    if text.isascii():
        return True
    letters = [char for char in text[:2_000] if char.isalpha()]
    return 2 * sum(char < "\u0250" for char in letters) >= len(letters)


def find_corrections(typed: Sequence[str], known: Sequence[str]) -> Mapping[str, str]:
    """Return the known word for each typed word that is one edit away from it.

    Words of eight letters or more may be two edits away.
    """
    found: dict[str, str] = {}
    for word in typed:
        if len(word) < SHORTEST:
            continue
        edits = 1 if len(word) < 8 else 2
        # `known` is sorted and the first of equally near words wins, so ties go by name.
        near = process.extractOne(word, known, scorer=OSA.distance, score_cutoff=edits)
        if near is not None:
            found[word] = near[0]
    return found


FIELD_NAMES = {
    Field.NAME: "name",
    Field.SERVER: "server",
    Field.DESCRIPTION: "description",
    Field.PARAMETER: "parameters",
    Field.PARAMETER_DESCRIPTION: "parameter descriptions",
    Field.ENUM: "values",
    Field.HINT: "hint",
    Field.TITLE: "title",
}
FAR = 0.25
"""Below this similarity, an explanation says that the meaning is far from the query."""


def explain(state: State, ranking: Ranking, row: int) -> Why:
    """Return why one candidate of a ranking has its rank."""
    tool = state.tools[int(ranking.places[row])]
    matched = _list_matches(state, ranking, row)
    return Why(
        matched=matched,
        shares=ranking.fusion.compute_shares(
            ranking.evidence[row], ranking.question.length, compute_gate(ranking.evidence)
        ),
        held_back=tuple(_list_drawbacks(ranking, row, tool, matched)),
    )


def _list_matches(state: State, ranking: Ranking, row: int) -> dict[str, tuple[str, ...]]:
    question = ranking.question
    _, found = find_matches(question, state, ranking.places[row : row + 1])
    masks: dict[int | None, int] = dict(zip(question.numbers, found[:, 0].tolist(), strict=True))
    listed = [(word, masks.get(state.find(stem(word)), 0)) for word in question.words]
    by_field = {
        name: tuple(word for word, mask in listed if mask >> field & 1)
        for field, name in FIELD_NAMES.items()
    }
    return {name: found_words for name, found_words in by_field.items() if found_words}


def _list_drawbacks(
    ranking: Ranking, row: int, tool: Tool, matched: dict[str, tuple[str, ...]]
) -> list[str]:
    drawbacks: list[str] = []
    has = {word for listed in matched.values() for word in listed}
    missing = [word for word in ranking.question.words if word not in has]
    if missing:
        drawbacks.append(f"It does not mention: {', '.join(missing[:8])}.")
    extra = [
        w
        for w in dict.fromkeys(drop_stop_words(split_words(tool.leaf)))
        if stem(w) not in map(stem, has)
    ]
    if extra and ranking.evidence[row, Signal.NAME_MEANING] < 0.99:
        drawbacks.append(f"Its name also says: {', '.join(extra[:8])}.")
    if not tool.description:
        drawbacks.append("It has no description.")
    if 0 < ranking.evidence[row, Signal.MEANING] < FAR:
        drawbacks.append("Its meaning is far from the query.")
    better = int(np.sum(ranking.scores > ranking.scores[row]))
    if better:
        fit = "tool fits" if better == 1 else "tools fit"
        drawbacks.append(f"{better} other {fit} better.")
    return drawbacks
