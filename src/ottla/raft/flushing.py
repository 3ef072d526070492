"""One flush of the log at a time; what is appended meanwhile waits for the next.

A leader counts its own copy only once it is durable. A voter sends its next fetch only once its log
is durable, since the fetch offset acknowledges the records before it (KafkaRaftClient flushes
there, too). So the log is never truncated during a flush.
"""

from ottla.raft.log_view import LogView


class Flushing:
    """How far a member's log is durable. Offsets are exclusive ends."""

    def __init__(self, log: LogView) -> None:
        self._log = log
        self._under_way = False
        self._flushed_to = 0

    @property
    def flushed_to(self) -> int:
        """Return the end of what is known to be durable."""
        return self._flushed_to

    @property
    def is_done(self) -> bool:
        """Tell whether the whole log is durable and nothing is being flushed."""
        return not self._under_way and self._flushed_to >= self._log.end_offset

    def begin(self) -> bool:
        """Return whether to flush now: not during a flush, whose end begins the next one."""
        if self._under_way or self._log.end_offset <= self._flushed_to:
            return False
        self._under_way = True
        return True

    def ended(self, end_offset: int) -> None:
        """Note a flush's end."""
        self._under_way = False
        self._flushed_to = max(self._flushed_to, end_offset)
        assert self._flushed_to <= self._log.end_offset

    def truncated_to(self, offset: int) -> None:
        """Note that what follows `offset` is gone."""
        self._flushed_to = min(self._flushed_to, offset)

    def restarted_at(self, offset: int) -> None:
        """Note that a durable snapshot has replaced the log."""
        self._flushed_to = offset
