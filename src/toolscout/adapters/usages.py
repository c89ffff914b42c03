"""What rounds cost together, in whatever members a provider counts."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from toolscout.schemas import Json, is_list, is_object


def add_usage(first: Mapping[str, Any], second: Mapping[str, Any]) -> Json:
    """Return what two rounds cost together; what is no number is as the second has it."""
    total: Json = dict(first)
    for key, value in second.items():
        before = total.get(key)
        if _is_number(before) and _is_number(value):
            total[key] = before + value
        elif is_object(before) and is_object(value):
            total[key] = add_usage(before, value)
        elif is_list(before) and is_list(value):
            total[key] = [*before, *value]
        elif value is not None:
            total[key] = value
    return total


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
