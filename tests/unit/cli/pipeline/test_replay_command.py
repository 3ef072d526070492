"""`ottla pipeline replay` without a Spark session: options, plans, errors, and what is printed.

Method: two fake brokers as source and target. Replays that run are in `tests/spark/test_replay.py`.
"""

import json
from pathlib import Path

import pytest

from ottla.base.ids import Uuid, uuid_text
from ottla.cli.pipeline.replay_command import result_json, result_lines
from ottla.spark.jobs.documents import OffsetRange
from ottla.spark.jobs.replay import ReplayResult
from ottla.spark.jobs.replay_state import ReplayJob
from tests.unit.cli.conftest import Run
from tests.unit.spark.fake_broker import ID, TOPIC, FakeBroker
from tests.unit.spark.jobs.test_export import fill

OTHER = Uuid(b"j" * 16)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--topic", "t", "--to", "u"), "--state"),
        (
            ("--topic", "t", "--to", "u", "--state", "/x"),
            "--bootstrap-server HOST:PORT is required",
        ),
        (
            ("--topic", "t", "--to", "u", "--state", "/x", "--remote-storage", "file:///x"),
            "--to-bootstrap-server is required, as there is no --bootstrap-server",
        ),
        (("--partitioning", "x"), "--partitioning x: expected keep or key"),
        (("--timestamps", "x"), "--timestamps x: expected keep or now"),
        (("--compression", "x"), "--compression x: expected none, gzip"),
        (("--isolation", "x"), "--isolation x: expected read_committed"),
        (("--from-offset", "x"), "--from-offset x: expected an offset, or PARTITION:OFFSET"),
    ],
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...], expected: str) -> None:
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if "--topic" not in given:
        given |= {"--topic": "t", "--to": "u", "--state": "/x", "--bootstrap-server": "h:1"}
    ran = run("pipeline", "replay", *(word for pair in given.items() for word in pair))
    assert ran.code == 2
    assert expected in ran.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--state", "ftp://x"), "state: ftp://x: expected file://"),
        (("--remote-storage", "ftp://x"), "--remote-storage ftp://x: expected"),
        (("--to-bootstrap-server", "127.0.0.1:1"), "no broker answers at 127.0.0.1:1"),
        (("--to", "other"), "there is no topic other: create it first"),
        (("--to-offset", "7:1"), "the end names partition 7: topic t has 0 to 0"),
    ],
)
def test_what_cannot_be_done(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    with FakeBroker() as source, FakeBroker() as target:
        target.topic_id = OTHER
        given = {
            "--topic": TOPIC,
            "--to": TOPIC,
            "--state": str(tmp_path / "state"),
            "--bootstrap-server": f"127.0.0.1:{source.port}",
            "--to-bootstrap-server": f"127.0.0.1:{target.port}",
            "--timeout": "0.3",
            **dict(zip(arguments[::2], arguments[1::2], strict=True)),
        }
        ran = run("pipeline", "replay", *(word for pair in given.items() for word in pair))
    assert (ran.code, ran.out) == (1, "")
    assert expected in ran.err.splitlines()[-1]
    assert not (tmp_path / "state").exists()


def test_the_plan(run: Run, tmp_path: Path) -> None:
    with FakeBroker(partitions=2) as source, FakeBroker(partitions=2) as target:
        target.topic_id = OTHER
        fill(source, 5)
        arguments = (
            "pipeline", "replay", "--bootstrap-server", f"127.0.0.1:{source.port}", "--topic",
            TOPIC, "--to", TOPIC, "--to-bootstrap-server", f"127.0.0.1:{target.port}",
            "--state", str(tmp_path / "state"), "--from-offset", "1:3", "--plan",
        )  # fmt: skip
        ran = run(*arguments)
        assert ran.code == 0, ran.err
        assert [line.split() for line in ran.out.splitlines()[:3]] == [
            ["PARTITION", "OFFSETS", "COUNT"],
            ["t-0", "0..4", "5"],
            ["t-1", "3..4", "2"],
        ]
        assert ran.out.endswith("would copy 7 offsets of 2 partitions of t into t.\n")
        plan = json.loads(run(*arguments, "--json").out)["plan"]
        assert (plan["topic_id"], plan["to_topic_id"]) == (uuid_text(ID), uuid_text(OTHER))
        assert plan["continued"] is False
        assert [each["start_offset"] for each in plan["partitions"]] == [0, 3]
        assert not any(log.end for log in target.logs)


def test_results() -> None:
    ranges = (OffsetRange(0, 0, 5), OffsetRange(1, 1, 6))
    job = ReplayJob(
        topic="t", topic_id=ID, to="u", to_id=OTHER, asked={}, ranges=ranges, creator="c"
    )
    result = ReplayResult(job=job, is_new=False, copied=((ranges[0], 5), (ranges[1], 4)), losses=())
    lines = result_lines(result, 1.25)
    assert lines[2].split() == ["t-1", "1..5", "4"]
    assert lines[-1] == "9 records of t written to u, where an earlier run ended; 1.2 s"
    document = result_json(result, 1.25)
    assert (document["rows"], document["continued"]) == (9, True)
    assert document["partitions"][1] == {
        "partition": 1,
        "start_offset": 1,
        "end_offset": 6,
        "rows": 4,
    }
    nothing = ReplayResult(job=job, is_new=False, copied=(), losses=())
    assert result_lines(nothing, 1) == ["t: nothing is left to replay into u."]
