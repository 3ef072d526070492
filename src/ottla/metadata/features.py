"""The cluster's feature levels, and which of them this software can work at.

Levels: metadata.version 25 is 4.0-IV3, the one level that Ottla writes its records for.
Source: MetadataVersion, EligibleLeaderReplicasVersion, KIP-584, KIP-966, KIP-1022.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.metadata.brokers import BrokerImage, FeatureRange

METADATA_VERSION: Final = "metadata.version"
METADATA_VERSION_LEVEL: Final = 25
"""4.0-IV3."""

METADATA_VERSION_NAMES: Final = {METADATA_VERSION_LEVEL: "4.0-IV3"}

ELR_VERSION: Final = "eligible.leader.replicas.version"
ELR_VERSION_LEVEL: Final = 1
"""1 = partitions have eligible leader replicas, 0 = they have not."""

OTTLA_VERSION: Final = "ottla.version"
LEDGER: Final = 1
"""From this level on the metadata holds the deletion ledger."""
TIERING: Final = 2
"""From this level on it holds topics' tiering states too."""
ABANDONED_PURGES: Final = 3
"""From this level on the purge of a deleted topic can be abandoned in the ledger."""
OTTLA_VERSION_LEVEL: Final = ABANDONED_PURGES
"""The newest level of what Ottla adds to Kafka's records; 0 = nothing, as in clusters that were
formatted before there was a level."""

SUPPORTED: Final = (
    FeatureRange(METADATA_VERSION, METADATA_VERSION_LEVEL, METADATA_VERSION_LEVEL),
    FeatureRange(ELR_VERSION, 0, ELR_VERSION_LEVEL),
    FeatureRange(OTTLA_VERSION, 0, OTTLA_VERSION_LEVEL),
)
"""What a node of this software registers with, and what ApiVersions returns as supported."""

DEFAULT_LEVELS: Final = {
    METADATA_VERSION: METADATA_VERSION_LEVEL,
    ELR_VERSION: ELR_VERSION_LEVEL,
    OTTLA_VERSION: OTTLA_VERSION_LEVEL,
}
"""The levels of a new cluster. Kafka 4.0 leaves eligible leader replicas off, 4.1 does not."""


def elr_enabled(features: Mapping[str, int]) -> bool:
    """Tell whether a cluster of these finalized levels keeps eligible leader replicas."""
    return features.get(ELR_VERSION, 0) >= ELR_VERSION_LEVEL


def ledger_enabled(features: Mapping[str, int]) -> bool:
    """Tell whether a cluster of these finalized levels has the deletion ledger."""
    return features.get(OTTLA_VERSION, 0) >= LEDGER


def tiering_enabled(features: Mapping[str, int]) -> bool:
    """Tell whether a cluster of these finalized levels has topics' tiering states."""
    return features.get(OTTLA_VERSION, 0) >= TIERING


def registered_level(brokers: Iterable[BrokerImage]) -> int:
    """Return the level of `ottla.version` where none is finalized, in ZooKeeper mode: the smallest
    that a registered broker supports; 0 for brokers that do not name it, and without brokers."""
    return min((_highest(each) for each in brokers), default=0)


def _highest(broker: BrokerImage) -> int:
    return next((each.max_version for each in broker.features if each.name == OTTLA_VERSION), 0)
