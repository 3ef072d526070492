"""DescribeTopicTiering says who has not acknowledged, and how far a purge is.

Method: the controller of the handlers' tests; acknowledgements and reports as brokers give them.
"""

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.disabling.acknowledgements import Reason
from ottla.metadata.features import OTTLA_VERSION, TIERING
from ottla.metadata.records import FeatureLevelRecord, PartitionRecord, TopicRecord
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering, tiering_record
from ottla.wire.messages.describe_topic_tiering import (
    DescribedTopicTiering,
    DescribeTopicTieringRequest,
    DescribeTopicTieringResponse,
    MissingAcknowledgement,
)
from ottla.wire.messages.report_purges import (
    PurgedPartition,
    PurgedTopic,
    ReportPurgesRequest,
    ReportPurgesResponse,
)

from ..controller_harness import Controller

TOPIC_ID, PLAIN_ID = Uuid(b"t" * 16), Uuid(b"u" * 16)
DELETING = TopicTiering(
    topic_id=TOPIC_ID,
    state=TieringState.DISABLING,
    tiered_epoch=4,
    policy=DisablePolicy.DELETE,
    remote_floor_epoch=3,
    purge_pending=True,
)


def harness(tiering: TopicTiering = DELETING) -> Controller:
    """Return a controller with partitions 0 to 2 of t, of which 2 has no leader, and u."""
    controller = Controller()
    controller.write(
        FeatureLevelRecord(name=OTTLA_VERSION, feature_level=TIERING),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        TopicRecord(name="u", topic_id=PLAIN_ID),
        *(
            PartitionRecord(
                partition_id=number,
                topic_id=TOPIC_ID,
                replicas=(1,) if number < 2 else (7,),
                isr=(1,) if number < 2 else (7,),
                leader=1 if number < 2 else -1,
                leader_epoch=5,
                partition_epoch=0,
            )
            for number in range(3)
        ),
        tiering_record(tiering),
    )
    return controller


def described(controller: Controller, *names: str) -> tuple[DescribedTopicTiering, ...]:
    answer = controller.ask(DescribeTopicTieringRequest(topics=names or None), 0)
    assert isinstance(answer, DescribeTopicTieringResponse)
    assert answer.error_code == Error.NONE
    return answer.topics


def test_the_response_has_who_has_not_acknowledged_and_why() -> None:
    controller = harness()
    acknowledgements = controller.context.acknowledgements
    acknowledgements.fail(DELETING, (1, 1), Error.OPERATION_NOT_ATTEMPTED)
    [topic] = described(controller)
    assert topic == DescribedTopicTiering(
        name="t",
        topic_id=TOPIC_ID,
        state=2,
        tiered_epoch=4,
        policy=2,
        remote_floor_epoch=3,
        purge_pending=True,
        missing=(
            MissingAcknowledgement(
                broker_id=-1, is_leader=False, reason=Reason.NO_LEADER, error=0, partitions=(2,)
            ),
            MissingAcknowledgement(
                broker_id=1, is_leader=True, reason=Reason.NOT_ANSWERED, error=0, partitions=(0,)
            ),
            MissingAcknowledgement(
                broker_id=1, is_leader=True, reason=Reason.FAILED, error=55, partitions=(1,)
            ),
        ),
        purge_partitions=3,
        purge_partitions_left=3,
        purge_leaderless=(2,),
    )


def test_a_purge_shows_how_far_it_is_and_ends() -> None:
    controller = harness()

    def report(*partitions: PurgedPartition) -> None:
        topics = (PurgedTopic(topic_id=TOPIC_ID, partitions=partitions),)
        answer = controller.ask(ReportPurgesRequest(broker_id=1, broker_epoch=1, topics=topics), 0)
        assert isinstance(answer, ReportPurgesResponse)
        assert [each.error_code for each in answer.topics] == [Error.NONE]

    report(
        PurgedPartition(partition=0, floor=3, is_purged=True),
        PurgedPartition(
            partition=1, floor=3, is_purged=False, segments_left=5, bytes_left=6, last_error="down"
        ),
    )
    [topic] = described(controller, "t")
    assert (
        topic.purge_partitions,
        topic.purge_partitions_left,
        topic.purge_segments_left,
        topic.purge_bytes_left,
        topic.purge_error,
    ) == (3, 2, 5, 6, "down")
    report(*(PurgedPartition(partition=each, floor=3, is_purged=True) for each in (1, 2)))
    [topic] = described(controller, "t")
    assert not topic.purge_pending
    assert topic.purge_partitions == -1


def test_topics_without_remote_storage_have_no_state_and_unknown_ones_are_left_out() -> None:
    controller = harness(TopicTiering(topic_id=TOPIC_ID))
    assert [each.name for each in described(controller)] == ["t"]
    enabled, plain = described(controller, "u", "t", "t", "missing")
    assert (enabled.name, enabled.state, enabled.missing) == ("t", 1, ())
    assert plain == DescribedTopicTiering(name="u", topic_id=PLAIN_ID, state=0)


def test_a_node_that_is_not_the_controller_answers_not_controller() -> None:
    controller = harness()
    controller.refusal = Error.NOT_CONTROLLER
    answer = controller.ask(DescribeTopicTieringRequest(), 0)
    assert isinstance(answer, DescribeTopicTieringResponse)
    assert answer.error_code == Error.NOT_CONTROLLER
