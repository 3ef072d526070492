"""Since when a process knows that a partition's remote segments are dead.

A purge waits until no write of a dead segment's copy can be executed any more. That time begins
with the fence that has ended the copies, not with the term of a leader: whoever has replayed it as
a follower knows when that was, and need not wait again as the next leader.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.tiered.segment_metadata import NO_FLOOR, SegmentMetadata

if TYPE_CHECKING:
    from ottla.tiered.remote_log import RemoteLog


@dataclass(slots=True)
class FloorSeen:
    """The floor of a partition as this process has replayed it, and since when (monotonic).

    It falls where a restore has lifted the fence of a purge: what dies afterwards is not dead since
    then.
    """

    floor: int = NO_FLOOR
    at_ms: int = 0

    def look(self, remote: "RemoteLog | None", now_ms: int) -> None:
        """Note the floor, if it is another one."""
        if remote is not None and remote.floor != self.floor:
            self.floor, self.at_ms = remote.floor, now_ms

    def dead_since_ms(self, segment: SegmentMetadata, now_ms: int) -> int:
        """Return since when a dead segment is known to be so; `now_ms` where nothing is noted."""
        is_noted = self.floor > NO_FLOOR and segment.tiered_epoch <= self.floor
        return self.at_ms if is_noted else now_ms
