"""The programs that toolscout needs: Python, its own packages, and Node for servers in it."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from toolscout.cli.checks import Checkup, fail, ok, warn
from toolscout.errors import ToolscoutError

OLDEST_PYTHON = (3, 11)
OLDEST_NODE = 18
NODE_SECONDS = 10.0
SDK_MAJOR = "2"
EXTRAS = {"onnx": "onnxruntime", "ann": "usearch", "postgres": "psycopg"}
OF_NODE = ("npx", "npm", "node")


def python() -> Checkup:
    """Look at the interpreter."""
    shown = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return fail("python", f"Python {shown} is too old.", f"Install Python {wanted} or later.")
    return ok("python", f"Python {shown}")


def own_program(env: Mapping[str, str]) -> Checkup:
    """Look whether the shell and clients find this toolscout."""
    mine = f"toolscout {version('toolscout')}"
    found = shutil.which("toolscout", path=env.get("PATH", ""))
    folder = Path(sys.executable).parent
    if found is None:
        remedy = f"Add {folder} to PATH."
        return warn("toolscout", f"{mine} is not on PATH.", remedy)
    if Path(found).parent.resolve() != folder.resolve():
        text = f"{mine} runs, but {found} comes first on PATH."
        return warn("toolscout", text, f"Put {folder} first on PATH, or uninstall the other.")
    return ok("toolscout", mine)


def extras() -> Iterator[Checkup]:
    """Look at what can be installed beside toolscout."""
    yield _sdk()
    for extra, module in EXTRAS.items():
        is_there = find_spec(module) is not None
        how = _version(module) if is_there else "not installed, and only needed where it is used"
        yield ok(f"extra {extra}", how)


def vectors() -> Checkup:
    """Look whether the default encoder has its files."""
    from toolscout.encoders.static import StaticEncoder

    try:
        StaticEncoder().encode(["a"])
    except (ToolscoutError, ImportError) as error:
        return fail("vectors", str(error), "pip install --force-reinstall toolscout")
    return ok("vectors", "the static vectors are in place")


def node(commands: list[str], env: Mapping[str, str]) -> Iterator[Checkup]:
    """Look at Node where a server is started with it."""
    if not any(Path(command).stem in OF_NODE for command in commands):
        return
    program = shutil.which("node", path=env.get("PATH", ""))
    if program is None:
        text = "Node is not on PATH, and servers are started with npx."
        yield fail("node", text, f"Install Node {OLDEST_NODE} or later.")
        return
    told = _told(program)
    major = told.removeprefix("v").partition(".")[0]
    if not major.isdecimal():
        yield fail("node", f"{program} does not tell its version.", "Install Node again.")
    elif int(major) < OLDEST_NODE:
        remedy = f"Install Node {OLDEST_NODE} or later."
        yield warn("node", f"Node {told} is older than most servers take.", remedy)
    else:
        yield ok("node", f"Node {told}")


def _sdk() -> Checkup:
    remedy = "pip install 'toolscout[gateway]'"
    if find_spec("mcp") is None:
        return fail("extra gateway", "The MCP SDK is not installed.", remedy)
    found = _version("mcp")
    if found.partition(".")[0] != SDK_MAJOR:
        text = f"The MCP SDK is {found}; the gateway needs {SDK_MAJOR}.x."
        return fail("extra gateway", text, remedy)
    return ok("extra gateway", f"MCP SDK {found}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "installed"


def _told(program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=NODE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return ""
    return done.stdout.strip()[:40]
