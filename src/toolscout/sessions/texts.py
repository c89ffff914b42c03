"""Sentences that the model reads about tools, searches and calls.

Errors word themselves in `errors`, the layout of a search reply is in `replies`, and the meta-tools
describe themselves in `metatools`; every other sentence for the model is here.
"""

from collections.abc import Sequence

from toolscout.names import list_some
from toolscout.settings import Mode

NEXT_AFTER_SEARCH: dict[Mode, str] = {
    Mode.BRIDGE: "Next: tool_call with one of these names and its arguments.",
    Mode.NATIVE: "Next: call one by name; those not marked weak join your tools from your next "
    "step on.",
    Mode.REFERENCE: "Next: call one that is not marked weak, by name.",
    Mode.DEFINITIONS: "Next: call one that is not marked weak, by name.",
}
NEXT_AFTER_DESCRIPTION: dict[Mode, str] = {
    Mode.BRIDGE: "Next: tool_call with one of these names and its arguments.",
    Mode.NATIVE: "Next: call one by name; it joins your tools from your next step on.",
    Mode.REFERENCE: "Next: call one by name.",
    # Only a search delivers definitions in this mode; what was described is called by tool_call.
    Mode.DEFINITIONS: "Next: tool_call with one of these names and its arguments.",
}
DESCRIBE_NOT_LOADED = " Those marked 'not loaded' need tool_describe first."
SEARCH_OR_DESCRIBE = (
    "Next: tool_search with other words; if one of these is right, tool_describe it."
)
SEARCH_AGAIN = "Next: tool_search with other words, or list a server with 'server:name'."
SEARCH_BY_PURPOSE = "Next: tool_search for what the tool should do."
GIVE_UP = (
    "Several searches in a row found nothing: no tool here fits. "
    "Continue without one, or tell the user."
)
LISTING_HEAD = "Hidden tools, by server:"
OWN_TOOLS = "this program"
"""Stands for the server of tools that have none."""
TOO_LONG = "The full definition is too long for a reply."
NO_CONTENT = "(no content)"
CANCELLED = "it was cancelled"
NOTHING_DONE = "The tool search failed; nothing was called or loaded. Tell the user."
MAYBE_CALLED = (
    "The tool search failed; the tool may have been called. "
    "Check before you call it again, or tell the user."
)


def report_empty_catalog(*, is_pending: bool) -> str:
    """Return the next step where there is nothing to search."""
    step = "Search again shortly." if is_pending else "Continue without a tool."
    return f"There are no tools here yet. {step}"


def report_evicted(names: Sequence[str]) -> str:
    """Say which tools had to make room for others."""
    return f"Unloaded to make room: {list_some(names)}."


def report_gone(name: str) -> str:
    """Say that a loaded tool no longer exists."""
    return f"{name} is gone."


def report_changed(name: str) -> str:
    """Say that a loaded tool has another definition now."""
    return f"{name} has changed; describe it again before calling it."


def report_suggested(names: Sequence[str]) -> str:
    """Say which tools a user message has loaded."""
    return f"Loaded, may help: {list_some(names)}."


def report_left_out(names: Sequence[str]) -> str:
    """Say which of the named tools had no room in a description."""
    return f"Left out for length, ask for them again: {', '.join(names)}."


def report_called_as(tool: str, name: str) -> str:
    """Say that a call by another name reached a tool."""
    return f"Called {tool} for {name!r}."


def report_failures(tool: str, calls: int, codes: Sequence[str]) -> str:
    """Say how many of the last calls of a tool failed, and how."""
    kinds = ", ".join(dict.fromkeys(codes))
    return f"Of the last {calls} calls of {tool}, {len(codes)} failed: {kinds}."


def point_to_rest(handle: str, end: int, total: int) -> str:
    """Say how to read on in a definition that was cut."""
    further = f'tool_call(name="{handle}", arguments={{"start": {end}}})'
    return f"Characters 0 to {end:,} of {total:,}. Read on with {further}."


def report_new_tools(server: str, names: str) -> str:
    """Say which hidden tools a server has gained since the listing."""
    return f"New hidden tools of {server}: {names}."


def report_removed_tools(names: str) -> str:
    """Say which tools are gone since the listing."""
    return f"Tools that are gone: {names}."


def report_more_servers(servers: int, tools: int) -> str:
    """Say how much a listing leaves out."""
    return f"- and {servers:,} more servers with {tools:,} tools"


def report_truncated(noun: str, used: int, given: int) -> str:
    """Say that only the first of a list were used."""
    return f"Only the first {used} of {given} {noun} were used."


def report_not_a_number(key: str, used: int) -> str:
    """Say that an option was not a whole number."""
    return f"{key} is not a whole number; {used} was used."


def report_out_of_range(key: str, least: int, most: int, used: int) -> str:
    """Say that an option was out of its range."""
    return f"{key} must be {least} to {most:,}; {used:,} was used."


def report_not_an_option(key: str, options: Sequence[str], used: str) -> str:
    """Say that an option was none of the allowed values."""
    return f"{key} takes {', '.join(options)}; {used} was used."
