"""CommitSegmentCopies hands copies to the grant task of each partition, and answers in time.

Method: a broker whose grant tasks are a test's (`segment_copies_harness`).
"""

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.broker.api import k1012_commit_segment_copies as api
from ottla.broker.api.segment_copies import WAIT_MS
from ottla.broker.remote.tasks.grant_values import (
    CommitRequest,
    CommitResult,
    CommittedCopy,
)
from ottla.wire.messages import commit_segment_copies as wire
from tests.unit.broker.api.segment_copies_harness import CopiesHarness
from tests.unit.broker.harness import TOPIC_ID

IDS = [Uuid(bytes([each]) * 16) for each in range(1, 4)]


def request(*partitions: int) -> wire.CommitSegmentCopiesRequest:
    copies = tuple(
        wire.CommittedSegmentCopy(
            segment_id=each, offset_index_bytes=8, time_index_bytes=12, failure="f"
        )
        for each in IDS
    )
    rows = tuple(
        wire.CommitSegmentCopiesPartition(
            partition=each, leader_epoch=4, tiered_epoch=2, copies=copies
        )
        for each in partitions
    )
    topic = wire.CommitSegmentCopiesTopic(topic_id=TOPIC_ID, partitions=rows)
    return wire.CommitSegmentCopiesRequest(topics=(topic,))


def rows_of(
    answer: wire.CommitSegmentCopiesResponse,
) -> tuple[wire.SegmentCopiesPartitionResult, ...]:
    assert answer.error_code == Error.NONE
    [topic] = answer.topics
    return topic.partitions


def test_results_are_returned_by_copy() -> None:
    harness = CopiesHarness()
    answer = harness.begun(api, request(1))
    copies = tuple(
        CommittedCopy(segment_id=each, offset_index_bytes=8, time_index_bytes=12, failure="f")
        for each in IDS
    )
    assert harness.asked == [(1, CommitRequest(leader_epoch=4, tiered_epoch=2, copies=copies))]
    harness.answers[0].complete(
        (
            CommitResult(IDS[0], is_finished=True),
            CommitResult(IDS[1]),
            CommitResult(IDS[2], ApiError(Error.INVALID_REQUEST, "why")),
        )
    )
    [row] = rows_of(answer.value)
    assert row.copies == (
        wire.SegmentCopyResult(segment_id=IDS[0], error_code=0, is_finished=True),
        wire.SegmentCopyResult(segment_id=IDS[1], error_code=0),
        wire.SegmentCopyResult(
            segment_id=IDS[2], error_code=Error.INVALID_REQUEST, error_message="why"
        ),
    )


def test_a_partition_s_refusal_and_a_timeout() -> None:
    harness = CopiesHarness()
    answer = harness.begun(api, request(0, 1))
    harness.answers[0].complete(ApiError(Error.FENCED_LEADER_EPOCH, "4, and 5 now"))
    harness.clock.advance(WAIT_MS)
    first, second = rows_of(answer.value)
    assert (first.error_code, first.error_message) == (Error.FENCED_LEADER_EPOCH, "4, and 5 now")
    assert second.error_code == Error.REQUEST_TIMED_OUT


def test_a_partition_that_is_not_here_is_refused() -> None:
    harness = CopiesHarness(partitions=1)
    [row] = rows_of(harness.begun(api, request(5)).value)
    assert row.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
