"""`toolscout status`, `stop` and `logs`: what running gateways do, once or again and again.

Asks the `/status` of a gateway over HTTP, reads what gateways over stdio report in files, and
prints a table or JSON. It needs a gateway, because the figures live as long as the process that
counts them.
"""

import http.client
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext, suppress
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import click
from rich.live import Live
from rich.text import Text

from toolscout.cli import inputs
from toolscout.cli.output import NAME_SHOWN, echo_json, format_count
from toolscout.config.file import Config
from toolscout.config.references import expand
from toolscout.daemon.place import (
    UnsafeFolder,
    ask_daemons,
    can_have_daemon,
    check_folder,
    find_folder,
)
from toolscout.errors import InvalidFile, UpstreamError, UsageError
from toolscout.names import list_some, to_error_text, to_one_line
from toolscout.schemas import Json, is_list, is_object
from toolscout.servers.diagnosis import choose_error_lines

LOOPBACK = "127.0.0.1"
ANY_HOST = ("", "0.0.0.0", "::")
DEFAULT_PORT = 8765
DEFAULT_URL = f"http://{LOOPBACK}:{DEFAULT_PORT}"
STALE_SECONDS = 20.0
"""A gateway over stdio gives a sign of life every two seconds."""
ANSWER_SECONDS = 10.0
STOP_SECONDS = 10.0
"""How long the gateway may take to stop its servers, after the last call."""
STOP_STEP_SECONDS = 0.05
FOLLOW_SECONDS = 0.2
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
@click.option(
    "--url",
    help="The address of a gateway over HTTP. Default: as your configuration says, and gateways "
    "over stdio too.",
)
@inputs.config_option
@click.option(
    "--token",
    "reference",
    default="",
    metavar="REF",
    help="The gateway's token, as ${VAR} or ${file:PATH}; not one that is limited to a profile.",
)
@inputs.flag_option("--watch", help="Keep refreshing until Ctrl-C.")
@inputs.number_option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    metavar="SECONDS",
    help="How often --watch refreshes.",
)
@inputs.flag_option("--json", "as_json", help="Print the gateway's answer as JSON.")
def status(
    url: str | None, path: Path | None, reference: str, watch: bool, every: float, as_json: bool
) -> None:
    """Show the servers and figures of running gateways.

    Without --url, these are the gateway over HTTP and all gateways over stdio of your
    configuration.

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
        remedy = "Use ${VAR} or ${file:PATH} with the gateway's token."
        raise UsageError(f"--token contains characters that are not allowed in a header. {remedy}")
    target = None if url is None else _parse_url(url)
    config = Config()
    if target is None and (path or inputs.find_config_file(path).exists()):
        config = inputs.read_servers(path)

    def fetch() -> list[Json]:
        return [_fetch_status(target, token)] if target else _fetch_all(config, token)

    reports = fetch()
    if watch:
        _watch(reports, fetch, every=every, as_json=as_json)
    else:
        _print_reports(reports, as_json=as_json)


@click.command()
@inputs.config_option
@inputs.flag_option("--all", "every", help="Stop all of yours, whatever they serve.")
def stop(path: Path | None, every: bool) -> None:
    """Stop the gateway in the background.

    It lets running calls finish. Clients that are connected start another one with their next
    request.

    \b
    Example:
      toolscout stop
    """
    running = [one for one in list_daemons() if every or is_daemon_of(one, path)]
    for one in running:
        with suppress(ProcessLookupError):
            os.kill(one["pid"], signal.SIGTERM)
    longest = max((one["stop_seconds"] for one in running), default=0.0)
    end = time.monotonic() + longest + STOP_SECONDS
    while any(_is_running(one["pid"]) for one in running) and time.monotonic() < end:
        time.sleep(STOP_STEP_SECONDS)
    left = [str(one["pid"]) for one in running if _is_running(one["pid"])]
    if left:
        raise UpstreamError(f"Still running: process {', '.join(left)}. End it with `kill -9`.")
    for one in running:
        count = format_count(len(one["clients"]), "client")
        note = f" Its {count} will start another with the next request." if one["clients"] else ""
        click.echo(f"Stopped process {one['pid']}.{note}")
    if not running:
        subject = "" if every else f" for {inputs.find_config_file(path)}"
        click.echo(f"No gateway runs in the background{subject}.")


def list_daemons() -> list[Json]:
    """Return what your gateways in the background say about themselves."""
    if not can_have_daemon():
        return []
    with suppress(UnsafeFolder, OSError, RuntimeError):
        folder = find_folder()
        check_folder(folder)
        return [answer for _, answer in ask_daemons(folder) if answer]
    return []


def is_daemon_of(daemon: Json, path: Path | None) -> bool:
    """Tell whether a gateway in the background serves a configuration, or the default one."""
    return Path(daemon["config"]).resolve() == inputs.find_config_file(path).resolve()


@click.command()
@inputs.config_option
@inputs.flag_option("--follow", "-f", help="Keep printing new lines until Ctrl-C.")
@inputs.number_option("--lines", "-n", default=50, help="How many of the last lines to print.")
def logs(path: Path | None, follow: bool, lines: int) -> None:
    """Print the log of the gateway in the background.

    \b
    Example:
      toolscout logs -f
    """
    # A running gateway knows its log even if its configuration cannot be read any more.
    files = [Path(one["log"]) for one in list_daemons() if is_daemon_of(one, path)]
    if not files:
        config = inputs.read_servers(path)
        files = list(inputs.get_logs_folder(config).glob("*.log"))
    file = max(files, key=lambda file: file.stat().st_mtime, default=None)
    if file is None:
        problem = "has no log yet"
        remedy = "It begins when a client starts `toolscout serve`."
        raise InvalidFile(str(inputs.find_config_file(path)), problem, remedy=remedy)
    with ExitStack() as opened:
        log = opened.enter_context(file.open(encoding="utf-8", errors="replace"))
        click.echo("".join(deque(log, lines)), nl=False)
        while follow:
            text = log.read()
            click.echo(text, nl=False)
            if text:
                continue
            time.sleep(FOLLOW_SECONDS)
            if file.exists() and not os.path.samestat(file.stat(), os.fstat(log.fileno())):
                opened.close()  # it was renamed, and a new one begun
                log = opened.enter_context(file.open(encoding="utf-8", errors="replace"))


def _print_reports(reports: list[Json], *, as_json: bool) -> None:
    if as_json:
        for report in reports:
            echo_json(report)
    else:
        click.echo("\n\n".join("\n".join(_format_status(report)) for report in reports))


def _fetch_all(config: Config, token: str) -> list[Json]:
    """Return the reports of all gateways of a configuration, or raise `UpstreamError`."""
    found = _read_reports(config)
    host = config.gateway.host if config.gateway.host not in ANY_HOST else LOOPBACK
    host = f"[{host}]" if ":" in host else host
    try:
        target = urlsplit(f"http://{host}:{config.gateway.port or DEFAULT_PORT}")
        return [_fetch_status(target, token), *found]
    except UpstreamError as error:
        if found:
            return found
        raise UpstreamError(f"{error} No gateway over stdio was found either.") from None


def _read_reports(config: Config) -> list[Json]:
    """Return what running gateways over stdio last reported, the oldest first."""
    reports: list[Json] = []
    for file in sorted(inputs.get_reports_folder(config).glob("*.json")):
        # A gateway may end, or write its file anew, at any moment.
        with suppress(OSError, ValueError):
            is_fresh = time.time() - file.stat().st_mtime < STALE_SECONDS
            report = json.loads(file.read_text(encoding="utf-8"))
            is_ours = report["config"] == str(config.source) or config.source == Path()
            if not _is_running(report["pid"]):
                file.unlink()  # it was killed
            elif is_fresh and is_ours:
                reports.append(report)
    return sorted(reports, key=lambda report: report["started"])


def _is_running(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # there, signal 0 would end the process
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _parse_url(url: str) -> SplitResult:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    raise UsageError(f"--url is not the address of a gateway. Write it as {DEFAULT_URL}.")


def _fetch_status(target: SplitResult, token: str) -> Json:
    place = f"{target.scheme}://{target.netloc.rpartition('@')[2]}"
    is_secure = target.scheme == "https"
    kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    connection = kind(target.hostname or "", target.port, timeout=ANSWER_SECONDS)
    try:
        code, report = fetch_json(connection, f"{target.path.rstrip('/')}/status", token)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        remedy = "Start one with `toolscout serve --http`, or name another with --url."
        raise UpstreamError(f"No gateway answers at {place} ({reason}). {remedy}") from None
    if code == 200 and is_object(report) and is_list(report.get("servers")):
        return report
    error = report.get("error") if is_object(report) else None
    message = error.get("message") if is_object(error) else None
    if isinstance(message, str):
        raise UpstreamError(f"The gateway at {place} refused: {to_one_line(message, 300)}")
    problem = f"The server at {place} (HTTP {code}) is not a gateway."
    raise UpstreamError(f"{problem} Name another with --url.")


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
    if report.get("transport") == "stdio":
        kind = "In the background" if report.get("daemon") else "Over stdio"
        lines.append(f"{kind}: process {report['pid']} since {report['started']}")
        lines += ["", *_format_clients(report["clients"])]
    lines += ["", *_format_servers(report["servers"])]
    totals = report.get("totals", {})
    rows = [(label, totals[key]) for key, label in FIGURES.items() if key in totals]
    lines += ["", *(f"{label:<18}{value:>14,}" for label, value in rows)]
    return lines


def _format_clients(clients: list[Json]) -> list[str]:
    if not clients:
        return ["No client is connected."]
    names = [to_one_line(client["name"] or "(unnamed)", NAME_SHOWN) for client in clients]
    profiles = [to_one_line(client["profile"] or "-", NAME_SHOWN) for client in clients]
    width = max(map(len, ("client", *names)))
    room = max(map(len, ("profile", *profiles)))
    head = f"{'client':<{width}}  {'profile':<{room}}  {'requests':>8}  since"
    return [
        click.style(head, bold=True),
        *(
            f"{name:<{width}}  {profile:<{room}}  {client['requests']:>8,}  {client['since']}"
            for name, profile, client in zip(names, profiles, clients, strict=True)
        ),
    ]


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
        owners = list_some([str(owner) for owner in server.get("owners", ())])
        own = f"{server['connections']} connections, for {owners}" if owners else ""
        texts = [own, server["reason"], *server["problems"], *last]
        lines += [f"  {to_error_text(text, REASON_SHOWN)}" for text in texts if text]
    meanings = {server["phase"]: server.get("meaning", "") for server in servers}
    said = [f"{phase}: {text}" for phase, text in meanings.items() if text and phase != "ready"]
    return [*lines, *(["", *said] if said else [])]


def _watch(
    reports: list[Json], fetch: Callable[[], list[Json]], *, every: float, as_json: bool
) -> None:
    """Show the status of gateways until Ctrl-C; if none answers, ask again."""
    problem = ""
    is_live = sys.stdout.isatty() and not as_json
    screen = Live(screen=True, auto_refresh=False, vertical_overflow="crop")
    with screen if is_live else nullcontext():
        while True:
            if is_live:
                screen.update(_make_page(reports, problem, every), refresh=True)
            elif problem:
                click.echo(problem, err=True)
            else:
                _print_reports(reports, as_json=as_json)
                if not as_json:
                    click.echo()
            time.sleep(every)
            try:
                reports = fetch()
                problem = ""
            except UpstreamError as error:
                problem = str(error)


def _make_page(reports: list[Json], problem: str, every: float) -> Text:
    head = problem or f"{time.strftime('%H:%M:%S')}, every {every:g} s. Press Ctrl-C to stop."
    page = Text(no_wrap=True, overflow="ellipsis")
    page.append(head, "bold red" if problem else "dim")
    text = "\n\n".join("\n".join(_format_status(report)) for report in reports)
    plain = click.unstyle(text) if os.environ.get("NO_COLOR") else text
    return page.append("\n\n").append_text(Text.from_ansi(plain))
