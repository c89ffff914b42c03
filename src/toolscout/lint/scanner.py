"""Scan tool definitions for attacks on the model that reads them.

A server writes its definitions itself, and a model tends to do what it reads. `scan_definition`
reads every text of a definition, and the instructions of its server, and finds hidden characters,
encoded texts, instructions to the model, claims about other tools, requests for secrets and links
that carry data. A finding of severity ERROR is a reason to hold a tool; a WARNING only informs.

It works offline, in linear time and on a bounded amount of text. It is a filter and no proof: an
attack in words that nobody has thought of passes.
"""

import base64
import binascii
import codecs
import html
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote

import re2

from toolscout.lint import phrases
from toolscout.lint.rules import Finding, Severity
from toolscout.names import fold_name, make_exposed_name, normalize, to_one_line
from toolscout.schemas import Json, is_list, is_object
from toolscout.tools import Tool

MOST_CHARS = 200_000
"""The most text of one definition that is read; a longer definition is held."""
MOST_TEXTS = 50_000
DECODED_TWICE = 2
QUOTE_CHARS = 90
PLACE_CHARS = 200
MOST_NAMES = 50
"""So many names of parameters say what a tool is about."""

Owners = Mapping[str, frozenset[str]]
"""The servers that have a tool of a name, by folded name; see `list_owners`."""


class _Text(NamedTuple):
    """One text of a definition."""

    place: str
    """Where it is, such as 'description' or 'input schema, note, description'."""
    value: str
    is_key: bool = False
    """Whether it is the name of a parameter or another member."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule of `phrases`, with classes as bits of a number."""

    code: str
    severity: Severity
    needs: tuple[int, ...]
    """Of each number, one bit has to be among the classes of a sentence."""
    unless: int
    topic: int

    def fits(self, classes: int, names: int) -> bool:
        """Tell whether a sentence with words of these classes matches, in a tool of such names."""
        if not classes & self.needs[0] or classes & self.unless or names & self.topic:
            return False
        return all(classes & need for need in self.needs)


MEANINGS = {
    "hidden-text": (
        "contains characters that people cannot see but models read",
        "Do not use the tool unless its owner can explain them.",
    ),
    "look-alike-name": (
        "has a name with letters that only look like others",
        "Check who offers it; it may imitate another tool.",
    ),
    "encoded-text": (
        "contains an encoded text with instructions",
        "Decode it and read it before you use the tool.",
    ),
    "overrides-instructions": (
        "tells the model to set aside its instructions",
        "Do not use the tool; no honest definition needs this.",
    ),
    "role-marker": (
        "contains markers that make text look like a message of the system or the user",
        "Do not use the tool unless its owner can explain them.",
    ),
    "hides-from-user": (
        "tells the model to hide something from the user",
        "Find out what it hides before you use the tool.",
    ),
    "steers-other-tools": (
        "tells the model how to use tools of other servers, or all tools",
        "Use it only if you trust its server with every call.",
    ),
    "shadows-tool": (
        "claims to replace or change a tool of another server",
        "Compare it with that tool, and use the one whose owner you know.",
    ),
    "asks-for-secrets": (
        "asks for secrets that it does not need, such as keys, prompts or conversations",
        "Do not use the tool unless you know why it needs them.",
    ),
    "carries-data": (
        "contains a link or command that would send data elsewhere",
        "Do not use the tool unless you know where the data goes.",
    ),
    "commands-model": (
        "gives the model orders that have nothing to do with a call of the tool",
        "Read the whole definition before you use the tool.",
    ),
    "too-long": (
        "is too long to be scanned",
        "Ask its owner to shorten it, or look through it yourself.",
    ),
}
"""What each code means and what to do, as parts of a finding."""


def list_owners(tools: Iterable[Tool]) -> Owners:
    """Return which servers have a tool of which name, for `scan_definition`."""
    owners: dict[str, set[str]] = {}
    for tool in tools:
        owners.setdefault(fold_name(tool.leaf), set()).add(tool.server)
    return {name: frozenset(servers) for name, servers in owners.items()}


