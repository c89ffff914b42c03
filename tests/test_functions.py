import datetime
import enum
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pydantic
import pytest

from toolscout.functions import definition_from_callable
from toolscout.schemas import Json


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: float = 0.0
    tags: list[str] = field(default_factory=list[str])


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Tree(pydantic.BaseModel):
    label: str
    planted: datetime.date
    branches: list["Tree"] = []


def schema_of(hint: Any) -> Json:
    def fn(value: Any) -> None: ...

    fn.__annotations__["value"] = hint
    return definition_from_callable(fn).input_schema["properties"]["value"]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, Any], {"type": "object"}),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Colour, {"enum": ["red", "blue"], "type": "string"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {
                    "x": {"type": "integer"},
                    "y": {"type": "number"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
        (
            Movie,
            {
                "type": "object",
                "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
                "required": ["title"],
                "additionalProperties": False,
            },
        ),
        (
            dict[Colour, datetime.time],
            {
                "type": "object",
                "propertyNames": {"enum": ["red", "blue"], "type": "string"},
                "additionalProperties": {"type": "string", "format": "time"},
            },
        ),
        (Any, {}),
    ],
)
def test_hints_become_schemas(hint: object, schema: Json):
    assert schema_of(hint) == schema


def test_the_schema_of_a_pydantic_model_is_written_out_without_references():
    schema = schema_of(Tree)

    assert "$" not in str(schema)
    inner = schema["properties"]["branches"]["items"]
    assert inner["properties"]["planted"] == {
        "format": "date",
        "title": "Planted",
        "type": "string",
    }


def google(city: str, days: int = 3) -> None:
    """Tell the weather.

    Works everywhere.

    Args:
        city: Where to look,
            by name.
        days (int): How far ahead.

    Returns:
        city: not a parameter text.
    """


def numpy(city: str, days: int = 3) -> None:
    """Tell the weather.

    Works everywhere.

    Parameters
    ----------
    city : str
        Where to look,
        by name.
    days : int, optional
        How far ahead.

    Returns
    -------
    str
        Nothing of note.
    """


def rest(city: str, days: int = 3) -> None:
    """Tell the weather.

    Works everywhere.

    :param city: Where to look,
        by name.
    :param int days: How far ahead.
    :returns: Nothing of note.
    """


@pytest.mark.parametrize("fn", [google, numpy, rest])
def test_docstrings_of_three_styles_describe_tool_and_parameters(fn: Any):
    found = definition_from_callable(fn)

    assert found.name == fn.__name__
    assert found.description == "Tell the weather.\n\nWorks everywhere."
    assert found.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where to look, by name."},
            "days": {"type": "integer", "description": "How far ahead.", "default": 3},
        },
        "required": ["city"],
    }


class Mailer:
    def send(self, to: str, *more: str, subject: str = "", **headers: str) -> None:
        """Send a mail."""

    def __call__(self, to: str) -> None:
        """Send it now."""


def test_receivers_and_catch_alls_are_left_out():
    for fn in (Mailer.send, Mailer().send):
        schema = definition_from_callable(fn).input_schema
        assert list(schema["properties"]) == ["to", "subject"]


def test_objects_partials_and_builtins_are_callables_too():
    mailer = definition_from_callable(Mailer())
    assert (mailer.name, list(mailer.input_schema["properties"])) == ("Mailer", ["to"])

    bound = functools.partial(google, days=1)
    assert definition_from_callable(bound).name == "google"

    assert definition_from_callable(print).name == "print"


def test_a_default_that_is_not_json_only_makes_the_parameter_optional():
    def fn(value: object = object(), colour: Colour = Colour.RED) -> None: ...

    schema = definition_from_callable(fn).input_schema

    assert schema["properties"]["value"] == {}
    assert schema["properties"]["colour"]["default"] == "red"
    assert "required" not in schema
