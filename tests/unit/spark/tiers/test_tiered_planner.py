"""Whatever the tiers hold of a log, plan and tasks together read it exactly once.

Method: hypothesis draws a log, its remote segments and a range; the plan is made and its splits
are read, from a directory and a fake broker, and compared with the rows of the whole log. Limits
of one record a task cut at every offset. The same without brokers; and after records have expired
between plan and read.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.spark.errors import DataLossError
from ottla.spark.options import ReadOptions
from ottla.spark.planner import Task, plan
from ottla.spark.reading import read_split
from ottla.spark.splits import Split
from ottla.spark.tasks import read_remote
from ottla.spark.tiers.store_session import StoreSession
from ottla.wire.messages.fetch import FetchRequest
from tests.drawn import examples
from tests.unit.spark.fake_broker import TIERED, TOPIC, FakeBroker
from tests.unit.spark.tiered_log import Row, TieredLog, tiered_logs

COLUMNS = ("offset", "value")
_numbers = itertools.count()

drawn = settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def new_store(tmp_path: Path) -> Path:
    root = tmp_path / f"store-{next(_numbers)}"
    root.mkdir()
    return root


def options(root: Path, broker: FakeBroker | None, **raw: str) -> ReadOptions:
    base = {
        "subscribe": TOPIC,
        "kafkaConsumer.pollTimeoutMs": "5000",
        "ottla.remote.storage.uri": root.as_uri(),
    }
    if broker is not None:
        base["kafka.bootstrap.servers"] = f"127.0.0.1:{broker.port}"
    return ReadOptions.of(base | raw)


def offsets(number: int) -> str:
    return f'{{"{TOPIC}":{{"0":{number}}}}}'


def read(tasks: list[Task], chosen: ReadOptions) -> list[Row]:
    """Return the rows of all splits, in the order of the tasks."""
    assert chosen.remote_storage is not None
    rows: list[Row] = []
    with StoreSession(chosen.remote_storage, timeout_ms=5_000) as session:
        for split in (each for task in tasks for each in task.splits):
            if split.start == split.end:
                continue
            found: Iterator[Any] = (
                read_split(split, chosen, COLUMNS)
                if split.remote is None
                else read_remote(split, session, chosen, COLUMNS)
            )
            for batch in found:
                values = batch.column("value").to_pylist()
                rows += zip(batch.column("offset").to_pylist(), values, strict=True)
    return rows


def splits_of(tasks: list[Task]) -> list[Split]:
    return [split for task in tasks for split in task.splits]


def check_cover(tasks: list[Task], start: int, end: int) -> None:
    """Check that the splits are disjoint and their union is the range."""
    reached = start
    for split in splits_of(tasks):
        assert split.start == reached
        reached = split.end
    assert reached == end


def test_a_transaction_whose_marker_is_behind_the_last_stable_offset(tmp_path: Path) -> None:
    """It is aborted, and all that can be read of it is remote; another one is open before its end.

    Brokers name it with the last record that they may return, and not behind it.
    """
    log = TieredLog()
    log.append(5)
    log.append(2, producer_id=11)
    log.append(3)
    log.append(2, producer_id=12)
    log.end_transaction(11, committed=False)
    log.copy(0, 3)
    assert log.stable_end == 10
    root = new_store(tmp_path)
    log.write(root)
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        chosen = options(root, broker, isolation="read_committed")
        found = [offset for offset, _ in read(plan(chosen), chosen)]
        assert found == [0, 1, 2, 3, 4, 7, 8, 9]


@pytest.mark.drawn(8, of="every step")
@drawn
@given(tiered_logs(), st.data())
def test_every_cut_of_both_tiers_is_the_whole_log(
    tmp_path: Path, log: TieredLog, data: st.DataObject
) -> None:
    root = new_store(tmp_path)
    log.write(root)
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        for isolation in ("read_uncommitted", "read_committed"):
            committed = isolation == "read_committed"
            end = log.stable_end if committed else log.end
            if end < log.start:
                continue
            # Each offset by itself, some at once, and all.
            for limit in ("1", str(data.draw(st.integers(2, 5))), "1000"):
                chosen = options(root, broker, isolation=isolation, maxRecordsPerPartition=limit)
                tasks = plan(chosen)
                check_cover(tasks, log.start, end)
                assert all(
                    sum(split.end - split.start for split in task.splits) <= int(limit)
                    for task in tasks
                )
                broker.received.clear()
                assert read(tasks, chosen) == log.expected(log.start, end, committed=committed)
                assert fetched(broker).isdisjoint(remote_offsets(log))
            low = data.draw(st.integers(log.start, end))
            high = data.draw(st.integers(low, end))
            within = {"startingOffsets": offsets(low), "endingOffsets": offsets(high)}
            chosen = options(root, broker, isolation=isolation, minPartitions="3", **within)
            tasks = plan(chosen)
            if low < high:
                check_cover(tasks, low, high)
            assert read(tasks, chosen) == log.expected(low, high, committed=committed)


def fetched(broker: FakeBroker) -> set[int]:
    """Return the offsets that were fetched from brokers."""
    requests = [each for each in broker.received if isinstance(each, FetchRequest)]
    return {
        part.fetch_offset for each in requests for topic in each.topics for part in topic.partitions
    }


def remote_offsets(log: TieredLog) -> set[int]:
    return {
        offset
        for each in log.visible()
        for offset in range(each.segment.start_offset, each.end_offset + 1)
    }


@drawn
@given(tiered_logs(compacted=False), st.data())
def test_without_brokers_the_table_is_what_the_store_holds(
    tmp_path: Path, log: TieredLog, data: st.DataObject
) -> None:
    root = new_store(tmp_path)
    log.write(root)
    remote = {each for each in remote_offsets(log) if each >= log.start}
    for isolation in ("read_uncommitted", "read_committed"):
        committed = isolation == "read_committed"
        limit = str(data.draw(st.integers(1, 4)))
        chosen = options(
            root, None, isolation=isolation, maxRecordsPerPartition=limit, failOnDataLoss="false"
        )
        expected = [
            row for row in log.expected(0, log.end, committed=committed) if row[0] in remote
        ]
        found = read(plan(chosen), chosen)
        if not committed:
            assert found == expected
            continue
        # What was not decided yet at the end of the remote tier is not shown, and nothing else.
        assert found == expected[: len(found)]
        shown_to = stable_remote_end(log)
        assert found == [row for row in expected if row[0] < shown_to]


def stable_remote_end(log: TieredLog) -> int:
    """Return up to where the remote tier alone tells which transactions were aborted.

    Not behind a hole, nor behind the last segment that is the log's as a whole; there not behind
    the begin of a transaction that is open at its end.
    """
    visible = [each for each in log.visible() if each.end_offset >= log.start]
    for number, (before, behind) in enumerate(itertools.pairwise(visible), 1):
        if before.end_offset + 1 < behind.segment.start_offset:
            del visible[number:]
            break
    whole = [each for each in visible if each.end_offset == each.segment.end_offset]
    if not whole:
        return log.start
    end = whole[-1].end_offset + 1
    return min([end, *(each.transaction_start for each in log.open_at(end))])


@drawn
@given(tiered_logs(), st.data())
def test_records_that_expire_after_planning_are_lost_and_no_others(
    tmp_path: Path, log: TieredLog, data: st.DataObject
) -> None:
    root = new_store(tmp_path)
    log.write(root)
    committed = data.draw(st.booleans())
    raw = {
        "isolation": "read_committed" if committed else "read_uncommitted",
        "maxRecordsPerPartition": str(data.draw(st.integers(1, 10))),
        "failOnDataLoss": "false",
    }
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        tasks = plan(options(root, broker, **raw))
        planned = [split for split in splits_of(tasks) if split.start < split.end]
        ends = [log.start, *(each.end_offset + 1 for each in log.segments)]
        before = log.start
        log.expire(max(before, data.draw(st.sampled_from(ends))))
        log.write(root, 1)
        broker.logs[0] = log.served()
        expected = log.expected(log.start, log.end, committed=committed)
        kept = set(log.objects)
        found = read(tasks, options(root, broker, **raw))
        # A segment with the new log start keeps its earlier records until it expires, too.
        assert [row for row in found if row[0] >= log.start] == expected
        lost = [
            split for split in planned if split.remote is not None and split.remote.name not in kept
        ]
        strict = options(root, broker, **raw | {"failOnDataLoss": "true"})
        for split in lost:
            if split.start < log.start:
                with pytest.raises(DataLossError, match="are no longer available"):
                    read([Task((split,))], strict)
