"""Test every adapter with its real SDK: `environments.py lock|build|test|docs [NAME…]`.

`lock` pins the newest versions, `build` installs what is pinned, `test` runs the tests and the type
checker of each environment side by side and writes `.venv-adapters/report.json`, `docs` puts that
report into the table of docs/adapters.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

if __name__ == "__main__":
    # As a script, import the neighbouring modules as the tests do.
    sys.path[0] = str(Path(__file__).parents[1])

from adapters.installers import BuildFailed, build, lock
from adapters.tables import EXAMPLES, ROOT, VENVS, Environment, environments

Json = dict[str, Any]
REPORT = VENVS / "report.json"
PAGE = ROOT / "docs" / "adapters.md"
BEGIN, END = "<!-- adapters: begin -->", "<!-- adapters: end -->"
CHECKER = Path(sys.prefix) / "bin" / "basedpyright"
TEST_SECONDS = 300
"""The limit of one test; two environments and other programs share the machine."""
CONTRACT_VARIABLE = "TOOLSCOUT_CONTRACT_REPORT"
_ASK_VERSIONS = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
def found(name):
    try: return version(name)
    except PackageNotFoundError: return None
names = sys.argv[1:]
print(json.dumps([platform.python_version(), {name: found(name) for name in names}]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one environment."""

    name: str
    passed: bool
    summary: str
    """One line."""
    output: str = ""
    """The output of the tools, if something failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=("lock", "build", "test", "docs"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments; all without a name")
    given = parser.parse_args(arguments)
    if given.command == "docs":
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), report()), encoding="utf-8")
        return 0
    known = environments()
    unknown = [name for name in given.names if name not in known]
    if unknown:
        parser.error(f"there is no environment {unknown[0]!r}; there are {', '.join(known)}")
    chosen = [known[name] for name in given.names] or list(known.values())
    return show(side_by_side(_WORK[given.command], chosen))


def side_by_side(
    work: Callable[[Environment], Outcome], chosen: Sequence[Environment]
) -> list[Outcome]:
    """Process environments, one per core at a time."""
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        return list(pool.map(work, chosen))


def show(outcomes: Sequence[Outcome]) -> int:
    """Print the output of failures and a table; return the exit code."""
    for outcome in outcomes:
        if not outcome.passed:
            sys.stdout.write(f"== {outcome.name} ==\n{outcome.output}\n\n")
    for outcome in outcomes:
        verdict = "ok" if outcome.passed else "FAILED"
        sys.stdout.write(f"{outcome.name:<18} {verdict:<7} {outcome.summary}\n")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def lock_one(environment: Environment) -> Outcome:
    """Pin the newest versions of an environment."""
    try:
        return Outcome(name=environment.name, passed=True, summary=lock(environment))
    except BuildFailed as error:
        return Outcome(name=environment.name, passed=False, summary="no lock", output=str(error))


def build_one(environment: Environment) -> Outcome:
    """Install an environment, and check that its SDK can be imported."""
    try:
        done = build(environment)
    except BuildFailed as error:
        return Outcome(name=environment.name, passed=False, summary="not built", output=str(error))
    imports = "; ".join(f"import {module}" for module in environment.imports)
    tried = _run([environment.python, "-c", imports])
    summary = f"{done}; {_format_versions(facts_of(environment))}"
    passed, output = tried.returncode == 0, tried.stdout + tried.stderr
    return Outcome(name=environment.name, passed=passed, summary=summary, output=output)


def check_one(environment: Environment) -> Outcome:
    """Build an environment, run its tests and the type checker, and record the result."""
    built = build_one(environment)
    if not built.passed:
        return built
    if not environment.tests.exists():
        # Without an adapter there is nothing to test; with one, there must be a test.
        passed = not environment.sources
        summary = f"{built.summary}; no tests"
        missing = f"{environment.module} has no {environment.tests.name}."
        return Outcome(name=environment.name, passed=passed, summary=summary, output=missing)
    checks = environment.venv / "contract.jsonl"
    checks.unlink(missing_ok=True)
    tested, typed = _run_tests(environment, checks), _run_checker(environment)
    passed = tested.returncode == typed.returncode == 0
    facts = facts_of(environment) | _contract(checks) | {"passed": passed}
    (environment.venv / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    summary = f"{built.summary}; {_last_line(tested.stdout)}; {_last_line(typed.stdout)}"
    failed = [done for done in (tested, typed) if done.returncode]
    output = "\n".join(f"{done.stdout}{done.stderr}" for done in failed)
    return Outcome(name=environment.name, passed=passed, summary=summary, output=output)


def facts_of(environment: Environment) -> Json:
    """Return the versions that are installed in an environment."""
    names = [*environment.sdk, "mcp"]
    asked = _run([environment.python, "-c", _ASK_VERSIONS, *names])
    python, versions = cast("tuple[str, Json]", json.loads(asked.stdout))
    mcp = versions["mcp"]
    sdk = {name: versions[name] for name in environment.sdk}
    adapter = environment.module if environment.sources else None
    return {
        "environment": environment.name,
        "adapter": adapter,
        "sdk": sdk,
        "python": python,
        "mcp": mcp,
    }


def report() -> list[Json]:
    """Return the last result of each environment, and write them to one file."""
    paths = [entry.venv / "facts.json" for entry in environments().values()]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    if VENVS.exists():
        REPORT.write_text(f"{json.dumps(found, indent=2)}\n", encoding="utf-8")
    return found


def with_table(page: str, facts: Sequence[Json]) -> str:
    """Return a page whose text between the marks is the table of the report."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE.name} lacks the lines {BEGIN!r} and {END!r}. Add them.")
    head = "| Adapter | SDK | Mode | Python | mcp | Contract |\n|---|---|---|---|---|---|\n"
    return f"{before}{BEGIN}\n{head}{''.join(map(_row, facts))}{END}{after}"


