"""What the lint finds in a catalogue, and who may see which finding."""

import threading

from toolscout.catalog import Catalog
from toolscout.config.gateway import Profile
from toolscout.console.catalog import LintResults
from toolscout.console.views import View
from toolscout.gateway.middleware import ANONYMOUS, Principal
from toolscout.scout import Scout

DEADLINE_SECONDS = 120
TEXT = "Send a message to a channel of the team chat."
CATALOG = Catalog(
    {
        "chat": [{"name": "send_message", "description": TEXT}],
        "talk": [{"name": "send_message", "description": TEXT}],
    }
)


def test_a_finding_that_names_a_hidden_tool_is_hidden_too():
    scout, ready = Scout(CATALOG), threading.Event()
    lint = LintResults(CATALOG, scout.index, ready.set)
    everything = View(scout, ANONYMOUS)
    part = View(scout, Principal(name="bob", profile=Profile(servers=("chat",))))
    [tool] = part.tools

    assert lint.count(part, [tool]) == [None]
    assert ready.wait(DEADLINE_SECONDS)

    codes = {row["code"] for row in lint.list_findings(everything, tool)}
    assert "near-duplicate" in codes
    assert all("talk" not in str(row) for row in lint.list_findings(part, tool))
    assert lint.count(part, [tool]) == [len(lint.list_findings(part, tool))]
    assert [one.name for one in lint.find_near(everything, tool)] == ["talk__send_message"]
    assert lint.find_near(part, tool) == []
