"""`/cluster/id`, `/feature`, `/latest_producer_id_block`: the single znodes of a cluster.

Features count only where the znode's status is 1. Versions of `/feature`: 2 is written; 1, which
has a lowest level beside each finalized one, is read.
Source: ClusterIdZNode, FeatureZNode, ProducerIdBlockZNode, Kafka 3.9; KIP-584, KIP-730.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from immutables import Map

from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import NO_EXTRA, Extra, Fields, parse, shown, written

FEATURE_VERSION: Final = 2
DISABLED: Final = 0
ENABLED: Final = 1


def decode_cluster_id(data: bytes) -> str:
    """Return the cluster's id. Raises: ZnodeError."""
    return parse(paths.CLUSTER_ID, data).text("id")


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the znode's data: its version is a string, as Kafka has it."""
    return written({"version": "1", "id": cluster_id})


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureZnode:
    """The content of `/feature`. `levels`: finalized levels by name; they count where `enabled`."""

    enabled: bool
    levels: Map[str, int] = field(default_factory=Map)
    extra: Extra = NO_EXTRA


def decode_feature(data: bytes) -> FeatureZnode:
    """Return the finalized features. Raises: ZnodeError."""
    fields = parse(paths.FEATURE, data)
    version = fields.number("version")
    if version not in (1, FEATURE_VERSION):
        raise fields.fail(f"version is {version}: expected 1 or 2")
    status = fields.number("status")
    if status not in (DISABLED, ENABLED):
        raise fields.fail(f"status is {status}: expected 0 or 1")
    levels = {}
    for name, level in fields.object("features").values.items():
        if not isinstance(level, dict):
            raise fields.fail(f"feature {name} is {shown(level)}: expected its level")
        levels[name] = Fields(fields.path, level).number("max_version_level")
        if levels[name] < 1:
            raise fields.fail(f"feature {name} has the level {levels[name]}: expected 1 or more")
    return FeatureZnode(enabled=status == ENABLED, levels=Map(levels), extra=fields.rest())


def encode_feature(levels: Mapping[str, int], extra: Extra = NO_EXTRA) -> bytes:
    """Return the data of an enabled `/feature`."""
    features = {name: {"max_version_level": levels[name]} for name in sorted(levels)}
    return written({"version": FEATURE_VERSION, "status": ENABLED, "features": features}, extra)


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The last allocated block of producer ids; both ends belong to it."""

    broker_id: int
    first: int
    last: int
    extra: Extra = NO_EXTRA


def decode_producer_ids(data: bytes) -> ProducerIdBlock | None:
    """Return the last block; None where none was allocated. Raises: ZnodeError."""
    if not data:
        return None
    fields = parse(paths.PRODUCER_IDS, data)
    fields.number("version", 1)
    block = ProducerIdBlock(
        fields.number("broker"),
        fields.decimal("block_start"),
        fields.decimal("block_end"),
        fields.rest(),
    )
    if not 0 <= block.first <= block.last:
        raise fields.fail(f"block is {block.first} to {block.last}: expected a block of ids")
    return block


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Return the znode's data; ids are strings, as Kafka has them."""
    values: dict[str, object] = {
        "version": 1,
        "broker": block.broker_id,
        "block_start": str(block.first),
        "block_end": str(block.last),
    }
    return written(values, block.extra)
