"""`Tool`: a tool definition as a frozen value, whatever format it came in.

A tool can be made from MCP, OpenAI and Anthropic definitions and from Python functions.
`Tool.define` is the only place that checks definitions and limits their size. Schemas are treated
as read-only. This module imports no SDK and does no I/O; `files` reads and writes tools, and
`catalog` holds them.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, TypeGuard, cast

from toolscout import schemas
from toolscout.errors import InvalidTool
from toolscout.functions import definition_from_callable
from toolscout.names import (
    Spelling,
    clean_text,
    fold_name,
    has_invisible,
    make_exposed_name,
    to_one_line,
)
from toolscout.schemas import Json, find_problem, is_object, to_canonical_json

DESCRIPTION_LIMIT = 100_000
HINT_LIMIT = 4_000
TITLE_LIMIT = 400
NAME_LIMIT = 1_000
LIST_LIMIT = 100
SENTENCE_LIMIT = 160
CONTEXT_KINDS = frozenset({"resource", "template", "prompt"})
"""Kinds of what MCP servers offer besides tools."""
ALWAYS_LOAD = "anthropic/alwaysLoad"
SEARCH_HINT = "anthropic/searchHint"
APP_KEYS = ("ui", "ui/resourceUri", "openai/outputTemplate")
"""Metadata that names the app of a tool: as MCP Apps has it, and in two earlier forms."""
APP_URI = "resourceUri"
PASSED_MEMBERS = ("annotations", "_meta", "icons")
"""Extras that MCP defines and that a client of a gateway gets with the definition."""

_OWN_KEYS = ("summary", "hint", "aliases", "tags", "kind", "effect", "always_load")
_INPUT_KEYS = ("input_schema", "inputSchema", "parameters")
_OUTPUT_KEYS = ("output_schema", "outputSchema")
_TEXT_KEYS = ("name", "leaf", "server", "title", "description")
_EXTRA_KEYS = ("extra", "extras")
_KNOWN_KEYS = frozenset(_OWN_KEYS + _INPUT_KEYS + _OUTPUT_KEYS + _TEXT_KEYS + _EXTRA_KEYS)
_PARAGRAPH_END = re.compile(r"\n\s*(?:\n|[-*•#]\s|\d+[.)]\s)")
_SENTENCE_END = re.compile(
    r"(?<!e\.g)(?<!i\.e)(?<!\betc)(?<!\bvs)[.!?](?=[\s*]|$)|[\u3002\uff01\uff1f]"
)
_MARKDOWN = re.compile(r"\*\*|__|```\w*|^[\s#>*-]+")


class Effect(StrEnum):
    """What a call may do to the world."""

    READ = "read"
    WRITE = "write"
    DESTRUCTIVE = "destructive"
    UNKNOWN = "unknown"


def _make_empty_schema() -> Json:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. Create it with `define` or a `from_` method; the constructor checks nothing."""

    name: str
    """The exposed name: unique in a catalogue and accepted by every provider."""
    server: str = ""
    leaf: str = ""
    """The name at the tool's server; by default, the exposed name."""
    title: str = ""
    description: str = ""
    summary: str = ""
    """Replaces the description in replies, but not in the index (R25)."""
    input_schema: Json = field(default_factory=_make_empty_schema)
    output_schema: Json | None = None
    hint: str = ""
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    kind: str = "tool"
    effect: Effect = Effect.UNKNOWN
    """What a call may do, as far as somebody trusted says so; access depends on it."""
    claimed_effect: Effect | None = None
    """What an untrusted server says about it; only searches use that."""
    always_load: bool = False
    instructions: str = ""
    """What the tool's server tells models about its use; searched, but no part of the definition.
    It does not count towards the fingerprint: a server that says something else about itself has
    the same tools."""
    fixed_arguments: Json = field(default_factory=dict[str, Any], repr=False)
    """What every call sends in addition; the schema does not show it, and it may be secret."""
    hidden_arguments: tuple[str, ...] = ()
    """Arguments that the server has but no call may send."""
    extras: Json = field(default_factory=dict[str, Any])
    """Other members of the definition, which are kept but never searched or shown."""
    function: Callable[..., object] | None = field(default=None, repr=False, compare=False)
    """The Python function that the tool was made from, if any."""
    convert: Callable[[Json], Json] = field(default=dict, repr=False, compare=False)
    """Makes checked arguments what the function's annotations promise; see `functions`."""
    uncleaned: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """Texts as their server wrote them, if invisible characters were removed; for the scanner."""
    _fingerprint: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.leaf:
            object.__setattr__(self, "leaf", self.name)

    def __hash__(self) -> int:
        return hash(self.name)  # caches look tools up several times in every search

    @classmethod
    def define(
        cls,
        leaf: str,
        *,
        server: str = "",
        title: str = "",
        description: str = "",
        summary: str = "",
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        hint: str = "",
        aliases: Iterable[str] = (),
        tags: Iterable[str] = (),
        kind: str = "tool",
        effect: Effect | str = Effect.UNKNOWN,
        always_load: bool = False,
        extras: Mapping[str, Any] | None = None,
        function: Callable[..., object] | None = None,
    ) -> Self:
        """Return a tool with checked content, or raise `InvalidTool`.

        Texts of a wrong type count as absent, because servers send null and worse, and overlong
        texts are cut. Only an unusable name, schema or effect is an error.
        """
        server, leaf = _check_names(server, leaf)
        output = None
        if output_schema is not None:
            output = _check_schema(output_schema, "output schema", server, leaf)
        return cls(
            name=make_exposed_name(server, leaf),
            server=server,
            leaf=leaf,
            title=_clean(title, TITLE_LIMIT),
            description=_clean(description, DESCRIPTION_LIMIT),
            summary=_clean(summary, HINT_LIMIT),
            input_schema=_check_schema(input_schema, "input schema", server, leaf),
            output_schema=output,
            hint=_clean(hint, HINT_LIMIT),
            aliases=_clean_all(aliases),
            tags=_clean_all(tags),
            kind=_clean(kind, TITLE_LIMIT) or "tool",
            effect=_check_effect(effect, server, leaf),
            always_load=always_load is True,
            extras=dict(extras) if extras else {},
            function=function,
            uncleaned=tuple(filter(_has_hidden, (title, description, summary, hint))),
        )

    @classmethod
    def from_mcp(cls, definition: object, server: str = "") -> Self:
        """Return the tool for an MCP definition, given as JSON or as the SDK's object.

        Only members that MCP defines are read. Others go to `extras`, so that a server cannot set
        toolscout's own members for its tools (R81).
        """
        row = _to_mapping(definition, server)
        return cls.define(**_read_mcp_fields(row), server=server)

    @classmethod
    def from_anthropic(cls, definition: Mapping[str, Any], server: str = "") -> Self:
        """Return the tool for an Anthropic Messages definition."""
        return cls.from_mcp(definition, server)

    @classmethod
    def from_openai(cls, definition: Mapping[str, Any], server: str = "") -> Self:
        """Return the tool for a Chat Completions, Responses or bare function definition."""
        row = _to_mapping(definition, server)
        function = row.get("function")
        return cls.from_mcp(function if _is_mapping(function) else row, server)

    @classmethod
    def from_callable(
        cls,
        fn: Callable[..., object],
        *,
        server: str = "",
        name: str | None = None,
        description: str | None = None,
        **options: Any,
    ) -> Self:
        """Return the tool for a Python function; `options` are those of `define`.

        Calls give the function what its annotations promise. Raises `InvalidTool` for an
        annotation that JSON cannot become.
        """
        own = definition_from_callable(fn, server)
        made = cls.define(
            own.name if name is None else name,
            server=server,
            description=own.description if description is None else description,
            **cast("dict[str, Any]", {"input_schema": own.input_schema, "function": fn} | options),
        )
        return dataclasses.replace(made, convert=own.convert)

    @classmethod
    def from_any(cls, definition: object, server: str = "") -> "Tool":
        """Return the tool for a definition in any known format.

        Mappings may also have toolscout's own members (server, effect, hint, aliases, tags,
        kind, …); a server given there takes precedence over the argument.
        """
        if isinstance(definition, Tool):
            return definition
        if _is_mapping(definition):
            function = definition.get("function")
            row = {**definition, **function} if _is_mapping(function) else definition
            fields = _read_mcp_fields(row)
            fields.update((key, row[key]) for key in _OWN_KEYS if row.get(key) is not None)
            return cls.define(**fields, server=row.get("server") or server)
        if callable(definition) and not _has_schema(definition):
            return cls.from_callable(definition, server=server)
        return cls.from_mcp(definition, server)

    def move_to(self, server: str) -> "Tool":
        """Return this tool as a tool of another server, with the exposed name it has there."""
        server, _ = _check_names(server, self.leaf)
        return dataclasses.replace(
            self, server=server, leaf=self.leaf, name=make_exposed_name(server, self.leaf)
        )

    @property
    def fingerprint(self) -> str:
        """16 hex digits over all content that a model or the index sees, and fixed arguments (R87).

        The fingerprint is the same in every process.
        """
        if not self._fingerprint:
            content = [
                [self.name, self.server, self.leaf, self.title, self.description, self.summary],
                [self.input_schema, self.output_schema],
                [self.hint, self.aliases, self.tags, self.kind, self.effect, self.always_load],
            ]
            if self.fixed_arguments:  # who agreed to calls with others has to be asked again
                content.append([self.fixed_arguments])
            digest = hashlib.sha256(to_canonical_json(content)).hexdigest()[:16]
            object.__setattr__(self, "_fingerprint", digest)
        return self._fingerprint

    @property
    def spellings(self) -> set[Spelling]:
        """All spellings that mean this tool, for the catalogue and the index."""
        leaf = fold_name(self.leaf)
        found: set[Spelling] = {(0, fold_name(self.name)), (0, fold_name(self.server) + leaf)}
        found.update((1, fold_name(alias)) for alias in self.aliases)
        found.add((2, leaf))
        return found

    def render_signature(self, *, optional: int = schemas.SHOWN_OPTIONAL) -> str:
        """Return name and parameters on one line (see `schemas.render_signature`)."""
        return schemas.render_signature(self.name, self.input_schema, optional=optional)

    @property
    def is_for_apps(self) -> bool:
        """Whether only the app of its server may call it, not the model (MCP Apps)."""
        meta: object = self.extras.get("_meta")
        ui: object = meta.get("ui") if _is_mapping(meta) else None
        visibility: object = ui.get("visibility") if _is_mapping(ui) else None
        return schemas.is_list(visibility) and bool(visibility) and "model" not in visibility

    @property
    def app(self) -> Json:
        """The metadata that names its app, empty if it has none."""
        meta: object = self.extras.get("_meta")
        return {k: meta[k] for k in APP_KEYS if k in meta} if is_object(meta) else {}

    @property
    def is_context(self) -> bool:
        """Whether this is something to read, a resource or a prompt, and not something to run."""
        return self.kind.casefold() in CONTEXT_KINDS

    @property
    def first_sentence(self) -> str:
        """What the tool does, in at most 160 characters that are safe in a prompt."""
        return take_first_sentence(self.summary or self.description, SENTENCE_LIMIT)


