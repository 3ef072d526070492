"""One flush of the log at a time; what is appended meanwhile waits for the next.

A leader counts its own copy only once it is durable. A voter sends its next fetch only once its log
is durable, since the fetch offset acknowledges the records before it (KafkaRaftClient flushes
there, too). So the log is never truncated during a flush.
"""

from typing import TYPE_CHECKING

from ottla.raft.effects import FlushLog
from ottla.raft.events import Flushed

if TYPE_CHECKING:
    from ottla.raft.node import RaftNode


class Flushing:
    """How far a member's log is durable. Offsets are exclusive ends."""

    def __init__(self, node: "RaftNode") -> None:
        self._node = node
        self._under_way = False
        self._flushed_to = 0

    @property
    def flushed_to(self) -> int:
        """Return the end of what is known to be durable."""
        return self._flushed_to

    @property
    def is_done(self) -> bool:
        """Tell whether the whole log is durable and nothing is being flushed."""
        return not self._under_way and self._flushed_to >= self._node.log.end_offset

    def begin(self) -> None:
        """Flush what is not durable, unless a flush is in progress: its end begins the next."""
        node = self._node
        if not self._under_way and node.log.end_offset > self._flushed_to:
            self._under_way = True
            node.effects.append(FlushLog(end_offset=node.log.end_offset, epoch=node.epoch))

    def ended(self, event: Flushed) -> None:
        """Note a flush's end."""
        self._under_way = False
        self._flushed_to = max(self._flushed_to, event.end_offset)
        assert self._flushed_to <= self._node.log.end_offset

    def truncated_to(self, offset: int) -> None:
        """Note that what follows `offset` is gone."""
        self._flushed_to = min(self._flushed_to, offset)

    def restarted_at(self, offset: int) -> None:
        """Note that a durable snapshot has replaced the log."""
        self._flushed_to = offset
