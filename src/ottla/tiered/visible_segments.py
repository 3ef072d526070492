"""The visible segments of a log, kept from one plan to the next.

`lineage.visible_segments` looks at every segment. A leader plans again after each copy and each
deletion, and a log may have a hundred thousand segments, of which one has changed: so the visible
ones are kept, and brought up to date by what has changed. That is simple for what leaders do all
day: add a segment behind the last, and delete the first ones. Anything else is computed anew.
"""

from collections.abc import Collection

from ottla.base.ids import Uuid
from ottla.tiered.lineage import Lineage, Visible, visible_segments
from ottla.tiered.remote_log import RemoteLog, by_offset
from ottla.tiered.segment_metadata import Epochs, SegmentMetadata, SegmentState


class VisibleSegments:
    """See the module. Equal to what is computed from all segments after each `update`.

    Fields: `segments`: as `visible_segments` returns them. `size_bytes`: theirs in all.
            `others`: the readable segments that are not among them.
    """

    __slots__ = (
        "_entries",
        "_is_whole",
        "_remote",
        "_shown",
        "_version",
        "others",
        "segments",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.segments: list[Visible] = []
        self.others: list[SegmentMetadata] = []
        self.size_bytes = 0
        self._shown: set[Uuid] = set()
        self._remote: RemoteLog | None = None
        self._version = 0
        self._entries: Epochs = ()
        self._is_whole = False

    def update(self, remote: RemoteLog, lineage: Lineage) -> None:
        """Bring everything up to date."""
        entries = lineage.entries
        # Where the log ends does not matter while it is behind all segments.
        is_whole = remote.highest_offset_of_all() < lineage.log_end_offset
        changed = None
        if remote is self._remote and entries == self._entries and is_whole and self._is_whole:
            changed = remote.changes_since(self._version)
        if changed is None or not self._apply(remote, lineage, changed):
            self._compute(remote, lineage)
        self._remote, self._version = remote, remote.version
        self._entries, self._is_whole = entries, is_whole

    def _compute(self, remote: RemoteLog, lineage: Lineage) -> None:
        finished = remote.finished()
        self.segments = visible_segments(finished, lineage)
        self.size_bytes = sum(each.segment.size_bytes for each in self.segments)
        self._shown = {each.segment.segment_id for each in self.segments}
        self.others = [each for each in finished if each.segment_id not in self._shown]

    def _apply(self, remote: RemoteLog, lineage: Lineage, changed: Collection[Uuid]) -> bool:
        """Apply changes; False = they are not simple ones, and all is to be computed."""
        readable: list[SegmentMetadata] = []
        gone: set[Uuid] = set()
        for segment_id in changed:
            segment = remote.get(segment_id)
            if segment is None or segment.state is not SegmentState.COPY_FINISHED:
                gone.add(segment_id)
            elif segment_id in self._shown:
                return False
            else:
                readable.append(segment)
        return self._drop(gone) and self._append(readable, lineage)

    def _drop(self, gone: set[Uuid]) -> bool:
        count = 0
        while count < len(self.segments) and self.segments[count].segment.segment_id in gone:
            count += 1
        if count < len(gone & self._shown) or (count and self.others):
            return False  # What those hid may be visible now.
        self.size_bytes -= sum(each.segment.size_bytes for each in self.segments[:count])
        del self.segments[:count]
        self._shown -= gone
        self.others = [each for each in self.others if each.segment_id not in gone]
        return True

    def _append(self, segments: list[SegmentMetadata], lineage: Lineage) -> bool:
        known = {each.segment_id for each in self.others}
        for segment in sorted(segments, key=by_offset):
            end = lineage.shared_end(segment)
            last = self.segments[-1] if self.segments else None
            is_behind = last is None or (
                segment.start_offset > last.segment.start_offset and end > last.end_offset
            )
            if segment.segment_id in known or end < 0 or not is_behind:
                return False
            self.segments.append(Visible(segment, end))
            self._shown.add(segment.segment_id)
            self.size_bytes += segment.size_bytes
        return True
