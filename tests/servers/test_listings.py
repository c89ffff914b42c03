"""Listings of servers on their way into the catalogue and the store."""

from serving import HANGING, TIME
from toolscout.catalog import Status
from toolscout.config.file import Config
from toolscout.servers.listings import recall_catalog, save_manifest
from toolscout.servers.manifest import Manifest
from toolscout.stores.memory import MemoryStore


def test_servers_are_known_by_what_they_offered_last_and_pending_otherwise():
    store = MemoryStore()
    manifest = Manifest(tools=({"name": "now", "inputSchema": {"type": "object"}},))
    save_manifest(store, TIME, manifest)
    config = Config(servers=(TIME, HANGING))

    known, unknown = recall_catalog(config, store), recall_catalog(config, None)

    assert [tool.name for tool in known.tools] == ["time__now"]
    assert list(known.unready) == ["hanging"]
    assert unknown.tools == ()
    assert {state.status for state in unknown.unready.values()} == {Status.PENDING}
    assert list(unknown.unready) == ["hanging", "time"]
