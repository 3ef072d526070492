"""`ottla pipeline export` without a Spark session: options, plans, errors, and what is printed.

Method: a fake broker as the source. Exports that run are in `tests/spark/test_export.py`.
"""

import json
from pathlib import Path

import pytest

from ottla.base.ids import Uuid, uuid_text
from ottla.cli.errors import UsageError
from ottla.cli.pipeline.export_command import result_json, result_lines
from ottla.cli.pipeline.range_options import parse_bound, parse_time
from ottla.spark.jobs.documents import OffsetRange
from ottla.spark.jobs.export import ExportResult
from ottla.spark.jobs.exporting.export_journal import ExportedFile
from ottla.spark.jobs.source_ranges import Bound
from tests.unit.cli.conftest import Run
from tests.unit.spark.fake_broker import ID, TOPIC, FakeBroker
from tests.unit.spark.jobs.test_export import fill


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--topic", "t"), "--to"),
        (("--to", "/x"), "--topic"),
        (("--topic", "t", "--to", "/x"), "--bootstrap-server HOST:PORT is required"),
        (("--format", "csv"), "--format csv: expected parquet, delta, iceberg"),
        (("--partition-by", "hour"), "--partition-by hour: expected date or none"),
        (("--on-recreate", "x"), "--on-recreate x: expected fail or continue"),
        (("--isolation", "x"), "--isolation x: expected read_committed"),
        (("--topic-id", "x"), "--topic-id x: expected the 22 characters"),
        (("--from-offset", "1:"), "--from-offset 1:: expected an offset, or PARTITION:OFFSET"),
        (("--to-time", "x"), "--to-time x: expected a time such as"),
        (("--from-time", "0", "--from-offset", "1"), "only one of --from-offset and --from-time"),
        (("--timeout", "0"), "--timeout 0: expected more than 0"),
    ],
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...], expected: str) -> None:
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if not {"--topic", "--to"} & given.keys():
        given = {"--topic": "t", "--to": "/x", "--bootstrap-server": "127.0.0.1:1", **given}
    ran = run("pipeline", "export", *(word for pair in given.items() for word in pair))
    assert ran.code == 2
    assert expected in ran.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--format", "delta", "--to", "memory://x"), "memory://x cannot hold a Delta table"),
        (
            ("--format", "iceberg", "--to", "s3://x/y"),
            "s3://x/y has no Iceberg catalog: expected",
        ),
        (("--format", "iceberg", "--to", "x.y.z"), "the Iceberg table x.y.z: URI missing"),
        (("--to", "ftp://x"), "to: ftp://x: expected file://"),
        (("--remote-storage", "ftp://x"), "--remote-storage ftp://x: expected"),
        (("--bootstrap-server", "127.0.0.1:1"), "no broker answers at 127.0.0.1:1"),
        (("--topic", "other"), "topic other"),
    ],
)
def test_what_cannot_be_done(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    with FakeBroker() as broker:
        given = {
            "--topic": TOPIC,
            "--to": str(tmp_path / "to"),
            "--bootstrap-server": f"127.0.0.1:{broker.port}",
            "--timeout": "0.3",
            **dict(zip(arguments[::2], arguments[1::2], strict=True)),
        }
        ran = run("pipeline", "export", *(word for pair in given.items() for word in pair))
    assert (ran.code, ran.out) == (1, "")
    assert expected in ran.err.splitlines()[-1]
    assert not (tmp_path / "to").exists()


def test_the_plan(run: Run, tmp_path: Path) -> None:
    with FakeBroker(partitions=2) as broker:
        fill(broker, 5)
        arguments = (
            "pipeline", "export", "--bootstrap-server", f"127.0.0.1:{broker.port}", "--topic",
            TOPIC, "--to", str(tmp_path / "to"), "--from-offset", "0:2", "--to-offset", "4",
            "--plan",
        )  # fmt: skip
        ran = run(*arguments)
        assert ran.code == 0, ran.err
        assert [line.split() for line in ran.out.splitlines()[:3]] == [
            ["PARTITION", "OFFSETS", "COUNT"],
            ["t-0", "2..3", "2"],
            ["t-1", "0..3", "4"],
        ]
        assert ran.out.endswith(f"would add 6 offsets of 2 partitions to {tmp_path / 'to'}.\n")
        plan = json.loads(run(*arguments, "--json").out)["plan"]
    assert plan == {
        "topic": TOPIC,
        "topic_id": uuid_text(ID),
        "last_run": None,
        "partitions": [
            {"partition": 0, "start_offset": 2, "end_offset": 4},
            {"partition": 1, "start_offset": 0, "end_offset": 4},
        ],
        "lost": [],
    }


def test_results() -> None:
    files = tuple(
        ExportedFile(name=f"x{n}", partition=n, start=n, end=n + 5, rows=5, size_bytes=1000)
        for n in range(2)
    )
    result = ExportResult(
        topic="t",
        topic_id=Uuid(b"i" * 16),
        to="file:///x",
        run="r",
        ranges=(OffsetRange(0, 0, 5), OffsetRange(1, 1, 6)),
        files=files,
        losses=("t-1: offsets 0 to 0 are no longer available",),
        recovered="discarded",
    )
    lines = result_lines(result, 1.25)
    assert lines[0] == "A run that had not ended was discarded first."
    assert lines[3].split() == ["t-1", "1..5", "5", "1", "1000", "B"]
    assert lines[-1] == "10 records in 2 files (2.0 KiB) added to file:///x; 1.2 s"
    document = result_json(result, 1.25)
    assert document["rows"] == 10
    assert document["recovered"] == "discarded"
    assert document["partitions"][1]["rows"] == 5
    nothing = ExportResult(
        topic="t",
        topic_id=Uuid(b"i" * 16),
        to="file:///x",
        run=None,
        ranges=(),
        files=(),
        losses=(),
        recovered="",
    )
    assert result_lines(nothing, 1) == ["t: nothing new to export to file:///x."]
    assert json.dumps(result_json(nothing, 1))


def test_bounds() -> None:
    assert parse_bound("from", None, None) == Bound()
    assert parse_bound("from", " 7", None) == Bound(offset=7)
    assert parse_bound("to", "0:5, 3:9", None) == Bound(offsets={0: 5, 3: 9})
    for bad in ("-1", "x", "1:2:3", "1:-2", "0:1,0:2", "9" * 20, "1:2,"):
        with pytest.raises(UsageError, match=r"--to-offset .*: expected an offset"):
            parse_bound("to", bad, None)
    assert parse_bound("to", None, "1700000000000") == Bound(time_ms=1_700_000_000_000)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14 22:13:20.5", 1_700_000_000_500),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time("--from-time", text) == milliseconds


@pytest.mark.parametrize("text", ["", "-5", "yesterday", "2023-13-01", "253402300800000"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(
        UsageError, match=f"--from-time {text}: expected a time such as 2026-11-26T"
    ):
        parse_time("--from-time", text)
