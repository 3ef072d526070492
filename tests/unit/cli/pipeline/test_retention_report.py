"""`ottla pipeline retention-report` without a Spark session: settings, plans, refusals, output.

Method: rows as the job returns them; a directory as the store. The job itself runs in
`tests/spark/test_pipeline.py`.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ottla.base.ids import uuid_text
from ottla.cli.errors import UsageError
from ottla.cli.pipeline.retention_text import (
    chart_of,
    parse_sizes,
    parse_times,
    report_json,
    report_lines,
    report_of,
    setting_text,
)
from tests.unit.cli.conftest import Run
from tests.unit.spark.jobs.support import sound
from tests.unit.spark.jobs.test_store_partitions import write
from tests.unit.tiered.support import TOPIC, TOPIC_ID

ID = uuid_text(TOPIC_ID)
COMMAND = ("pipeline", "retention-report")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path, sound())
    return tmp_path


def test_values() -> None:
    assert parse_times("--retention-ms", "1d, 12h,90min,5s,7,7ms,unlimited,-1") == (
        86_400_000,
        43_200_000,
        5_400_000,
        5_000,
        7,
        -1,
    )
    assert parse_sizes("--retention-bytes", "10GiB,1gb,5") == (10 << 30, 1_000_000_000, 5)
    assert parse_times("--retention-ms", None) == ()


@pytest.mark.parametrize("text", ["", "1x", "-2", "1.5d", "d", "1d,,2d", f"{10**17}w"])
def test_values_that_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--retention-ms .*expected values such as"):
        parse_times("--retention-ms", text)


def test_settings_in_words() -> None:
    assert setting_text("current") == "current"
    assert setting_text("retention.ms=604800000") == "retention.ms=604800000 (7 d)"
    assert setting_text("retention.ms=0") == "retention.ms=0 (0 ms)"
    assert setting_text("retention.ms=-1") == "retention.ms=-1 (unlimited)"
    assert setting_text("retention.bytes=2048") == "retention.bytes=2048 (2.0 KiB)"


def row(topic: str = "a", partition: int = 0, setting: str = "current", **more: Any) -> Any:
    fields: dict[str, Any] = {
        "topic": topic,
        "topic_id": ID,
        "partition": partition,
        "setting": setting,
        "retention_ms": 86_400_000,
        "retention_bytes": -1,
        "kept_segments": 2,
        "kept_bytes": 3 * 1024,
        "kept_records": 10,
        "deleted_segments": 1,
        "deleted_bytes": 1024,
        "deleted_records": 5,
        "local_only_bytes": 512,
        "oldest_kept": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        "gb_months": 1.5,
        "cost": 0.03,
        "error": None,
    }
    return fields | more


def test_sums() -> None:
    older = datetime(2025, 1, 1, tzinfo=UTC)
    report = report_of(
        [
            row("b", kept_bytes=1),
            row("a", 1, oldest_kept=older, local_only_bytes=None),
            row("a", 0),
            row("a", 0, "retention.ms=0", kept_segments=0, kept_bytes=0, oldest_kept=None),
            row("a", 2, None, error="the store is gone"),
        ]
    )
    assert [(each.topic, each.setting) for each in report.topics] == [
        ("a", "current"),
        ("a", "retention.ms=0"),
        ("b", "current"),
    ]
    first = report.topics[0]
    assert (first.sums["kept_bytes"], first.sums["local_only_bytes"]) == (6 * 1024, None)
    assert (first.oldest_kept, first.gb_months, first.cost) == (older, 3.0, 0.06)
    present, nothing = report.total
    assert (present.sums["kept_bytes"], present.retention_ms) == (6 * 1024 + 1, None)
    assert (nothing.sums["kept_bytes"], nothing.oldest_kept) == (0, None)
    assert report.errors == [("a-2", "the store is gone")]
    document = report_json(report)
    assert document["topics"][0]["oldest_kept_ms"] == 1_735_689_600_000
    assert document["total"][1]["oldest_kept_ms"] is None
    assert document["errors"] == [{"partition": "a-2", "reason": "the store is gone"}]
    json.dumps(document)


def test_tables_and_the_chart() -> None:
    rows = [row(), row(setting="retention.ms=0", kept_bytes=0, kept_segments=0, oldest_kept=None)]
    lines = report_lines(report_of([*rows, row(partition=1, setting=None, error="unreadable")]), 80)
    titles, present, nothing, empty, title, _, *bars, failed = lines
    assert titles.split()[-3:] == ["COST", "PER", "MONTH"]
    assert "LOCAL ONLY" in titles
    assert "current (1 d)" in present
    assert "2026-01-02 03:04" in present
    assert present.split()[-2:] == ["1.500", "0.03"]
    assert "retention.ms=0 (0 ms)" in nothing
    assert (empty, title) == ("", "Kept in remote storage, KiB")
    assert bars[0].split()[0] == "current"
    assert bars[0].endswith("█ 3.0")
    assert bars[1].split() == ["0", "ms", "0.0"]
    assert failed == "Not counted: a-1: unreadable"


def test_what_is_not_known_is_not_shown() -> None:
    (titles, *_) = report_lines(report_of([row(cost=None, local_only_bytes=None)]), 80)
    assert "COST" not in titles
    assert "LOCAL ONLY" not in titles
    assert "GB-MONTHS" in titles
    assert report_lines(report_of([]), 80) == ["Nothing is in the store."]


def test_a_total_of_several_topics() -> None:
    lines = report_lines(report_of([row("a"), row("b")]), 80)
    assert [line.split()[0] for line in lines[1:4]] == ["a", "b", "total"]


def test_the_chart_as_a_file(tmp_path: Path) -> None:
    rows = [row(setting=f"retention.{name}") for name in ("ms=-1", "bytes=-1", "bytes=10240")]
    chart = chart_of(report_of(rows).total)
    assert list(chart.labels) == ["any time", "any size", "10.0 KiB"]
    assert list(chart.values) == [3.0, 3.0, 3.0]
    chart.write_png(tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    empty = chart_of(report_of([row(kept_bytes=0)]).total)
    assert (empty.title, list(empty.values)) == ("Kept in remote storage, B", [0.0])


def test_the_plan(run: Run, store: Path) -> None:
    words = (*COMMAND, "--remote-storage", store.as_uri(), "--plan", "--retention-ms", "7d")
    ran = run(*words)
    assert ran.code == 0, ran.err
    assert "no --bootstrap-server: current settings are those of the manifests" in ran.err
    _, line, total = ran.out.splitlines()
    assert line.split() == [TOPIC, ID, "1", "-"]
    assert total == (
        "The report would read the manifests of 1 partition, for current and "
        "retention.ms=604800000 (7 d)."
    )
    plan = json.loads(run(*words, "--json").out)["plan"]
    assert plan["settings"] == ["current", "retention.ms=604800000"]
    assert plan["topics"] == [{"topic": TOPIC, "topic_id": ID, "partitions": 1, "current": None}]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("--retention-ms", "1y"), 2, "--retention-ms 1y: expected values such as"),
        (("--retention-bytes", "1PB"), 2, "--retention-bytes 1PB: expected values such as"),
        (("--price-per-gb-month", "-1"), 2, "--price-per-gb-month -1: expected 0 or more"),
        (("--price-per-gb-month", "nan"), 2, "--price-per-gb-month nan: expected 0 or more"),
        (("--chart", "/no/such/x.png"), 2, "--chart /no/such/x.png: /no/such is not a directory"),
        (("--command-config", "x"), 2, "--command-config needs --bootstrap-server"),
        (("--topic", "nosuch"), 1, "the store has no topic nosuch"),
        (("--remote-storage", "file:///no/such", "--timeout", "3"), 1, "no such directory"),
        (("--remote-storage", "ftp://x"), 1, "--remote-storage ftp://x: expected"),
        (
            ("--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2"),
            1,
            "no broker answers at 127.0.0.1:1",
        ),
    ],
)
def test_refusals(run: Run, store: Path, words: tuple[str, ...], code: int, expected: str) -> None:
    given = dict(zip(words[::2], words[1::2], strict=True))
    given = {"--remote-storage": store.as_uri(), **given}
    ran = run(*COMMAND, *(word for pair in given.items() for word in pair))
    assert (ran.code, ran.out) == (code, "")
    assert expected in ran.err
