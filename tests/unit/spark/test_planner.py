"""A plan must follow from the cluster's answers and the options.

Method: a fake broker with known logs; the decisions themselves are tested in `test_planning`.
"""

import pytest

from ottla.records.builder import encode_batch
from ottla.spark.errors import DataLossError, OptionError
from ottla.spark.options import ReadOptions
from ottla.spark.planner import Task, plan, tasks_of
from ottla.spark.splits import Split
from tests.unit.spark.fake_broker import ID, TOPIC, FakeBroker


def options(broker: FakeBroker, **raw: str) -> ReadOptions:
    base = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "subscribe": TOPIC}
    return ReadOptions.of(base | raw)


def fill(broker: FakeBroker) -> None:
    for log in broker.logs[:2]:
        log.append(encode_batch([(None, b"v", (), 5)] * 10))
    broker.logs[1].start = 4


def test_splits() -> None:
    with FakeBroker(partitions=3) as broker:
        fill(broker)
        assert plan(options(broker)) == [
            Task((Split(TOPIC, ID, 0, 0, 10, False, True),)),
            Task((Split(TOPIC, ID, 1, 4, 10, False, True),)),
            Task((Split(TOPIC, ID, 2, 0, 0, False, True),)),
        ]
        ended = {"endingOffsets": '{"t":{"0":10,"1":10,"2":0}}'}
        assert plan(options(broker, **ended)) == [
            Task((Split(TOPIC, ID, 0, 0, 10, False),)),
            Task((Split(TOPIC, ID, 1, 4, 10, False),)),
        ]
        assert len(plan(options(broker, maxRecordsPerPartition="5"))) == 5
        found = plan(options(broker, startingOffsets='{"t":{"0":9,"1":-2,"2":-2}}'))
        assert ranges(found) == [(9, 10), (4, 10), (0, 0)]


def ranges(tasks: list[Task]) -> list[tuple[int, int]]:
    return [(split.start, split.end) for task in tasks for split in task.splits]


def test_empty_partitions_share_tasks() -> None:
    with FakeBroker(partitions=130) as broker:
        fill(broker)
        tasks = plan(options(broker))
        assert [len(task.splits) for task in tasks] == [1, 1, 64, 64]
        numbers = [split.partition for task in tasks for split in task.splits]
        assert numbers == list(range(130))


class Incomparable(Split):
    """A split that counts as one of very many: with each other they must not be compared."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise AssertionError("splits are compared")


def test_splits_are_not_compared_with_each_other() -> None:
    planned: list[list[Split]] = [
        [Incomparable(TOPIC, ID, number, 0, end, False)] for number, end in enumerate((1, 0, 1, 0))
    ]
    tasks = tasks_of(planned)
    assert [[split.partition for split in task.splits] for task in tasks] == [[0], [2], [1, 3]]


def test_lost_offsets() -> None:
    with FakeBroker(partitions=2) as broker:
        fill(broker)
        all_of_it = {"startingOffsets": '{"t":{"0":0,"1":0}}'}
        with pytest.raises(DataLossError, match=r"t-1: offsets 0 to 3 .* failOnDataLoss=false"):
            plan(options(broker, **all_of_it))
        found = plan(options(broker, failOnDataLoss="false", **all_of_it))
        assert ranges(found) == [(0, 10), (4, 10)]


def test_named_partitions_and_timestamps() -> None:
    with FakeBroker(partitions=2) as broker:
        fill(broker)
        with pytest.raises(OptionError, match="endingOffsets does not name t-1"):
            plan(options(broker, endingOffsets='{"t":{"0":-1}}'))
        # The fake finds no record at any timestamp.
        with pytest.raises(OptionError, match="no record of t-0 is as new"):
            plan(options(broker, startingTimestamp="7"))
        assert len(plan(options(broker, endingTimestamp="7"))) == 2


def test_a_start_by_timestamp_behind_the_last_stable_offset() -> None:
    """Later actions read what is committed then: the partition must not be left out."""
    with FakeBroker() as broker:
        for time_ms in (5, 50):
            broker.logs[0].append(encode_batch([(None, b"v", (), time_ms)] * 10))
        broker.logs[0].first_open = 8
        since = {"startingTimestamp": "50", "isolation": "read_committed"}
        with pytest.raises(OptionError, match="no record of t-0 is as new"):
            plan(options(broker, **since))
        since["startingOffsetsByTimestampStrategy"] = "latest"
        [task] = plan(options(broker, **since))
        assert task.splits == (Split(TOPIC, ID, 0, 8, 8, False, True),)
        del since["isolation"]
        assert ranges(plan(options(broker, **since))) == [(10, 20)]


def test_nothing_matches() -> None:
    with FakeBroker() as broker:
        raw = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "subscribePattern": "x"}
        assert plan(ReadOptions.of(raw)) == []
