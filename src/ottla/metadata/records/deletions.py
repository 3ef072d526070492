"""Records about topics that are being deleted, and of those that were. Ottla's own: KIP-631
leaves type ids above Kafka's free, and Kafka's dump tool reports these as unknown.

Written only where the feature `ottla.version` allows it. Who reads them: `metadata.deletions`.
"""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT8, INT16, INT32, INT64, STRING, UUID, array, field, record


@record(type=5000, versions="0")
class DeletionRecord:
    """A deletion; a later one of the same topic id replaces it. Its replicas stay."""

    topic_id: Uuid = field(UUID)
    name: str = field(STRING)
    policy: int = field(INT8)
    asked_ms: int = field(INT64)
    """Epoch milliseconds of the request."""
    halted: int = field(INT8, tag=0, default=0)
    remote: int = field(INT8, tag=1, default=0)
    finished_ms: int = field(INT64, tag=2, default=-1)
    """Epoch milliseconds of its end; -1 = not finished."""
    leader_epoch: int = field(INT32, tag=3, default=-1)
    """The largest of its partitions; -1 = not known."""
    segments_left: int = field(INT32, tag=4, default=-1)
    """Remote segments that were left when their purge was abandoned; -1 = not known."""
    bytes_left: int = field(INT64, tag=5, default=-1)


@record(type=5001, versions="0")
class DeletionReplicasRecord:
    """The status of some replicas of a topic on one broker; others are unchanged."""

    topic_id: Uuid = field(UUID)
    broker_id: int = field(INT32)
    state: int = field(INT8)
    reason: int = field(INT8, tag=0, default=0)
    error: int = field(INT16, tag=1, default=0)
    partitions: tuple[int, ...] = field(array(INT32))


@record(type=5002, versions="0")
class ForgetDeletionRecord:
    """An expired receipt is removed, or a deletion that had not begun is cancelled."""

    topic_id: Uuid = field(UUID)
