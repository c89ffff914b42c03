"""What `toolscout try --gateway` shows of a real gateway in front of real servers."""

import subprocess
import sys

import pytest


@pytest.mark.timeout(600)
def test_the_tour_searches_and_calls_and_shows_no_log():
    words = [sys.executable, "-m", "toolscout", "try", "--gateway"]

    ended = subprocess.run(words, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr
    assert "time__convert_time(" in ended.stdout
    assert '"timezone": "Asia/Tokyo"' in ended.stdout
    assert "To set it up for your own servers:" in ended.stdout
    assert "empty_catalog" not in ended.stderr
