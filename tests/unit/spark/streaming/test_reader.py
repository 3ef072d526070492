"""A stream reader must do with Spark's calls, in Spark's order, what a stream is: all rows, once.

Method: the calls that Spark makes, against a fake broker and a directory as the object store; what
Spark keeps goes through JSON in between. Readers are thrown away as a restart does it.
"""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from ottla.base.ids import Uuid
from ottla.records.builder import encode_batch
from ottla.spark.errors import (
    ClusterError,
    DataLossError,
    OptionError,
    RemoteStorageError,
    StreamOffsetError,
)
from ottla.spark.source import OttlaDataSource
from ottla.spark.streaming import logs as stream_logs
from ottla.spark.streaming import reader as stream_reader
from ottla.spark.streaming.offsets import StreamOffset
from ottla.spark.streaming.reader import StreamReader
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.unit.spark.fake_broker import DROP, ID, TIERED, TOPIC, FakeBroker, Log
from tests.unit.spark.tiered_log import TieredLog, half_copied
from tests.unit.spark.tiers.test_tiered_planner import new_store

OTHER = Uuid(b"j" * 16)
NOTHING = {"v": 1, "t": {}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stream_logs, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(stream_logs, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(stream_logs.BrokerLogs, "pause_ms", 0)
    monkeypatch.setattr(stream_logs.StoredLogs, "pause_ms", 0)
    yield
    while Stream.running:
        Stream.running.pop().reader.stop()


class Stream:
    """What Spark does with a stream; `rows` are partition and offset of what it has written."""

    running: ClassVar[list["Stream"]] = []

    def __init__(self, broker: FakeBroker | None, **raw: str) -> None:
        self.options = {"subscribe": TOPIC, "kafka.default.api.timeout.ms": "500"} | raw
        if broker is not None:
            self.options["kafka.bootstrap.servers"] = f"127.0.0.1:{broker.port}"
        self.journal: list[Any] = []
        self.rows: list[tuple[int, int]] = []
        self.reader = self.restarted()
        Stream.running.append(self)

    def restarted(self, **raw: str) -> StreamReader:
        """Return another reader, with other options; the former one is gone."""
        self.options |= raw
        if hasattr(self, "reader"):
            self.reader.stop()
        source = OttlaDataSource(self.options)
        self.reader = pickle.loads(pickle.dumps(source.streamReader(source.schema())))
        return self.reader

    def start(self) -> Any:
        return self.journal[-1] if self.journal else _kept(self.reader.initialOffset())

    def plan(self, limit: Any = None) -> Any:
        """Return where the next batch ends."""
        start = self.start()
        return _kept(self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit()))

    def run(self, start: Any, end: Any) -> list[tuple[int, int]]:
        """Return the rows of a batch."""
        found = []
        for task in self.reader.partitions(start, end):
            for batch in self.reader.read(pickle.loads(pickle.dumps(task))):
                found += zip(
                    batch.column("partition").to_pylist(),
                    batch.column("offset").to_pylist(),
                    strict=True,
                )
        return sorted(found)

    def batch(self, limit: Any = None) -> list[tuple[int, int]]:
        """Plan, run and commit the next batch; return its rows."""
        start, end = self.start(), self.plan(limit)
        found = self.run(start, end) if end != start else []
        self.journal.append(end)
        self.rows += found
        return found


def _kept(document: Any) -> Any:
    return json.loads(json.dumps(document))


def fill(log: Log, *counts: int) -> None:
    for count in counts:
        log.append(encode_batch([(None, b"value", (), 5)] * count))


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(partitions=2) as running:
        yield running


def span(partition: int, begin: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(begin, end)]


def test_a_stream_begins_at_the_latest_offsets_and_reads_what_comes(broker: FakeBroker) -> None:
    fill(broker.logs[0], 10)
    stream = Stream(broker)
    assert stream.batch() == []
    fill(broker.logs[0], 3)
    fill(broker.logs[1], 2, 2)
    assert stream.batch() == span(0, 10, 13) + span(1, 0, 4)
    assert stream.batch() == []
    assert stream.reader.reportLatestOffset() == stream.journal[-1]
    fill(broker.logs[1], 1)
    stream.restarted()
    assert stream.batch() == span(1, 4, 5)


def test_the_first_batch_is_the_same_when_it_is_repeated(broker: FakeBroker) -> None:
    """Spark has its end only, and asks for the beginning of the stream again."""
    fill(broker.logs[0], 10)
    stream = Stream(broker)
    begin = stream.start()
    fill(broker.logs[0], 5)
    end = _kept(stream.reader.latestOffset(begin, ReadAllAvailable()))
    fill(broker.logs[0], 7)
    stream.restarted()
    again = stream.start()
    assert again != begin
    assert stream.run(again, end) == span(0, 10, 15)
    stream.journal.append(end)
    assert stream.batch() == span(0, 15, 22)


def test_limits_by_offsets_and_who_ignores_them(broker: FakeBroker) -> None:
    fill(broker.logs[0], 30)
    fill(broker.logs[1], 10)
    stream = Stream(broker, startingOffsets="earliest", maxOffsetsPerTrigger="12")
    assert stream.reader.getDefaultReadLimit() == ReadMaxRows(12)
    assert stream.batch() == span(0, 0, 9) + span(1, 0, 3)
    assert stream.reader.reportLatestOffset()["t"][TOPIC]["p"] == {"0": 30, "1": 10}
    # Trigger.Once reads everything.
    assert stream.batch(ReadAllAvailable()) == span(0, 9, 30) + span(1, 3, 10)


def test_limits_by_bytes(broker: FakeBroker) -> None:
    fill(broker.logs[0], *[10] * 10)
    stream = Stream(broker, startingOffsets="earliest", maxBytesPerTrigger="100")
    assert stream.reader.getDefaultReadLimit() == ReadMaxBytes(100)
    # This broker does not say how large its logs are: then there is no limit.
    assert stream.batch() == span(0, 0, 100)


def test_a_batch_waits_for_enough(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [5_000_000]
    monkeypatch.setattr(stream_reader, "_now_ms", lambda: clock[0])
    stream = Stream(broker, minOffsetsPerTrigger="10", maxTriggerDelay="1s")
    assert stream.reader.getDefaultReadLimit() == ReadMinRows(10)
    assert stream.batch() == []
    fill(broker.logs[0], 3)
    assert stream.batch() == span(0, 0, 3)  # The first one waits for nothing.
    fill(broker.logs[0], 9)
    assert stream.batch() == []
    fill(broker.logs[1], 1)
    assert stream.batch() == span(0, 3, 12) + span(1, 0, 1)
    fill(broker.logs[1], 1)
    clock[0] += 999
    assert stream.batch() == []
    clock[0] += 1
    assert stream.batch() == span(1, 1, 2)


def test_available_now_ends(broker: FakeBroker) -> None:
    fill(broker.logs[0], 10)
    stream = Stream(
        broker,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="8",
        minOffsetsPerTrigger="8",
    )
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.batch() == span(0, 0, 8)
    fill(broker.logs[0], 50)
    fill(broker.logs[1], 50)
    # Fewer than minOffsetsPerTrigger: the query must end, so it waits for no more.
    assert stream.batch() == span(0, 8, 10)
    end = stream.journal[-1]
    assert stream.plan() == end
    stream.restarted()
    stream.reader.prepareForTriggerAvailableNow()
    rows = []
    while (some := stream.batch()) != []:
        rows += some
    assert sorted(rows) == span(0, 10, 60) + span(1, 0, 50)


def test_new_partitions(broker: FakeBroker) -> None:
    fill(broker.logs[0], 4)
    stream = Stream(broker)
    stream.batch()
    broker.logs.append(Log())
    fill(broker.logs[2], 6)
    assert stream.batch() == span(2, 0, 6)


def test_a_topic_that_is_re_created(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    fill(broker.logs[0], 5)
    strict, restarting = Stream(broker), Stream(broker, onRecreate="restart")
    strict.batch()
    restarting.batch()
    broker.topic_id = OTHER
    fill(broker.logs[0], 5)
    with pytest.raises(DataLossError, match=r"t: the topic was deleted and re-created.*onRecreate"):
        strict.plan()
    assert restarting.batch() == span(0, 0, 10)
    assert "data loss: t: the topic was deleted and re-created" in caplog.text
    assert restarting.batch() == []
    strict.restarted(failOnDataLoss="false")
    assert strict.batch() == span(0, 0, 10)


@pytest.mark.parametrize("on_recreate", ["fail", "restart"])
def test_a_broker_that_knows_the_former_topic_only(broker: FakeBroker, on_recreate: str) -> None:
    """It was frozen while the topic was re-created: the stream is ahead of its metadata."""
    fill(broker.logs[0], 5)
    stream = Stream(broker, startingOffsets="earliest", onRecreate=on_recreate)
    assert stream.batch() == span(0, 0, 5)
    answer = broker.answer

    def learning(request: Any) -> Any:
        found = answer(request)
        if broker.count(MetadataRequest) > 3:
            broker.topic_id = ID
        return found

    broker.answer = learning  # type: ignore[method-assign]

    def thaw() -> None:
        broker.received.clear()
        broker.topic_id = OTHER
        stream.restarted()

    thaw()
    assert stream.batch() == []
    fill(broker.logs[0], 5)
    start, end = stream.start(), stream.plan()
    thaw()
    assert stream.run(start, end) == span(0, 5, 10)


def test_a_topic_that_is_deleted(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    fill(broker.logs[0], 5)
    strict, restarting = Stream(broker), Stream(broker, onRecreate="restart")
    strict.batch()
    restarting.batch()
    broker.exists = False
    with pytest.raises(DataLossError, match="t-0: the topic or partition does not exist any more"):
        strict.plan()
    assert (restarting.batch(), restarting.batch()) == ([], [])
    assert caplog.text.count("t-0: the topic or partition does not exist any more") == 1
    # It was a broker that did not know yet: nothing is read twice.
    broker.exists = True
    fill(broker.logs[0], 2)
    assert restarting.batch() == span(0, 5, 7)
    assert strict.batch() == span(0, 5, 7)


def test_a_batch_of_a_topic_that_is_gone_when_it_is_repeated(broker: FakeBroker) -> None:
    fill(broker.logs[0], 5)
    stream = Stream(broker, startingOffsets="earliest")
    start, end = stream.start(), stream.plan()
    broker.topic_id = OTHER
    with pytest.raises(DataLossError, match=r"offsets 0 to 4 of the former one are .*onRecreate"):
        stream.reader.partitions(start, end)
    # Else a query that goes on with the new topic could not leave this batch behind.
    assert stream.restarted(onRecreate="restart").partitions(start, end) == []
    stream.journal.append(end)
    assert stream.batch() == span(0, 0, 5)


@pytest.mark.parametrize("on_recreate", ["fail", "restart"])
def test_a_batch_of_a_topic_that_a_broker_does_not_know_yet(
    broker: FakeBroker, on_recreate: str
) -> None:
    """A query is started again, and the first broker that it asks was just started, too."""
    fill(broker.logs[0], 5)
    stream = Stream(broker, startingOffsets="earliest", onRecreate=on_recreate)
    start, end = stream.start(), stream.plan()
    stream.restarted()
    broker.received.clear()
    broker.exists = False
    answer = broker.answer

    def learning(request: Any) -> Any:
        found = answer(request)
        broker.exists = broker.count(MetadataRequest) > 2
        return found

    broker.answer = learning  # type: ignore[method-assign]
    assert stream.run(start, end) == span(0, 0, 5)


def test_records_that_expired(broker: FakeBroker) -> None:
    fill(broker.logs[0], 5, 5)
    stream = Stream(broker, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    stream.batch()
    start, end = stream.start(), stream.plan()
    broker.logs[0].start = 5
    with pytest.raises(DataLossError, match="t-0: offsets 2 to 4 are no longer available"):
        stream.plan()
    with pytest.raises(DataLossError, match="t-0: offsets 2 to 3 are no longer available"):
        stream.run(start, end)
    stream.restarted(failOnDataLoss="false")
    assert stream.run(start, end) == []
    assert stream.batch() == span(0, 5, 7)


def test_a_log_that_is_shorter_for_a_moment(broker: FakeBroker) -> None:
    """The high watermark of a new leader may be behind: that is no loss."""
    fill(broker.logs[0], 5)
    stream = Stream(broker)
    stream.batch()
    end, broker.logs[0].end = broker.logs[0].end, 3
    with pytest.raises(DataLossError, match="the stream is at offset 5, the log ends at 3"):
        stream.plan()
    answers = [3, 3, end]
    log = broker.logs[0]

    class Behind(Log):
        def end_for(self, isolation_level: int) -> int:
            return answers.pop(0) if answers else end

    broker.logs[0] = Behind(log.data, log.start, end)
    stream.restarted()
    assert stream.batch() == []


def test_only_committed_records(broker: FakeBroker) -> None:
    fill(broker.logs[0], 5, 5)
    broker.logs[0].first_open = 5
    stream = Stream(broker, startingOffsets="earliest", isolation="read_committed")
    assert stream.batch() == span(0, 0, 5)
    assert stream.batch() == []
    # One that read further before waits until the last stable offset is there.
    stream.journal[-1]["t"][TOPIC]["p"]["0"] = 8
    assert stream.batch() == []
    broker.logs[0].first_open = None
    assert stream.batch() == span(0, 8, 10)


def test_a_start_by_timestamp_behind_the_last_stable_offset(broker: FakeBroker) -> None:
    fill(broker.logs[0], 5, 5)
    for log in broker.logs:
        log.append(encode_batch([(None, b"value", (), 50)] * 5))
    broker.logs[0].first_open = 5
    since = {"startingTimestamp": "50", "isolation": "read_committed"}
    stream = Stream(broker, **since)
    with pytest.raises(OptionError, match="no record of t-0 is as new"):
        stream.start()


def test_a_topic_that_is_re_created_while_it_is_looked_up(broker: FakeBroker) -> None:
    """Offsets are asked for by name: they must not be taken for those of the former topic."""
    fill(broker.logs[0], 50)
    stream = Stream(broker, onRecreate="restart")
    stream.batch()
    answer = broker.answer

    def changing(request: Any) -> Any:
        if isinstance(request, ListOffsetsRequest) and broker.topic_id != OTHER:
            broker.topic_id = OTHER
        return answer(request)

    broker.answer = changing  # type: ignore[method-assign]
    assert stream.batch() == span(0, 0, 50)
    assert StreamOffset.of(stream.journal[-1]).topics[TOPIC].topic_id == OTHER


def test_lost_connections_are_opened_again(broker: FakeBroker) -> None:
    stream = Stream(broker)
    stream.batch()
    fill(broker.logs[0], 5)
    broker.faults[ListOffsetsRequest].extend([DROP, DROP])
    assert stream.batch() == span(0, 0, 5)


def test_starts_that_are_named(broker: FakeBroker) -> None:
    fill(broker.logs[0], 5)
    stream = Stream(broker, startingOffsets='{"t":{"0":3}}')
    with pytest.raises(OptionError, match="startingOffsets does not name t-1"):
        stream.start()
    stream.restarted(startingOffsets='{"t":{"0":3,"1":-1}}')
    assert stream.batch() == span(0, 3, 5)


def test_what_it_refuses(broker: FakeBroker) -> None:
    stream = Stream(broker)
    with pytest.raises(StreamOffsetError, match="Spark's Kafka connector"):
        stream.reader.latestOffset({TOPIC: {"0": 5}}, ReadAllAvailable())
    with pytest.raises(ClusterError, match="topic nothing"):
        stream.restarted(subscribe="nothing").initialOffset()
    assert list(stream.reader.read(InputPartition(None))) == []


# Tiered topics


@pytest.fixture
def log() -> TieredLog:
    return half_copied(8)


@pytest.fixture
def root(tmp_path: Path, log: TieredLog) -> Path:
    directory = new_store(tmp_path)
    log.write(directory)
    return directory


def test_a_batch_is_the_same_where_the_boundary_of_the_tiers_has_moved(
    log: TieredLog, root: Path
) -> None:
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        uri = {"ottla.remote.storage.uri": root.as_uri(), "startingOffsets": "earliest"}
        stream = Stream(broker, **uri)
        start, end = stream.start(), stream.plan()
        tasks = stream.reader.partitions(start, end)
        remote = [each.remote is not None for task in tasks for each in task.splits]
        assert set(remote) == {True, False}
        assert stream.run(start, end) == span(0, 0, 40)
        # All but the last batch is copied meanwhile.
        log.copy(4, 7)
        log.write(root)
        broker.logs[0] = log.served()
        stream.restarted()
        again = stream.reader.partitions(start, end)
        assert again != tasks
        assert stream.run(start, end) == span(0, 0, 40)


def test_bytes_of_remote_segments(log: TieredLog, root: Path) -> None:
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        size = log.batches[0].header.size_in_bytes
        stream = Stream(
            broker,
            startingOffsets="earliest",
            maxBytesPerTrigger=str(2 * size),
            **{"ottla.remote.storage.uri": root.as_uri()},
        )
        batches = []
        while (some := stream.batch()) != []:
            batches.append(len(some))
        assert stream.rows == span(0, 0, 40)
        assert len(batches) > 3
        assert max(batches) <= 15, "more than two batches, and the one that was begun"


def test_without_brokers(log: TieredLog, root: Path) -> None:
    stream = Stream(None, startingOffsets="earliest", **{"ottla.remote.storage.uri": root.as_uri()})
    assert stream.batch() == span(0, 0, 20)
    assert stream.batch() == []
    log.copy(4, 7)
    log.write(root, 1)
    assert stream.batch() == span(0, 20, 35)
    limited = Stream(
        None,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="7",
        maxBytesPerTrigger="1000000",
        **{"ottla.remote.storage.uri": root.as_uri()},
    )
    limited.reader.prepareForTriggerAvailableNow()
    assert limited.batch() == span(0, 0, 7)
    with pytest.raises(RemoteStorageError, match="has no topic nothing"):
        limited.restarted(subscribe="nothing").initialOffset()