def take_first_sentence(text: str, limit: int) -> str:
    """Return the first sentence of a text, in at most `limit` characters safe in a prompt."""
    text = _MARKDOWN.sub("", text[: 10 * limit].strip()).strip()
    end = _PARAGRAPH_END.search(text)
    paragraph = text[: end.start()] if end else text
    stop = _SENTENCE_END.search(paragraph)
    return to_one_line(paragraph[: stop.end()] if stop else paragraph, limit)


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _check_names(server: object, leaf: object) -> tuple[str, str]:
    shown = server if isinstance(server, str) else repr(server)[:80]
    if not isinstance(leaf, str) or not leaf.strip():
        raise InvalidTool(
            "has no name",
            server=shown,
            tool=leaf if isinstance(leaf, str) else repr(leaf)[:80],
            remedy="Give each tool a name that is a string with at least one visible character.",
        )
    if not isinstance(server, str) or max(len(server), len(leaf)) > NAME_LIMIT:
        raise InvalidTool(
            f"has a name or server that is not a string of at most {NAME_LIMIT} characters",
            server=shown[:80],
            tool=leaf[:80],
            remedy="Shorten it at its server.",
        )
    return _replace_surrogates(server), _replace_surrogates(leaf)


def _replace_surrogates(text: str) -> str:
    # The server must get its own name back, so nothing else is changed.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _check_schema(schema: object, what: str, server: str, leaf: str) -> Json:
    if schema is None:
        return _make_empty_schema()
    plain: object = dict(schema) if _is_mapping(schema) and not is_object(schema) else schema
    if is_object(plain):
        problem = find_problem(plain)
        if not problem:
            return plain
    else:
        problem = "is not an object"
    raise InvalidTool(
        f"has an {what} that {problem}",
        server=server,
        tool=leaf,
        remedy="Give a JSON Schema object such as {'type': 'object', 'properties': {}}.",
    )


