"""Claude Code's permission rules, for the tools behind `tool_call`.

A rule such as `mcp__github__delete_repo` no longer matches once the server stands behind toolscout,
because Claude Code sees `mcp__toolscout__tool_call`. A hook asks `decide`, which reads the rules
of Claude Code's settings and applies them to the real tool. `add_hook` and `remove_hook` edit
the settings.
"""

import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from toolscout.catalog import Catalog
from toolscout.clients.discovery import Machine
from toolscout.config.documents import write_private
from toolscout.errors import InvalidFile, ModelError
from toolscout.names import is_handle
from toolscout.policies import Permission
from toolscout.schemas import Json, is_list, is_object
from toolscout.sessions.metatools import read_calls

PREFIX = "mcp__"
EVENT = "PreToolUse"
COMMAND = "toolscout hook"
MATCHER = "mcp__toolscout__.*"
CALLING = ("tool_call", "tool_read", "tool_write", "tool_destroy")
ORDER = (Permission.DENY, Permission.ASK, Permission.ALLOW)
"""Claude Code tries the rules in this order, whatever file they are in."""
MANAGED = Path("/etc/claude-code/managed-settings.json")

Rules = Mapping[Permission, Sequence[str]]


def list_settings_files(machine: Machine) -> list[Path]:
    """Return the files in which Claude Code looks for rules here, whether they exist or not."""
    project = Path(machine.env.get("CLAUDE_PROJECT_DIR") or machine.cwd) / ".claude"
    return [
        MANAGED,
        project / "settings.local.json",
        project / "settings.json",
        get_settings_file(machine),
    ]


def get_settings_file(machine: Machine) -> Path:
    """Return the user's own settings of Claude Code."""
    return machine.home / ".claude" / "settings.json"


def read_rules(files: Iterable[Path]) -> Rules:
    """Return the rules about MCP tools in all these files; raises `InvalidFile`."""
    rules: dict[Permission, list[str]] = {permission: [] for permission in ORDER}
    for file in files:
        found = _read_settings(file).get("permissions")
        if not is_object(found):
            continue
        for permission, listed in rules.items():
            patterns = found.get(permission.value)
            listed += [text for text in patterns if _is_rule(text)] if is_list(patterns) else []
    return rules


def decide(event: Json, rules: Rules, catalog: Catalog) -> tuple[Permission, str] | None:
    """Return what the rules say about a call that Claude Code is about to make, and why.

    None means that no rule is about it. Of several calls at once, the strictest answer counts, and
    they are allowed only if each of them is.
    """
    found = [_decide_name(called, rules, catalog) for called in find_called_names(event)]
    for permission in ORDER:
        decided = [one for one in found if one is not None and one[0] is permission]
        if decided and (permission is not Permission.ALLOW or len(decided) == len(found)):
            return decided[0]
    return None


def _decide_name(called: str, rules: Rules, catalog: Catalog) -> tuple[Permission, str] | None:
    """Return what the rules say about a call by a name, and why.

    A name that may mean several tools is allowed only if all of them are. A name that means no
    known tool may be another spelling of one that a rule forbids, so a person is asked.
    """
    known = catalog.resolve(called)
    names = [tool.name for tool in known] or [called.removeprefix(PREFIX)]
    found = [_find_rule(f"{PREFIX}{name}", rules) for name in names]
    for permission in ORDER:
        decided = [one for one in found if one is not None and one[0] is permission]
        if decided and (permission is not Permission.ALLOW or len(decided) == len(found)):
            return permission, f"{decided[0][1]} in your permissions, for {called}"
    if not known and (rules[Permission.DENY] or rules[Permission.ASK]):
        return Permission.ASK, f"toolscout does not know which tool {called} is"
    return None


def find_called_names(event: Json) -> list[str]:
    """Return the names of the tools behind a call of toolscout, read as the gateway reads them."""
    server, _, own = str(event.get("tool_name", "")).removeprefix(PREFIX).partition("__")
    if not server or not own:
        return []
    if own.rpartition("__")[2] not in CALLING:
        return [own] if "__" in own else []  # a pinned tool, or a search
    try:
        calls, _ = read_calls(event.get("tool_input"))
    except ModelError:
        return []  # which the gateway refuses
    names = [call.name for call in calls]
    return [name for name in names if isinstance(name, str) and not is_handle(name)]


def _find_rule(name: str, rules: Rules) -> tuple[Permission, str] | None:
    for permission in ORDER:
        for pattern in rules[permission]:
            if _is_match(name, pattern, permission):
                return permission, pattern
    return None


def _is_match(name: str, pattern: str, permission: Permission) -> bool:
    # Claude Code ignores an allowed pattern that could match tools of any server.
    parts = pattern.removeprefix(PREFIX).split("__")
    if permission is Permission.ALLOW and any(sign in parts[0] for sign in "*?["):
        return False
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}__*")


def _is_rule(text: object) -> bool:
    return isinstance(text, str) and text.startswith(PREFIX) and "(" not in text


def add_hook(file: Path) -> bool:
    """Let Claude Code ask `toolscout hook` before calls; return whether the file changed."""
    settings = _read_settings(file)
    hooks = settings.setdefault("hooks", {})
    groups = hooks.setdefault(EVENT, []) if is_object(hooks) else None
    if not is_list(groups):
        raise _refuse(file)
    if any(_is_own(group) for group in groups):
        return False
    is_found = shutil.which("toolscout") is not None
    command = COMMAND if is_found else f"{shlex.quote(sys.executable)} -m {COMMAND}"
    groups.append({"matcher": MATCHER, "hooks": [{"type": "command", "command": command}]})
    _write_settings(file, settings)
    return True


def remove_hook(file: Path) -> bool:
    """Take the hook out again; return whether it was there."""
    settings = _read_settings(file)
    hooks = settings.get("hooks")
    groups = hooks.get(EVENT) if is_object(hooks) else None
    if not is_object(hooks) or not is_list(groups) or not any(map(_is_own, groups)):
        return False
    hooks[EVENT] = [group for group in groups if not _is_own(group)]
    if not hooks[EVENT]:
        del hooks[EVENT]
    if not hooks:
        del settings["hooks"]
    _write_settings(file, settings)
    return True


def _is_own(group: object) -> bool:
    listed = group.get("hooks") if is_object(group) else None
    if not is_list(listed):
        return False
    commands = [hook.get("command") for hook in listed if is_object(hook)]
    return any(isinstance(command, str) and command.endswith(COMMAND) for command in commands)


def _read_settings(file: Path) -> Json:
    try:
        settings = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        raise _refuse(file) from None
    if not is_object(settings):
        raise _refuse(file)
    return settings


def _write_settings(file: Path, settings: Json) -> None:
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    write_private(file, json.dumps(settings, indent=2, ensure_ascii=False) + "\n", mode)


def _refuse(file: Path) -> InvalidFile:
    problem = "is not the JSON of Claude Code's settings"
    return InvalidFile(str(file), problem, remedy="Repair it, then try again.")
