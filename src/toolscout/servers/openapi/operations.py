"""List the operations of a document and choose a name for each."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import cast

from toolscout.errors import InvalidTool
from toolscout.names import make_exposed_name
from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.openapi.document import Document
from toolscout.tools import Effect

MAX_OPERATIONS = 10_000
MAX_PARAMETERS = 500
DESCRIPTION_CHARS = 4_000
LEAF_CHARS = 200
NAME_CHARS = 1_000
"""How much of a name is read, because many operations may share a long one."""

EFFECTS = {
    **dict.fromkeys(("get", "head", "options", "trace", "query"), Effect.READ),
    **dict.fromkeys(("post", "put", "patch"), Effect.WRITE),
    "delete": Effect.DESTRUCTIVE,
}
UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path, with its entry in the document."""

    method: str
    path: str
    shared: Json
    """The entry of the path, which applies to all its methods."""
    said: Json

    @property
    def id(self) -> str:
        """The name from the document, or else the name of the route."""
        given = self.said.get("operationId")
        name = UNSAFE.sub("_", given[:NAME_CHARS]).strip("_") if isinstance(given, str) else ""
        return name[:LEAF_CHARS] or self.route

    @property
    def route(self) -> str:
        """The name made of method and path."""
        path = self.path[:NAME_CHARS]
        return UNSAFE.sub("_", f"{self.method}{path}").strip("_")[:LEAF_CHARS]

    @property
    def numbered(self) -> str:
        """The name of the route with a hash, which tells similar routes apart."""
        return f"{self.route}_{digest(f'{self.method} {self.path}')}"


def digest(text: str) -> str:
    """Return eight hexadecimal digits of a text's hash."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def list_operations(source: Document) -> Iterator[Operation]:
    """Yield the operations in the document's order; raises `InvalidFile` if there are too many."""
    paths = source.root.get("paths")
    count = 0
    for path, item in paths.items() if is_object(paths) else ():
        shared = source.follow(item) if path.startswith("/") else {}
        source.count_work(len(shared))
        for method, said in shared.items():
            if method not in EFFECTS or not is_object(said):
                continue
            count += 1
            if count > MAX_OPERATIONS:
                raise source.make_size_error(f"it contains more than {MAX_OPERATIONS:,} operations")
            yield Operation(method=method, path=path, shared=shared, said=said)


def choose_leaves(operations: list[Operation], server: str) -> list[str]:
    """Return a unique name for each operation.

    Operations with the same name all get another one, so that no name depends on their order.
    """
    found: dict[int, str] = {}
    taken: set[str] = set()
    choices: tuple[Callable[[Operation], str], ...] = (
        lambda operation: operation.id,
        lambda operation: operation.route,
        lambda operation: operation.numbered,
    )
    for choose in choices:
        wanted = {at: choose(op) for at, op in enumerate(operations) if at not in found}
        exposed = {at: make_exposed_name(server, leaf) for at, leaf in wanted.items()}
        counts = Counter(exposed.values())
        unique = [at for at in wanted if counts[exposed[at]] == 1 and exposed[at] not in taken]
        found.update((at, wanted[at]) for at in unique)
        taken.update(exposed[at] for at in unique)
    if len(found) < len(operations):
        missing = next(op for at, op in enumerate(operations) if at not in found)
        raise InvalidTool(
            "has the same name as another operation",
            server=server,
            tool=missing.numbered,
            remedy="Give it an operationId of its own.",
        )
    return [found[at] for at in range(len(operations))]


def get_text(said: Json, key: str) -> str:
    """Return a text, cut at twice the length that is shown; empty if it is not a string."""
    text = said.get(key)
    return text[: 2 * DESCRIPTION_CHARS].strip() if isinstance(text, str) else ""


def list_items(value: object) -> Iterable[object]:
    """Return the first items of a list, and no items of any other value."""
    return islice(cast("list[object]", value), MAX_PARAMETERS) if is_list(value) else ()


def get_content(said: Json) -> dict[str, Json]:
    """Return the content of a parameter, body or response by media type."""
    content = said.get("content")
    rows = islice(content.items(), MAX_PARAMETERS) if is_object(content) else ()
    return {media: entry for media, entry in rows if is_object(entry)}
