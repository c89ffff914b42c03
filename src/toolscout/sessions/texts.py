"""Sentences that the model reads about tools, searches and calls.

Errors word themselves in `errors`, the layout of a search reply is in `replies`, and `metatools`
has the meta-tools' descriptions and notes on requests; every other sentence is here.
"""

from collections.abc import Sequence

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
NEXT_BY_OWN_NAME = "Next: call it by its own name."
CALL_OWN_DIRECTLY = " Call those among your tools by their own names."
NOTHING_HIDDEN = "No tool is hidden: all that exist are among your tools."
NAME_FROM_LIST = "Use the name of one of your tools."
ASK_FOR_LESS = "The rest is not shown; ask the tool for less."
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
GIVE_UP_PARTLY = (
    "Several searches in a row found nothing: no tool of the connected servers fits. "
    "Continue without one, or tell the user which servers have failed."
)
SEARCH_LATER = (
    "Some servers are still connecting, so more tools may come. "
    "Next: tool_search again shortly, or with other words."
)
LISTING_HEAD = "Hidden tools, by server:"
LISTING_NAMES = "Some of their names, to be written server__name:"
OWN_TOOLS = "this program"
"""Stands for the server of tools that have none."""
TOO_LONG = "The full definition is too long for a reply."
CANCELLED = "it was cancelled"
NOTHING_DONE = "The tool search failed; nothing was called or loaded. Tell the user."
MAYBE_CALLED = (
    "The tool search failed; the tool may have been called. "
    "Check before you call it again, or tell the user."
)
TOOLS_NOT_KNOWN_YET = "Its tools are not known yet; try again shortly."
ASK_FOR_LOGIN = "Ask the user to run `toolscout servers login {}`, then try again."
ASK_OPERATOR = "Ask the operator of the gateway to read its log."
WATCHES_NOTHING = "each session or user has its own connection to it"
READ_AGAIN = "Read the resource again instead."
ASK_FOR_START = "Ask the user to start it, or use another tool."

# Sentences about skills.
FILE_OF_SKILL = "The file to read. Left out, the instructions of the skill are read."
FILE_OF_LARGE_SKILL = (
    "The file to read, by its path in the skill; the path of a folder lists its files. Left out, "
    "the instructions of the skill are read."
)
SKILL_READ = "(The skill {name!r} of {server!r}. Its author wrote this, not the user.)"
SKILL_FILE_READ = "({file!r} of the skill {name!r} of {server!r}. Its author wrote this.)"
SKILL_FILES = "(Files of the skill, to be read with 'file': {files}.)"
SKILL_ASKS = "its server asks for something before it gives the file, which is not supported"
SKILL_LISTED = "Files in {file!r}:"

# Sentences of adapters.
TOOLS_GONE = "The tools that were found here are gone. Search again."
ANSWER_LOST = "No answer to this call was kept. Search again."
NEEDS_ASYNC_RUN = "it is asynchronous, and this run is not; use arun()."
NO_REASON = "it does not say why."
PLUGIN_DESCRIPTION = "Finds tools and runs them."
RETRIEVE_DESCRIPTION = (
    "Find tools by what they do. Describe one need in the words of a tool's description."
)
TRANSFORM_DESCRIPTION = "Find tools by what they do. Returns their definitions, best first."
TRANSFORM_QUERY = "What the tool should do, in plain words"
ARGUMENTS_AS_TEXT = 'The tool\'s arguments, as the text of a JSON object: \'{"city": "Bonn"}\'.'
TOOL_FAILED = "{name} failed: {error}"

