"""RestoreTopic (key 1008): create a topic from what remote storage has of it.

Ottla's own. Who plans it reads the manifests in the object store (`ottla.tiered.restore_plan`); the
controller needs no object store.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class RestoreTopicEpoch:
    epoch: int = field(INT32)
    start_offset: int = field(INT64)


@struct_of
class RestoreTopicPartition:
    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32)
    """The first one of the restored partition, above all of its remote segments."""
    log_start_offset: int = field(INT64)
    end_offset: int = field(INT64)
    """Exclusive: where the remote segments end and the new log begins."""
    epochs: tuple[RestoreTopicEpoch, ...] = field(array(RestoreTopicEpoch))


@struct_of
class RestoreTopicConfig:
    name: str = field(STRING)
    value: str = field(STRING)


@message(key=1008, versions="0", flexible="0+")
class RestoreTopicRequest:
    name: str = field(STRING)
    topic_id: Uuid = field(UUID)
    tiered_epoch: int = field(INT32)
    remote_floor_epoch: int = field(INT32, default=0)
    replication_factor: int = field(INT16, default=-1)
    """-1 = default.replication.factor."""
    validate_only: bool = field(BOOL, default=False)
    configs: tuple[RestoreTopicConfig, ...] = field(array(RestoreTopicConfig))
    partitions: tuple[RestoreTopicPartition, ...] = field(array(RestoreTopicPartition))


@message(key=1008, versions="0", flexible="0+")
class RestoreTopicResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
