"""`ottla pipeline backfill` without a Spark session: options, plans, errors, and what is printed.

Method: a fake leader that grants. Backfills that run are in `tests/spark/test_backfill.py`.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.errors import Error
from ottla.base.ids import uuid_text
from ottla.cli.errors import UsageError
from ottla.cli.pipeline.backfill_command import parse_partitions, result_json, result_lines
from ottla.spark.jobs.backfill import BackfillPlan, BackfillResult, PartitionLeft
from ottla.spark.jobs.backfill_tasks import CopyRow
from ottla.tiered.granted_copy import FAILED, FINISHED, KEPT, CopyTarget
from tests.unit.cli.conftest import Run
from tests.unit.spark.jobs.granting_leader import GrantingLeader
from tests.unit.tiered.support import TOPIC, TOPIC_ID

PLAN = BackfillPlan(
    topic=TOPIC,
    topic_id=TOPIC_ID,
    partitions=(
        PartitionLeft(target=CopyTarget(TOPIC, TOPIC_ID, 0, 99), segments=3, size_bytes=300),
        PartitionLeft(target=CopyTarget(TOPIC, TOPIC_ID, 1, 99), segments=1, size_bytes=50),
    ),
)
NOTHING = replace(
    PLAN, partitions=tuple(replace(each, segments=0, size_bytes=0) for each in PLAN.partitions)
)


def row(partition: int, start: int, state: str, detail: str = "") -> CopyRow:
    return CopyRow(
        topic=TOPIC,
        partition=partition,
        start_offset=start,
        end_offset=start + 9,
        size_bytes=100,
        state=state,
        detail=detail,
    )


RESULT = BackfillResult(
    plan=PLAN,
    rows=(row(0, 0, FINISHED), row(0, 10, FAILED, "why"), row(0, 20, KEPT), row(0, 10, FINISHED)),
    left=NOTHING,
    rounds=2,
)


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[GrantingLeader]:
    made = GrantingLeader(tmp_path, 3, 2)
    yield made
    made.broker.close()


def words(leader: GrantingLeader, *more: str) -> list[str]:
    return [
        "pipeline", "backfill", "--bootstrap-server", leader.broker.address, "--topic", TOPIC,
        "--remote-storage", leader.store.as_uri(), "--timeout", "2", *more,
    ]  # fmt: skip


def test_a_plan(run: Run, leader: GrantingLeader) -> None:
    sizes = [sum(map(len, part.segments.values())) for part in leader.parts]
    ran = run(*words(leader, "--plan"))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == (
        f"The backfill would copy 5 segments of {sum(sizes)} bytes of {TOPIC}."
    )
    found = json.loads(run(*words(leader, "--plan", "--json", "--partitions", "1")).out)
    assert found == {
        "plan": {
            "topic": TOPIC,
            "topic_id": uuid_text(TOPIC_ID),
            "segments": 2,
            "bytes": sizes[1],
            "partitions": [{"partition": 1, "segments": 2, "bytes": sizes[1]}],
        }
    }
    assert [path for path in leader.store.rglob("*") if path.is_file()] == []


def test_nothing_to_do_needs_no_spark(run: Run, leader: GrantingLeader) -> None:
    for part in leader.parts:
        part.finished = list(part.segments)
    ran = run(*words(leader))
    assert (ran.code, ran.out) == (0, f"{TOPIC}: all closed segments are in remote storage.\n")


def test_refusals(run: Run, leader: GrantingLeader) -> None:
    ran = run(*words(leader, "--partitions", "9"))
    assert (ran.code, ran.out) == (1, "")
    assert f"topic {TOPIC} has no partition 9: it has 2" in ran.err
    leader.grant_error = Error.INVALID_REQUEST, "the topic is not tiered"
    ran = run(*words(leader))
    assert (ran.code, ran.out) == (1, "")
    assert f"{TOPIC}-0: the topic is not tiered (INVALID_REQUEST)" in ran.err
    ran = run(*words(leader, "--remote-storage", "ftp://x"))
    assert ran.code == 1
    assert "--remote-storage ftp://x" in ran.err


@pytest.mark.parametrize(
    ("text", "expected"), [(None, None), ("0", (0,)), ("0,3-5", (0, 3, 4, 5)), ("7, 2", (7, 2))]
)
def test_lists_of_partitions(text: str | None, expected: tuple[int, ...] | None) -> None:
    assert parse_partitions(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "1-", "-1", "3-1", "1,,2", "0-999999999", "9" * 5_000, "\u0663"]
)
def test_lists_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--partitions"):
        parse_partitions(text)


def test_what_a_run_prints() -> None:
    lines = result_lines(RESULT, 1.25)
    assert lines[-2:] == [
        "Failed, and copied again: why",
        f"3 segments of 300 bytes of {TOPIC} copied; 1 by the brokers; 1.2 s",
    ]
    assert lines[1].split() == [f"{TOPIC}-0", "3", "300"]
    assert result_json(RESULT, 1.25) == {
        "topic": TOPIC,
        "topic_id": uuid_text(TOPIC_ID),
        "segments": 3,
        "bytes": 300,
        "partitions": [{"partition": 0, "segments": 3, "bytes": 300}],
        "failures": ["why"],
        "segments_left": 0,
        "rounds": 2,
        "seconds": 1.25,
    }
    many = replace(RESULT, rows=tuple(row(0, each, FAILED, str(each)) for each in range(9)))
    assert "… and 4 other failures" in result_lines(many, 1.0)
