"""An SDK's tools behind three that never change."""

from dataclasses import dataclass
from typing import Any

import pytest

from toolscout import Catalog, Mode, Scout, Settings, Tool
from toolscout.adapters._toolkit import Bridge, add_notes
from toolscout.errors import UsageError
from toolscout.sessions.call import ApprovedCall
from toolscout.sessions.metatools import CALL, DESCRIBE, SEARCH
from toolscout.settings import Hiding

META = [SEARCH, DESCRIBE, CALL]


@dataclass(frozen=True)
class Native:
    """A tool as some SDK has it."""

    name: str
    text: str
    waits: bool = False


NATIVES = [
    Native("get_weather", "Tell the weather forecast for a city."),
    Native("pay_supplier", "Transfer money to a supplier.", waits=True),
]


def define(native: Native) -> Tool:
    return Tool.define(native.name, description=native.text)


def bridge_of(**options: Any) -> Bridge[Native]:
    return Bridge(NATIVES, define, **options)


def names_of(bridge: Bridge[Native]) -> list[str]:
    return [tool.name for tool, _ in bridge.list_declared()]


def test_the_meta_tools_are_declared_and_nothing_else():
    assert names_of(bridge_of()) == META
    assert [native for _, native in bridge_of().list_declared()] == [None, None, None]


def test_tools_that_the_sdk_treats_by_name_are_declared_as_its_own():
    bridge = Bridge(NATIVES, define, by_name=lambda native: native.waits)

    assert names_of(bridge) == [*META, "pay_supplier"]
    assert bridge.list_declared()[-1][1] is NATIVES[1]
    assert isinstance(bridge.open_session("s").admit_sync("pay_supplier", {}), ApprovedCall)


def test_what_is_declared_stays_the_same_whatever_a_session_has_found():
    bridge = bridge_of()
    session = bridge.open_session("s")
    session.search("weather forecast")

    assert names_of(bridge) == META
    assert session.loaded == ("get_weather",)
    assert bridge.open_session("s", session.to_json()).loaded == ("get_weather",)
    assert bridge.open_session("s").loaded == ()


def test_where_nothing_is_hidden_the_sdks_tools_are_declared_themselves():
    bridge = bridge_of(settings=Settings(hiding=Hiding.OFF))

    assert [native for _, native in bridge.list_declared()] == NATIVES


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.REFERENCE, Mode.DEFINITIONS])
def test_a_mode_that_changes_the_tools_of_a_run_is_refused(mode: Mode):
    with pytest.raises(UsageError, match="Use 'bridge'"):
        bridge_of(settings=Settings(mode=mode))
    with pytest.raises(UsageError, match="Use 'bridge'"):
        bridge_of(scout=Scout(Catalog(), settings=Settings(mode=mode)))


def test_notes_on_repairs_precede_a_text_and_change_nothing_else():
    tool = define(NATIVES[0])
    repaired = ApprovedCall(tool=tool, arguments={}, repairs=("Read 3 for '3'.",))

    assert add_notes(repaired, "Rain.") == "(Read 3 for '3'.)\nRain."
    assert add_notes(repaired, 7) == 7
    assert add_notes(ApprovedCall(tool=tool, arguments={}), "Rain.") == "Rain."
