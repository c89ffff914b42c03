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
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

import click
from rich.live import Live
from rich.text import Text

from toolscout.config.references import expand
from toolscout.errors import InvalidConfig, UpstreamError
from toolscout.names import to_one_line
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
@click.option("--url", default=DEFAULT_URL, show_default=True, help="The address of the gateway.")
@click.option(
    "--token",
    "reference",
    default="",
    metavar="REF",
    help="The gateway's token, as ${VAR} or ${file:PATH}; it must not belong to a profile.",
)
@click.option("--watch", is_flag=True, help="Keep refreshing until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often --watch refreshes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the gateway's answer as JSON.")
def status(url: str, reference: str, watch: bool, every: float, as_json: bool) -> None:
    """Show the servers and figures of a running gateway.

    With --watch, a terminal refreshes in place and a pipe gets one report after another. If the
    gateway goes away, the command waits for it to come back.

    \b
    Example:
      toolscout status
      toolscout status --watch --every 5
      toolscout status --url http://127.0.0.1:9000 --token '${TOOLSCOUT_TOKEN}' --json
    """
    target, token = _parse_url(url), _read_token(reference)
    report = _fetch_status(target, token)
    if watch:
        ask = partial(_fetch_status, target, token)
        watch_status(report, ask, _format_status, every=every, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
    else:
        click.echo("\n".join(_format_status(report)))


def _read_token(reference: str) -> str:
    token = expand(reference, os.environ, key="--token").strip()
    if not token.isascii() or not token.isprintable():
        remedy = "Use ${VAR} or ${file:PATH} with the token that the gateway was given."
        raise InvalidConfig(
            "--token", "contains characters that are not allowed in a header", remedy=remedy
        )
    return token


def _parse_url(url: str) -> SplitResult:
    remedy = f"Write it as {DEFAULT_URL}."
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_usable, parts = False, SplitResult("", "", "", "", "")
    if not is_usable:
        raise InvalidConfig("--url", "is not the address of a gateway", remedy=remedy)
    return parts


def _fetch_status(target: SplitResult, token: str) -> Json:
    place = f"{target.scheme}://{target.netloc.rpartition('@')[2]}"
    try:
        code, body = _send_request(target, token)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise UpstreamError(
            f"No gateway answers at {place} ({reason}). "
            "Start one with `toolscout serve --http`, or name another with --url."
        ) from None
    report = _parse_json(body)
    if code == 200 and isinstance(report.get("servers"), list):
        return report
    raise UpstreamError(_format_refusal(place, code, report))


def _send_request(target: SplitResult, token: str) -> tuple[int, bytes]:
    # A library would follow redirects or use proxies; the token must go to one place only.
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


def _parse_json(body: bytes) -> Json:
    try:
        report: Any = json.loads(body)
    except ValueError:
        return {}
    return cast(Json, report) if isinstance(report, dict) else {}


def _format_refusal(place: str, code: int, report: Json) -> str:
    error: Any = report.get("error")
    message = cast(Json, error).get("message") if isinstance(error, dict) else None
    if isinstance(message, str):
        return f"The gateway at {place} refused: {to_one_line(message, 300)}"
    return f"The server at {place} (HTTP {code}) is not a gateway. Name another with --url."


def _format_status(report: Json) -> list[str]:
    """Return lines with styles; `click.echo` strips them in a pipe."""
    versions = report.get("versions", {})
    is_ready = bool(report.get("ready"))
    ready = "ready" if is_ready else "some servers have not listed their tools yet"
    ready = click.style(ready, fg="green" if is_ready else "yellow")
    lines = [f"toolscout {versions.get('toolscout', '?')}, mode {report.get('mode', '?')}: {ready}"]
    lines += ["", *_format_servers(report["servers"])]
    totals = report.get("totals", {})
    rows = [(label, totals[key]) for key, label in FIGURES.items() if key in totals]
    lines += ["", *(f"{label:<18}{value:>14,}" for label, value in rows)]
    return lines


def _format_servers(servers: list[Json]) -> list[str]:
    if not servers:
        return ["No servers. Add some with `toolscout init`."]
    width = max(len("server"), *(len(_shorten(server)) for server in servers))
    head = f"{'server':<{width}}  {'phase':<11}  {'tools':>6}  {'starts':>6}  since"
    bold = click.style(head, bold=True)
    return [bold, *(line for server in servers for line in _format_server(server, width))]


def _format_server(server: Json, width: int) -> list[str]:
    phase = click.style(f"{server['phase']:<11}", fg=PHASE_STYLES.get(server["phase"]))
    line = f"{_shorten(server):<{width}}  {phase}  {server['tools']:>6,}"
    lines = [f"{line}  {server['starts']:>6,}  {server['since'] or ''}".rstrip()]
    # While a server is well, its log is of no interest.
    is_bad = server["phase"] in BAD_PHASES
    last: list[str] = server["lines"][-LINES_SHOWN:] if is_bad else []
    said = [server["reason"], *server["problems"], *last]
    return lines + [f"  {to_one_line(text, REASON_SHOWN)}" for text in said if text]


def _shorten(server: Json) -> str:
    return to_one_line(str(server["name"]), NAME_SHOWN)


Ask = Callable[[], Json]
Lines = Callable[[Json], list[str]]


def watch_status(report: Json, ask: Ask, lines: Lines, *, every: float, as_json: bool) -> None:
    """Show a gateway's status until Ctrl-C; if it does not answer, ask again."""
    if as_json or not sys.stdout.isatty():
        _watch_pipe(report, ask, lines, every=every, as_json=as_json)
    else:
        _watch_terminal(report, ask, lines, every=every)


def _watch_pipe(report: Json, ask: Ask, lines: Lines, *, every: float, as_json: bool) -> None:
    while True:
        if as_json:
            click.echo(json.dumps(report, ensure_ascii=False))
        else:
            click.echo("\n".join(lines(report)) + "\n")
        time.sleep(every)
        report, problem = _ask_again(report, ask)
        while problem:
            click.echo(problem, err=True)
            time.sleep(every)
            report, problem = _ask_again(report, ask)


def _watch_terminal(report: Json, ask: Ask, lines: Lines, *, every: float) -> None:
    problem = ""
    with Live(screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(_make_page(lines(report), problem, every), refresh=True)
            time.sleep(every)
            report, problem = _ask_again(report, ask)


def _ask_again(report: Json, ask: Ask) -> tuple[Json, str]:
    """Return the new status, or the last one and why there is no new one."""
    try:
        return ask(), ""
    except UpstreamError as error:
        return report, str(error)


def _make_page(lines: list[str], problem: str, every: float) -> Text:
    head = problem or f"{time.strftime('%H:%M:%S')}, every {every:g} s. Press Ctrl-C to stop."
    page = Text(no_wrap=True, overflow="ellipsis")
    page.append(head, "bold red" if problem else "dim")
    text = "\n".join(lines)
    plain = click.unstyle(text) if os.environ.get("NO_COLOR") else text
    return page.append("\n\n").append_text(Text.from_ansi(plain))
