"""DescribeDeletions (key 1003): what became of deleted topics, replica by replica.

Ottla's own, for its clients. The numbers of policies, states and reasons are those of the records
that the ledger is kept in (`ottla.metadata.deletions`).
"""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    BOOL,
    INT8,
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
class DescribeDeletionsTopic:
    """By one of the two. A name finds all topics that ever bore it."""

    name: str | None = field(STRING, nullable="0+", default=None)
    topic_id: Uuid = field(UUID, default=NO_UUID)


@message(key=1003, versions="0", flexible="0+")
class DescribeDeletionsRequest:
    topics: tuple[DescribeDeletionsTopic, ...] = field(array(DescribeDeletionsTopic), default=())
    """None = the whole ledger."""
    include_receipts: bool = field(BOOL, default=True)
    """Whether deletions that are finished are asked for, too."""
    after: Uuid = field(UUID, default=NO_UUID)
    """Only deletions of larger topic ids are asked for: the `next_after` of the answer before."""


@struct_of
class DeletedReplicas:
    """Replicas of one broker that are equally far."""

    broker_id: int = field(INT32)
    state: int = field(INT8)
    reason: int = field(INT8)
    error: int = field(INT16)
    """What the broker answered; 0 = it did not say. It is no error of this request."""
    partitions: tuple[int, ...] = field(array(INT32))


@struct_of
class DescribedDeletion:
    topic_id: Uuid = field(UUID)
    name: str = field(STRING)
    policy: int = field(INT8)
    asked_ms: int = field(INT64)
    finished_ms: int = field(INT64, default=-1)
    """-1 = it is not finished."""
    halted: int = field(INT8)
    remote: int = field(INT8)
    replicas: tuple[DeletedReplicas, ...] = field(array(DeletedReplicas), default=())
    """Empty = it has not begun."""
    remote_partitions: int = field(INT32, tag=0, default=-1)
    """Partitions whose remote tier is purged or to be purged; -1 = the purge is not pending."""
    remote_partitions_left: int = field(INT32, tag=1, default=-1)
    """Those of them that are not purged yet."""
    remote_segments_left: int = field(INT32, tag=2, default=-1)
    """Remote segments of those, as far as their purgers have reported; -1 = none has. Of an
    abandoned purge: as far as was known then."""
    remote_bytes_left: int = field(INT64, tag=3, default=-1)
    remote_error: str | None = field(STRING, nullable="0+", tag=4, default=None)
    """Of the last deletion of objects that failed; None = none did."""


@message(key=1003, versions="0", flexible="0+")
class DescribeDeletionsResponse:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    deletions: tuple[DescribedDeletion, ...] = field(array(DescribedDeletion), default=())
    """By topic id. What was asked for and is not in the ledger is not here."""
    next_after: Uuid = field(UUID, default=NO_UUID)
    """Zero = that was all; else there may be more, after this one."""
