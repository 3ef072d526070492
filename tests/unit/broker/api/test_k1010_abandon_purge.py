"""AbandonPurge changes the ledger's remote part once; DescribeDeletions shows what was left.

Method: the controller of the handlers' tests, after the deletion of a tiered topic.
"""

import logging

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.deletions import STARTED, DeletionImage, Policy, Remote, deletion_records
from ottla.metadata.features import OTTLA_VERSION, OTTLA_VERSION_LEVEL
from ottla.metadata.records import FeatureLevelRecord
from ottla.metadata.tiering import WHOLE_TOPIC
from ottla.wire.messages.abandon_purge import AbandonPurgeRequest, AbandonPurgeResponse
from ottla.wire.messages.describe_deletions import (
    DescribedDeletion,
    DescribeDeletionsRequest,
    DescribeDeletionsResponse,
)
from ottla.wire.messages.report_purges import (
    PurgedPartition,
    PurgedTopic,
    ReportPurgesRequest,
    ReportPurgesResponse,
)

from ..controller_harness import Controller

TOPIC_ID, OTHER_ID = Uuid(b"t" * 16), Uuid(b"u" * 16)
ENTRY = DeletionImage(
    topic_id=TOPIC_ID, name="t", policy=Policy.AT_ONCE, asked_ms=5, remote=Remote.PENDING
).with_status(1, STARTED, [0, 1])


def harness(level: int = OTTLA_VERSION_LEVEL) -> Controller:
    controller = Controller()
    controller.write(
        FeatureLevelRecord(name=OTTLA_VERSION, feature_level=level), *deletion_records(ENTRY)
    )
    return controller


def abandon(
    controller: Controller, topic_id: Uuid = TOPIC_ID, *, validate_only: bool = False
) -> AbandonPurgeResponse:
    answer = controller.ask(AbandonPurgeRequest(topic_id=topic_id, validate_only=validate_only), 0)
    assert isinstance(answer, AbandonPurgeResponse)
    return answer


def described(controller: Controller) -> DescribedDeletion:
    answer = controller.ask(DescribeDeletionsRequest(), 0)
    assert isinstance(answer, DescribeDeletionsResponse)
    return answer.deletions[0]


def report(controller: Controller) -> int:
    left = PurgedPartition(
        partition=1, floor=WHOLE_TOPIC, is_purged=False,
        segments_left=3, bytes_left=30, last_error="denied: 403",
    )  # fmt: skip
    topics = (PurgedTopic(topic_id=TOPIC_ID, partitions=(left,)),)
    request = ReportPurgesRequest(broker_id=1, broker_epoch=1, topics=topics)
    answer = controller.ask(request, 0)
    assert isinstance(answer, ReportPurgesResponse)
    return answer.topics[0].error_code


def test_it_is_abandoned_once_with_what_was_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    controller = harness()
    assert report(controller) == Error.NONE
    expected = AbandonPurgeResponse(
        error_code=Error.NONE, name="t", topic_id=TOPIC_ID, segments_left=3, bytes_left=30
    )
    assert abandon(controller, validate_only=True) == expected
    assert described(controller).remote == Remote.PENDING
    assert not caplog.messages
    assert abandon(controller) == expected
    assert len(caplog.messages) == 1
    entry = described(controller)
    assert entry.remote == Remote.ABANDONED
    assert (entry.remote_segments_left, entry.remote_bytes_left) == (3, 30)
    assert (entry.remote_partitions, entry.remote_error) == (-1, None)
    assert report(controller) == Error.UNKNOWN_TOPIC_ID
    again = abandon(controller)
    assert again.was_abandoned
    assert (again.segments_left, again.bytes_left) == (3, 30)
    assert len(caplog.messages) == 1, "it is abandoned once"


def test_what_nobody_has_reported_is_not_known() -> None:
    controller = harness()
    answer = abandon(controller)
    assert (answer.error_code, answer.segments_left, answer.bytes_left) == (0, -1, -1)
    assert described(controller).remote_segments_left == -1


def test_refusals() -> None:
    controller = harness()
    unknown = abandon(controller, OTHER_ID)
    assert unknown.error_code == Error.UNKNOWN_TOPIC_ID
    assert unknown.error_message is not None
    assert "the id dXV1dXV1dXV1dXV1dXV1dQ" in unknown.error_message
    older = abandon(harness(OTTLA_VERSION_LEVEL - 1))
    assert older.error_code == Error.UNSUPPORTED_VERSION
