"""A machine of its own for commands that look for a configuration."""

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, which is also the configuration folder of the user; it is empty."""
    folder = tmp_path / "toolscout"
    folder.mkdir()
    for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(folder / "home"))
    for name in ("XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(folder)
    return folder
