"""`SessionTable`: the sessions of a gateway, whose they are and what they did, as rows.

Each gateway saves what its own sessions did, once a minute, as one value in the store that all
replicas share. A row therefore tells of every replica and of earlier runs, too. What happened in a
session, event by event, is known only where it happened; the audit record has it for all.
"""

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator

from toolscout.config.gateway import GatewayConfig
from toolscout.config.redaction import SecretKind, redact_text
from toolscout.console.activity import ActivityLog, LoggedEvent, SessionLog, format_time
from toolscout.console.views import View, make_not_found
from toolscout.errors import InvalidState
from toolscout.gateway.ledger import Ledger
from toolscout.gateway.middleware import ANONYMOUS, Principal
from toolscout.gateway.resume import HTTP, PRINCIPALS, SSE, read_client
from toolscout.names import digest_session, to_one_line
from toolscout.schemas import Json, is_list, is_object
from toolscout.scout import Scout
from toolscout.sessions.record import Entry, Record
from toolscout.sessions.run import list_programs
from toolscout.sessions.session_state import SESSION_KIND
from toolscout.stores.store import Store

KIND = "sessions"
RUNS_KEPT = 50
"""Runs of gateways whose sessions are kept."""
PAGE_SIZE = 50
PAGE_SIZE_MAX = 200
REFUSALS_SHOWN = 200
CACHE_SECONDS = 5.0
"""How old the rows of other gateways may be."""
NAME_CHARS = 200
SUMMED = ("searches", "calls", "refusals", "tokens_used", "tokens_saved")
HERE, ELSEWHERE, STORED = "here", "elsewhere", "stored"
"""Whether this gateway knows a session, or another one or an earlier run, or only the store."""
_TRANSPORTS = {HTTP: "http", PRINCIPALS: "http", SSE: "sse", "stdio": "stdio"}


def is_peer(principal: Principal, other: Principal) -> bool:
    """Tell whether somebody may look at another's conversations and savings."""
    return principal.profile is None or principal.profile == other.profile


