"""A log's configuration has the topic's properties and the broker's own, as they are now.

Method: an image with dynamic values over a property file.
"""

from ottla.base.ids import Uuid
from ottla.broker.logs.log_values import log_values
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import ConfigRecord, TopicRecord, TopicTieringRecord

CONFIG = NodeConfig.parse(
    {
        "process.roles": "broker",
        "node.id": "3",
        "listeners": "PLAINTEXT://localhost:9092",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@localhost:9093",
        "log.retention.ms": "7",
        "producer.id.expiration.ms": "8",
    }
)
TOPIC = Uuid(bytes([1]) * 16)


def test_properties_of_the_topic_and_of_the_broker() -> None:
    values = log_values(EMPTY, CONFIG, "t")
    assert (values["retention.ms"], values["producer.id.expiration.ms"]) == (7, 8)
    assert values["ottla.record.validation"] == "full"
    changed = [
        ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        ConfigRecord(
            resource_type=4, resource_name="", name="producer.id.expiration.ms", value="6"
        ),
        ConfigRecord(
            resource_type=4, resource_name="3", name="ottla.record.validation", value="batch"
        ),
    ]
    values = log_values(replay(EMPTY, changed, offset=1, epoch=1).image, CONFIG, "t")
    assert (values["retention.ms"], values["producer.id.expiration.ms"]) == (5, 6)
    assert values["ottla.record.validation"] == "batch"


def test_the_tiering_state_counts_whatever_the_configuration_says() -> None:
    records = [
        TopicRecord(name="t", topic_id=TOPIC),
        ConfigRecord(resource_type=2, resource_name="t", name="cleanup.policy", value="compact"),
        TopicTieringRecord(topic_id=TOPIC, state=1, tiered_epoch=1),
    ]
    values = log_values(replay(EMPTY, records, offset=1, epoch=1).image, CONFIG, "t")
    assert values["remote.storage.enable"]
    assert not values["remote.log.copy.disable"]
    assert values["cleanup.policy"] == ["delete"]
