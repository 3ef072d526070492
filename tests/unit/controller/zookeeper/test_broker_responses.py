"""Brokers' answers become events, and an answer counts for what was asked and no more.

Method: a batch is sent, an answer made by hand is read; names as in Kafka's
ControllerChannelManagerTest.
"""

import pytest

from ottla.base.errors import Error
from ottla.controller.keys import PartitionKey
from ottla.controller.zookeeper.broker_responses import failed_replicas
from ottla.controller.zookeeper.inter_broker_protocol import LATEST, Level, parse_level
from ottla.controller.zookeeper.request_batch import BrokerRequest, RequestBatch
from ottla.metadata.image import ClusterImage
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tests.unit.controller.model_brokers import (
    cluster_image,
    led,
    sent,
    topic,
    topic_id,
    view,
)

FOO0, FOO1, BAR0 = PartitionKey("foo", 0), PartitionKey("foo", 1), PartitionKey("bar", 0)
LED = led([1, 2])
CLUSTER = cluster_image([1, 2], topic("foo", LED, LED), topic("bar", LED))


def lead(image: ClusterImage, level: Level = LATEST) -> BrokerRequest:
    seen = view(image, level=level)
    batch = RequestBatch(seen)
    for key in (FOO0, FOO1, BAR0):
        batch.add_leader_and_isr([2], key, LED, written_by=5, is_new=False)
    [asked] = sent(batch, seen)
    assert isinstance(asked.request, LeaderAndIsrRequest)
    return asked


def answer(protocol: str, errors: dict[PartitionKey, Error]) -> LeaderAndIsrResponse:
    if protocol == "2.4":
        return LeaderAndIsrResponse(
            error_code=0,
            partition_errors=tuple(
                LeaderAndIsrPartitionError(
                    topic_name=key.topic, partition_index=key.partition, error_code=error
                )
                for key, error in errors.items()
            ),
        )
    topics: dict[str, list[LeaderAndIsrPartitionError]] = {}
    for key, error in errors.items():
        topics.setdefault(key.topic, []).append(
            LeaderAndIsrPartitionError(partition_index=key.partition, error_code=error)
        )
    return LeaderAndIsrResponse(
        error_code=0,
        topics=tuple(
            LeaderAndIsrTopicError(topic_id=topic_id(name), partition_errors=tuple(listed))
            for name, listed in topics.items()
        ),
    )


@pytest.mark.parametrize("protocol", ["3.9", "2.4"])
def test_leader_and_isr_responses_report_failed_log_dirs(protocol: str) -> None:
    asked = lead(CLUSTER, parse_level(protocol))
    errors = {FOO0: Error.KAFKA_STORAGE_ERROR, FOO1: Error.KAFKA_STORAGE_ERROR, BAR0: Error.NONE}
    assert failed_replicas(asked, answer(protocol, errors)) == (FOO0, FOO1)


def test_other_errors_are_no_failed_log_dirs() -> None:
    asked = lead(CLUSTER)
    errors = {FOO0: Error.STALE_CONTROLLER_EPOCH}
    assert failed_replicas(asked, answer("3.9", errors)) == ()
    refused = LeaderAndIsrResponse(error_code=Error.STALE_BROKER_EPOCH)
    assert failed_replicas(asked, refused) == ()


def test_an_id_that_is_not_in_the_request_is_skipped() -> None:
    stray = {PartitionKey("other", 0): Error.KAFKA_STORAGE_ERROR}
    assert failed_replicas(lead(CLUSTER), answer("3.9", stray)) == ()
