"""A broker's reports end the remote part of a deletion; DescribeDeletions shows how far it is.

Method: the controller of the handlers' tests, after the deletion of a tiered topic.
"""

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.deletions import STARTED as STANDING
from ottla.metadata.deletions import DeletionImage, Policy, Remote, deletion_records
from ottla.metadata.features import OTTLA_VERSION
from ottla.metadata.records import FeatureLevelRecord
from ottla.metadata.tiering import WHOLE_TOPIC
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
).with_status(1, STANDING, [0, 1])


def harness() -> Controller:
    controller = Controller()
    controller.write(
        FeatureLevelRecord(name=OTTLA_VERSION, feature_level=2), *deletion_records(ENTRY)
    )
    return controller


def report(
    controller: Controller, *partitions: PurgedPartition, topic_id: Uuid = TOPIC_ID, epoch: int = 1
) -> ReportPurgesResponse:
    topics = (PurgedTopic(topic_id=topic_id, partitions=partitions),)
    request = ReportPurgesRequest(broker_id=1, broker_epoch=epoch, topics=topics)
    answer = controller.ask(request, 0)
    assert isinstance(answer, ReportPurgesResponse)
    return answer


def described(controller: Controller) -> DescribedDeletion:
    answer = controller.ask(DescribeDeletionsRequest(), 0)
    assert isinstance(answer, DescribeDeletionsResponse)
    return answer.deletions[0]


def purged(partition: int) -> PurgedPartition:
    return PurgedPartition(partition=partition, floor=WHOLE_TOPIC, is_purged=True)


def progress(entry: DescribedDeletion) -> tuple[int, int, int, int, str | None]:
    return (
        entry.remote_partitions,
        entry.remote_partitions_left,
        entry.remote_segments_left,
        entry.remote_bytes_left,
        entry.remote_error,
    )


def test_the_remote_part_ends_with_the_last_partition() -> None:
    controller = harness()
    assert progress(described(controller)) == (2, 2, -1, -1, None)
    left = PurgedPartition(
        partition=1, floor=WHOLE_TOPIC, is_purged=False,
        segments_left=3, bytes_left=30, last_error="denied: 403",
    )  # fmt: skip
    first = report(controller, purged(0), left)
    assert (first.error_code, first.topics[0].error_code) == (Error.NONE, Error.NONE)
    assert progress(described(controller)) == (2, 1, 3, 30, "denied: 403")
    assert described(controller).remote == Remote.PENDING
    second = report(controller, purged(1))
    assert second.topics[0].error_code == Error.NONE
    assert described(controller).remote == Remote.PURGED
    assert progress(described(controller)) == (-1, -1, -1, -1, None)
    assert report(controller, purged(1)).topics[0].error_code == Error.UNKNOWN_TOPIC_ID


def test_refusals() -> None:
    controller = harness()
    unknown = report(controller, purged(0), topic_id=OTHER_ID)
    assert (unknown.error_code, unknown.topics[0].error_code) == (0, Error.UNKNOWN_TOPIC_ID)
    assert report(controller, purged(0), epoch=0).error_code == Error.STALE_BROKER_EPOCH
    assert described(controller).remote == Remote.PENDING
