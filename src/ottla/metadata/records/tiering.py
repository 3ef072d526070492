"""The record about a topic's remote storage. Ottla's own, as those of the deletion ledger.

Written only from a level of the feature `ottla.version` on. Who reads it: `metadata.tiering`.
"""

from ottla.base.ids import Uuid
from ottla.wire.messages.topic_tiering import RestoredPartitionData
from ottla.wire.schema import BOOL, INT8, INT32, UUID, array, field, record


@record(type=5003, versions="0")
class TopicTieringRecord:
    """A topic's whole tiering state; a later one replaces it. The topic's removal removes it."""

    topic_id: Uuid = field(UUID)
    state: int = field(INT8)
    tiered_epoch: int = field(INT32)
    policy: int = field(INT8, tag=0, default=0)
    remote_floor_epoch: int = field(INT32, tag=1, default=0)
    purge_pending: bool = field(BOOL, tag=2, default=False)
    restored: tuple[RestoredPartitionData, ...] = field(
        array(RestoredPartitionData), tag=3, default=()
    )
    """Of a topic that was restored: where its partitions began."""
