"""The records of Kafka's own metadata log are replayed as in Kafka.

Method: the batch with which a Kafka 4.0 controller bootstrapped a cluster of several nodes, byte
for byte: a transaction of two feature levels and one config.
"""

from ottla.host.kraft.quorum_replay import records_of
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY
from ottla.metadata.records import ConfigRecord, FeatureLevelRecord
from ottla.raft.batches import read_batches

BOOTSTRAP = bytes.fromhex(
    "0000000000000001000000ca000000010229714cd3000000000004000001a1fca5b1aa000001a1fca5b1aaff"
    "ffffffffffffffffffffffffff000000053c000000013001170001001212426f6f747374726170207265636f"
    "726473003a000002012e010c00116d657461646174612e76657273696f6e001900005a000004014e010c0021"
    "656c696769626c652e6c65616465722e7265706c696361732e76657273696f6e000100004400000601380104"
    "000401146d696e2e696e73796e632e7265706c69636173023100001400000801080118000000"
)


def test_the_transaction_in_which_kafka_bootstraps_a_cluster() -> None:
    (batch,) = read_batches(BOOTSTRAP)
    records = records_of(batch)
    assert records == [
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        ConfigRecord(
            resource_type=ResourceType.BROKER,
            resource_name="",
            name="min.insync.replicas",
            value="1",
        ),
    ]
    image = replay(EMPTY, records, offset=batch.next_offset - 1, epoch=batch.epoch).image
    assert (image.position, image.features["metadata.version"]) == ((5, 1), 25)
