"""The deleted topics whose objects are to be deleted, in UpdateMetadata. Ottla's own.

In ZooKeeper mode brokers do not follow the deletion ledger; those that lead partitions of
`__remote_log_metadata` need this part of it. It is a tagged field; Kafka's brokers skip it.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import BOOL, INT32, INT64, STRING, UUID, array, field, struct_of

TAG = 10001


@struct_of
class PendingPurge:
    topic_id: Uuid = field(UUID)
    name: str = field(STRING)
    asked_ms: int = field(INT64)
    replicas_are_over: bool = field(BOOL)
    """Every replica is deleted or abandoned."""
    partitions: tuple[int, ...] = field(array(INT32))
