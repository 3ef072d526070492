"""What topics promise of their records: the part of a `History` that `promises` reads."""

from enum import Enum
from typing import NamedTuple

from ottla.base.ids import Uuid

TopicPartition = tuple[Uuid, int]
"""Topic id and partition: a name may stand for another topic later."""


class Outcome(Enum):
    """How a write ended for its client."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    """Rejected: no broker has appended it."""
    UNKNOWN = "unknown"
    """Given up; some attempt may have been appended."""


class Promise(NamedTuple):
    """What a topic keeps of the writes that all its in-sync replicas have acknowledged.

    Fields: `compacted`: a record may go once a newer one of its key exists. `keeps_tombstones`:
            a tombstone that is its key's newest record stays. `trimmed`: records may go from the
            start of the log on. `weak`: one replica's acknowledgement is enough, and is given
            before it has flushed: a loss of power may take the record. `unclean`: an election
            outside the in-sync replicas may take records.
    """

    compacted: bool = False
    keeps_tombstones: bool = True
    trimmed: bool = False
    weak: bool = False
    unclean: bool = False


KEEPS_ALL = Promise()


class Trim(NamedTuple):
    """An acknowledged DeleteRecords request of one partition.

    Fields: `wanted`: -1 = up to the high watermark. `starts`: the log start of each in-sync
            replica, by node, when the answer came.
    """

    partition: tuple[Uuid, int]
    wanted: int
    low_watermark: int
    starts: tuple[tuple[int, int], ...] = ()
    at_ms: int = 0
