"""`toolscout status`: the servers and figures of a gateway that is running.

Asks the gateway's `/status` and prints a table or JSON. Without a gateway there is nothing to
tell: figures live as long as the process that counts them.

`toolscout status --watch`: the same lines again and again, in place on a terminal.
"""

import http.client
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import SplitResult, urlsplit

import click

from toolscout.errors import InvalidConfig, UpstreamError

if TYPE_CHECKING:
    from rich.text import Text

    from toolscout.schemas import Json


DEFAULT_URL = "http://127.0.0.1:8765"
ANSWER_SECONDS = 10.0
MAX_ANSWER_BYTES = 16 << 20
REASON_SHOWN = 100
LINES_SHOWN = 3
NAME_SHOWN = 40
BAD_PHASES = ("failed", "needs login")
PHASE_STYLES = {"ready": "green", "failed": "red", "needs login": "yellow", "starting": "cyan"}

FIGURES = {
    "tools": "Tools",
    "searches": "Searches",
    "hits": "Hits",
    "describes": "Descriptions",
    "calls": "Calls",
    "failed_calls": "  of which failed",
    "refusals": "Calls refused",
    "tokens_not_sent": "Tokens not sent",
}


@click.command()
@click.option(
    "--url", default=DEFAULT_URL, show_default=True, help="Where the gateway serves HTTP."
)
@click.option(
    "--token",
    "reference",
    default="",
    metavar="REF",
    help="The gateway's token, as ${VAR} or ${file:PATH}; one without a profile.",
)
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --watch asks.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the gateway's answer as JSON.")
def status(url: str, reference: str, watch: bool, every: float, as_json: bool) -> None:
    """Show the servers and figures of a running gateway.

    With --watch, a terminal shows them in place, and a pipe gets them one after the other; a
    gateway that goes away is waited for.

    \b
    Example:
      toolscout status
      toolscout status --watch --every 5
      toolscout status --url http://127.0.0.1:9000 --token '${TOOLSCOUT_TOKEN}' --json
    """
    target, token = _target(url), _token(reference)
    told = _told(target, token)
    if watch:
        ask = partial(_told, target, token)
        watch_status(told, ask, _lines, every=every, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
    else:
        click.echo("\n".join(_lines(told)))


def _token(reference: str) -> str:
    from toolscout.config.references import expand

    token = expand(reference, os.environ, key="--token").strip()
    if not token.isascii() or not token.isprintable():
        remedy = "Write ${VAR} or ${file:PATH} of the text that the gateway knows."
        raise InvalidConfig("--token", "holds characters that no header can", remedy=remedy)
    return token


def _target(url: str) -> SplitResult:
    remedy = f"Write it as {DEFAULT_URL}."
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_usable, parts = False, SplitResult("", "", "", "", "")
    if not is_usable:
        raise InvalidConfig("--url", "is no address of a gateway", remedy=remedy)
    return parts


def _told(target: SplitResult, token: str) -> "Json":
    place = f"{target.scheme}://{target.netloc.rpartition('@')[2]}"
    try:
        code, body = _asked(target, token)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise UpstreamError(
            f"No gateway answers at {place} ({reason}). "
            "Start one with `toolscout serve --http`, or name another with --url."
        ) from None
    told = _json(body)
    if code == 200 and isinstance(told.get("servers"), list):
        return told
    raise UpstreamError(_refusal(place, code, told))


def _asked(target: SplitResult, token: str) -> tuple[int, bytes]:
    # No library that follows redirects or takes proxies: the token goes to one place only.
    secure = target.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(target.hostname or "", target.port, timeout=ANSWER_SECONDS)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request("GET", f"{target.path.rstrip('/')}/status", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_ANSWER_BYTES)
    finally:
        connection.close()


def _json(body: bytes) -> "Json":
    try:
        told: Any = json.loads(body)
    except ValueError:
        return {}
    return cast("Json", told) if isinstance(told, dict) else {}


def _refusal(place: str, code: int, told: "Json") -> str:
    from toolscout.names import to_one_line

    error: Any = told.get("error")
    message = cast("Json", error).get("message") if isinstance(error, dict) else None
    if isinstance(message, str):
        return f"The gateway at {place} refused: {to_one_line(message, 300)}"
    return f"What answers at {place} (HTTP {code}) is no gateway. Name another with --url."


def _lines(told: "Json") -> list[str]:
    """Return lines with styles, which only a terminal shows."""
    versions = told.get("versions", {})
    is_ready = bool(told.get("ready"))
    ready = "ready" if is_ready else "some servers are still unknown"
    ready = click.style(ready, fg="green" if is_ready else "yellow")
    lines = [f"toolscout {versions.get('toolscout', '?')}, mode {told.get('mode', '?')}: {ready}"]
    lines += ["", *_servers(told["servers"])]
    totals = told.get("totals", {})
    rows = [(label, totals[key]) for key, label in FIGURES.items() if key in totals]
    lines += ["", *(f"{label:<18}{value:>14,}" for label, value in rows)]
    return lines


def _servers(servers: "list[Json]") -> list[str]:
    if not servers:
        return ["No servers. Add some with `toolscout init`."]
    width = max(len("server"), *(len(_shown(server)) for server in servers))
    head = f"{'server':<{width}}  {'phase':<11}  {'tools':>6}  {'starts':>6}  since"
    bold = click.style(head, bold=True)
    return [bold, *(line for server in servers for line in _server(server, width))]


def _server(server: "Json", width: int) -> list[str]:
    from toolscout.names import to_one_line

    phase = click.style(f"{server['phase']:<11}", fg=PHASE_STYLES.get(server["phase"]))
    line = f"{_shown(server):<{width}}  {phase}  {server['tools']:>6,}"
    lines = [f"{line}  {server['starts']:>6,}  {server['since'] or ''}".rstrip()]
    # What a server writes while all is well is of no interest.
    is_bad = server["phase"] in BAD_PHASES
    last: list[str] = server["lines"][-LINES_SHOWN:] if is_bad else []
    said = [server["reason"], *server["problems"], *last]
    return lines + [f"  {to_one_line(text, REASON_SHOWN)}" for text in said if text]


def _shown(server: "Json") -> str:
    from toolscout.names import to_one_line

    return to_one_line(str(server["name"]), NAME_SHOWN)


Ask = Callable[[], "Json"]
Lines = Callable[["Json"], list[str]]


def watch_status(told: "Json", ask: Ask, lines: Lines, *, every: float, as_json: bool) -> None:
    """Show what a gateway tells as lines until Ctrl-C; who does not answer is asked again."""
    if as_json or not sys.stdout.isatty():
        _watch_pipe(told, ask, lines, every=every, as_json=as_json)
    else:
        _watch_terminal(told, ask, lines, every=every)


def _watch_pipe(told: "Json", ask: Ask, lines: Lines, *, every: float, as_json: bool) -> None:
    while True:
        if as_json:
            click.echo(json.dumps(told, ensure_ascii=False))
        else:
            click.echo("\n".join(lines(told)) + "\n")
        time.sleep(every)
        told, problem = _ask_again(told, ask)
        while problem:
            click.echo(problem, err=True)
            time.sleep(every)
            told, problem = _ask_again(told, ask)


def _watch_terminal(told: "Json", ask: Ask, lines: Lines, *, every: float) -> None:
    from rich.live import Live

    problem = ""
    with Live(screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(_page(lines(told), problem, every), refresh=True)
            time.sleep(every)
            told, problem = _ask_again(told, ask)


def _ask_again(told: "Json", ask: Ask) -> tuple["Json", str]:
    """Return what the gateway tells, or what it told last and why it does not."""
    try:
        return ask(), ""
    except UpstreamError as error:
        return told, str(error)


def _page(lines: list[str], problem: str, every: float) -> "Text":
    from rich.text import Text

    head = problem or f"{time.strftime('%H:%M:%S')}, every {every:g} s. Ctrl-C ends it."
    page = Text(no_wrap=True, overflow="ellipsis")
    page.append(head, "bold red" if problem else "dim")
    text = "\n".join(lines)
    plain = click.unstyle(text) if os.environ.get("NO_COLOR") else text
    return page.append("\n\n").append_text(Text.from_ansi(plain))
