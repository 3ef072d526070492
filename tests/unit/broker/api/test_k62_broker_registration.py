"""BrokerRegistration takes brokers in, in every version.

Method: the real decider on an image in memory; every answer passes the codec of its version.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.metadata.features import ELR_VERSION
from ottla.metadata.records import FeatureLevelRecord, PartitionRecord, TopicRecord
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener

from ..controller_harness import CLUSTER_ID, Controller, versions_of


def register(**changes: object) -> BrokerRegistrationRequest:
    values: dict[str, object] = {
        "broker_id": 2,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": Uuid(b"another-process-"),
        "listeners": (
            Listener(name="PLAINTEXT", host="localhost", port=9094, security_protocol=0),
        ),
        "features": (
            Feature(name="metadata.version", min_supported_version=1, max_supported_version=25),
        ),
        "rack": "r",
        "log_dirs": (Uuid(b"other-directory-"),),
        **changes,
    }
    return BrokerRegistrationRequest(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [each for each in versions_of(62) if each >= 2])
def test_every_version_with_log_dirs(version: int) -> None:
    controller = Controller()
    answer = controller.ask(register(), version)
    assert (answer.error_code, answer.broker_epoch) == (Error.NONE, 2)
    broker = controller.image.brokers[2]
    assert (broker.epoch, broker.fenced, broker.rack) == (2, True, "r")
    endpoint = broker.endpoint("PLAINTEXT")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("localhost", 9094)
    assert controller.context.liveness.is_alive(2, 1_000)


@pytest.mark.parametrize("version", [0, 1])
def test_versions_without_log_dirs_cannot_place_replicas(version: int) -> None:
    answer = Controller().ask(register(), version)
    assert (answer.error_code, answer.broker_epoch) == (Error.INVALID_REGISTRATION, -1)


def test_refusals() -> None:
    controller = Controller()
    answer = controller.ask(register(cluster_id="another"), 4)
    assert answer.error_code == Error.INCONSISTENT_CLUSTER_ID
    answer = controller.ask(register(is_migrating_zk_broker=True), 4)
    assert answer.error_code == Error.BROKER_ID_NOT_REGISTERED
    controller.context.liveness.activate(controller.image, 1_000)
    answer = controller.ask(register(broker_id=1), 4)
    assert answer.error_code == Error.DUPLICATE_BROKER_REGISTRATION
    assert 2 not in controller.image.brokers


def test_the_reason_of_a_rejected_registration_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller()
    controller.write(FeatureLevelRecord(name="group.version", feature_level=1))
    answer = controller.ask(register(), 4)
    assert answer.error_code == Error.UNSUPPORTED_VERSION
    [line] = [record.getMessage() for record in caplog.records]
    assert "broker 2" in line
    assert "level 1 of group.version" in line


@pytest.mark.parametrize(
    ("version", "previous", "expected"),
    [(4, 1, (1,)), (3, 1, (1,)), (3, 0, ()), (3, -1, ()), (2, -1, ())],
)
def test_only_the_last_broker_epoch_proves_a_clean_shutdown(
    version: int, previous: int, expected: tuple[int, ...]
) -> None:
    controller = Controller()
    topic = Uuid(b"topic-----------")
    partition = PartitionRecord(
        partition_id=0,
        topic_id=topic,
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )
    controller.write(
        FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
        TopicRecord(name="t", topic_id=topic),
        partition,
    )
    elr = Feature(name=ELR_VERSION, min_supported_version=0, max_supported_version=1)
    request = register(
        broker_id=1,
        previous_broker_epoch=previous,
        features=(*register().features, elr),
    )
    assert controller.ask(request, version).error_code == Error.NONE
    found = controller.image.topics.by_id(topic)
    assert found is not None
    assert found.partitions[0].elr == expected
