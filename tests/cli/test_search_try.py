"""What `toolscout try --gateway` shows of a real gateway in front of real servers."""

import re
import subprocess
import sys

import pytest

from toolscout.tokens import count_tokens

META_TOKENS = 669
"""What the definitions of the three tools cost a client while no server is known."""


@pytest.mark.timeout(600)
def test_the_tour_searches_and_calls_and_shows_no_log():
    words = [sys.executable, "-m", "toolscout", "try", "--gateway"]

    ended = subprocess.run(words, capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr
    assert "time__get_current_time(" in ended.stdout
    assert '"timezone": "Asia/Tokyo"' in ended.stdout
    assert "To set it up for your own servers:" in ended.stdout
    assert "empty_catalog" not in ended.stderr
    # What every request costs includes the servers that the description of tool_search lists.
    [cost] = re.findall(r"With toolscout: (\d+),", ended.stdout)
    listing = "- fetch (1)\n- git (12): \n- time (2): convert, timezone"
    assert int(cost) >= META_TOKENS + count_tokens(listing)


@pytest.mark.parametrize(
    ("missing", "extra"),
    [("mcp_server_time", "demo"), ("mcp", "gateway"), ("mcp_types", "gateway")],
)
def test_what_the_tour_lacks_is_said_in_one_sentence(missing: str, extra: str):
    code = f"import sys; sys.modules['{missing}'] = None; from toolscout.cli import main; main()"
    words = [sys.executable, "-c", code, "try", "--gateway"]

    ended = subprocess.run(words, capture_output=True, text=True)

    name = missing.replace("mcp_server", "mcp-server").replace("server_", "server-")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == (
        f"Error: '{name}' is not installed. Run `pip install 'toolscout[{extra}]'`.\n"
    )
