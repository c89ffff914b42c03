"""Locks and builds environments with uv.

It writes lock files with exact versions, and creates virtual environments with exactly these. The
indexes come from pip's own configuration, so no file here names a host.
"""

import hashlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from adapters.tables import ROOT, Environment

UV = Path(sys.prefix) / "bin" / "uv"
STAMP = "locked-by.txt"
_SETTING = re.compile(r"^(?:[\w-]+|:env:)\.([\w-]+)='(.*)'$", re.MULTILINE)


class BuildFailed(Exception):
    """An environment cannot be locked or built."""


def uv_variables(pip_config: str) -> dict[str, str]:
    """Return the variables that make uv ask where `pip config list` says that pip asks."""
    settings = dict(_SETTING.findall(pip_config))
    extra = [url for url in settings.get("extra-index-url", "").split() if _exists(url)]
    links = [place for place in settings.get("find-links", "").split() if _exists(place)]
    found = {
        "UV_DEFAULT_INDEX": settings.get("index-url", ""),
        "UV_INDEX": " ".join(extra),
        "UV_FIND_LINKS": ",".join(links),
        # As pip does: the best version of all indexes, not that of the first that has any.
        "UV_INDEX_STRATEGY": "unsafe-best-match" if extra else "",
        "SSL_CERT_FILE": settings.get("cert", ""),
        "UV_HTTP_TIMEOUT": settings.get("default-timeout") or settings.get("timeout") or "",
        "UV_INSECURE_HOST": settings.get("trusted-host", ""),
    }
    return {name: value for name, value in found.items() if value}


def lock(environment: Environment) -> str:
    """Write the newest versions that fit together; return what changed, in a few words."""
    command = [UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--upgrade"]
    command += ["--python", sys.executable, "--output-file", environment.lock, "pyproject.toml"]
    for extra in environment.extras:
        command += ["--extra", extra]
    before = environment.lock.read_text(encoding="utf-8") if environment.lock.exists() else ""
    environment.lock.parent.mkdir(exist_ok=True)
    wanted = "\n".join((*environment.base, *environment.packages, *environment.constraints))
    _run([*command, "-"], f"lock {environment.name}", given=wanted)
    after = environment.lock.read_text(encoding="utf-8")
    changed = set(after.splitlines()) ^ set(before.splitlines())
    return f"{len(after.splitlines())} packages, {len(changed)} lines changed"


def build(environment: Environment) -> str:
    """Install an environment unless it is there as locked; return what was done."""
    if not environment.lock.exists():
        raise BuildFailed(
            f"{environment.name} has no lock. Run `environments.py lock {environment.name}`."
        )
    stamp, wanted = environment.venv / STAMP, _digest(environment)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return "as locked"
    what = f"build {environment.name}"
    _run([UV, "venv", "--quiet", "--clear", "--python", sys.executable, environment.venv], what)
    install = [UV, "pip", "install", "--quiet", "--no-deps", "--python", environment.python]
    _run([*install, "--requirement", environment.lock], what)
    _run([*install, "--editable", ROOT], what)
    stamp.write_text(wanted, encoding="utf-8")
    return "built"


def _digest(environment: Environment) -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    return hashlib.sha256(environment.lock.read_bytes() + version.encode()).hexdigest()


def _run(command: list[str | Path], what: str, given: str = "") -> None:
    environment = {**os.environ, **uv_variables(_pip_config())}
    environment.pop("VIRTUAL_ENV", None)
    done = subprocess.run(
        command, cwd=ROOT, env=environment, input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        shown = shlex.join(map(str, command[1:4]))
        raise BuildFailed(f"{what}: `uv {shown} …` failed.\n{done.stderr.strip()}")


def _pip_config() -> str:
    command = [sys.executable, "-m", "pip", "config", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _exists(place: str) -> bool:
    """Tell whether an index can be asked: a place in the file system must be there."""
    parts = urlsplit(place)
    if parts.scheme in ("http", "https"):
        return True
    return Path(unquote(parts.path)).exists()