def _check_effect(effect: object, server: str, leaf: str) -> Effect:
    try:
        return Effect(effect)
    except ValueError:
        raise InvalidTool(
            f"has the effect {effect!r}",
            server=server,
            tool=leaf,
            remedy=f"Use one of {', '.join(Effect)}.",
        ) from None


def _clean(value: object, limit: int) -> str:
    return clean_text(value, limit) if isinstance(value, str) else ""


def _has_hidden(value: object) -> bool:
    """Tell whether cleaning removes invisible characters from a text."""
    if not isinstance(value, str) or (value.isascii() and value.isprintable()):
        return False
    return has_invisible(value[:DESCRIPTION_LIMIT])


def _clean_all(values: object) -> tuple[str, ...]:
    """Return the distinct strings among some values; a single string counts as a list of one."""
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, Iterable):
        return ()
    texts = (_clean(value, TITLE_LIMIT).strip() for value in cast("Iterable[object]", values))
    return tuple(dict.fromkeys(text for text in texts if text))[:LIST_LIMIT]


def _to_mapping(definition: object, server: str) -> Mapping[str, Any]:
    if _is_mapping(definition):
        return definition
    if not hasattr(definition, "name") or not _has_schema(definition):
        raise InvalidTool(
            f"is a {type(definition).__name__}, not a tool definition",
            server=server,
            tool=repr(definition)[:80],
            remedy="Pass a Tool, a function, or an MCP, OpenAI or Anthropic definition.",
        )
    keys = ("name", "title", "description", *_INPUT_KEYS, *_OUTPUT_KEYS)
    row: Json = {key: getattr(definition, key, None) for key in keys}
    row["annotations"] = _dump_model(getattr(definition, "annotations", None))
    row["_meta"] = _dump_model(getattr(definition, "meta", None))
    return {key: value for key, value in row.items() if value is not None}


