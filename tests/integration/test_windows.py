"""Commands need nothing that Windows lacks; what they do there has to be tried there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serving import DEADLINE_SECONDS

SCRIPT = Path(__file__).with_name("windows.py")
LEAST_MODULES = 150

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    folders = {name: str(home) for name in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA")}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=os.environ | folders,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def test_every_module_can_be_imported_without_what_only_other_systems_have(tmp_path: Path):
    ran = run(tmp_path, "--import-everything")

    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) >= LEAST_MODULES


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("", "toolscout try"),
        ("try", "Saved: "),
        ("doctor", "every client over stdio gets a gateway of its own"),
        ("stop", "No gateway runs in the background"),
    ],
)
def test_a_command_works_without_what_only_other_systems_have(
    tmp_path: Path, command: str, shown: str
):
    ran = run(tmp_path, *command.split())

    assert ran.returncode == 0, ran.stderr
    assert shown in ran.stdout