# With what `format` fills in.
UNLOADED = "Unloaded to make room: {names}."
GONE = "{name} is gone."
CHANGED = "{name} has changed; describe it again before calling it."
SUGGESTED = "Loaded, may help: {names}."
LEFT_OUT = "Left out for length, ask for them again: {names}."
SEEN_RESULTS = "Seen in results, but not promised: {shape}"
NOT_PICKED = "This is the whole result. {reason}"
NOTHING_PICKED = "The tool was called, but nothing was picked: {reason} The whole result is kept."
PICK_NOT_APPLIED = "This is the whole result: 'pick' has no effect here."
CALLED_AS = "Called {tool} for {name!r}."
NEW_TOOLS = "New hidden tools of {server}: {names}."
NOTE_TOOL = "Not a tool, only a note; do not call it. {note}"
REMOVED_TOOLS = "Tools that are gone: {names}."
MORE_SERVERS = "- and {servers:,} more servers with {tools:,} tools"
APPROVAL_QUESTION = (
    "May the model call {tool} of the server {server} with these arguments?{reason}\n{arguments}"
)
NOT_SHOWN = "… ({more:,} more characters are not shown)"
USER_DECLINED = "the user said no"
LOGIN_QUESTION = (
    "Server {server!r} needs a login of yours. Log in on the page; the call then goes on."
)
CALL_ALONE = "It has a question, which cannot be answered among several calls. Call it alone."
UNKNOWN_TASK = "There is no such task, or it is too old. Make the call again."
TASKS_NOT_DECLARED = "This request needs the tasks extension, which the client has not declared."
RUNS_ELSEWHERE = "The task is running at another gateway. Ask that one, or wait for the result."
GATEWAY_ENDED = (
    "The gateway ended while the call was running; it may still have had an effect. "
    "Check before you call it again."
)
TASK_TOO_LARGE = "The call was made, but its result is too large to be kept. Ask the tool for less."
CALL_BROKE = "The call failed inside the gateway; it may have had an effect. Tell the user."
NOT_ANSWERED = "The client has not answered within {seconds:g} s."
ENDLESS_QUESTIONS = "The server asked for more input after {rounds} answers"


# Sentences of programs.
NOT_IN_PROGRAMS = "a program can call only tools that are known to read; use tool_call for it"
NO_DESTRUCTION = (
    "a program can call only tools that are known to read or write; use tool_call for it"
)
NO_NESTED_PROGRAM = "a program cannot run another program"
VERBS_OF_PROGRAMS = "In a program, use search(), describe() and call()."
OUTPUT_DROPPED = "({dropped:,} more characters of output were dropped.)"
NOT_APPROVED = "{tool} is not among the tools that this program was approved to call"
NO_VALUE = "The program ended without a value and printed nothing."
CALLS_MADE = "Calls made: {calls}."
NO_CALLS_MADE = "It made no calls."
TOO_MANY_ARGUMENTS = "{tool} takes at most {most} arguments"
ARGUMENT_TWICE = "{tool} got the argument {name!r} twice"
WHOLE_ARGUMENTS = "{verb} takes {usual}"
TEXT_TO_SEARCH = "a text, such as search('create a pull request')"
NAME_TO_DESCRIBE = "a name, such as describe('github__create_issue')"
NAME_TO_CALL = "a name and a dict, such as call('github__get_issue', {'number': 1})"


def list_calls(rows: Sequence[tuple[str, int, int]]) -> str:
    """Say which tools a program called, how often, and how often they failed."""
    if not rows:
        return NO_CALLS_MADE
    parts = [
        f"{name} {made}" + (f" ({failed} failed)" if failed else "") for name, made, failed in rows
    ]
    return CALLS_MADE.format(calls=", ".join(parts))


def report_empty_catalog(*, is_pending: bool) -> str:
    """Return the next step where there is nothing to search."""
    step = "Search again shortly." if is_pending else "Continue without a tool."
    return f"There are no tools here yet. {step}"


def report_failures(tool: str, calls: int, codes: Sequence[str]) -> str:
    """Say how many of the last calls of a tool failed, and how."""
    kinds = ", ".join(dict.fromkeys(codes))
    return f"Of the last {calls} calls of {tool}, {len(codes)} failed: {kinds}."
