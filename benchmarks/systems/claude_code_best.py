"""claude-code-best's `SearchExtraTools`: keyword points and TF-IDF, merged.

Reimplemented from a description of its behaviour. All tools are hidden, so only those are searched.
Selected names have no score there; they get 1, 1/2, 1/3 … here. The description leaves one
case open: here an `mcp__` prefix that begins no name is read as keywords.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.systems.definitions import mcp_name
from benchmarks.systems.postings import Ids, Postings, Weights, best_first
from benchmarks.systems.system import rank_by_position
from toolscout.evaluate.quality import Ranked
from toolscout.tools import Tool

KEYWORD_SHARE, TFIDF_SHARE = 0.4, 0.6
TFIDF_FLOOR = 0.10
NAME_IN_QUERY_SCORE = 0.75

_STOP_WORDS = """
    a an the be is are was were been being have has had do does did
    will would could should may might shall can need dare ought use used using
    to of in for on with at by from as into through during before after above below between
    out off over under again further then once here there when where why how what which who whom
    all each every both few more most other some such no nor not only own same so than too very
    just because but and or if while this that these those it its
    i me my we our you your he him his she her they them their
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# Suffix, the least length of a word that loses it, and what stays; the first that fits.
_STEMS = (
    ("ing", 6, ""),
    ("tion", 6, ""),
    ("ness", 6, ""),
    ("ment", 6, ""),
    ("ers", 5, "er"),
    ("er", 5, ""),
    ("es", 5, ""),
    ("s", 4, ""),
    ("ed", 5, ""),
    ("ly", 5, ""),
)
_WORD_OR_CJK = re.compile(r"([a-z0-9][a-z0-9_-]*)|([\u3400-\u4dbf\u4e00-\u9fff]+)")
_ASCII_WORD = re.compile(r"\w+", re.ASCII)


class ClaudeCodeBest:
    """Both halves, merged as claude-code-best does; ties keep the order of the keyword hits."""

    name = "claude-code-best"

    def __init__(self) -> None:
        self.build(())

    def build(self, tools: Sequence[Tool]) -> None:
        """Index these tools."""
        self._tools = list(tools)
        self._numbers: dict[str, int] = {}
        for number, tool in enumerate(tools):
            for name in (mcp_name(tool), *tool.aliases):
                self._numbers.setdefault(name, number)
        parts = [name_parts(mcp_name(tool)) for tool in tools]
        self._keywords = _Keywords(tools, parts)
        self._tfidf = _Tfidf(tools, parts)

    def search(self, query: str, limit: int) -> list[Ranked]:
        """Return selected tools, or the best of both halves, each cut to `limit` before."""
        lowered = query.lower()
        if lowered.startswith("select:"):
            return rank_by_position(self._selected(query[len("select:") :]))
        if lowered.startswith("discover:"):
            found = self._tfidf.search(query[len("discover:") :], limit)
            return [Ranked(self._tools[number], score) for number, score in found.items()]
        return self._merged(query, limit)

    def reply(self, query: str, hits: Sequence[Ranked]) -> str:
        """Return the names found and how to call them."""
        if not hits:
            return "No matching deferred tools found."
        names = ", ".join(mcp_name(hit.tool) for hit in hits)
        return (
            f"Found {len(hits)} deferred tool(s): {names}\n"
            'Call one with ExecuteExtraTool: {"tool_name": "<name>", "params": {...}}.'
        )

    def _selected(self, names: str) -> list[Tool]:
        wanted = (self._numbers.get(name.strip()) for name in names.split(","))
        return [self._tools[number] for number in dict.fromkeys(wanted) if number is not None]

    def _merged(self, query: str, limit: int) -> list[Ranked]:
        by_keyword = self._keywords.search(query, limit)
        count = len(by_keyword)
        scores = {
            number: (count - rank) / count * KEYWORD_SHARE for rank, number in enumerate(by_keyword)
        }
        for number, cosine in self._tfidf.search(query, limit).items():
            scores[number] = scores.get(number, 0.0) + cosine * TFIDF_SHARE
        best = sorted(scores.items(), key=lambda entry: -entry[1])[: max(limit, 0)]
        return [Ranked(self._tools[number], score) for number, score in best]


class _Keywords:
    """The half that counts points for each term of the query."""

    def __init__(self, tools: Sequence[Tool], parts: Sequence[Sequence[str]]) -> None:
        self._names = [mcp_name(tool).lower() for tool in tools]
        self._numbers = {name: number for number, name in reversed([*enumerate(self._names)])}
        self._parts = Postings([dict.fromkeys(words, 1.0) for words in parts])
        self._hints = _WholeWords([tool.hint for tool in tools])
        self._descriptions = _WholeWords([tool.description for tool in tools])
        mcp = np.array([name.startswith("mcp__") for name in self._names], dtype=bool)
        self._equal, self._inside = np.where(mcp, 12.0, 10.0), np.where(mcp, 6.0, 5.0)

    def search(self, query: str, limit: int) -> list[int]:
        """Return tool numbers, best first; a full name gives that tool alone."""
        query = query.lower().strip()
        if query in self._numbers:
            return [self._numbers[query]]
        if query.startswith("mcp__") and len(query) > len("mcp__"):
            found = [i for i, name in enumerate(self._names) if name.startswith(query)]
            if found:
                return found[: max(limit, 0)]
        return best_first(self._points(query.split()), limit)

    def _points(self, terms: Sequence[str]) -> Weights:
        points = np.zeros(len(self._names))
        allowed = np.ones(len(self._names), dtype=bool)
        for written in terms:
            required = written.startswith("+") and len(written) > 1
            term = written[1:] if required else written
            name, hinted, described = self._matches(term)
            points += name
            points[hinted] += 4
            points[described] += 2
            if required:
                met = name > 0
                met[hinted] = met[described] = True
                allowed &= met
        return np.where(allowed, points, 0.0)

    def _matches(self, term: str) -> tuple[Weights, Ids, Ids]:
        """Return the points for the name, and where hint and description contain the word.

        The rule that gives 3 points for a term inside the joined name is left out: such a
        term has no blank, so it is inside one part and has its points already.
        """
        name = np.zeros(len(self._names))
        for part in self._parts.terms_with(term):
            ids = self._parts.ids(part)
            name[ids] = self._inside[ids]
        ids = self._parts.ids(term)
        name[ids] = self._equal[ids]
        return name, self._hints.ids(term), self._descriptions.ids(term)


