"""What the log of a new cluster begins with, besides what formatting left for it.

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
    """Return the records of a new cluster, as formatting left them and this controller is set.

    With eligible leader replicas min.insync.replicas becomes the cluster's: who is eligible
    depends on it, so no two nodes may see it differently.
    """
    levels = {
        each.name: each.feature_level for each in bootstrap if isinstance(each, FeatureLevelRecord)
    }
    is_said = any(isinstance(each, ConfigRecord) and each.name == MIN_ISR for each in bootstrap)
    if not elr_enabled(levels) or is_said:
        return tuple(bootstrap)
    for_all = ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name=ALL_BROKERS,
        name=MIN_ISR,
        value=str(config[MIN_ISR]),
    )
    return (*bootstrap, for_all)
