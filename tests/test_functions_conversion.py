"""What reaches a Python function whose parameters are annotated."""

import asyncio
import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import ipaddress
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
)

import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_core import to_jsonable_python
from typing_extensions import TypeAliasType

from toolscout import Catalog, Scout
from toolscout.errors import InvalidTool
from toolscout.sessions.replies import Reply
from toolscout.testing import FakeServer

Item = TypeVar("Item")
UserId = NewType("UserId", int)
Days = TypeAliasType("Days", list[datetime.date])


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.Enum):
    SMALL = (1, 2)
    LARGE = (3, 4)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Slug(str):
    __slots__ = ()


class Stop(NamedTuple):
    city: str
    arrival: datetime.datetime
    nights: int = 1


class Movie(TypedDict):
    title: str
    released: NotRequired[datetime.date]


@dataclasses.dataclass(frozen=True)
class Trip:
    start: datetime.date
    stops: list[Stop]
    budget: decimal.Decimal | None = None
    mood: Colour = Colour.RED
    tags: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.start.year < 1970:
            raise ValueError("a trip cannot start before 1970")


@dataclasses.dataclass
class Node:
    born: datetime.date
    children: list["Node"] = dataclasses.field(default_factory=list["Node"])


@dataclasses.dataclass
class Box(Generic[Item]):
    content: Item
    more: list[Item]


class Invoice(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    number: uuid.UUID
    due: datetime.date
    amount: decimal.Decimal = pydantic.Field(gt=0)
    notes: tuple[str, ...] = ()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DATES = st.dates()
DAYS = datetime.timedelta(days=300)  # a year has no fixed length
SAFE_INTS = st.integers(-(2**53), 2**53)
STOPS = st.builds(Stop, TEXT, st.datetimes(), SAFE_INTS)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
OFFSETS = st.timezones().map(
    lambda zone: datetime.timezone(
        datetime.datetime(2024, 1, 1, tzinfo=zone).utcoffset() or datetime.timedelta()
    )
)
ANNOTATIONS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "str": (str, TEXT),
    "int": (int, SAFE_INTS),
    "float": (float, st.floats(allow_nan=False, allow_infinity=False)),
    "bool": (bool, st.booleans()),
    "none": (None, st.none()),
    "bytes": (bytes, st.binary(max_size=20)),
    "datetime": (datetime.datetime, st.datetimes(timezones=OFFSETS | st.none())),
    "date": (datetime.date, DATES),
    "time": (datetime.time, st.times()),
    "timedelta": (datetime.timedelta, st.timedeltas(-DAYS, DAYS)),
    "uuid": (uuid.UUID, st.uuids()),
    "path": (pathlib.Path, st.sampled_from(["a", "/b/c.txt", "../d e"]).map(pathlib.Path)),
    "decimal": (decimal.Decimal, DECIMALS),
    "enum": (Colour, st.sampled_from(Colour)),
    "enum by name": (Size, st.sampled_from(Size)),
    "int enum": (Level, st.sampled_from(Level)),
    "literal": (Literal["a", 1, True, Colour.BLUE], st.sampled_from(["a", 1, True, Colour.BLUE])),
    "optional": (Optional[datetime.date], DATES | st.none()),  # noqa: UP045 - both spellings
    "union": (datetime.date | uuid.UUID | int, DATES | st.uuids() | SAFE_INTS),
    "union of records": (Node | Trip, st.builds(Node, DATES, st.just([]))),
    "list": (list[datetime.date], st.lists(DATES, max_size=3)),
    "sequence": (Sequence[Colour], st.lists(st.sampled_from(Colour), max_size=3)),
    "set": (set[uuid.UUID], st.sets(st.uuids(), max_size=3)),
    "frozenset": (frozenset[datetime.date], st.frozensets(DATES, max_size=3)),
    "pair": (tuple[datetime.date, int], st.tuples(DATES, SAFE_INTS)),
    "tuple": (tuple[decimal.Decimal, ...], st.lists(DECIMALS, max_size=3).map(tuple)),
    "empty tuple": (tuple[()], st.just(())),
    "deque": (collections.deque[int], st.lists(SAFE_INTS, max_size=3).map(collections.deque)),
    "dict": (dict[str, datetime.date], st.dictionaries(TEXT, DATES, max_size=3)),
    "dict by int": (dict[int, str], st.dictionaries(SAFE_INTS, TEXT, max_size=3)),
    "dict by date": (dict[datetime.date, int], st.dictionaries(DATES, SAFE_INTS, max_size=3)),
    "mapping": (
        Mapping[Colour, set[int]],
        st.dictionaries(st.sampled_from(Colour), st.sets(SAFE_INTS, max_size=3)),
    ),
    "dataclass": (
        Trip,
        st.builds(
            Trip,
            st.dates(datetime.date(1970, 1, 1)),
            st.lists(STOPS, max_size=2),
            DECIMALS | st.none(),
            st.sampled_from(Colour),
            st.frozensets(TEXT, max_size=3),
        ),
    ),
    "recursive dataclass": (
        Node,
        st.recursive(
            st.builds(Node, DATES, st.just([])),
            lambda nodes: st.builds(Node, DATES, st.lists(nodes, max_size=2)),
            max_leaves=4,
        ),
    ),
    "generic dataclass": (
        Box[datetime.date],
        st.builds(Box[datetime.date], DATES, st.lists(DATES, max_size=2)),
    ),
    "named tuple": (Stop, STOPS),
    "typed dict": (
        Movie,
        st.fixed_dictionaries({"title": TEXT}, optional={"released": DATES}),
    ),
    "pydantic model": (
        Invoice,
        st.builds(
            Invoice,
            number=st.uuids(),
            due=DATES,
            amount=st.decimals(1, 1000, places=2),
            notes=st.lists(TEXT, max_size=2).map(tuple),
        ),
    ),
    "annotated": (Annotated[datetime.date, "When."], DATES),
    "new type": (UserId, SAFE_INTS),
    "subclass": (Slug, TEXT.map(Slug)),
    "type alias": (dict[str, Days], st.dictionaries(TEXT, st.lists(DATES, max_size=2))),
    "nested": (
        list[dict[str, tuple[set[datetime.date], Colour | None]]],
        st.lists(
            st.dictionaries(
                TEXT,
                st.tuples(st.sets(DATES, max_size=2), st.sampled_from(Colour) | st.none()),
                max_size=2,
            ),
            max_size=2,
        ),
    ),
}


