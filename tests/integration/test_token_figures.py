"""What toolscout costs and saves in tokens, in definitions and in its ledger.

One ledger: `/metrics`, `/status` and the console give the same tokens for the same traffic.
"""

import asyncio
import json

import pytest

from console.asking import Asker, converse
from console.fixtures import CLOCK, TALK, gateway
from toolscout.dialects import Dialect, to_definition
from toolscout.sessions.metatools import build_meta_tools
from toolscout.tokens import count_tokens


@pytest.mark.processes
def test_metrics_status_and_console_agree_after_real_traffic():
    with gateway(CLOCK) as url:
        asker = Asker(url)
        asyncio.run(converse(url, TALK))

        lines = asker.send("GET", "/metrics").text.splitlines()
        status = asker.send("GET", "/status").json()["totals"]
        console = asker.get("/savings", hours=2)["total"]
        sessions = asker.get("/sessions")["sessions"]

    figures = dict(line.rsplit(" ", 1) for line in lines if line.startswith("toolscout_"))
    assert console["not_sent"] > 0
    assert console["replies"] > 0
    assert float(figures["toolscout_definition_tokens_total"]) == console["not_sent"]
    assert float(figures["toolscout_listed_tokens_total"]) == console["menu"]
    replies = console["replies"] + console["descriptions"]
    assert float(figures["toolscout_reply_tokens_total"]) == replies
    assert float(figures["toolscout_tokens_not_sent"]) == console["net"]
    assert status["tokens_not_sent"] == console["net"]
    assert sum(row["tokens_saved"] for row in sessions) == console["net"]


def test_parts_of_results_and_several_calls_cost_at_most_120_tokens_in_every_request():
    plain, offered = (
        [to_definition(tool, Dialect.MCP) for tool in build_meta_tools(runs_calls=runs_calls)]
        for runs_calls in (False, True)
    )
    before, after = (count_tokens(json.dumps(listed)) for listed in (plain, offered))

    assert plain[:2] == offered[:2]
    assert 0 < after - before <= 120
