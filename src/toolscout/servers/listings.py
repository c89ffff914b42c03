"""`CatalogUpdater`: puts the listings of servers into the catalogue and stores them.

Stored listings are searchable before their server has started (R86). Turning a listing into
tools, indexing it and talking to the store may each take long, so they run in two worker threads,
one for the catalogue and one for the store; the event loop stays free for calls. Each worker does
one job after the other, so listings take effect in the order in which they arrived.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from toolscout.catalog import Catalog, Status
from toolscout.config.file import Config
from toolscout.config.servers import ServerConfig
from toolscout.schemas import to_canonical_json
from toolscout.servers.connection import Connection
from toolscout.servers.manifest import MANIFEST_KIND, Manifest, build_entries, manifest_from_bytes
from toolscout.servers.server import Phase, ServerState
from toolscout.stores.store import Store
from toolscout.tools import Tool

STOPPED_REASON = "it was stopped"

_log = logging.getLogger(__name__)
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


class CatalogUpdater:
    """Updates one catalogue. Call `close` at the end."""

    def __init__(self, catalog: Catalog, store: Store) -> None:
        self._catalog = catalog
        self._store = store
        self._catalog_worker = ThreadPoolExecutor(1, "toolscout-catalog")
        self._store_worker = ThreadPoolExecutor(1, "toolscout-manifests")

    def recall(self, server: ServerState) -> None:
        """Offer the stored tools of a server, or mark it as pending; blocks."""
        self._catalog.set_pending(server.name)
        manifest = read_stored_manifest(self._store, server.config)
        if manifest is not None:
            self._replace(server, manifest)
            server.phase = Phase.KNOWN

    async def recall_later(self, server: ServerState) -> None:
        """Offer the stored tools of a server, unless it lists its tools before that."""
        self._catalog.set_pending(server.name)
        manifest = await _run(self._store_worker, read_stored_manifest, self._store, server.config)
        if manifest is None or server.manifest is not None:
            return
        await self.publish(server, manifest)
        if server.phase is Phase.CONFIGURED:
            server.phase = Phase.KNOWN

    async def refresh(self, server: ServerState, connection: Connection) -> None:
        """Ask a server for its listings, then publish and store them if they have changed."""
        async with asyncio.timeout(server.config.start_seconds):
            manifest = await connection.read_manifest()
        if await _run(self._catalog_worker, self._replace_if_changed, server, manifest):
            self._store_worker.submit(self._save, server.config, manifest)

    async def publish(self, server: ServerState, manifest: Manifest) -> None:
        """Make the tools of a manifest those of a server and mark the server as ready."""
        await _run(self._catalog_worker, self._replace, server, manifest)

    async def remove(self, name: str) -> None:
        """Take a server out of the catalogue."""
        await _run(self._catalog_worker, self._catalog.remove, name)

    async def close(self) -> None:
        """Finish all jobs and end the workers."""
        await asyncio.to_thread(self._catalog_worker.shutdown)
        await asyncio.to_thread(self._store_worker.shutdown)

    def is_ready(self, server: ServerState) -> bool:
        """Tell whether the catalogue lists a server as ready."""
        state = self._catalog.state(server.name)
        return state is not None and state.status is Status.READY

    # In the workers.

    def _replace_if_changed(self, server: ServerState, manifest: Manifest) -> bool:
        if manifest == server.manifest and self.is_ready(server):
            return False
        self._replace(server, manifest)
        return True

    def _replace(self, server: ServerState, manifest: Manifest) -> None:
        if server.is_held:
            return
        entries = build_entries(server.config, manifest)
        problems = list(entries.problems)
        tools = [tool for tool in entries.tools if self._is_free(tool, problems)]
        for problem in problems:
            if problem not in server.problems:
                _log.warning("Server %s: %s", server.name, problem)
        server.manifest = manifest
        server.problems = tuple(problems)
        self._catalog.replace(server.name, tools)
        if server.is_held:  # it was stopped meanwhile, which marked it as failed before
            self._catalog.set_failed(server.name, STOPPED_REASON)

    def _is_free(self, tool: Tool, problems: list[str]) -> bool:
        # R84: if two servers want one name, neither loses its other tools.
        owner = self._catalog.get(tool.name)
        if owner is None or owner.server == tool.server:
            return True
        problems.append(f"{tool.leaf!r} would be {tool.name!r}, which {owner.server!r} has.")
        return False

    def _save(self, config: ServerConfig, manifest: Manifest) -> None:
        try:
            save_manifest(self._store, config, manifest)
        except Exception:  # a cache that cannot be written is no reason to lose a server
            _log.warning("The lists of server %s were not stored.", config.name, exc_info=True)


def recall_catalog(config: Config, store: Store | None) -> Catalog:
    """Return the tools that the servers of a configuration listed last; the others are pending."""
    catalog = Catalog()
    for server in config.servers:
        if server.disabled:
            continue
        if store is None:
            catalog.set_pending(server.name)
        else:
            slots = asyncio.Semaphore(server.concurrency)
            CatalogUpdater(catalog, store).recall(ServerState(config=server, slots=slots))
    return catalog


def read_stored_manifest(store: Store, config: ServerConfig) -> Manifest | None:
    """Return the listings that a server last had under this configuration."""
    data = store.read(MANIFEST_KIND, config.name)
    return None if data is None else manifest_from_bytes(data, compute_config_key(config))


def save_manifest(store: Store, config: ServerConfig, manifest: Manifest) -> None:
    """Store the listings of a server for the next run."""
    data = manifest.to_bytes(compute_config_key(config))
    store.write(MANIFEST_KIND, config.name, data)


def compute_config_key(config: ServerConfig) -> str:
    """Return a digest of the options that decide a server's tools; it marks its stored listings."""
    parts = [config.command, list(config.args), config.cwd, config.url, config.spec]
    return hashlib.sha256(to_canonical_json([str(config.transport), *parts])).hexdigest()[:16]


async def _run(
    worker: ThreadPoolExecutor,
    work: Callable[_Args, _Result],
    *args: _Args.args,
    **kwargs: _Args.kwargs,
) -> _Result:
    return await asyncio.wrap_future(worker.submit(work, *args, **kwargs))