def scan_tool(tool: Tool, owners: Owners | None = None) -> list[Finding]:
    """Return what is suspicious about a tool of a catalogue, worst first."""
    definition: Json = {
        **tool.extras,
        "name": tool.leaf,
        "title": tool.title,
        "description": tool.description,
        "summary": tool.summary,
        "hint": tool.hint,
        "original text": list(tool.uncleaned),
        "aliases": list(tool.aliases),
        "tags": list(tool.tags),
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
    }
    return scan_definition(
        definition,
        server=tool.server,
        instructions=tool.instructions,
        owners=owners,
        exposed=tool.name,
    )


def scan_definition(
    definition: Mapping[str, Any],
    *,
    server: str = "",
    instructions: str = "",
    owners: Owners | None = None,
    exposed: str = "",
) -> list[Finding]:
    """Return what is suspicious about a raw definition, worst first.

    `owners` are the tools of all servers, this one included; without them, claims about other
    tools are judged by their words alone. `exposed` is the name for findings.
    """
    leaf = str(definition.get("name") or "")
    name = exposed or make_exposed_name(server, leaf or "tool")
    scan = _Scan(server=server, leaf=leaf, owners=owners or {})
    scan.read_names(definition)
    length = 0
    texts = chain(_list_texts(definition), [_Text("instructions of its server", instructions)])
    for count, text in enumerate(texts):
        length += len(text.value)
        if length > MOST_CHARS or count >= MOST_TEXTS:
            scan.report("too-long", Severity.ERROR, text.place, "")
            break
        scan.read(text)
    scan.check_keys()
    return [_build_finding(name, *entry) for entry in sorted(scan.found.items(), key=_rank)]


def find_attack(text: str) -> str:
    """Return the codes of what makes a single text look like an attack, or nothing."""
    findings = scan_definition({"description": text})
    return ", ".join(one.code for one in findings if one.severity is Severity.ERROR)


def is_held(findings: Iterable[Finding]) -> bool:
    """Tell whether findings of the scanner are a reason to hold a tool."""
    return any(finding.severity is Severity.ERROR for finding in findings)


