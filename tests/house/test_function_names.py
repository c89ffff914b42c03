"""Functions say what they do: a verb first, or a conversion, or a question."""

import ast
from collections.abc import Iterator
from pathlib import Path

import toolscout

PACKAGE = Path(toolscout.__file__).parent

VERBS = set(
    """
    adopt claim expire hear
    abort accept acknowledge acquire add adjust admit advance advertise aggregate allow analyze
    anchor announce answer append apply approve arrange ask assemble assert assign attach attend
    authenticate authorize await balance batch begin bind blend block bound break bring build bundle
    calculate calibrate call cancel capture carry catch change charge check choose clamp classify
    clean clear clip close collapse collect combine come commit compact compare compile complete
    compose compress compute concatenate configure confirm connect consume contain continue convert
    copy correct count cover crawl create cut decide declare decode decorate defer define delay
    delete deliver deny derive describe deserialize detach detect determine diagnose diff digest
    disable discard discover dispatch display divide do document drain draw drop dump echo edit
    elicit emit enable encode end enforce enrich ensure enter enumerate erase escape estimate
    evaluate evict examine exchange exclude execute exit expand expect explain explore export expose
    express extend extract fail feed fetch fill filter find finish fit fix flatten flush fold follow
    forbid force forget fork format forward free freeze fuse gather generate get give go grant greet
    group grow guard guess handle hash head hide hold honor identify ignore import improve include
    indent index infer inform init initialize inject inline insert inspect install interpret
    introduce invoke issue iterate join judge jump keep label launch lay learn leave lift limit lint
    list listen load locate lock log look loosen lose lower make map mark mask match measure meet
    mention merge migrate move multiply name narrow need negotiate normalize note notify number
    observe obtain offer omit open order pack paint pair parse pass patch pause permit persist pick
    pin place plan play plot point post predict prefer prefix prepare present preserve prevent
    preview print probe proceed process produce project promote propose protect provide prune
    publish pull push put queue quote raise rank rate read rebuild recall receive recognize
    reconnect record recover redact redirect reduce refer refresh refuse register reject release
    reload remember remove rename render renew reopen reorder repair repeat replace replay reply
    report request require rerun resample reserve reset resolve respond restart restore restrict
    resume retire retrieve retry return reuse revert review rewrite roll rotate round route run
    sample sanitize save say scale scan schedule score search see select send separate serialize
    serve set settle shape share shelve shorten show shuffle shut sign simplify skip sleep slice
    smooth snapshot sort spawn spell split spread stamp start state steer stem step stop store
    stream strip style submit subscribe subtract suggest sum summarize supply suspend swap sweep
    sync tabulate take tally tell terminate test tidy toggle tokenize total touch trace track train
    transform translate trim trust try turn undo unescape unfold unload unpack unpin unquote
    unregister unsubscribe unwrap update upload use validate verify view visit wait wake walk warm
    warn watch weigh widen withdraw work wrap write yield zip
    """.split()  # noqa: SIM905  # a list of words, not of strings
)
QUESTIONS = {
    *("is", "has", "can", "may", "should", "must", "does", "needs", "was", "accepts", "admits"),
    *("allows", "contains", "covers", "differs", "equals", "exists", "fits", "holds", "knows"),
    *("matches", "offers", "sees", "starts", "supports", "wants", "waits", "asks", "ends"),
}
DICTATED = {
    "_missing_",
    "added_to_kernel",
    "aiter_bytes",
    "before_run",
    "cache_key",
    "connection_lost",
    "connection_made",
    "data_received",
    "file_response",
    "formatException",
    "formatMessage",
    "keys",
    "model_json_schema",
    "pipe_connection_lost",
    "pipe_data_received",
    "progress",
    "readline",
    "session",
    "shell_complete",
    "startup",
    "system_prompt",
    "tools",
    "user_message",
}
"""Names that another package, a protocol or the public API of sessions and stores asks for."""


def test_every_function_is_named_by_a_verb_a_conversion_or_a_question():
    wrong = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in functions(path)
        if not is_well_named(node.name)
    ]

    assert wrong == [], "Rename these, or add a verb that is missing from VERBS."


def is_well_named(name: str) -> bool:
    words = name.strip("_").split("_")
    return (
        words[0] in VERBS | QUESTIONS
        or words[0] in {"to", "from", "on"}
        or "from" in words[1:]
        or name in DICTATED
        or (name.startswith("__") and name.endswith("__"))
        # The asynchronous twin of a verb, as SDKs name theirs.
        or (words[0][:1] == "a" and words[0][1:] in VERBS)
    )


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions whose names we choose: no properties, overloads or commands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
            if not any(
                word in marks
                for word in ("property", "setter", "overload", "command", "click.group")
            ):
                yield node
