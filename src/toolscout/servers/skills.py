"""`SkillsConnection`: lets the pool use folders of skills as if they were a server.

It answers `resources/read`, lists the skills, and looks for changes in the folders at intervals.
Reading and hashing happens in threads. Scripts in skills are files like any other.
"""

import asyncio
import os
import time
from collections.abc import Callable, Set

import mcp_types as types
from mcp.shared.exceptions import MCPError

from toolscout.config.servers import SKILL_PLACES, ServerConfig
from toolscout.schemas import Json
from toolscout.servers.connection import Delays, Relay
from toolscout.servers.manifest import Manifest
from toolscout.skills.skill import SkillFolder

BUSY_SHARE = 20
"""Looking for changes takes at most one part in so many of the time."""


def open_folders(config: ServerConfig) -> SkillFolder:
    """Read the folders of a server whose references are resolved; blocks.

    A program's usual place that does not exist is no problem.
    """
    usual = {os.path.expanduser(place) for places in SKILL_PLACES.values() for place in places}  # noqa: PTH111 - compares text
    named = [folder for folder in config.skills if folder not in usual]
    optional = [folder for folder in config.skills if folder in usual]
    return SkillFolder(*named, server=config.name, optional=optional)


def build_manifest(folder: SkillFolder) -> Manifest:
    """Return the skills of folders as the listing of a server."""
    return Manifest(
        skills=tuple(skill.to_entry() for skill in folder.skills),
        problems=tuple(map(str, folder.problems)),
    )


class SkillsConnection:
    """The folders of one server. `on_change` is called when something in them has changed."""

    def __init__(
        self, config: ServerConfig, *, on_change: Callable[[], None], delays: Delays
    ) -> None:
        self.ended = asyncio.Event()
        self.reason = "it was closed"
        self._config = config
        self._on_change = on_change
        self._pause = delays.folder_look
        self._folder: SkillFolder | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self, relay: Relay | None = None) -> None:
        """Read the folders, and look for changes from now on."""
        self._folder = await asyncio.to_thread(open_folders, self._config)
        self._watching = asyncio.create_task(self._watch(self._folder))

    async def close(self) -> None:
        """Look for changes no longer."""
        self.ended.set()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait((self._watching,))

    async def read_manifest(self) -> Manifest:
        """Return the skills as they were when the folders were last looked at."""
        return Manifest() if self._folder is None else build_manifest(self._folder)

    async def request(self, method: str, params: Json, relay: Relay | None = None) -> Json:
        """Answer `resources/read`; any other request raises `MCPError`."""
        if method != "resources/read":
            raise MCPError(code=types.METHOD_NOT_FOUND, message="Method not found")
        folder = self._folder
        answer = folder and await asyncio.to_thread(folder.read, str(params.get("uri")))
        if not answer:
            raise MCPError(code=types.INVALID_PARAMS, message="No skill has this file.")
        return answer

    async def renew_roots(self, relay: Relay) -> None:
        """Do nothing: folders ask no questions."""

    async def watch(self, uris: Set[str], on_update: Callable[[str], None]) -> frozenset[str]:
        """Agree to no resource: changes are those of the whole list."""
        return frozenset()

    async def _watch(self, folder: SkillFolder) -> None:
        pause = self._pause
        while True:
            await asyncio.sleep(pause)
            started = time.monotonic()
            has_changed = await asyncio.to_thread(folder.scan)
            pause = max(self._pause, BUSY_SHARE * (time.monotonic() - started))
            if has_changed:
                self._on_change()
