"""How values are written into paths and queries."""

import pytest

from servers.openapi.samples import operation, parameter
from servers.openapi.services import Service, target
from toolscout.schemas import Json

DEEP = "q%5Bx%5D%5By%5D%5B0%5D=1&q%5Bx%5D%5By%5D%5B1%5D%5Bz%5D=true"


@pytest.mark.parametrize(
    ("style", "explode", "value", "query"),
    [
        (None, None, ["a", "b,c"], "q=a&q=b%2Cc"),
        ("form", False, ["a", "b,c"], "q=a,b%2Cc"),
        ("spaceDelimited", False, ["a", "b"], "q=a%20b"),
        ("pipeDelimited", False, ["a", "b"], "q=a%7Cb"),
        ("pipeDelimited", True, ["a", "b"], "q=a&q=b"),
        ("form", True, {"x": 1, "y": None}, "x=1"),
        ("form", False, {"x": 1, "y": "z&"}, "q=x,1,y,z%26"),
        ("deepObject", True, {"x": {"y": [1, {"z": True}]}}, DEEP),
        (None, None, "a b&c=d+e#f", "q=a%20b%26c%3Dd%2Be%23f"),
    ],
)
def test_query_values_are_written_by_style(
    service: Service, style: str | None, explode: bool | None, value: object, query: str
):
    said = {key: at for key, at in (("style", style), ("explode", explode)) if at is not None}
    given = operation(parameters=[parameter("q", "query", schema={}, **said)])

    assert target(service, given, {"q": value}) == f"/base/x?{query}"


def test_absent_values_and_empty_lists_are_not_sent(service: Service):
    given = operation(parameters=[parameter("a", "query"), parameter("b", "query")])

    assert target(service, given, {"a": None, "b": []}) == "/base/x"


def test_a_parameter_with_content_is_json(service: Service):
    said: Json = {"name": "q", "in": "query", "content": {"application/json": {"schema": {}}}}

    assert target(service, operation(parameters=[said]), {"q": {"a": 1}}) == (
        "/base/x?q=%7B%22a%22%3A1%7D"
    )


def test_path_styles_are_written(service: Service):
    label = parameter("a", "path", style="label", explode=True)
    matrix = parameter("b", "path", style="matrix")
    given = operation(path="/x/{a}/{b}", parameters=[label, matrix])

    assert target(service, given, {"a": [1, 2], "b": ["u", "v"]}) == "/base/x/.1.2/;b=u,v"
