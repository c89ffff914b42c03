"""Test the oldest and newest versions of all dependencies: `matrix.py [VERSION…]`.

For each version of Python, an environment gets the lowest versions of dependencies that
pyproject.toml allows and that have a wheel, and another one the newest. The tests of `make quick`
run there. Without a version, all that the package names are tried, and those that this machine
lacks are only mentioned. `make matrix` runs this.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-matrix"
UV = Path(sys.prefix) / "bin" / "uv"
RESOLUTIONS = ("lowest-direct", "highest")
EXTRAS = "ann,gateway,keyring,onnx,postgres,programs"
OWN = ("toolscout", "toolscout-encoder")
LEFT_OUT = ("adapters", "benchmarks", "house", "security")
"""Folders that `make quick` leaves out too."""
CLASSIFIER = "Programming Language :: Python :: 3."
NEEDED = (
    "hypothesis",
    "opentelemetry-sdk",
    "playwright",
    "psutil",
    "pyte",
    "pytest",
    "pytest-timeout",
)
"""Packages that the tests import beside those of the extras."""


def main(versions: Sequence[str]) -> int:
    """Return the exit code; prints a line for each environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [f"3.{one[len(CLASSIFIER) :]}" for one in project["classifiers"] if CLASSIFIER in one]
    rows: list[tuple[str, str, str]] = []
    for version in versions or named:
        python = find_python(version)
        if python is None:
            rows.append((version, "", "not installed here"))
            continue
        for resolution in RESOLUTIONS:
            rows.append((version, resolution, check(version, python, resolution)))
    for version, resolution, outcome in rows:
        sys.stdout.write(f"{version:<6}{resolution:<16}{outcome}\n")
    outcomes = [outcome for _, _, outcome in rows]
    is_missing = bool(versions) and "not installed here" in outcomes
    return 1 if is_missing or "ok" not in outcomes or "FAILED" in outcomes else 0


def find_python(version: str) -> str | None:
    """Return a Python of a version, on the PATH or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [
        shutil.which(f"python{version}"),
        *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"))),
        shutil.which("python"),
    ]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        asked = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, check=False)
        if asked.stdout.strip() == version:
            return candidate
    return None


def check(version: str, python: str, resolution: str) -> str:
    """Install an environment, run the tests there, and return how that ended."""
    folder = FOLDER / f"{version}-{resolution}"
    wheels = ["--only-binary", ":all:", *(word for name in OWN for word in ("--no-binary", name))]
    tools = [choose_newest(name) for name in NEEDED]
    packages = ["./packages/toolscout-encoder", f".[{EXTRAS}]", *tools]
    install = [UV, "pip", "install", "--quiet", "--python", folder, "--resolution", resolution]
    tests = [folder / "bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests += [word for name in LEFT_OUT for word in ("--ignore", f"tests/{name}")]
    tests += ["-m", "not processes and not slow"]
    steps: list[list[str | Path]] = [
        [UV, "venv", "--quiet", "--clear", "--python", python, folder],
        [*install, *wheels, *packages],
        list(tests),
    ]
    for step in steps:
        if subprocess.run(step, cwd=ROOT, check=False).returncode:
            return "FAILED"
    return "ok"


def choose_newest(name: str) -> str:
    """Return a requirement for what runs the tests, in the version that is installed here."""
    return f"{name}=={metadata.version(name)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
