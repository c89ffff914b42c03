import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.footprints import Import, Memory
from benchmarks.report import (
    need_matplotlib,
    tabulate_leads,
    tabulate_quality,
    tabulate_speed,
    to_markdown,
    write_quality_report,
    write_speed_report,
)
from benchmarks.speed import Pace, Speed, Update
from toolscout.errors import MissingExtra
from toolscout.evaluate.quality import (
    METRICS,
    Estimate,
    Milliseconds,
    Outcome,
    Quality,
    Table,
    resample,
)


def outcome_of(mean: float) -> Outcome:
    estimate = Estimate(mean=mean, low=mean - 0.1, high=mean + 0.1)
    return Outcome(
        metrics=dict.fromkeys(METRICS, estimate),
        resampled=[resample(np.full((2, len(METRICS)), mean))],
        reply_tokens=123.4,
        ms=Milliseconds(p50=0.5, p99=2.0, mean=0.6),
        queries=10,
        tools=20,
    )


def quality_of(**means: float) -> Quality:
    outcomes = {system: outcome_of(mean) for system, mean in means.items()}
    return Quality(
        datasets={"letters": outcomes},
        macro=outcomes,
        versions={"python": "3.11", "toolscout": "0.1.0"},
    )


def pace_of(p50: float, memory: Memory | None) -> Pace:
    return Pace(
        build_ms=12.34,
        update=Update(how="add", ms=1.5, first_search_ms=0.75),
        ms=Milliseconds(p50=p50, p99=3.0, mean=p50),
        cold=Milliseconds(p50=2 * p50, p99=6.0, mean=2 * p50),
        memory=memory,
    )


def speed_of() -> Speed:
    weighed = Memory(rss_mb=80.4, growth_mb=30.0)
    return Speed(
        sizes={
            size: {"toolscout": pace_of(size / 1000, weighed), "bm25s": pace_of(2.0, None)}
            for size in (1000, 10000)
        },
        skipped={"fastmcp": "Run `pip install fastmcp`."},
        importing=Import(ms=41.6, modules=("numpy",)),
        queries=200,
        versions={"python": "3.11"},
    )


def test_the_lead_is_signed():
    lead = dict.fromkeys(METRICS, Estimate(mean=0.2, low=0.1, high=0.3))

    table = tabulate_leads("toolscout", {"dirge": lead})

    assert table.title == "Lead of toolscout, macro, paired by query"
    assert table.rows == (("dirge", *["+0.200 [+0.100, +0.300]"] * 7),)


def test_a_table_is_written_as_markdown():
    table = Table(title="T", head=("system", "ms"), rows=(("a", "1.00"), ("longer-name", "12.00")))

    assert to_markdown(table) == (
        "## T\n\n| system | ms |\n| --- | ---: |\n| a | 1.00 |\n| longer-name | 12.00 |"
    )


def test_a_quality_report_has_the_lead_over_every_other_system():
    titles = [table.title for table in tabulate_quality(quality_of(toolscout=0.8, dirge=0.6))]

    assert "Lead of toolscout, macro, paired by query" in titles


def test_one_system_alone_leads_nobody():
    titles = [table.title for table in tabulate_quality(quality_of(toolscout=0.8))]

    assert not [title for title in titles if title.startswith("Lead")]


def test_speed_tables_show_ratios_and_what_is_not_there():
    first, _, skipped, importing = tabulate_speed(speed_of())

    assert first.title == "1,000 tools, 200 queries"
    assert first.rows == (
        (
            *("toolscout", "12.3", "1.50", "add", "0.75"),
            *("1.000", "3.000", "0.50", "2.000", "0.50", "80", "30"),
        ),
        (
            *("bm25s", "12.3", "1.50", "add", "0.75"),
            *("2.000", "3.000", "1.00", "4.000", "1.00", "-", "-"),
        ),
    )
    assert skipped.rows == (("fastmcp", "Run `pip install fastmcp`."),)
    assert importing.rows == (("import toolscout", "42", "none"),)


def test_a_quality_report_is_written_with_its_plot(tmp_path: Path):
    folder = tmp_path / "new" / "folder"

    write_quality_report(quality_of(toolscout=0.8, dirge=0.6), folder, command="toolscout …")

    text = (folder / "report.md").read_text(encoding="utf-8")
    assert text.startswith(
        "# Search quality\n\nRepeat it with `toolscout …`.\n\n"
        "Versions: python 3.11, toolscout 0.1.0.\n\n![Search quality](ndcg.svg)\n\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["ndcg.png", "ndcg.svg", "report.md"]
    assert (folder / "ndcg.png").read_bytes().startswith(b"\x89PNG")


def test_the_same_speed_gives_the_same_report(tmp_path: Path):
    for name in ("one", "two"):
        write_speed_report(speed_of(), tmp_path / name, command="toolscout …")

    for file in ("report.md", "latency.svg", "latency.png"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(MissingExtra, match="toolscout\\[bench\\]"):
        need_matplotlib()
