"""Run a command of toolscout as if on Windows: what that system lacks is taken away first.

The arguments are those of `toolscout`. Nothing here can show how Windows behaves; it shows that
no command needs what it does not have.
"""

import asyncio
import importlib
import os
import pkgutil
import signal
import socket
import sys

import aiohttp  # the packages of others are those for this system
import mcp.client.stdio
import rich.live
import rich.progress
import tomlkit
import usearch.index
import uvicorn

import toolscout

UNIX_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
UNIX_NAMES = {
    os: ("fork", "getgid", "geteuid", "getpgid", "getuid", "killpg", "setsid", "uname", "fchmod"),
    signal: ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGCHLD"),
    socket: ("AF_UNIX", "SO_PEERCRED", "SCM_RIGHTS"),
    asyncio: ("open_unix_connection", "start_unix_server"),
}
# The bridge to a gateway in the background, and what runs there, are for other systems.
LEFT_OUT = ("toolscout.__main__", "toolscout.adapters.", "toolscout.daemon.")
OTHERS = (aiohttp, mcp.client.stdio, rich.live, rich.progress, tomlkit, usearch.index, uvicorn)


def become_windows() -> None:
    sys.platform = "win32"
    for name in UNIX_MODULES:
        sys.modules[name] = None  # pyright: ignore[reportArgumentType]  # an import fails
    for module, names in UNIX_NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)


def import_everything() -> list[str]:
    """Import all modules but those that have to be elsewhere; return their names."""
    found = pkgutil.walk_packages(toolscout.__path__, "toolscout.", onerror=lambda name: None)
    names = [one.name for one in found if not one.name.startswith(LEFT_OUT)]
    for name in names:
        importlib.import_module(name)
    return names


def main(arguments: list[str]) -> None:
    assert all(OTHERS)
    become_windows()
    if arguments == ["--import-everything"]:
        print(len(import_everything()))  # noqa: T201
        return
    from toolscout.__main__ import run_command

    run_command()


if __name__ == "__main__":
    main(sys.argv[1:])
