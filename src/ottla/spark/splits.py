"""What a task reads: half-open ranges of offsets, each at one place."""

from dataclasses import dataclass, field

from ottla.base.ids import Uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePlace:
    """Where the records of a split are in the object store.

    Fields: `segment_id`: of the remote segment; `name`, `size_bytes`: its object with the records.
            `position`: a batch begins there, at the first one of the split or before it.
            `end_position`: none of the batches behind is of the split, by the index. Reads stop by
            the batches' own offsets: both positions only say which bytes to ask for.
            `aborted`: the transactions (producer id, first offset) to leave out.
    """

    segment_id: Uuid
    name: str
    size_bytes: int
    position: int
    end_position: int
    aborted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """Offsets [start, end) of one partition of one incarnation of a topic.

    `contiguous`: every offset has a record or a marker, so a missing one is lost.
    `is_open`: the split also includes what is readable beyond `end` when the task runs.
    `remote`: its place in the object store; None = the partition's leader is asked.
    `size_bytes`: about how many bytes brokers have of it; 0 = not known.
    """

    topic: str
    topic_id: Uuid
    partition: int
    start: int
    end: int
    contiguous: bool
    is_open: bool = False
    remote: RemotePlace | None = None
    size_bytes: int = field(default=0, compare=False)
