"""Writes the tables of options in docs/configuration.md: `python tests/house/configuration.py`.

The tables stand between `<!-- options: NAME -->` and `<!-- end -->`; everything else on the page
is written by hand.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from toolscout.config.gateway import GatewayConfig, Profile, TokenConfig
from toolscout.config.servers import ServerConfig, Transport
from toolscout.options import Option, Options, list_options
from toolscout.settings import Route, Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
GROUPS: Mapping[str, type[Options]] = {
    "servers": ServerConfig,
    "gateway": GatewayConfig,
    "gateway.tokens": TokenConfig,
    "gateway.profiles": Profile,
    "sessions": Settings,
    "sessions.routes": Route,
}
HEAD = "| option | value | default | notes | |\n|---|---|---|---|---|\n"

_TABLE = re.compile(r"(?<=^<!-- options: )([\w.]+)( -->\n).*?(?=^<!-- end -->$)", re.M | re.S)


def update_page(page: str) -> str:
    """Return the page with its tables written from the options."""
    return _TABLE.sub(lambda match: f"{match[1]}{match[2]}{format_table(GROUPS[match[1]])}", page)


def format_table(group: type[Options]) -> str:
    return HEAD + "".join(map(format_row, list_options(group)))


def format_row(declared: Option) -> str:
    value = declared.check.expected + (f" ({declared.unit})" if declared.unit else "")
    cells = (
        f"`{declared.name}`",
        value,
        format_default(declared),
        ", ".join(list_notes(declared)),
        declared.doc,
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def format_default(declared: Option) -> str:
    if declared.is_required:
        return "required"
    if declared.default in ("", (), {}, None):
        return ""
    if isinstance(declared.default, float):
        return f"`{declared.default:g}`"
    return f"`{json.dumps(declared.default)}`"


def list_notes(declared: Option) -> list[str]:
    remote = tuple(kind for kind in Transport if kind is not Transport.STDIO)
    only = "remote" if declared.only == remote else " ".join(declared.only)
    flags = {
        only: bool(declared.only),
        "secret": declared.secret,
        "path": declared.path,
        "reference": declared.reference and not declared.path,
        "restart": declared.needs_restart,
    }
    return [name for name, is_set in flags.items() if is_set]


if __name__ == "__main__":
    PAGE.write_text(update_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
