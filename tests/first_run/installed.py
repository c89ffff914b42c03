"""Install built wheels where there is nothing but Python, and use them: `installed.py DIST`.

A virtual environment, an empty home and no variable of this machine. Everything that a newcomer
does first has to work there: the tour, `init`, a gateway in front of a real server, the console.
Prints how long each step took and how large it is. `make release` runs this.

It needs the standard library only, so that any Python can run it.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DEADLINE_SECONDS = 600
"""For one step; installing takes longest."""
MB = 1_000_000
SERVER = "mcp-server-time"
SEARCH = {"name": "tool_search", "arguments": {"queries": ["what time is it in Tokyo"]}}
CALL = {
    "name": "tool_call",
    "arguments": {"name": "time__get_current_time", "arguments": {"timezone": "Asia/Tokyo"}},
}
FOR_PIP = re.compile(r"(PIP_|UV_|SSL_|REQUESTS_)\w+|\w+_PROXY", re.IGNORECASE)
"""How to reach a package index; only `pip` gets these."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A folder with an environment and an empty home."""

    folder: Path
    steps: list[tuple[str, float, float]] = field(default_factory=list[tuple[str, float, float]])
    """What was done, the seconds that it took, and those of processors."""

    @property
    def programs(self) -> Path:
        return self.folder / "env" / ("Scripts" if os.name == "nt" else "bin")

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def variables(self) -> dict[str, str]:
        """All that a program sees of the machine."""
        path = os.pathsep.join([str(self.programs), os.defpath])
        variables = {"PATH": path, "HOME": str(self.home), "USERPROFILE": str(self.home)}
        needed = ("SYSTEMROOT",) if os.name == "nt" else ()
        return variables | {name: os.environ[name] for name in needed}

    def run(self, *words: str, extra: Mapping[str, str] | None = None) -> str:
        """Return what a program of the environment prints; it has to succeed."""
        ran = subprocess.run(
            [str(self.programs / words[0]), *words[1:]],
            env=self.variables | dict(extra or {}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        if ran.returncode:
            raise SystemExit(f"{' '.join(words)} failed:\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(self.programs / words[0]), *words[1:]],
            env=self.variables,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def time(self, step: str, work: Callable[[], object]) -> None:
        started = time.monotonic()
        busy = measure_children()
        work()
        self.steps.append((step, time.monotonic() - started, measure_children() - busy))


def main(dist: Path) -> None:
    [wheel] = dist.glob("toolscout-*.whl")
    [encoder] = dist.glob("toolscout_encoder-*.whl")
    with tempfile.TemporaryDirectory(prefix="toolscout-installed-") as folder:
        place = Environment(Path(folder).resolve())
        place.home.mkdir()
        place.time("python -m venv", lambda: venv.create(place.folder / "env", with_pip=True))
        before = measure_folder(place.folder)
        place.time("pip install toolscout", lambda: install(place, str(wheel)))
        alone = measure_folder(place.folder) - before
        place.time("toolscout", lambda: expect(place.run("toolscout"), "toolscout try"))
        place.time("toolscout try", lambda: expect(place.run("toolscout", "try"), "Saved: "))
        extras = [f"toolscout[gateway,onnx] @ {wheel.as_uri()}", str(encoder), SERVER]
        place.time("pip install 'toolscout[gateway,onnx]'", lambda: install(place, *extras))
        whole = measure_folder(place.folder) - before
        add_client(place)
        place.time("toolscout init --dry-run", lambda: preview(place))
        place.time("toolscout init --yes", lambda: take_over(place))
        place.time("toolscout serve", lambda: use_gateway(place))
        place.time("toolscout console", lambda: open_console(place))
        place.time("toolscout doctor", lambda: expect(place.run("toolscout", "doctor"), "0 failed"))
        place.time("toolscout stop", lambda: expect(place.run("toolscout", "stop"), "Stopped"))
        report(place, {wheel.name: wheel.stat().st_size, encoder.name: encoder.stat().st_size})
        write_row("installed, without extras", f"{alone / MB:.1f} MB")
        write_row("installed, with extras and a server", f"{whole / MB:.1f} MB")


def install(place: Environment, *packages: str) -> None:
    known = {name: value for name, value in os.environ.items() if FOR_PIP.fullmatch(name)}
    place.run("python", "-m", "pip", "install", "--quiet", *packages, extra=known)


def add_client(place: Environment) -> None:
    """Write the file of a client that starts a real server."""
    file = place.home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    server = {"command": str(place.programs / SERVER)}
    file.write_text(json.dumps({"mcpServers": {"time": server}}), encoding="utf-8")


def preview(place: Environment) -> None:
    expect(place.run("toolscout", "init", "--dry-run"), "This puts 1 server into")
    left = [file.name for file in place.home.rglob("toolscout.toml")]
    if left:
        raise SystemExit("init --dry-run has written a file.")


def take_over(place: Environment) -> None:
    text = place.run("toolscout", "init", "--yes")
    expect(text, "1 of 1 server answered.")
    expect(text, "Next: restart Cursor.")


def use_gateway(place: Environment) -> None:
    """Search and call through the gateway that the client now starts."""
    file = place.home / ".cursor" / "mcp.json"
    entry = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]["toolscout"]
    process = place.start(entry["command"], *entry["args"])
    greeting = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "installed", "version": "1"},
    }
    with process:
        ask(process, "initialize", greeting)
        ask(process, "notifications/initialized", {})
        tools = [tool["name"] for tool in ask(process, "tools/list", {})["tools"]]
        if tools != ["tool_search", "tool_describe", "tool_call"]:
            raise SystemExit(f"The gateway offers {tools}.")
        expect(json.dumps(ask(process, "tools/call", SEARCH)), "time__get_current_time")
        expect(json.dumps(ask(process, "tools/call", CALL)), "Asia/Tokyo")
        assert process.stdin is not None
        process.stdin.close()


