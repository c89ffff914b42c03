"""Replace words of other languages by English ones, so that a request finds English descriptions.

`Lexicon.load` reads `translations.tsv` in this package. Each line is a concept: its English words,
then its forms in Chinese, Japanese, Korean, German, French and Spanish; a line without English
words holds function words. `find_foreign` lists the foreign parts of a text and `translate` writes
the text in English words. This is not a real translator: word order and grammar stay unchanged.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from toolscout.names import normalize
from toolscout.search.text import fold

LANGUAGES = ("zh", "ja", "ko", "de", "fr", "es")
LATIN = ("de", "fr", "es")
GAP = "…"
"""In a form, this stands for the words between a verb and its separated part: `lade … hoch`."""
GAP_WORDS = 20
"""How many words after a verb its separated part may follow."""
LONGEST_COMPOUND = 40
SHORTEST_PART = 4
"""Least letters of each part of a compound; shorter words occur inside too many others."""

_HAN = r"\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # and kana
_HANGUL = r"\uac00-\ud7a3"
# A Korean form may have several words, so a run includes the spaces between them.
_RUN = re.compile(rf"(?P<han>[{_HAN}]+)|[{_HANGUL}]+(?: [{_HANGUL}]+)*")
_CJK = re.compile(f"[{_HAN}{_HANGUL}]+")
_WORD = re.compile(rf"(?:(?![{_HAN}{_HANGUL}])[^\W_])+")
_FORM_WORD = re.compile(rf"[^\W_]+|{GAP}")
_KANA = re.compile("[\u3040-\u30ff]")
_KATAKANA = re.compile("[\u30a0-\u30ff]*")
_SENTENCE_END = re.compile(r"[.!?;\n]")
_LINKS = ("", "s", "n", "en", "es")  # letters between the parts of a German compound
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
_PARTICLES = frozenset(
    ["", "을", "를", "이", "가", "은", "는", "의", "에", "도", "만", "과", "와", "로", "으로"]
).union(["에서", "에게", "한테", "부터", "까지", "이나", "나", "랑", "들", "들을", "하고"])


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a text and the English words that replace it; if they are empty, it is dropped."""

    start: int
    end: int
    key: str
    english: str


@dataclass(frozen=True, slots=True)
class _Word:
    start: int
    end: int
    written: str
    """Case-folded, with accents."""
    folded: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tongue:
    """The forms of one language in Latin script, each with its English words."""

    words: Mapping[str, str]
    phrases: Mapping[str, list[tuple[tuple[str, ...], str]]]
    """By first word: all words of each form, with the longest form first."""
    gaps: Mapping[str, Mapping[str, str]]
    """By verb, then by separated part."""
    loans: frozenset[str]
    """English words that may be half of a compound; empty if the language has no compounds."""

    def translate_compound(self, word: str) -> str:
        """Return the English words for a compound of two words, or an empty string."""
        if not self.loans or len(word) > LONGEST_COMPOUND:
            return ""
        for cut in range(len(word) - SHORTEST_PART, SHORTEST_PART - 1, -1):
            english = self._join_parts(word[:cut], word[cut:])
            if english:
                return english
        return ""

    def _join_parts(self, first: str, last: str) -> str:
        head = self.words.get(last) or (last if last in self.loans else "")
        if not head:
            return ""
        for link in _LINKS:
            stem = first.removesuffix(link)
            if len(stem) + len(link) != len(first) or len(stem) < SHORTEST_PART:
                continue
            if self.words.get(stem):
                return f"{self.words[stem]} {head}"
            if stem in self.loans and last not in self.loans:
                return f"{stem} {head}"
        return ""