def _has_schema(definition: object) -> bool:
    return any(hasattr(definition, key) for key in _INPUT_KEYS)


def _dump_model(value: object) -> object:
    """Return the members of a pydantic model as JSON, and any other value unchanged."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else value


def _read_mcp_fields(row: Mapping[str, Any]) -> Json:
    annotations = row.get("annotations")
    hints: Mapping[str, Any] = annotations if _is_mapping(annotations) else {}
    notes = row.get("_meta") or row.get("meta")
    meta: Mapping[str, Any] = notes if _is_mapping(notes) else {}
    extras: Json = {key: value for key, value in row.items() if key not in _KNOWN_KEYS}
    for key in _EXTRA_KEYS:
        given = row.get(key)
        if _is_mapping(given):
            extras.update(given)
    if isinstance(extras.get("type"), str):
        del extras["type"]  # "function" and "custom" describe the format, not the tool
    extras.pop("function", None)
    return {
        "leaf": _get_first(row, "leaf", "name"),
        "title": row.get("title") or hints.get("title"),
        "description": row.get("description"),
        "input_schema": _get_first(row, *_INPUT_KEYS),
        "output_schema": _get_first(row, *_OUTPUT_KEYS),
        "hint": meta.get(SEARCH_HINT),
        "always_load": meta.get(ALWAYS_LOAD),
        "effect": _read_effect(
            _get_first(hints, "readOnlyHint", "read_only_hint"),
            _get_first(hints, "destructiveHint", "destructive_hint"),
        ),
        "extras": extras,
    }


def _get_first(row: Mapping[str, Any], *keys: str) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _read_effect(read_only: object, destructive: object) -> Effect:
    """Return the effect that MCP's hints declare.

    A tool that writes counts as destructive unless it says otherwise, which is MCP's own default
    for `destructiveHint`. Values other than true and false are ignored.
    """
    if read_only is True:
        return Effect.READ
    if destructive is False:
        return Effect.WRITE
    if destructive is True or read_only is False:
        return Effect.DESTRUCTIVE
    return Effect.UNKNOWN
