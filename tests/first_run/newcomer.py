"""A person with five MCP clients and thirteen servers, who has just installed toolscout.

The home folder is new: the caches of npm and uv are empty, and both are told to use a registry
whose certificate only two variables of the person's environment vouch for.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from first_run.registry import Registry

BIN = Path(sys.executable).parent
COMMAND_SECONDS = 1_500
"""For one command; a busy machine installs twelve servers five times slower than an idle one."""

SERVERS: dict[str, list[str]] = {
    "filesystem": [
        *("npx", "-y", "@modelcontextprotocol/server-filesystem@2026.8.31"),
        "{home}/Documents",
    ],
    "memory": ["npx", "-y", "@modelcontextprotocol/server-memory@2026.8.31"],
    "sequential-thinking": [
        *("npx", "-y", "@modelcontextprotocol/server-sequential-thinking@2026.8.31"),
    ],
    "fetch": ["uvx", "mcp-server-fetch@2026.10.24"],
    "time": ["uvx", "mcp-server-time@2026.10.19"],
    "git": ["uvx", "mcp-server-git@2026.10.19", "--repository", "{home}/project"],
    "context7": ["npx", "-y", "@upstash/context7-mcp@4.1.1"],
    "playwright": ["npx", "-y", "@playwright/mcp@0.0.83"],
    "chart": ["npx", "-y", "@antv/mcp-server-chart@0.9.10"],
    "excel": ["uvx", "excel-mcp-server@2.2.2", "stdio"],
    "taskmanager": ["npx", "-y", "@kazuph/mcp-taskmanager@1.1.1"],
    "everything": ["npx", "-y", "@modelcontextprotocol/server-everything@2026.8.31"],
    "sqlite": ["uvx", "mcp-server-sqlite@2025.4.25", "--db-path", "{home}/Documents/shop.db"],
}
"""The servers by name, as people start them."""

BROKEN = "sqlite"
"""It was written for version 1 of the MCP SDK and dies at its start with version 2."""

CLIENTS = {
    "Claude Desktop": ("filesystem", "memory", "sequential-thinking", "fetch"),
    "Claude Code": ("time", "git", "context7"),
    "Cursor": ("playwright", "chart", "context7", "filesystem"),
    "VS Code": ("excel", "taskmanager"),
    "Codex": ("everything", "git", "sqlite"),
}
"""Which client has which servers; some have the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """A command that has ended."""

    text: str
    """What a terminal would show: output and errors as they came."""
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A home folder and the environment of its owner's shell."""

    home: Path
    env: Mapping[str, str]

    def run(self, *words: str) -> CommandResult:
        """Run a command in the home folder, as in a terminal."""
        program = shutil.which(words[0], path=self.env["PATH"])
        assert program, words[0]
        ran = subprocess.run(
            [program, *words[1:]],
            cwd=self.home,
            env=dict(self.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        return CommandResult(text=ran.stdout, code=ran.returncode)

    def find_words(self, name: str) -> list[str]:
        """Return the command and arguments of a server."""
        return [word.format(home=self.home) for word in SERVERS[name]]

    def list_files(self) -> dict[str, Path]:
        """Return the file of each client."""
        return {
            "Claude Desktop": self.home / ".config/Claude/claude_desktop_config.json",
            "Claude Code": self.home / ".claude.json",
            "Cursor": self.home / ".cursor/mcp.json",
            "VS Code": self.home / ".config/Code/User/mcp.json",
            "Codex": self.home / ".codex/config.toml",
        }


def make_newcomer(home: Path, registry: Registry, *, knows_authority: bool = True) -> Newcomer:
    """Set up a home folder; without the authority, nothing can be installed from there."""
    node = shutil.which("node")
    assert node, "needs Node"
    env = {
        "HOME": str(home),
        "PATH": f"{BIN}:{Path(node).parent}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "NPM_CONFIG_GLOBALCONFIG": str(home / "no-npmrc"),  # this machine's may name a certificate
        "COLUMNS": "100",
    }
    if knows_authority:
        env["SSL_CERT_FILE"] = str(registry.authority)
        env["NODE_EXTRA_CA_CERTS"] = str(registry.authority)
    newcomer = Newcomer(home=home, env=env)
    (home / "Documents").mkdir(parents=True)
    (home / ".config/uv").mkdir(parents=True)
    (home / ".npmrc").write_text(f"registry={registry.url}/npm/\n", encoding="utf-8")
    uv = f'python-downloads = "never"\n[[index]]\nurl = "{registry.url}/index"\ndefault = true\n'
    (home / ".config/uv/uv.toml").write_text(uv, encoding="utf-8")
    (home / "project").mkdir()
    subprocess.run(["git", "init", "--quiet", home / "project"], check=True)
    _write_clients(newcomer)
    return newcomer


def _write_clients(newcomer: Newcomer) -> None:
    files = newcomer.list_files()
    for program, names in CLIENTS.items():
        path = files[program]
        path.parent.mkdir(parents=True, exist_ok=True)
        entries = {name: _make_entry(newcomer.find_words(name)) for name in names}
        if program == "Codex":
            text = _format_codex(newcomer, names)
        elif program == "VS Code":
            typed = {name: {"type": "stdio", **entry} for name, entry in entries.items()}
            text = f"// my servers\n{json.dumps({'servers': typed, 'inputs': []}, indent=2)}\n"
        elif program == "Claude Code":
            typed = {name: {"type": "stdio", **entry} for name, entry in entries.items()}
            text = json.dumps({"numStartups": 12, "theme": "dark", "mcpServers": typed}, indent=2)
        else:
            text = json.dumps({"mcpServers": entries}, indent=2)
        path.write_text(text, encoding="utf-8")


def _make_entry(words: list[str]) -> dict[str, object]:
    return {"command": words[0], "args": words[1:]}


def _format_codex(newcomer: Newcomer, names: tuple[str, ...]) -> str:
    lines = ['model = "gpt-5"', ""]
    for name in names:
        command, *args = newcomer.find_words(name)
        lines += [f"[mcp_servers.{name}]", f'command = "{command}"', f"args = {json.dumps(args)}"]
    return "\n".join(lines) + "\n"