class SessionTable:
    """The sessions of all gateways that share a store; everything here may read from the store."""

    def __init__(
        self,
        scout: Scout,
        activity: ActivityLog,
        ledger: Ledger,
        store: Store,
        config: GatewayConfig,
    ) -> None:
        self.config = config
        self._scout = scout
        self._activity = activity
        self._ledger = ledger
        self._store = store
        self._run = f"{int(time.time()):012d}/{secrets.token_hex(4)}"
        self._gateway = f"{socket.gethostname()}, process {os.getpid()}"
        self._saved = b""
        self._others: tuple[float, list[Json]] = (0.0, [])
        self._lock = threading.Lock()

    def list_page(self, view: View, *, refused: bool, offset: int, limit: int) -> Json:
        """Return some of the visible sessions, the last active first.

        With `refused`, only those with refused calls. Sessions that only the store knows come last.
        """
        self._ledger.settle()
        rows = self._merge_rows(view)
        if refused:
            rows = [row for row in rows if row["refusals"]]
        unknown = [] if view.is_limited or refused else self._list_stored(rows)
        page = rows[offset : offset + limit]
        start = max(0, offset - len(rows))
        page += map(self._build_stored, unknown[start : start + limit - len(page)])
        return {
            "total": len(rows) + len(unknown),
            "offset": offset,
            "sessions": [_hide_key(row) for row in page],
        }

    def list_refusals(self, view: View) -> list[Json]:
        """Return the last refused calls of this gateway's visible sessions, newest first."""
        found: list[tuple[LoggedEvent, SessionLog]] = []
        for log in self._list_visible(view):
            events = self._activity.list_events(log)
            found += [(event, log) for event in events if event.kind == "refusal"]
        found.sort(key=lambda row: -row[0].time)
        return [
            {
                "session": log.id,
                "client": log.client,
                "principal": log.principal.name,
                "profile": log.principal.profile_name,
                **event.to_json(),
            }
            for event, log in found[:REFUSALS_SHOWN]
        ]

    def build_row(self, log: SessionLog) -> Json:
        """Return one session of this gateway."""
        return _hide_key(self._build_row(log))

    def get_details(self, view: View, id_: str) -> Json:
        """Return one session with its tools, its programs and, if it is ours, its events."""
        self._ledger.settle()
        row = next((row for row in self._merge_rows(view) if row["id"] == id_), None)
        if row is None and not view.is_limited:
            names = (name for name in self._store.keys(SESSION_KIND) if digest_session(name) == id_)
            row = next(map(self._build_stored, names), None)
        if row is None:
            raise make_not_found("session", id_)
        log = next((log for log in self._list_visible(view) if log.id == id_), None)
        return {
            **_hide_key(row),
            "loaded": [
                {"name": entry.name, "tokens": entry.tokens, "query": entry.query}
                for entry in self._list_entries(row["session"])
            ],
            "programs": self._list_programs(row["session"]),
            "events": [event.to_json() for event in self._activity.list_events(log)] if log else [],
        }

    def save(self) -> None:
        """Write what the sessions of this gateway did to the store, if that has changed."""
        rows = [self._build_row(log) for log in self._activity.list_sessions()]
        data = json.dumps(rows).encode()
        if data != self._saved and rows:
            self._store.write(KIND, self._run, data)
            self._saved = data

    def remove_old(self) -> None:
        """Delete what the oldest runs have saved."""
        for key in self._store.keys(KIND)[:-RUNS_KEPT]:
            self._store.write(KIND, key, None)

    def _build_row(self, log: SessionLog) -> Json:
        tokens = self._ledger.get_session(log.session)
        live = self._scout.find_live(log.session)
        return {
            "session": log.session,
            "id": log.id,
            "client": log.client,
            "principal": log.principal.name,
            "profile": log.principal.profile_name,
            **_describe_transport(log.session),
            "known": HERE,
            "gateway": self._gateway,
            "started": format_time(log.started),
            "active": format_time(log.active),
            "searches": log.searches,
            "calls": log.calls,
            "refusals": log.refusals,
            "loaded": 0 if live is None else len(live.list_entries()),
            "tokens_used": tokens.used,
            "tokens_saved": tokens.net,
        }

    def _build_stored(self, session: str) -> Json:
        """Return a session of which only the store knows; nobody counted what it did."""
        client = read_client(self._store, session)
        owner = client.owner if client is not None else None
        token = self.config.tokens.get(owner or "")
        info: Json = client.hello.get("clientInfo", {}) if client is not None else {}
        return {
            "session": session,
            "id": digest_session(session),
            "client": to_one_line(f"{info.get('name', '')} {info.get('version', '')}", NAME_CHARS),
            "principal": owner or ANONYMOUS.name,
            "profile": token.profile if token is not None else "",
            **_describe_transport(session),
            "known": STORED,
            "gateway": "",
            "started": None,
            "active": format_time(client.seen) if client is not None else None,
            **dict.fromkeys(SUMMED, 0),
            "loaded": len(self._list_entries(session)),
        }

    def _merge_rows(self, view: View) -> list[Json]:
        """Return the visible sessions of this gateway and of others, the last active first."""
        merged: dict[str, Json] = {}
        own = [self._build_row(log) for log in self._list_visible(view)]
        profile = view.principal.profile_name
        others = [row for row in self._read_others() if not profile or row["profile"] == profile]
        for row in (*own, *others):
            known = merged.get(row["session"])
            if known is None:
                merged[row["session"]] = dict(row)
                continue
            # Several gateways served it, or one did before and after a restart.
            known |= {name: known[name] + row[name] for name in SUMMED}
            known["started"] = min(known["started"], row["started"])
            known["active"] = max(known["active"], row["active"])
        return sorted(merged.values(), key=lambda row: row["active"], reverse=True)

    def _read_others(self) -> list[Json]:
        """Return the rows that other gateways and earlier runs have saved."""
        with self._lock:
            read, rows = self._others
            if time.monotonic() - read > CACHE_SECONDS or not read:
                keys = [key for key in self._store.keys(KIND) if key != self._run]
                rows = [row for key in reversed(keys[-RUNS_KEPT:]) for row in self._read_run(key)]
                self._others = (time.monotonic(), rows)
            return rows

    def _read_run(self, key: str) -> Iterator[Json]:
        try:
            rows = json.loads(self._store.read(KIND, key) or b"[]")
        except ValueError:
            return
        wanted = {"session", "id", "profile", "started", "active", *SUMMED}
        for row in rows if is_list(rows) else ():
            if is_object(row) and wanted <= row.keys():  # else of another version
                yield {**row, "known": ELSEWHERE}

    def _list_stored(self, known: list[Json]) -> list[str]:
        names = {row["session"] for row in known}
        return [name for name in self._store.keys(SESSION_KIND) if name not in names]

    def _list_visible(self, view: View) -> list[SessionLog]:
        logs = self._activity.list_sessions()
        return [log for log in logs if is_peer(view.principal, log.principal)]

    def _list_programs(self, session: str) -> list[Json]:
        """Return the last programs of a session, newest first, without what looks like a secret."""
        rows = [program.to_json() for program in list_programs(self._store, session)]
        for row in rows:
            row["source"] = redact_text(row["source"], SecretKind)
            row["message"] = redact_text(row["message"], SecretKind)
        return rows[::-1]

    def _list_entries(self, session: str) -> list[Entry]:
        """Return what a session has loaded; one that has ended has nothing."""
        live = self._scout.find_live(session)
        if live is not None:
            return live.list_entries()
        data = self._store.read(SESSION_KIND, session)
        try:
            return [] if data is None else list(Record.from_bytes(data).entries.values())
        except InvalidState:
            return []


def _describe_transport(session: str) -> Json:
    found = (kind for prefix, kind in _TRANSPORTS.items() if session.startswith(prefix))
    return {"transport": next(found, ""), "shared": session.startswith(PRINCIPALS)}


def _hide_key(row: Json) -> Json:
    """Return a row without the name of its session, with which a client could take it over."""
    return {name: value for name, value in row.items() if name != "session"}