def ask(process: "subprocess.Popen[str]", method: str, params: Mapping[str, Any]) -> Any:
    """Send a request or notification over stdio, and return the result of a request."""
    assert process.stdin is not None
    assert process.stdout is not None
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    is_request = not method.startswith("notifications/")
    process.stdin.write(json.dumps(message | ({"id": 1} if is_request else {})) + "\n")
    process.stdin.flush()
    while is_request:
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"The gateway ended during {method}.")
        answer = json.loads(line)
        if answer.get("id") == 1:
            return answer["result"]
    return None


def open_console(place: Environment) -> None:
    """Read the page of the console as a browser does."""
    process = place.start("toolscout", "console", "--port", "0")
    with process:
        try:
            assert process.stdout is not None
            address = None
            while address is None:
                line = process.stdout.readline()
                if not line:
                    assert process.stderr is not None
                    raise SystemExit(f"The console ended: {process.stderr.read()}")
                address = re.search(r"http://\S+", line)
            with urllib.request.urlopen(address[0], timeout=DEADLINE_SECONDS) as answer:
                expect(answer.read().decode(), "<html")
        finally:
            process.terminate()


def expect(text: str, wanted: str) -> None:
    if wanted not in text:
        raise SystemExit(f"{wanted!r} is missing in:\n{text}")


def measure_children() -> float:
    """Return the processor time of all programs that have ended; Windows does not know it."""
    times = os.times()
    return times.children_user + times.children_system


def measure_folder(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def report(place: Environment, sizes: Mapping[str, int]) -> None:
    for step, seconds, busy in place.steps:
        write_row(step, f"{seconds:.1f} s, of processors {busy:.1f} s")
    for name, size in sizes.items():
        write_row(name, f"{size / MB:.1f} MB")


def write_row(label: str, figure: str) -> None:
    sys.stdout.write(f"{label:<42}{figure}\n")


if __name__ == "__main__":
    [given] = sys.argv[1:]
    main(Path(given).resolve())
