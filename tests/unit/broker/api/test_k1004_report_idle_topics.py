"""A broker's report deletes the topics that are due by all brokers' reports.

Method: the controller of the handlers' tests with one broker, whose word is all there is.
"""

from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.metadata.configs import ResourceType
from ottla.metadata.deletions import Policy
from ottla.metadata.features import OTTLA_VERSION
from ottla.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from ottla.wire.messages.report_idle_topics import (
    IdleTopic,
    ReportIdleTopicsRequest,
    ReportIdleTopicsResponse,
)

from ..controller_harness import Controller

TOPIC_ID = Uuid(b"t" * 16)
TTL_MS = 5_000


def harness(*, level: int = 1, **how: Any) -> Controller:
    controller = Controller(**how)
    controller.write(
        FeatureLevelRecord(name=OTTLA_VERSION, feature_level=level),
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=(1,),
            isr=(1,),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        ),
        ConfigRecord(
            resource_type=ResourceType.TOPIC,
            resource_name="t",
            name="ottla.topic.ttl.ms",
            value=str(TTL_MS),
        ),
    )
    return controller


def report(
    controller: Controller, idle_ms: int = TTL_MS, *, token: int = -1, epoch: int = 1
) -> ReportIdleTopicsResponse:
    request = ReportIdleTopicsRequest(
        broker_id=1,
        broker_epoch=epoch,
        token=token,
        coordinators=(),
        topics=(IdleTopic(topic_id=TOPIC_ID, replicas=(1,), idle_ms=idle_ms),),
    )
    answer = controller.ask(request, 0)
    assert isinstance(answer, ReportIdleTopicsResponse)
    return answer


def test_what_is_due_is_deleted_at_once_with_an_entry_in_the_ledger() -> None:
    controller = harness()
    first = report(controller)
    assert (first.error_code, controller.image.topics.id_of("t")) == (Error.NONE, TOPIC_ID)
    second = report(controller, token=first.token)
    assert (second.error_code, controller.image.topics.id_of("t")) == (Error.NONE, None)
    entry = controller.image.deletions.of(TOPIC_ID)
    assert entry is not None
    assert (entry.policy, entry.name) == (Policy.AT_ONCE, "t")
    assert report(controller, token=second.token).error_code == Error.NONE


def test_over_zookeeper_what_is_due_is_queued() -> None:
    controller = harness(mode=ZOOKEEPER_MODE, level=0)
    report(controller, token=report(controller).token)
    assert controller.image.topics.id_of("t") == TOPIC_ID
    assert controller.image.deletions.is_queued(TOPIC_ID)


def test_who_is_not_registered_or_meets_no_controller_is_refused() -> None:
    controller = harness()
    assert report(controller, epoch=7).error_code == Error.STALE_BROKER_EPOCH
    controller.refusal = Error.NOT_CONTROLLER
    assert report(controller).error_code == Error.NOT_CONTROLLER
