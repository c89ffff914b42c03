import pytest

from benchmarks.footprints import measure_import, measure_memory
from toolscout.errors import UsageError
from toolscout.tools import Tool

TOOLS = (Tool.define("read"), Tool.define("write"))


def test_memory_is_measured_in_a_process_of_its_own():
    weighed = measure_memory("oh-my-pi", TOOLS)

    assert weighed.rss_mb > 1.0


def test_a_process_that_fails_says_why():
    with pytest.raises(UsageError, match="There is no system 'nobody'"):
        measure_memory("nobody", TOOLS)


def test_importing_is_measured_in_fresh_interpreters():
    found = measure_import()

    assert found.ms >= 0.0
    assert not {"pytest", "sys", "toolscout"} & set(found.modules)
