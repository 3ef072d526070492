"""A task must read each of its splits from its place, and open ones as far as the log is now.

Method: a fake broker whose log grows, shrinks or is re-created between plan and task. Splits in
the object store: `test_tiered_planner`, `test_relocation`.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.spark.errors import DataLossError
from ottla.spark.planner import Task
from ottla.spark.splits import Split
from ottla.spark.tasks import read_task
from ottla.wire.messages.metadata import MetadataRequest
from tests.unit.spark.fake_broker import ID, TOPIC, FakeBroker
from tests.unit.spark.test_reading import COLUMNS, batch, options


def test_an_open_split_ends_where_the_log_does_when_it_is_read() -> None:
    with FakeBroker(partitions=3) as broker:
        open_ones = tuple(Split(TOPIC, ID, number, 0, 0, True, True) for number in (0, 2))
        closed = Split(TOPIC, ID, 1, 0, 5, True)
        assert task_rows(broker, *open_ones) == []
        for log in broker.logs:
            log.append(batch(0, 10))
        assert task_rows(broker, *open_ones, closed) == [*(10 * [0]), *(10 * [2]), *(5 * [1])]
        begun = Split(TOPIC, ID, 0, 4, 10, True, True)
        assert task_rows(broker, begun) == 6 * [0]
        broker.logs[0].append(batch(10, 10))
        assert task_rows(broker, begun) == 16 * [0]


def task_rows(broker: FakeBroker, *splits: Split, **changes: Any) -> list[int]:
    """Return the partitions of all rows of a task."""
    chosen = options(broker.options(**changes))
    batches = list(read_task(Task(splits), chosen, COLUMNS))
    return [number for each in batches for number in each.column("partition").to_pylist()]


def test_an_open_split_of_a_deleted_log() -> None:
    with FakeBroker() as broker:
        broker.logs[0].append(batch(0, 10))
        idle = Split(TOPIC, ID, 0, 20, 20, True, True)
        with pytest.raises(DataLossError, match="offsets 10 to 19 are lost; the log ends at 10"):
            task_rows(broker, idle)
        begun = Split(TOPIC, ID, 0, 5, 20, True, True)
        with pytest.raises(DataLossError, match="offsets 10 to 19 are lost; the log ends at 10"):
            task_rows(broker, begun)
        lenient = options(broker.options(), fail_on_data_loss=False)
        [found] = read_task(Task((begun,)), lenient, COLUMNS)
        assert found.num_rows == 5
        broker.topic_id = Uuid(b"j" * 16)
        for split in (idle, Split(TOPIC, ID, 0, 0, 0, True, True)):
            with pytest.raises(DataLossError, match=r"since the query was planned\."):
                task_rows(broker, split)
        assert list(read_task(Task((idle,)), lenient, COLUMNS)) == []


@pytest.mark.parametrize("fail", [True, False])
def test_a_broker_that_does_not_know_the_topic_yet(fail: bool) -> None:
    with FakeBroker() as broker:
        broker.logs[0].append(batch(0, 10))
        chosen = options(broker.options(), fail_on_data_loss=fail)
        for split in (
            Split(TOPIC, ID, 0, 0, 0, True, True),
            Split(TOPIC, ID, 0, 0, 5, True, True),
        ):
            broker.faults[MetadataRequest] += [Error.UNKNOWN_TOPIC_OR_PARTITION]
            found = read_task(Task((split,)), chosen, COLUMNS)
            assert sum(each.num_rows for each in found) == 10