def checker_settings(environment: Environment) -> Json:
    """Return the project's type checker settings for an environment's files alone."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    settings = cast("Json", tomllib.loads(text)["tool"]["pyright"])
    return settings | {
        "include": [str(path) for path in environment.files],
        "exclude": [],
        "venvPath": str(VENVS),
        "venv": environment.name,
        "extraPaths": [str(ROOT / "src"), str(ROOT / "tests")],
        # Examples do not annotate what an SDK leaves untyped.
        "executionEnvironments": [{"root": str(EXAMPLES), "reportUnknownVariableType": False}],
    }


def _run_tests(environment: Environment, checks: Path) -> "subprocess.CompletedProcess[str]":
    command = [environment.python, "-m", "pytest", "-q", "-p", "no:randomly"]
    command += ["-p", "no:cacheprovider", "-o", f"timeout={TEST_SECONDS}", environment.tests]
    for warning in environment.warnings:
        command += ["-W", warning]
    return _run(command, {CONTRACT_VARIABLE: str(checks)})


def _run_checker(environment: Environment) -> "subprocess.CompletedProcess[str]":
    # Files on the command line would be checked with the settings of the main environment.
    config = environment.venv / "pyrightconfig.json"
    config.write_text(json.dumps(checker_settings(environment)), encoding="utf-8")
    return _run([CHECKER, "--warnings", "--project", config])


def _run(
    command: Sequence[str | Path], variables: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    given = {**os.environ, **(variables or {})}
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)


def _contract(checks: Path) -> Json:
    lines = checks.read_text(encoding="utf-8").splitlines() if checks.exists() else []
    noted = [cast("Json", json.loads(line)) for line in lines]
    return {
        "modes": sorted({f"{entry['mode']} ({entry['dialect']})" for entry in noted}),
        "checks": sorted({entry["check"] for entry in noted}),
    }


def _row(facts: Json) -> str:
    name = facts["adapter"] or facts["environment"]
    sdk = ", ".join(f"{package} {version}" for package, version in facts["sdk"].items())
    verdict = ", ".join(facts["checks"]) if facts["passed"] else "failed"
    cells = (f"`{name}`", sdk, ", ".join(facts["modes"]), facts["python"], facts["mcp"], verdict)
    return f"| {' | '.join(cell or 'none' for cell in cells)} |\n"


def _format_versions(facts: Json) -> str:
    sdk = ", ".join(f"{package} {version}" for package, version in facts["sdk"].items())
    return f"{sdk}, mcp {facts['mcp'] or 'absent'}"


def _last_line(text: str) -> str:
    return next(iter(reversed(text.strip().splitlines())), "")


_WORK = {"lock": lock_one, "build": build_one, "test": check_one}

if __name__ == "__main__":
    code = main()
    report()
    raise SystemExit(code)
