"""One ledger: `/metrics`, `/status` and the console give the same tokens for the same traffic."""

import asyncio

from console.asking import Asker, converse
from console.fixtures import CLOCK, TALK, gateway


def test_metrics_status_and_console_agree_after_real_traffic():
    with gateway(CLOCK) as url:
        asker = Asker(url)
        asyncio.run(converse(url, TALK))

        lines = asker.send("GET", "/metrics").text.splitlines()
        status = asker.send("GET", "/status").json()["totals"]
        console = asker.get("/savings", hours=2)["total"]
        sessions = asker.get("/sessions")

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