class _Scan:
    """The scan of one definition: what was found so far, by code."""

    def __init__(self, *, server: str, leaf: str, owners: Owners) -> None:
        self.found: dict[str, tuple[Severity, str, str]] = {}
        self._server = server
        self._leaf = leaf
        self._owners = owners
        self._keys: list[_Text] = []
        self._names = 0
        """The classes of words in the names of the tool, its server and its parameters."""
        self._plain: list[str] = []
        """The texts so far, normalized."""

    def report(self, code: str, severity: Severity, place: str, quote: str) -> None:
        known = self.found.get(code)
        if known is None or known[0].rank < severity.rank:
            self.found[code] = (severity, place, quote)

    def read_names(self, definition: Mapping[str, Any]) -> None:
        """Note what the tool is about, by its names."""
        names = [self._server, self._leaf]
        for member in ("inputSchema", "input_schema"):
            schema = definition.get(member)
            properties = schema.get("properties") if is_object(schema) else None
            if is_object(properties):
                names += list(properties)[:MOST_NAMES]
        plain = _NAME_JOINT.sub(" ", " ".join(name[:PLACE_CHARS] for name in names)).casefold()
        self._names = _compile_patterns().classify(plain, has_shapes=False)

    def read(self, text: _Text) -> None:
        value = text.value
        if text.place == "name":
            self._check_name(value)
        if not value.isascii() or not value.isprintable():
            self._check_characters(text)
        if text.is_key:
            self._keys.append(text)
        if _SHORT_NAME.fullmatch(value):
            return
        plain = _normalize(value if " " in value else _NAME_JOINT.sub(" ", value))
        if len(plain) < SHORTEST_ATTACK:
            return
        if not text.is_key:
            self._plain.append(plain)
        seen = self._apply_rules(text.place, plain)
        self._check_claims(text.place, plain)
        self._check_disguises(text.place, value, plain, seen)

    def _apply_rules(
        self, place: str, plain: str, code: str = "", seen: Collection[str] = ()
    ) -> set[str]:
        """Report what the rules find, under another code if one is given; return their codes.

        Nothing is reported that was `seen` before the text was decoded.
        """
        found: set[str] = set()
        patterns = _compile_patterns()
        has_shapes = patterns.any_shape.search(plain) is not None
        for sentence in _split_sentences(plain):
            classes = patterns.classify(sentence, has_shapes=has_shapes)
            if not classes & patterns.rare:
                continue
            for rule in patterns.rules:
                if rule.code in seen or not rule.fits(classes, self._names):
                    continue
                if not code or rule.severity is Severity.ERROR:
                    self.report(code or rule.code, rule.severity, place, sentence)
                    found.add(rule.code)
        return found

    def _check_name(self, name: str) -> None:
        if name.isascii():
            return
        seen = _to_look_alike(normalize("NFKC", _INVISIBLE.sub("", name)))
        if seen.isascii() and _ASCII_LETTER.search(name):
            self.report("look-alike-name", Severity.ERROR, "name", seen)

    def _check_characters(self, text: _Text) -> None:
        severity = _judge_characters(text.value, is_name=text.place == "name" or text.is_key)
        if severity is not None:
            self.report("hidden-text", severity, text.place, _show_hidden(text.value))

    def _check_claims(self, place: str, plain: str) -> None:
        """Find sentences that name a tool of another server and say how it is to be used."""
        if not self._owners or not ("_" in plain or "-" in plain):
            return
        patterns = _compile_patterns()
        for sentence in _split_sentences(plain):
            end = self._find_foreign_tool(sentence)
            if not end:
                continue
            is_claim = patterns.classify(sentence) & patterns.claim
            if is_claim or patterns.classify(sentence[end:]) & patterns.demand:
                self.report("shadows-tool", Severity.ERROR, place, sentence)
                return

    def _find_foreign_tool(self, sentence: str) -> int:
        """Return where the first name of a tool of another server ends, or 0."""
        own = fold_name(self._leaf)
        for match in _TOOL_NAME.finditer(sentence):
            folded = fold_name(match[0])
            owners = self._owners.get(folded)
            if not owners or folded == own or self._server in owners:
                continue
            # Words with dashes are also options and commands, unless their server is named.
            if "_" in match[0] or any(fold_name(owner) in sentence for owner in owners):
                return match.end()
        return 0

    def _check_disguises(self, place: str, value: str, plain: str, seen: set[str]) -> None:
        """Find instructions that can only be read after decoding."""
        for decoded in _decode_pieces(value):
            inner = _normalize(decoded)
            if self._apply_rules(place, inner, "encoded-text"):
                continue
            words = set(_compile_patterns().orders.findall(inner))
            if len(words) >= ORDER_WORDS:
                self.report("encoded-text", Severity.ERROR, place, inner)
            elif inner.count(" ") >= ENCODED_BLANKS:
                self.report("encoded-text", Severity.WARNING, place, inner)
        for other in _list_readings(value, plain):
            self._apply_rules(place, other, "encoded-text", seen)

    def check_keys(self) -> None:
        """Find parameters named after what only the host of the model has."""
        patterns = _compile_patterns()
        for text in self._keys:
            words = _TOKEN.findall(_NAME_JOINT.sub(" ", text.value).casefold())
            if tuple(words) not in patterns.private_names:
                continue
            is_about_models = any(patterns.about_models.search(plain) for plain in self._plain)
            severity = Severity.WARNING if is_about_models else Severity.ERROR
            self.report("asks-for-secrets", severity, text.place, text.value)


def _rank(entry: tuple[str, tuple[Severity, str, str]]) -> tuple[int, str]:
    code, (severity, _, _) = entry
    return -severity.rank, code


def _build_finding(name: str, code: str, entry: tuple[Severity, str, str]) -> Finding:
    severity, place, quote = entry
    meaning, remedy = MEANINGS[code]
    shown = f": {to_one_line(quote, QUOTE_CHARS)!r}" if quote else ""
    where = to_one_line(place, QUOTE_CHARS)
    return Finding(name, code, severity, f"It {meaning} (in its {where}){shown}.", remedy)


