import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.search.rank import SHORTEST, find_corrections

KNOWN = sorted(["branch", "calendar", "create", "issue", "list", "mail", "repository", "send"])
words = st.text(alphabet="abc", max_size=10)


@pytest.mark.requirement("R32")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("isue", "issue"),
        ("isssue", "issue"),
        ("issur", "issue"),
        ("crate", "create"),
        ("branche", "branch"),
        ("maill", "mail"),
    ],
)
def test_one_slip_is_forgiven(typed: str, meant: str):
    """R32"""
    assert find_corrections([typed], KNOWN) == {typed: meant}


@pytest.mark.requirement("R32")
@pytest.mark.parametrize(
    ("typed", "meant"), [("isseu", "issue"), ("brnach", "branch"), ("sedn", "send")]
)
def test_two_letters_that_changed_places_are_one_slip(typed: str, meant: str):
    """R32"""
    assert find_corrections([typed], KNOWN) == {typed: meant}


@pytest.mark.requirement("R32")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [("calandra", "calendar"), ("repsoitroy", "repository"), ("repository", "repository")],
)
def test_two_slips_are_forgiven_in_long_words(typed: str, meant: str):
    """R32"""
    assert find_corrections([typed], KNOWN) == {typed: meant}


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("typed", ["izzue", "bransh2", "breanhc", "isuee1"])
def test_two_slips_are_too_many_for_a_short_word(typed: str):
    """R32"""
    assert len(typed) < 8
    assert find_corrections([typed], KNOWN) == {}


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("typed", ["repoosittorry", "xalxndxr"])
def test_three_slips_are_too_many_for_any_word(typed: str):
    """R32"""
    assert find_corrections([typed], KNOWN) == {}


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("typed", ["", "x", "lst", "mai", "iss"])
def test_short_words_are_left_alone(typed: str):
    """R32"""
    assert len(typed) < SHORTEST
    assert find_corrections([typed], KNOWN) == {}


@pytest.mark.requirement("R32")
def test_a_word_inside_another_is_no_slip():
    """R32"""
    assert find_corrections(["thread"], ["read"]) == {}


@pytest.mark.requirement("R33")
def test_ties_go_by_name():
    """R33"""
    known = ["cast", "cost", "cyst"]

    assert find_corrections(["cest"], known) == {"cest": "cast"}
    assert find_corrections(["cest"], known[1:]) == {"cest": "cost"}


def test_the_nearest_word_wins_over_the_first():
    assert find_corrections(["calendars"], ["calandra", "calendar"]) == {"calendars": "calendar"}


def test_only_words_with_a_near_one_are_given():
    assert find_corrections(["creat", "zebra", "isue", "x"], KNOWN) == {
        "creat": "create",
        "isue": "issue",
    }


def test_nothing_is_near_nothing():
    assert find_corrections([], KNOWN) == {}
    assert find_corrections(["issue"], []) == {}


@given(st.lists(words), st.lists(words))
def test_every_correction_is_a_known_word(typed: list[str], known: list[str]):
    found = find_corrections(typed, sorted(known))

    assert found.keys() <= set(typed)
    assert set(found.values()) <= set(known)
