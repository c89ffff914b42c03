"""`toolscout status`: the servers and figures of a running gateway, once or again and again.

Asks the gateway's `/status` and prints a table or JSON. It needs a gateway, because the figures
live as long as the process that counts them.
"""

import http.client
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from functools import partial
from urllib.parse import SplitResult, urlsplit

import click
from rich.live import Live
from rich.text import Text

from toolscout.cli.output import NAME_SHOWN, echo_json
from toolscout.config.references import expand
from toolscout.errors import UpstreamError, UsageError
from toolscout.names import to_error_text, to_one_line
from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.diagnosis import choose_error_lines

DEFAULT_URL = "http://127.0.0.1:8765"
ANSWER_SECONDS = 10.0
MAX_ANSWER_BYTES = 16 << 20
REASON_SHOWN = 200
LINES_SHOWN = 3
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
    help="The gateway's token, as ${VAR} or ${file:PATH}; not one that is limited to a profile.",
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
    token = expand(reference, os.environ, key="--token").strip()
    if not token.isascii() or not token.isprintable():
        raise UsageError(
            "--token contains characters that are not allowed in a header. "
            "Use ${VAR} or ${file:PATH} with the gateway's token."
        )
    fetch = partial(_fetch_status, _parse_url(url), token)
    report = fetch()
    if watch:
        _watch(report, fetch, every=every, as_json=as_json)
    elif as_json:
        echo_json(report)
    else:
        click.echo("\n".join(_format_status(report)))


def _parse_url(url: str) -> SplitResult:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    raise UsageError(f"--url is not the address of a gateway. Write it as {DEFAULT_URL}.")


def _fetch_status(target: SplitResult, token: str) -> Json:
    place = f"{target.scheme}://{target.netloc.rpartition('@')[2]}"
    secure = target.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(target.hostname or "", target.port, timeout=ANSWER_SECONDS)
    try:
        code, report = fetch_json(connection, f"{target.path.rstrip('/')}/status", token)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise UpstreamError(
            f"No gateway answers at {place} ({reason}). "
            "Start one with `toolscout serve --http`, or name another with --url."
        ) from None
    if code == 200 and is_object(report) and is_list(report.get("servers")):
        return report
    error = report.get("error") if is_object(report) else None
    message = error.get("message") if is_object(error) else None
    if isinstance(message, str):
        raise UpstreamError(f"The gateway at {place} refused: {to_one_line(message, 300)}")
    raise UpstreamError(
        f"The server at {place} (HTTP {code}) is not a gateway. Name another with --url."
    )


def fetch_json(
    connection: http.client.HTTPConnection, path: str, token: str = ""
) -> tuple[int, object]:
    """Return the HTTP status of an answer and its JSON, which is None if it cannot be read."""
    # A library would follow redirects or use proxies; the token must go to one place only.
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with closing(connection):
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(MAX_ANSWER_BYTES)
    try:
        return answer.status, json.loads(body)
    except ValueError:
        return answer.status, None


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
    names = [to_one_line(str(server["name"]), NAME_SHOWN) for server in servers]
    width = max(map(len, ("server", *names)))
    head = f"{'server':<{width}}  {'phase':<11}  {'tools':>6}  {'starts':>6}  since"
    lines = [click.style(head, bold=True)]
    for name, server in zip(names, servers, strict=True):
        phase = click.style(f"{server['phase']:<11}", fg=PHASE_STYLES.get(server["phase"]))
        line = f"{name:<{width}}  {phase}  {server['tools']:>6,}  {server['starts']:>6,}"
        lines.append(f"{line}  {server['since'] or ''}".rstrip())
        # While a server is well, its log is of no interest.
        is_bad = server["phase"] in BAD_PHASES
        last = choose_error_lines(server["lines"], LINES_SHOWN) if is_bad else []
        texts = [server["reason"], *server["problems"], *last]
        lines += [f"  {to_error_text(text, REASON_SHOWN)}" for text in texts if text]
    return lines


def _watch(report: Json, fetch: Callable[[], Json], *, every: float, as_json: bool) -> None:
    """Show a gateway's status until Ctrl-C; if it does not answer, ask again."""
    problem = ""
    is_live = sys.stdout.isatty() and not as_json
    screen = Live(screen=True, auto_refresh=False, vertical_overflow="crop")
    with screen if is_live else nullcontext():
        while True:
            if is_live:
                screen.update(_make_page(report, problem, every), refresh=True)
            elif problem:
                click.echo(problem, err=True)
            elif as_json:
                echo_json(report)
            else:
                click.echo("\n".join(_format_status(report)) + "\n")
            time.sleep(every)
            try:
                report = fetch()
                problem = ""
            except UpstreamError as error:
                problem = str(error)


def _make_page(report: Json, problem: str, every: float) -> Text:
    head = problem or f"{time.strftime('%H:%M:%S')}, every {every:g} s. Press Ctrl-C to stop."
    page = Text(no_wrap=True, overflow="ellipsis")
    page.append(head, "bold red" if problem else "dim")
    text = "\n".join(_format_status(report))
    plain = click.unstyle(text) if os.environ.get("NO_COLOR") else text
    return page.append("\n\n").append_text(Text.from_ansi(plain))