class _WholeWords:
    """Finds the texts that contain a term between two ASCII word boundaries."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text.lower() for text in texts]
        self._postings = Postings(
            [dict.fromkeys(_ASCII_WORD.findall(text), 1.0) for text in self._texts]
        )

    def ids(self, term: str) -> Ids:
        """Return the texts that contain this term."""
        if _ASCII_WORD.fullmatch(term):
            return self._postings.ids(term)
        pattern = re.compile(rf"\b{re.escape(term)}\b", re.ASCII)
        held = [i for i, text in enumerate(self._texts) if term in text and pattern.search(text)]
        return np.array(held, dtype=np.intp)


class _Tfidf:
    """The half that compares weighted words by cosine."""

    def __init__(self, tools: Sequence[Tool], parts: Sequence[Sequence[str]]) -> None:
        self._names = [" ".join(words) for words in parts]
        documents = [
            _term_weights(((3.0, name), (2.5, tool.hint), (1.0, tool.description)))
            for name, tool in zip(self._names, tools, strict=True)
        ]
        frequency = Counter(token for document in documents for token in document)
        self._idf = {token: math.log(len(tools) / df) for token, df in frequency.items()}
        weighted = [self._times_idf(document) for document in documents]
        self._norms = np.array([_norm(document) for document in weighted])
        self._postings = Postings(weighted)

    def search(self, query: str, limit: int) -> dict[int, float]:
        """Return scores of at least 0.10 by tool number, best first."""
        counts = Counter(tokens_from_text(query))
        scores = self._cosines(counts)
        scores = np.where(self._is_chance_match(counts), 0.0, scores)
        blanked = query.lower().replace("-", " ").replace("_", " ")
        named = np.array([name != "" and name in blanked for name in self._names], dtype=bool)
        scores = np.where(named, np.maximum(scores, NAME_IN_QUERY_SCORE), scores)
        scores = np.where(scores >= TFIDF_FLOOR, scores, 0.0)
        return {i: float(scores[i]) for i in best_first(scores, limit)}

    def _cosines(self, counts: Mapping[str, int]) -> Weights:
        # Counts are not divided by the highest one: a cosine does not see the factor.
        weights = self._times_idf(counts)
        norms = self._norms * _norm(weights)
        return np.divide(
            self._postings.dot(weights), norms, out=np.zeros(len(norms)), where=norms > 0
        )

    def _is_chance_match(self, counts: Mapping[str, int]) -> NDArray[np.bool_]:
        """Mark the documents that share a single pair of Chinese characters and no word."""
        chinese = [token for token in counts if not token.isascii()]
        latin = [token for token in counts if token.isascii()]
        if not chinese:
            return np.zeros(len(self._norms), dtype=bool)
        return (self._hits(chinese) < 2) & (self._hits(latin) < 1)

    def _hits(self, tokens: Iterable[str]) -> Weights:
        hits = np.zeros(len(self._norms))
        for token in tokens:
            hits[self._postings.ids(token)] += 1
        return hits

    def _times_idf(self, weights: Mapping[str, float]) -> dict[str, float]:
        return {
            token: weight * self._idf[token]
            for token, weight in weights.items()
            if token in self._idf
        }


def name_parts(name: str) -> list[str]:
    """Return the lower-case parts of a name: at `_`, and at camelCase unless it is an MCP name."""
    if name.startswith("mcp__"):
        name = name.removeprefix("mcp__")
    else:
        name = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    return name.replace("_", " ").lower().split()


def tokens_from_text(text: str) -> Iterator[str]:
    """Yield stemmed words without stop words, and pairs of neighbouring CJK characters."""
    for match in _WORD_OR_CJK.finditer(text.lower()):
        word, characters = match.groups()
        if characters:
            yield from (characters[i : i + 2] for i in range(len(characters) - 1))
        else:
            word = word.strip("-_")
            if word not in STOP_WORDS:
                yield stem(word)


def stem(word: str) -> str:
    """Return the word without the first ending that fits."""
    for suffix, least, replacement in _STEMS:
        fits = word.endswith(suffix) and len(word) >= least
        if fits and not (suffix == "s" and word.endswith("ss")):
            return word.removesuffix(suffix) + replacement
    return word


def _term_weights(fields: Iterable[tuple[float, str]]) -> dict[str, float]:
    """Return each word's share in its best field."""
    weights: dict[str, float] = {}
    for weight, text in fields:
        counts = Counter(tokens_from_text(text))
        highest = max(counts.values(), default=1)
        for token, count in counts.items():
            weights[token] = max(weights.get(token, 0.0), count / highest * weight)
    return weights


def _norm(weights: Mapping[str, float]) -> float:
    return math.sqrt(sum(weight * weight for weight in weights.values()))
