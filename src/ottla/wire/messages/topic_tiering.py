"""A topic's tiering state in the controller's requests of ZooKeeper mode. Ottla's own.

It is a tagged field of the topic in LeaderAndIsr and UpdateMetadata; Kafka's brokers skip it. The
metadata record has where restored partitions began in the same structures.
"""

from ottla.wire.schema import BOOL, INT8, INT32, INT64, array, field, struct_of

TAG = 10001


@struct_of
class RestoredEpochData:
    epoch: int = field(INT32)
    start_offset: int = field(INT64)


@struct_of
class RestoredPartitionData:
    """See `metadata.tiering.RestoredPartition`."""

    partition: int = field(INT32)
    leader_epoch: int = field(INT32)
    log_start_offset: int = field(INT64)
    end_offset: int = field(INT64)
    epochs: tuple[RestoredEpochData, ...] = field(array(RestoredEpochData))


@struct_of
class TopicTieringState:
    tiered_epoch: int = field(INT32)
    state: int = field(INT8)
    policy: int = field(INT8)
    remote_floor_epoch: int = field(INT32)
    """Remote segments of this tiered epoch and below are dead; 0 = none."""
    purge_pending: bool = field(BOOL)
    restored: tuple[RestoredPartitionData, ...] = field(
        array(RestoredPartitionData), tag=0, default=()
    )
    """Of a topic that was restored: where the partitions began that the request has."""