class Lexicon:
    """Knows the English for words that are common in requests to tools."""

    def __init__(self, lines: Iterable[str]) -> None:
        rows = [line.split("\t") for line in lines]
        cells = {
            language: [(row[0], row[at].split("|")) for row in rows if row[at]]
            for at, language in enumerate(LANGUAGES, 1)
        }
        chinese = _make_plain(cells["zh"])
        japanese = _make_plain(cells["ja"])
        # Han characters count as Japanese if the text has kana, otherwise as Chinese. Each language
        # falls back on the forms of the other.
        self._chinese = japanese | chinese
        self._japanese = chinese | japanese
        self._korean = _make_plain(cells["ko"])
        self._longest = max(map(len, (*self._chinese, *self._korean)), default=0)
        loans = frozenset(word for row in rows for word in row[0].split())
        self._tongues = [
            _build_tongue(cells[language], loans if language == "de" else frozenset())
            for language in LATIN
        ]

    @staticmethod
    @cache
    def load() -> "Lexicon":
        """Return the lexicon of the package, which is read only once."""
        file = resources.files("toolscout.search") / "translations.tsv"
        return Lexicon(file.read_text(encoding="utf-8").splitlines()[1:])

    def find_foreign(self, text: str, unknown: Callable[[str], bool]) -> dict[str, str]:
        """Return the foreign parts of a text with their English words, in the order of the text.

        Words in Latin script count only if `unknown` says that no tool has them. It receives
        case-folded words without accents, which is also how the result spells them.
        """
        found: dict[str, str] = {}
        for part in self._find_parts(_normalize(text), unknown):
            if part.english:
                found.setdefault(part.key, part.english)
        return found

    def translate(self, text: str, unknown: Callable[[str], bool]) -> str:
        """Return a text with English words in place of those that the lexicon knows.

        Unknown words stay if they are in Latin script; unknown Chinese, Japanese and Korean ones
        are dropped. A text with nothing to replace or drop is returned unchanged.
        """
        normal = _normalize(text)
        parts = self._find_parts(normal, unknown)
        if not parts and not _CJK.search(normal):
            return text
        written: list[str] = []
        end = 0
        for part in parts:
            written += (_CJK.sub(" ", normal[end : part.start]), f" {part.english} ")
            end = max(end, part.end)  # a phrase may extend over the separated part of a verb
        written.append(_CJK.sub(" ", normal[end:]))
        return " ".join("".join(written).split())

    def _find_parts(self, text: str, unknown: Callable[[str], bool]) -> list[_Part]:
        parts = self._find_latin(text, unknown)
        han = self._japanese if _KANA.search(text) else self._chinese
        for match in _RUN.finditer(text):
            if match["han"]:
                parts += _read_han(match[0], match.start(), han, self._longest)
            else:
                parts += _read_hangul(match[0], match.start(), self._korean, self._longest)
        return sorted(parts, key=lambda part: part.start)

    def _find_latin(self, text: str, unknown: Callable[[str], bool]) -> list[_Part]:
        words: list[_Word] = []
        for match in _WORD.finditer(text):
            written = match[0].casefold()
            words.append(_Word(match.start(), match.end(), written, fold(written)))
        strange = {folded: unknown(folded) for folded in dict.fromkeys(w.folded for w in words)}
        if not any(strange.values()):
            return []
        # A text has one language, so the one that covers most of it wins.
        readings = (_Reading(text, words, strange, tongue) for tongue in self._tongues)
        best = max((list(reading.find_parts()) for reading in readings), key=_count_covered)
        return best if any(part.english for part in best) else []


@dataclass(frozen=True, slots=True)
class _Reading:
    """A text in Latin script, read in one language."""

    text: str
    words: list[_Word]
    strange: Mapping[str, bool]
    tongue: _Tongue

    def find_parts(self) -> Iterator[_Part]:
        """Yield the parts that the language knows, from left to right."""
        separated: set[int] = set()
        phrases, gaps = self.tongue.phrases, self.tongue.gaps
        at = 0
        while at < len(self.words):
            step = 1
            if at not in separated:
                first = self.words[at].folded
                if first in phrases and (phrase := self._match_phrase(at)):
                    step, english = phrase
                    yield self._make_part(at, at + step, english)
                elif first in gaps and (gap := self._match_gap(at)):
                    other, english = gap
                    separated.add(other)
                    key = f"{self.words[at].folded} {GAP} {self.words[other].folded}"
                    yield self._make_part(at, at + 1, english, key)
                    yield self._make_part(other, other + 1, "")
                elif (single := self._match_single(at)) is not None:
                    yield self._make_part(at, at + 1, single)
            at += step

    def _make_part(self, first: int, end: int, english: str, key: str = "") -> _Part:
        words = self.words[first:end]
        key = key or " ".join(word.folded for word in words)
        return _Part(words[0].start, words[-1].end, key, english)

    def _match_phrase(self, at: int) -> tuple[int, str] | None:
        for form, english in self.tongue.phrases.get(self.words[at].folded, ()):
            here = tuple(word.folded for word in self.words[at : at + len(form)])
            if here == form and any(self.strange[word] for word in here):
                return len(form), english
        return None

    def _match_gap(self, at: int) -> tuple[int, str] | None:
        verb = self.words[at].folded
        others = self.tongue.gaps.get(verb)
        if not others or not self.strange[verb]:
            return None
        for place in range(at + 1, min(at + 1 + GAP_WORDS, len(self.words))):
            between = self.text[self.words[place - 1].end : self.words[place].start]
            if _SENTENCE_END.search(between):
                return None
            if english := others.get(self.words[place].folded):
                return place, english
        return None

    def _match_single(self, at: int) -> str | None:
        """Return the English of one word: empty for a function word, None to leave it unchanged."""
        word = self.words[at]
        # The form with accents comes first.
        english = self.tongue.words.get(word.written, self.tongue.words.get(word.folded))
        if english == "":
            return english
        if not self.strange[word.folded]:
            return None
        return english or self.tongue.translate_compound(word.folded) or None