# Reading a definition.


def _list_texts(definition: Mapping[str, Any]) -> Iterator[_Text]:
    """Yield every string of a definition with its place, without recursion."""
    nodes: list[tuple[str, object, bool]] = [("", dict(definition), False)]
    while nodes:
        place, node, names = nodes.pop()
        if isinstance(node, str):
            yield _Text(place or "definition", node)
        elif is_object(node):
            for key, value in reversed(node.items()):
                inner = f"{place}, {key[:PLACE_CHARS]}" if place else key.replace("_", " ")
                inner = inner[:PLACE_CHARS]
                if names or not key.isascii() or len(key) > LONGEST_KEYWORD:
                    yield _Text(inner, key, is_key=True)
                nodes.append((inner, value, key in ("properties", "$defs", "definitions")))
        elif is_list(node):
            nodes.extend((place, value, False) for value in reversed(node))


# Characters.

LONGEST_KEYWORD = 24
"""Longer members of a definition are no keywords of JSON Schema or MCP and are read as text."""
SHORTEST_ATTACK = 6
FEW_INVISIBLE = 6
"""So many characters without a purpose may be a slip of the keyboard or of a converter."""

_INVISIBLE = re.compile(
    r"[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_FLAG = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,6}\U000e007f")
_TAGS = re.compile("[\U000e0000-\U000e007f]")
_OVERRIDES = re.compile("[\u202d\u202e]")
_DIRECTIONS = re.compile("[\u202a-\u202c\u2066-\u2069]")
_SELECTORS = re.compile(
    "[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}|(?<=[ -~])[\U000e0100-\U000e01ef]"
)
_FILLERS = re.compile("[\u115f\u1160\u2800\u3164\uffa0]")
_ESCAPES = re.compile("[\x1b\x9b]|\x08{2}")
_LOOSE = re.compile("[\u061c\u180e\u200b-\u200f\u2060-\u2064\u206a-\u206f\ufeff]")
# Joiners belong to Persian, Indic scripts and emoji; direction marks to scripts from right to left.
_NEEDS_JOINERS = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u2600-\u27bf\U0001f000-\U0001faff]"
)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_ASCII_LETTER = re.compile("[A-Za-z]")
_WORD = re.compile(r"[^\W\d_]+")

_LOOK_ALIKES = str.maketrans(
    "аеорсухіјѕһԁԛԝӏɡɑαονρικυτεηχγѵАВЕЅІЈКМНОРСТХУҮԌΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijshdqwlgaaovpikutenxyvABESIJKMHOPCTXYYGABEZHIKMNOPTYX",
)


def _to_look_alike(text: str) -> str:
    """Replace letters of words that mix alphabets by the Latin letters they look like."""
    if text.isascii():
        return text

    def replace(match: re.Match[str]) -> str:
        word = match[0]
        return word.translate(_LOOK_ALIKES) if _ASCII_LETTER.search(word) else word

    return _WORD.sub(replace, text)


def _judge_characters(text: str, *, is_name: bool) -> Severity | None:
    """Return how suspicious the invisible characters of a text are."""
    text = _FLAG.sub("", text)
    if not _INVISIBLE.search(text) and not _ESCAPES.search(text):
        return None
    is_leftward = _RIGHT_TO_LEFT.search(text) is not None
    certain = (_TAGS, _OVERRIDES, _SELECTORS, _ESCAPES)
    if any(pattern.search(text) for pattern in certain):
        return Severity.ERROR
    if _DIRECTIONS.search(text) and not is_leftward:
        return Severity.ERROR
    loose = 0
    if not _NEEDS_JOINERS.search(text):
        loose = len(_LOOSE.findall(text))
    loose += len(_FILLERS.findall(text))
    if loose > FEW_INVISIBLE or (loose and is_name):
        return Severity.ERROR
    return Severity.WARNING if loose else None


