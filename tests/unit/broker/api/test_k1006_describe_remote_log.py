"""A partition's segments are listed over several turns of the loop, however small the request is.

Method: a broker whose segment metadata are a test's, which notes how many are examined at a time.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast, overload

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.broker.api import k1006_describe_remote_log as api
from ottla.broker.dispatch import load_apis
from ottla.metadata.tiering import TopicTiering, tiering_record
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState
from ottla.wire.messages import describe_remote_log as wire
from tests.unit.broker.harness import TOPIC_ID, BrokerHarness, batch

SEGMENTS = 2_300
DELETED = 7


def segment(number: int) -> SegmentMetadata:
    """Return a segment of one record; one of them is not readable any more."""
    return SegmentMetadata(
        topic="t",
        topic_id=TOPIC_ID,
        partition=0,
        segment_id=Uuid(number.to_bytes(16, "big")),
        start_offset=number,
        end_offset=number,
        max_timestamp_ms=5,
        broker_id=1,
        event_timestamp_ms=5,
        size_bytes=100,
        epochs=((0, number),),
        state=SegmentState.DELETE_STARTED if number == DELETED else SegmentState.COPY_FINISHED,
        leader_epoch=0,
        tiered_epoch=1,
        txn_index_empty=number % 2 == 0,
    )


class Known(Sequence[SegmentMetadata]):
    """Segments; `examined`: how many since it was last cleared."""

    def __init__(self) -> None:
        self._all = tuple(map(segment, range(SEGMENTS)))
        self.examined = 0

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, at: int) -> SegmentMetadata: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[SegmentMetadata]: ...
    def __getitem__(self, at: int | slice) -> Any:
        found = self._all[at]
        self.examined += len(found) if isinstance(found, tuple) else 1
        return found


def test_the_segments_of_a_partition_are_listed_in_steps() -> None:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic(partitions=2)
    harness.commit(tiering_record(TopicTiering(topic_id=TOPIC_ID)))
    harness.broker.replicas.append("t", 0, batch("v"))
    log = harness.broker.replicas.partition("t", 0).log
    assert log is not None
    log.local.log_end_offset = SEGMENTS  # As if they were local, too.
    known = Known()
    remote = SimpleNamespace(
        manager=SimpleNamespace(status=lambda *_: None),
        metadata=SimpleNamespace(
            remote_log=lambda _, partition: (
                None if partition else SimpleNamespace(segments=lambda: known)
            )
        ),
    )
    harness.broker.remote = cast(Any, remote)
    request = wire.DescribeRemoteLogRequest(
        topics=(wire.DescribeRemoteLogTopic(name="t", partitions=(0, 1)),), include_segments=True
    )
    steps = api.handle.steps(harness.context(1006, 0), request)
    count = 0
    while True:
        known.examined = 0
        try:
            next(steps)
        except StopIteration as end:
            response = end.value
            break
        count += 1
        assert known.examined <= api.SEGMENTS_PER_STEP
    # Each segment is examined, and listed.
    assert count >= 2 * SEGMENTS // api.SEGMENTS_PER_STEP
    [topic] = response.topics
    [row, unread] = topic.partitions
    assert [each.start_offset for each in row.segments] == [
        each for each in range(SEGMENTS) if each != DELETED
    ]
    assert [each.txn_index_empty for each in row.segments[:3]] == [True, False, True]
    assert row.log_end_offset == SEGMENTS
    assert unread.error_code == Error.REPLICA_NOT_AVAILABLE
    assert unread.segments == ()


def test_a_topic_that_was_never_tiered_has_no_segments() -> None:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic(partitions=1)
    # Nobody reads the metadata partition that it would be in.
    metadata = SimpleNamespace(remote_log=lambda *_: None)
    manager = SimpleNamespace(status=lambda *_: None)
    harness.broker.remote = cast(Any, SimpleNamespace(manager=manager, metadata=metadata))
    request = wire.DescribeRemoteLogRequest(
        topics=(wire.DescribeRemoteLogTopic(name="t", partitions=(0,)),), include_segments=True
    )
    steps = api.handle.steps(harness.context(1006, 0), request)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            [topic] = end.value.topics
            break
    [row] = topic.partitions
    assert (topic.state, row.error_code, row.segments) == (0, Error.NONE, ())
    assert row.log_end_offset == 0


def test_who_asks_for_segments_uses_the_topic_and_others_do_not() -> None:
    harness = BrokerHarness()
    harness.add_broker()
    harness.add_topic(partitions=1)
    metrics = harness.broker.replicas.partition("t", 0).metrics
    asked = (wire.DescribeRemoteLogTopic(name="t", partitions=(0,)),)
    for include_segments in (False, True):
        request = wire.DescribeRemoteLogRequest(topics=asked, include_segments=include_segments)
        for _ in api.handle.steps(harness.context(1006, 0), request):
            pass
        assert metrics.is_used == include_segments


def test_the_dispatcher_runs_it_in_turns_whatever_the_size_of_the_request() -> None:
    endpoint = load_apis()[1006]
    assert endpoint.is_long(0)
    assert endpoint.is_long(1_000_000)
