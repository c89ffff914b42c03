"""`Intake`: puts what servers offer into the catalogue, and keeps it for the next run.

What was kept is searchable before its server has started (R86).
"""

import asyncio
import hashlib
import logging

from toolscout.catalog import Catalog, Status
from toolscout.config.servers import ServerConfig
from toolscout.schemas import canonical_json
from toolscout.servers.connection import Connection
from toolscout.servers.manifest import MANIFEST_KIND, Manifest, manifest_from_bytes
from toolscout.servers.offers import offers_of
from toolscout.servers.server import Member, Phase
from toolscout.sessions.session import Store
from toolscout.tools import Tool

_log = logging.getLogger(__name__)


class Intake:
    """The way from servers into one catalogue."""

    def __init__(self, catalog: Catalog, store: Store) -> None:
        self._catalog, self._store = catalog, store

    def recall(self, member: Member) -> None:
        """Offer what a server offered last, or say that it is awaited."""
        data = self._store.read(MANIFEST_KIND, member.name)
        kept = manifest_from_bytes(data, config_key(member.config)) if data is not None else None
        if kept is None:
            self._catalog.set_pending(member.name)
        else:
            self.offer(member, kept)
            member.phase = Phase.KNOWN

    async def read(self, member: Member, connection: Connection) -> None:
        """Ask a server what it offers; offer that, and keep it."""
        async with asyncio.timeout(member.config.start_seconds):
            manifest = await connection.manifest()
        if manifest == member.manifest and self.is_ready(member):
            return
        self.offer(member, manifest)
        try:
            data = manifest.to_bytes(config_key(member.config))
            self._store.write(MANIFEST_KIND, member.name, data)
        except Exception:  # a cache that cannot be written is no reason to lose a server
            _log.warning("The lists of server %s were not kept.", member.name, exc_info=True)

    def offer(self, member: Member, manifest: Manifest) -> None:
        """Make the tools of a manifest those of a server, which is ready by that."""
        offers = offers_of(member.config, manifest)
        problems = list(offers.problems)
        tools = [tool for tool in offers.tools if self._is_free(tool, problems)]
        for problem in problems:
            if problem not in member.problems:
                _log.warning("Server %s: %s", member.name, problem)
        member.manifest, member.problems = manifest, tuple(problems)
        self._catalog.replace(member.name, tools)

    def is_ready(self, member: Member) -> bool:
        """Tell whether the catalogue has a server as ready."""
        state = self._catalog.state(member.name)
        return state is not None and state.status is Status.READY

    def _is_free(self, tool: Tool, problems: list[str]) -> bool:
        # One name that two servers want must not cost either its other tools (R84).
        owner = self._catalog.get(tool.name)
        if owner is None or owner.server == tool.server:
            return True
        problems.append(f"{tool.leaf!r} would be {tool.name!r}, which {owner.server!r} has.")
        return False


def config_key(config: ServerConfig) -> str:
    """Return a digest of what decides a server's tools; another one makes its cache void."""
    parts = [config.command, list(config.args), config.cwd, config.url, config.spec]
    return hashlib.sha256(canonical_json([str(config.transport), *parts])).hexdigest()[:16]
