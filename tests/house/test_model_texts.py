"""Every sentence that the model reads lives in one of four modules."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import toolscout

PACKAGE = Path(toolscout.__file__).parent

HOMES = {"errors.py", "sessions/replies.py", "sessions/texts.py", "sessions/metatools.py"}
SPEAKERS = [
    "query.py",
    "sessions/*.py",
    "calls/*.py",
    "gateway/gateway.py",
    "gateway/pending.py",
    "gateway/forward.py",
    "gateway/server.py",
    "gateway/tasks.py",
    "adapters/**/*.py",
]
"""The modules that produce text for the model."""

FOR_DEVELOPERS = {
    "AssertionError",
    "InvalidConfig",
    "InvalidState",
    "UsageError",
    "ValueError",
    "_make_unreadable",
}
"""Calls whose text only developers and operators read."""

EXCEPTIONS = {
    ("adapters/anthropic/__init__.py", "module … has no attribute"): "Python's own error",
    ("adapters/autogen.py", "A scout or a `hide` function"): "raised at the developer",
    ("adapters/openai/__init__.py", "module … has no attribute"): "Python's own error",
    ("adapters/smolagents.py", "Code that runs elsewhere"): "raised at the developer",
    ("calls/arguments.py", "a list of …"): "names a value",
    ("calls/arguments.py", "one with another '…'"): "names a value",
    ("calls/repairs.py", "a list with this one value"): "names a value",
    ("calls/repairs.py", "a list, from JSON text"): "names a value",
    ("calls/repairs.py", "an object, from JSON text"): "names a value",
    ("gateway/gateway.py", "waiting for a login"): "names a state",
    ("gateway/pending.py", "The client does not support"): "the server reads it, not the model",
    ("gateway/pending.py", "The client has not answered"): "the server reads it, not the model",
    ("gateway/pending.py", "The client's answer does not"): "the server reads it, not the model",
    ("sessions/session_state.py", "The host refuses the"): "a warning that the host reads",
}
"""Other sentences for developers and programs, by module and beginning."""

WORD = r"[(\"'`]*[\w…][\w…'`./:-]*[\"'`),;:.!?]*"
SENTENCE = re.compile(f"(?=\\W?[a-zA-Z])(?:{WORD} ){{3,}}{WORD}")
"""Four words or more, of which all but the first may be values, written `…`."""


def test_sentences_for_the_model_live_in_four_modules():
    misplaced = [
        f"{module}:{line}: {text}"
        for module, line, text in find_all_sentences()
        if not any(is_excepted(module, text, exception) for exception in EXCEPTIONS)
    ]

    assert misplaced == []


def test_every_exception_is_still_needed():
    sentences = list(find_all_sentences())

    for exception in EXCEPTIONS:
        assert any(is_excepted(module, text, exception) for module, _, text in sentences), exception


def is_excepted(module: str, text: str, exception: tuple[str, str]) -> bool:
    return module == exception[0] and text.startswith(exception[1])


def find_all_sentences() -> Iterator[tuple[str, int, str]]:
    """Yield module, line and text of all that looks like a sentence for the model."""
    for path in speaking_modules():
        for node, text in find_sentences(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(PACKAGE).as_posix(), node.lineno, text


def speaking_modules() -> list[Path]:
    paths = {path for pattern in SPEAKERS for path in PACKAGE.glob(pattern)}
    return sorted(paths - {PACKAGE / home for home in HOMES})


def find_sentences(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield the texts below a node that look like sentences, except what developers read."""
    if is_docstring(node) or is_for_developers(node):
        return
    if isinstance(node, ast.JoinedStr | ast.Constant):
        text = read_text(node)
        if SENTENCE.search(text):
            yield node, text
        return
    for child in ast.iter_child_nodes(node):
        yield from find_sentences(child)


def is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_for_developers(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called.startswith("_log.") or called in FOR_DEVELOPERS


def read_text(node: ast.JoinedStr | ast.Constant) -> str:
    """Return a text with `…` in place of each value."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(
        read_text(part) if isinstance(part, ast.Constant) else "…" for part in node.values
    )