def _show_hidden(text: str) -> str:
    """Return the first hidden characters as code points, or the text that tags spell."""
    tags = "".join(chr(ord(c) - 0xE0000) for c in _TAGS.findall(text) if ord(c) > 0xE001F)
    if tags:
        return tags
    found = dict.fromkeys(chain(_INVISIBLE.findall(text), _ESCAPES.findall(text)))
    return ", ".join(f"U+{ord(character[0]):04X}" for character in list(found)[:5])


# Disguises.

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});")
_ZEROS = re.compile(r"(&#[xX]?)0+(?=[0-9a-fA-F])")
_LONG_NUMBER = re.compile(r"&#[xX]?[0-9a-fA-F]{20,}")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}[ :,]?){8,}")
_BINARY = re.compile(r"(?:[01]{8}[ ,]?){6,}")
_SPACED = re.compile(r"(?:\b\w ){4,}\w\b(?: {2,}(?:\w ){1,}\w\b)*")
_LEET = str.maketrans("013457@$", "oieastas")
_LEET_WORD = re.compile(r"[a-z][013457@$]{1,8}[a-z]|\b[013457@$]{1,8}[a-z]{2}|[a-z][0134]\b")


def _normalize(text: str) -> str:
    """Return a text as a reader would take it: decoded, without tricks, in lower case."""
    if _ESCAPED.search(text):
        text = _ESCAPED.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
    if "&#" in text:
        # Python refuses to read numbers of thousands of digits.
        text = _LONG_NUMBER.sub("", _ZEROS.sub(r"\1", text))
    if "&" in text and _ENTITY.search(text):
        text = html.unescape(text)
    if "%" in text:
        text = unquote(text, errors="replace")
    if not text.isascii():
        # RE2 cannot read half of a character, which JSON may hold.
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text = normalize("NFKC", _INVISIBLE.sub("", text))
        text = _to_look_alike(text).replace("\u2019", "'")
    # A line break in the middle of a sentence is a blank; an empty line or a list ends it.
    lines = "\n".join(line.strip() for line in text.casefold().split("\n"))
    return _BLANKS.sub(" ", _PARAGRAPH.sub(". ", lines)).strip()


STEM_KEY_CHARS = 3
"""By so many letters the beginnings of words are looked up, so none may be shorter."""
GAP_WORDS = 4
"""The most words of a gap in an expression."""
SENTENCE_CHARS = 300
"""Words that are further apart have little to do with each other."""

_TOKEN = re.compile(r"[^\W_]+(?:'(?:s|t|re|ve|ll)\b)?")
# Chinese, Japanese and Korean do not put blanks around what is a word here.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_PARAGRAPH = re.compile(r"\n{2,}|\n(?=[-*•#\d]|(?!assistant:)\w{1,40}(?: \([^()\n]{1,60}\))?:)")
_BLANKS = re.compile(r"[\s*`]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\s)\"']+|[\u3002\uff01\uff1f]")


_SHORT_NAME = re.compile(r"[A-Za-z0-9]{0,15}(?:[ _-][A-Za-z0-9]{1,15})?")
"""One or two words are no attack; longer ones may be an encoded text."""
_NAME_JOINT = re.compile(r"[_-]+|(?<=[a-z])(?=[A-Z])")