def annotate(fn: Callable[..., object], hint: object) -> Callable[..., object]:
    fn.__annotations__["value"] = hint
    return fn


def to_json(value: object) -> Any:
    """Return a value as JSON, by pydantic's rules and by our own for three types."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Size):
        return value.name
    if isinstance(value, Stop):
        return to_jsonable_python(value._asdict())
    if isinstance(value, Trip):
        return to_jsonable_python(value) | {"stops": [to_json(stop) for stop in value.stops]}
    return to_jsonable_python(value)


def call(fn: Callable[..., object], **arguments: object) -> Reply:
    scout = Scout(Catalog({"local": [fn]}))
    [tool] = scout.catalog
    session = scout.session("one", pins=[tool.name])
    return session.call_sync(tool.name, arguments)


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_a_value_of_each_annotation_survives_the_way_through_json(name: str):
    hint, values = ANNOTATIONS[name]
    received: list[object] = []

    def keep(value: Any) -> None:
        received.append(value)

    scout = Scout(Catalog({"local": [annotate(keep, hint)]}))
    session = scout.session("one", pins=["local__keep"])

    @settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(values)
    def survive(value: object) -> None:
        reply = session.call_sync("local__keep", {"value": to_json(value)})
        assert reply.code == "ok", reply.text
        assert received[-1] == value
        assert type(received[-1]) is type(value)

    survive()


def test_methods_and_asynchronous_functions_get_dates_too():
    class Diary:
        async def write(self, day: datetime.date, at: datetime.time = datetime.time(8)) -> str:
            await asyncio.sleep(0)
            return f"{type(day).__name__} {at.hour}"

        def read(self, day: datetime.date) -> int:
            return day.toordinal()

    diary = Diary()

    assert call(diary.write, day="2026-11-17").text == "date 8"
    assert call(diary.read, day="0001-01-02").text == "2"
    assert call(functools.partial(diary.read), day="0001-01-02").text == "2"


def test_unannotated_and_any_stay_json():
    def show(plain: str, anything: Any, thing: object) -> str:
        return f"{plain!r} {anything!r} {thing!r}"

    del show.__annotations__["plain"]

    assert call(show, plain="2026-11-17", anything={"a": [1]}, thing=[2]).text == (
        "'2026-11-17' {'a': [1]} [2]"
    )


REFUSED: list[tuple[Any, Any, str]] = [
    (datetime.date, "2026-02-30", "value: must be a valid date, got the text '2026-02-30'"),
    (uuid.UUID, "7", "value: must be a valid uuid, got the text '7'"),
    (list[datetime.time], ["08:00", "late"], "value[1]: must be a valid time"),
    (dict[str, Node], {"a": {"born": "?"}}, "value.a.born: must be a valid date"),
    (datetime.date | None, "soon", "value: must be a valid date, got the text 'soon'"),
    (Colour, "green", "value: must be one of red, blue (enum)"),
    (Trip, {"start": "2026-01-01", "stops": [], "stopps": 1}, "stopps: is not a parameter"),
    (Trip, {"start": "1900-01-01", "stops": []}, "a trip cannot start before 1970"),
    (
        Node,
        {"born": "2026-01-01", "children": [{"born": "2026-01-01", "children": [{}]}]},
        "value.children[0].children[0].born: is required",
    ),
    (
        Invoice,
        {"number": str(uuid.UUID(int=1)), "due": "2026-01-01", "amount": -1},
        "value.amount: is refused by the tool: Input should be greater than 0",
    ),
]


@pytest.mark.parametrize(("hint", "value", "problem"), REFUSED)
def test_what_a_value_cannot_become_is_refused_before_the_call(
    hint: object, value: object, problem: str
):
    called: list[object] = []

    def act(value: Any) -> None:
        called.append(value)

    reply = call(annotate(act, hint), value=value)

    assert reply.code == "invalid_arguments"
    assert problem in reply.text
    assert "Not called" in reply.text
    assert called == []


@pytest.mark.parametrize(
    "hint",
    [
        ipaddress.IPv4Address,
        Callable[[int], int],
        complex,
        list[ipaddress.IPv4Address],
        ipaddress.IPv4Address | None,
        dict[tuple[int, int], str],
        collections.defaultdict[str, int],
        "NoSuchName",
        object(),
    ],
)
def test_an_annotation_that_json_cannot_become_is_refused_by_the_catalogue(hint: object):
    def dial(value: Any) -> None: ...

    catalog = Catalog()

    with pytest.raises(InvalidTool) as caught:
        catalog.replace("phone", [annotate(dial, hint)])

    assert "Tool 'dial' of server 'phone' has a parameter 'value'" in str(caught.value)
    assert "Annotate it with Any" in str(caught.value)
    assert len(catalog) == 0


def test_a_fake_server_runs_a_function_with_what_its_annotations_promise():
    def weekday(day: datetime.date) -> str:
        return day.strftime("%A")

    server = FakeServer("clock", [weekday])
    scout = Scout(Catalog({"clock": server.tools}), executors={"clock": server})

    reply = scout.session("one", pins=["clock"]).call_sync("clock__weekday", {"day": "2026-11-17"})

    assert reply.text == "Tuesday"
    assert server.calls == [("weekday", {"day": "2026-11-17"})]


@pytest.mark.processes
def test_functions_without_pydantic_types_do_not_import_pydantic():
    code = (
        "import sys, datetime; from dataclasses import dataclass\n"
        "from toolscout.tools import Tool\n"
        "@dataclass\n"
        "class Day:\n    date: datetime.date\n"
        "def note(day: Day, text: str = '') -> None: ...\n"
        "print(Tool.from_callable(note).name, 'pydantic' in sys.modules)"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout.split() == ["note", "False"]
