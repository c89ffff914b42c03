"""An opposite never stands above what was asked for."""

import pytest

from toolscout import Catalog, Index, Tool

PAIRS = [
    ("create", "delete"),
    ("enable", "disable"),
    ("start", "stop"),
    ("lock", "unlock"),
    ("subscribe", "unsubscribe"),
    ("open", "close"),
    ("add", "remove"),
    ("increase", "decrease"),
    ("archive", "unarchive"),
    ("mute", "unmute"),
    ("upload", "download"),
    ("import", "export"),
    ("show", "hide"),
    ("connect", "disconnect"),
]


def define(server: str, verb: str, *, words: str = "") -> Tool:
    """Return a tool whose description has all words of a request only if it is given them."""
    return Tool.define(f"{verb}_thing", server=server, description=words)


@pytest.mark.parametrize("encoder", ["static", None])
@pytest.mark.parametrize(("one", "other"), [*PAIRS, *((b, a) for a, b in PAIRS)])
def test_what_was_asked_for_stands_above_its_opposite(one: str, other: str, encoder: str | None):
    text = f"{one} the thing of the customer in the office"
    # The opposite has more of the request's words in its description.
    tools = [
        define("s", one, words="For an account."),
        define("s", other, words=f"A thing of a customer in an office; undoes {one}."),
        define("other", other, words="A thing of a customer in an office."),
    ]
    catalog = Catalog({"s": tools[:2], "other": tools[2:]})

    found = [
        hit.tool.name for hit in Index(catalog, encoder="static" if encoder else None).search(text)
    ]

    assert found.index(f"s__{one}_thing") < found.index(f"s__{other}_thing")


def test_going_forward_is_not_going_back():
    tools = [
        Tool.define("go_back", server="browser", description="Go to the page in the history."),
        Tool.define("go_forward", server="browser", description="Next in the stack."),
    ]

    found = Index(Catalog({"browser": tools})).search("go to the next page forward in the history")

    assert found[0].tool.leaf == "go_forward"


def test_scores_still_fall_and_a_request_with_both_words_keeps_its_order():
    tools = [
        define("s", "enable", words="Turn a thing on."),
        define("s", "disable", words="Disable or enable a thing of a customer in an office."),
    ]
    index = Index(Catalog({"s": tools}))

    scores = [hit.score for hit in index.search("enable the thing of the customer in the office")]

    assert scores == sorted(scores, reverse=True)
    both = index.search("disable and enable a thing of a customer in an office")
    assert both[0].tool.leaf == "disable_thing"
