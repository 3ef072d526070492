"""A topic's tiering state in the controller's requests of ZooKeeper mode. Ottla's own.

It is a tagged field of the topic in LeaderAndIsr and UpdateMetadata; Kafka's brokers skip it.
"""

from ottla.wire.schema import BOOL, INT8, INT32, field, struct_of

TAG = 10001


@struct_of
class TopicTieringState:
    tiered_epoch: int = field(INT32)
    state: int = field(INT8)
    policy: int = field(INT8)
    remote_floor_epoch: int = field(INT32)
    """Remote segments of this tiered epoch and below are dead; 0 = none."""
    purge_pending: bool = field(BOOL)