def _split_sentences(plain: str) -> Iterator[str]:
    """Yield the sentences of a text; of long ones, pieces that overlap."""
    for sentence in _SENTENCE_END.split(plain):
        if len(sentence) <= SENTENCE_CHARS:
            if sentence:
                yield sentence
            continue
        for start in range(0, len(sentence) - SENTENCE_CHARS // 2, SENTENCE_CHARS // 2):
            yield sentence[start : start + SENTENCE_CHARS]


def _decode_pieces(text: str, depth: int = 1) -> Iterator[str]:
    """Yield the readable texts that pieces of a text decode to."""
    pieces = chain(_BASE64.finditer(text), _HEX.finditer(text), _BINARY.finditer(text))
    for match in pieces:
        decoded = _decode(match[0])
        if not decoded:
            continue
        yield decoded
        if depth < DECODED_TWICE:
            yield from _decode_pieces(decoded, depth + 1)


def _decode(piece: str) -> str:
    """Return the text that base64, hex or binary digits stand for, if it is readable."""
    digits = re.sub(r"[ :,]", "", piece)
    data = b""
    if _BINARY.fullmatch(piece):
        data = bytes(int(digits[at : at + 8], 2) for at in range(0, len(digits) - 7, 8))
    elif _HEX.fullmatch(piece):
        data = bytes.fromhex(digits[: len(digits) // 2 * 2])
    else:
        bare = piece.rstrip("=").translate(str.maketrans("-_", "+/"))
        try:
            data = base64.b64decode(bare + "=" * (-len(bare) % 4))
        except (binascii.Error, ValueError):
            return ""
    text = data.decode("utf-8", "replace")
    readable = sum(c.isalnum() or c in " .,:;'-/_~=" for c in text)
    return text if len(text) >= SHORTEST_ATTACK and readable >= 0.9 * len(text) else ""


def _list_readings(value: str, plain: str) -> Iterator[str]:
    """Yield a text in the other ways in which it can be read."""
    words = set(plain.split())
    rot13, reverse = _compile_patterns().turned
    if len(rot13 & words) >= TURNED_WORDS:
        yield codecs.encode(plain, "rot13")
    if len(reverse & words) >= TURNED_WORDS:
        yield plain[::-1]
    if _LEET_WORD.search(plain):
        yield plain.translate(_LEET)
    spaced = _SPACED.search(value)
    if spaced:
        words = [word.replace(" ", "") for word in re.split(r" {2,}", spaced[0])]
        yield " ".join(words).casefold()


# Words.

PATTERN_BYTES = 32 << 20
"""Memory of one compiled pattern; with less, the large ones would be slow."""
ORDER_WORDS = 2
"""An encoded text with so many words of an order is held."""
TURNED_WORDS = 2
"""With fewer known words, a text is not read in ROT13 or backwards."""
ENCODED_BLANKS = 2
"""An encoded text with fewer blanks is no sentence."""

# Tools are named in code style; a single word such as 'search' could be anything.
_TOOL_NAME = re.compile(r"(?<![a-z0-9])[a-z0-9]{1,64}(?:[_-][a-z0-9]{1,64}){1,16}")


class _Node:
    """A place within expressions that start alike."""

    __slots__ = ("classes", "gap", "goes_on", "stems", "words")

    def __init__(self) -> None:
        self.classes = 0
        """The classes, as bits, of the expressions that end here."""
        self.words: dict[str, _Node] = {}
        self.stems: dict[str, list[tuple[str, _Node]]] = {}
        """Beginnings of words and where they lead, by their first letters."""
        self.gap: _Node | None = None
        self.goes_on = False

    def add(self, words: tuple[str, ...], bit: int) -> None:
        """Add an expression of a class."""
        node = self
        for word in words:
            node = node._extend(word)
        node.classes |= bit

    def _extend(self, word: str) -> "_Node":
        self.goes_on = True
        if word == "…":
            self.gap = self.gap or _Node()
            return self.gap
        if not word.endswith("*"):
            if word not in self.words:
                self.words[word] = _Node()
            return self.words[word]
        stem = word[:-1]
        listed = self.stems.setdefault(stem[:STEM_KEY_CHARS], [])
        for known, node in listed:
            if known == stem:
                return node
        listed.append((stem, _Node()))
        return listed[-1][1]

    def follow(self, words: list[str], at: int) -> int:
        """Return the classes of all expressions that end here or go on with the words at `at`."""
        found = self.classes
        if self.gap is not None:
            for start in range(at, min(at + GAP_WORDS + 1, len(words))):
                found |= self.gap.follow(words, start)
        if at < len(words):
            word = words[at]
            node = self.words.get(word)
            if node is not None:
                found |= node.follow(words, at + 1)
            for stem, after in self.stems.get(word[:STEM_KEY_CHARS], ()):
                if word.startswith(stem):
                    found |= after.follow(words, at + 1)
        return found


class _Patterns(NamedTuple):
    """What `phrases` describes, ready for matching. Sets of classes are bits of a number."""

    words: _Node
    pieces: tuple[tuple[str, int], ...]
    """Expressions in scripts without blanks between words, and their classes."""
    shapes: Any
    """A set of the patterns that are no words, searched in one pass."""
    any_shape: Any
    """Matches wherever one of the shapes does, so that most texts cost one search."""
    rules: tuple[_Rule, ...]
    rare: int
    """The first needs of all rules."""
    claim: int
    """The class of words that claim the place of another tool."""
    demand: int
    """The class of words that, after the name of another tool, say how it is to be used."""
    turned: tuple[frozenset[str], ...]
    """The words of all classes in ROT13, and reversed."""
    orders: Any
    private_names: frozenset[tuple[str, ...]]
    about_models: Any

    def classify(self, sentence: str, *, has_shapes: bool = True) -> int:
        """Return the classes of which words occur in a sentence."""
        found = 0
        words = _TOKEN.findall(sentence)
        known = self.words.words
        stems = self.words.stems
        for at, word in enumerate(words, 1):
            node = known.get(word)
            if node is not None:
                found |= node.follow(words, at) if node.goes_on else node.classes
            if word[:STEM_KEY_CHARS] in stems:
                for stem, after in stems[word[:STEM_KEY_CHARS]]:
                    if word.startswith(stem):
                        found |= after.follow(words, at)
        if not sentence.isascii() and _UNSPACED.search(sentence):
            for piece, bit in self.pieces:
                if piece in sentence:
                    found |= bit
        if has_shapes:
            for number in self.shapes.Match(sentence) or ():
                found |= 1 << number
        return found


@cache
def _compile_patterns() -> _Patterns:
    """Compile all patterns once, when the first definition is scanned."""
    engine: Any = re2  # its module is only half typed
    options = engine.Options()
    options.max_mem = PATTERN_BYTES
    options.log_errors = False

    def compile_(*choices: str) -> Any:
        return engine.compile("|".join(f"(?:{choice})" for choice in choices), options)

    shapes = engine.Set.SearchSet(options)
    bits = {name: 1 << shapes.Add(pattern) for name, pattern in phrases.PATTERNS.items()}
    shapes.Compile()
    root = _Node()
    pieces: list[tuple[str, int]] = []
    vocabulary: set[str] = set()
    for name in phrases.WORDS:
        bits[name] = 1 << len(bits)
        for words in phrases.expand(phrases.WORDS[name]):
            if _UNSPACED.search("".join(words)):
                pieces.append((" ".join(words).replace("*", ""), bits[name]))
            else:
                root.add(words, bits[name])
                vocabulary.update(words)

    def add_bits(names: str) -> int:
        return sum(bits[name] for name in names.split("|") if name)

    def build_rule(rule: phrases.Rule, severity: Severity) -> _Rule:
        needs = tuple(add_bits(need) for need in rule.needs)
        unless, topic = add_bits(rule.unless), add_bits(rule.topic)
        return _Rule(rule.code, severity, needs, unless, topic)

    rules = (
        *(build_rule(rule, Severity.ERROR) for rule in phrases.RULES),
        *(build_rule(rule, Severity.WARNING) for rule in phrases.SOFT),
    )
    rare = 0
    for rule in rules:
        rare |= rule.needs[0]
    return _Patterns(
        words=root,
        pieces=tuple(pieces),
        shapes=shapes,
        any_shape=compile_(*phrases.PATTERNS.values()),
        rules=rules,
        rare=rare,
        claim=bits["claim"],
        demand=bits["demand"],
        turned=(
            frozenset(codecs.encode(word, "rot13") for word in vocabulary),
            frozenset(word[::-1] for word in vocabulary),
        ),
        orders=compile_(phrases.ORDERS),
        private_names=frozenset(phrases.expand(phrases.PRIVATE_NAMES)),
        about_models=compile_(phrases.ABOUT_MODELS),
    )