def _normalize(text: str) -> str:
    return text if text.isascii() else normalize("NFKC", text)


def _count_covered(parts: list[_Part]) -> tuple[int, int]:
    return sum(part.end - part.start for part in parts), sum(bool(part.english) for part in parts)


def _make_plain(cells: list[tuple[str, list[str]]]) -> dict[str, str]:
    return {form: english for english, forms in cells for form in forms}


def _build_tongue(cells: list[tuple[str, list[str]]], loans: frozenset[str]) -> _Tongue:
    written = {form.casefold(): english for english, forms in cells for form in forms}
    words = {form: english for form, english in written.items() if form.isalpha()}
    for form in [form for form in words if not form.isascii()]:
        for spelt in _list_spellings(form):
            words.setdefault(spelt, words[form])
    phrases: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    gaps: dict[str, dict[str, str]] = {}
    for form in (form for form in written if form not in words):
        for spelt in _list_spellings(form):
            parts = tuple(_FORM_WORD.findall(spelt))
            if GAP in parts:
                gaps.setdefault(parts[0], {})[parts[-1]] = written[form]
            else:
                phrases.setdefault(parts[0], []).append((parts, written[form]))
    for listed in phrases.values():
        listed.sort(key=lambda phrase: (-len(phrase[0]), phrase))
    return _Tongue(words=words, phrases=phrases, gaps=gaps, loans=loans)


def _list_spellings(form: str) -> set[str]:
    """Return a form without accents, and one with umlauts written as `ae`, `oe` and `ue`."""
    # Folding the whole form would turn the gap sign into three full stops.
    return {GAP.join(map(fold, f.split(GAP))) for f in (form, form.translate(_UMLAUTS))}


def _find_longest_form(run: str, at: int, forms: Mapping[str, str], longest: int) -> str:
    for end in range(min(at + longest, len(run)), at, -1):
        form = run[at:end]
        # One or two katakana may be only the beginning of a longer word.
        if form in forms and (end - at > 2 or _find_katakana_end(run, at) <= end):
            return form
    return ""


def _find_katakana_end(run: str, at: int) -> int:
    found = _KATAKANA.match(run, at)
    return found.end() if found else at


def _read_han(run: str, offset: int, forms: Mapping[str, str], longest: int) -> Iterator[_Part]:
    at = 0
    while at < len(run):
        if form := _find_longest_form(run, at, forms, longest):
            yield _Part(offset + at, offset + at + len(form), form, forms[form])
            at += len(form)
        else:  # a katakana word can only match from its beginning, so skip to its end
            at = max(at + 1, _find_katakana_end(run, at))


def _read_hangul(run: str, offset: int, forms: Mapping[str, str], longest: int) -> Iterator[_Part]:
    """Read stems at the beginning of each word; whatever follows a stem is an ending."""
    at = 0
    while at < len(run):
        end = run.find(" ", at)
        end = len(run) if end < 0 else end
        form = _find_longest_form(run, at, forms, longest)
        # One syllable does not identify a word, unless only a particle follows it.
        if not form or (len(form) == 1 and run[at + 1 : end] not in _PARTICLES):
            at = end + 1
            continue
        yield _Part(offset + at, offset + at + len(form), form, forms[form])
        at += len(form)
        at += run.startswith(" ", at)
