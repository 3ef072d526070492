"""GrantSegmentCopies asks the grant task of each partition, and answers in time.

Method: a broker whose grant tasks are a test's (`segment_copies_harness`).
"""

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.broker.api import k1011_grant_segment_copies as api
from ottla.broker.api.segment_copies import WAIT_MS
from ottla.broker.remote.tasks.grant_values import (
    GrantedSegment,
    GrantRequest,
    Grants,
)
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState
from ottla.wire.messages import grant_segment_copies as wire
from tests.unit.broker.api.segment_copies_harness import CopiesHarness
from tests.unit.broker.harness import TOPIC_ID

HOLDER = Uuid(b"h" * 16)
SEGMENT = SegmentMetadata(
    topic="t",
    topic_id=TOPIC_ID,
    partition=0,
    segment_id=Uuid(b"s" * 16),
    start_offset=10,
    end_offset=19,
    max_timestamp_ms=7,
    broker_id=1,
    event_timestamp_ms=5,
    size_bytes=100,
    epochs=((2, 10), (3, 15)),
    state=SegmentState.COPY_STARTED,
    leader_epoch=4,
    tiered_epoch=1,
)
GRANTS = Grants(
    leader_epoch=4,
    tiered_epoch=1,
    end_offset=29,
    segments_left=2,
    bytes_left=200,
    granted=(
        GrantedSegment(
            segment=SEGMENT,
            lease_ms=900,
            leader_epochs=b"e",
            producer_snapshot=b"p",
            transaction_index=None,
        ),
    ),
)


def request(
    *partitions: int, topic_id: Uuid = TOPIC_ID, segments_max: int = 3, lease_ms: int = 1_000
) -> wire.GrantSegmentCopiesRequest:
    rows = tuple(
        wire.GrantSegmentCopiesPartition(partition=each, segments_max=segments_max, until_offset=40)
        for each in partitions
    )
    return wire.GrantSegmentCopiesRequest(
        holder=HOLDER,
        lease_ms=lease_ms,
        topics=(wire.GrantSegmentCopiesTopic(topic_id=topic_id, partitions=rows),),
    )


def rows_of(answer: wire.GrantSegmentCopiesResponse) -> tuple[wire.GrantedPartition, ...]:
    assert answer.error_code == Error.NONE
    [topic] = answer.topics
    return topic.partitions


def test_grants_and_refusals_are_returned_by_partition() -> None:
    harness = CopiesHarness()
    answer = harness.begun(api, request(0, 1))
    assert harness.asked == [
        (each, GrantRequest(holder=HOLDER, lease_ms=1_000, segments_max=3, until_offset=40))
        for each in (0, 1)
    ]
    harness.answers[1].complete(ApiError(Error.REPLICA_NOT_AVAILABLE, "not yet"))
    assert not answer.done
    harness.answers[0].complete(GRANTS)
    first, second = rows_of(answer.value)
    assert first == wire.GrantedPartition(
        partition=0,
        error_code=0,
        leader_epoch=4,
        tiered_epoch=1,
        end_offset=29,
        segments_left=2,
        bytes_left=200,
        segments=(
            wire.GrantedSegment(
                segment_id=SEGMENT.segment_id,
                start_offset=10,
                end_offset=19,
                size_bytes=100,
                max_timestamp_ms=7,
                lease_ms=900,
                epochs=(
                    wire.GrantedEpoch(epoch=2, start_offset=10),
                    wire.GrantedEpoch(epoch=3, start_offset=15),
                ),
                leader_epochs=b"e",
                producer_snapshot=b"p",
            ),
        ),
    )
    assert (second.error_code, second.error_message) == (Error.REPLICA_NOT_AVAILABLE, "not yet")


def test_what_comes_too_late_is_a_timeout() -> None:
    harness = CopiesHarness()
    answer = harness.begun(api, request(0, 1))
    harness.answers[0].complete(GRANTS)
    harness.clock.advance(WAIT_MS)
    first, second = rows_of(answer.value)
    assert (first.error_code, second.error_code) == (Error.NONE, Error.REQUEST_TIMED_OUT)
    harness.answers[1].complete(GRANTS)


def test_partitions_that_are_not_led_here_are_refused() -> None:
    harness = CopiesHarness(partitions=1)
    unknown = harness.begun(api, request(0, topic_id=Uuid(b"x" * 16)))
    assert rows_of(unknown.value)[0].error_code == Error.UNKNOWN_TOPIC_ID
    missing = harness.begun(api, request(7))
    assert rows_of(missing.value)[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.asked == []


def test_a_topic_that_is_not_tiered_and_a_broker_without_storage_are_refused() -> None:
    harness = CopiesHarness(is_tiered=False)
    [row] = rows_of(harness.begun(api, request(0)).value)
    assert (row.error_code, row.error_message) == (
        Error.INVALID_REQUEST,
        "the topic is not tiered",
    )
    harness.broker.remote = None
    [row] = rows_of(harness.begun(api, request(0)).value)
    assert row.error_code == Error.INVALID_REQUEST


def test_impossible_numbers_are_refused() -> None:
    harness = CopiesHarness()
    for wrong in (request(0, segments_max=-1), request(0, lease_ms=0)):
        [row] = rows_of(harness.begun(api, wrong).value)
        assert row.error_code == Error.INVALID_REQUEST
    assert harness.asked == []
