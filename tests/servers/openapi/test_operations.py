"""Which operations there are, what they do and what they are called."""

import pytest

from servers.openapi.samples import document, only, operation
from toolscout.errors import InvalidFile
from toolscout.schemas import Json
from toolscout.servers.openapi.operations import tools_from_openapi
from toolscout.tools import Effect


@pytest.mark.parametrize(
    ("method", "effect"),
    [
        *((method, Effect.READ) for method in ("get", "head", "options")),
        *((method, Effect.WRITE) for method in ("post", "put", "patch")),
        ("delete", Effect.DESTRUCTIVE),
    ],
)
def test_the_effect_comes_from_the_method(method: str, effect: Effect):
    assert only(operation(method)).effect is effect


def test_an_operation_without_an_id_is_named_by_method_and_path():
    tool = only(operation("post", "/users/{id}/keys"))

    assert (tool.leaf, tool.description) == ("post_users_id_keys", "POST /users/{id}/keys")


@pytest.mark.requirement("R84")
def test_operations_that_ask_for_one_name_get_stable_names_of_their_own():
    """R84: no collision remains, and no name depends on the order of the document."""
    paths: Json = {
        "/a": {"get": {"operationId": "list"}},
        "/b": {"get": {"operationId": "list"}},
        "/b/": {"get": {"operationId": "list"}},
    }
    forward = tools_from_openapi(document(paths), "api")
    backward = tools_from_openapi(document(dict(reversed(paths.items()))), "api")

    names = [tool.leaf for tool in forward]
    assert names[0] == "get_a"
    assert all(name.startswith("get_b_") for name in names[1:])
    assert len(set(names)) == 3
    assert sorted(names) == sorted(tool.leaf for tool in backward)


def test_an_odd_operation_id_is_cleaned():
    assert only(operation(operationId="repos/create <b>")).leaf == "repos_create_b"


def test_too_many_operations_are_refused():
    paths: Json = {f"/{number}": {"get": {}} for number in range(10_001)}

    with pytest.raises(InvalidFile, match="10,000 operations"):
        tools_from_openapi(document(paths), "api")
