"""The first records of a new cluster's metadata log: those of formatting, and the controller's own.

Source: ActivationRecordsGenerator, ConfigurationControlManager.maybeGenerateElrSafetyRecords,
Kafka 4.0; KIP-966.
"""

from collections.abc import Sequence

from ottla.metadata.configs import ALL_BROKERS, ResourceType
from ottla.metadata.features import elr_enabled
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import ConfigRecord, FeatureLevelRecord, Record

MIN_ISR = "min.insync.replicas"


def first_records(bootstrap: Sequence[Record], config: NodeConfig) -> tuple[Record, ...]:
    """Return the first records of a new cluster: from formatting, and from this node's properties.

    With eligible leader replicas, min.insync.replicas becomes a cluster-wide value: which replicas
    are eligible depends on it, so all nodes must see the same value.
    """
    levels = {
        each.name: each.feature_level for each in bootstrap if isinstance(each, FeatureLevelRecord)
    }
    is_set = any(isinstance(each, ConfigRecord) and each.name == MIN_ISR for each in bootstrap)
    if not elr_enabled(levels) or is_set:
        return tuple(bootstrap)
    for_all = ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name=ALL_BROKERS,
        name=MIN_ISR,
        value=str(config[MIN_ISR]),
    )
    return (*bootstrap, for_all)
