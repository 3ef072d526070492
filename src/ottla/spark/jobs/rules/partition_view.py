"""What an audit knows of one partition: a value that the rules are functions of."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ottla.base.ids import Uuid
from ottla.base.object_store import ObjectInfo
from ottla.spark.jobs.rules.findings import Finding, Kind, Severity
from ottla.tiered.manifest import Manifest, ManifestState, follow
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import NO_FLOOR, SegmentMetadata, SegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTier:
    """Where a partition's log, and its leader's local log, begin.

    `local_start_offset` is read before the metadata's last look, `log_start_offset` after it: what
    a local log has deleted was copied before, and what is deleted remotely is below the log start.
    """

    log_start_offset: int
    local_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition, seen once.

    Fields: `objects`: a listing of the partition's directory, by name.
            `manifests`: those that were read, by number; a text = why one cannot be decoded.
            `remote`: its segments by `__remote_log_metadata`, after the listing; None = no broker
            was asked. `changed`: the segments that changed since before the listing: of these
            nothing can be said. `refused`: segments whose COPY_FINISHED came after a fence.
            `tier`: None = not known. `floor_is_purged`: the controller says that nothing of the
            topic's remote floor is left; the floor, 0 = it says nothing.
            `now_ms`, `grace_ms`: what is younger than the grace time may be under way.
    """

    topic: str
    topic_id: Uuid
    partition: int
    objects: Mapping[str, ObjectInfo]
    manifests: Mapping[int, Manifest | str] = field(default_factory=dict)
    remote: RemoteLog | None = None
    changed: Collection[Uuid] = ()
    refused: Collection[Uuid] = ()
    tier: LocalTier | None = None
    floor_is_purged: int = NO_FLOOR
    now_ms: int
    grace_ms: int

    def finding(
        self,
        kind: Kind,
        severity: Severity,
        detail: str,
        *,
        object: str | None = None,
        offsets: tuple[int, int] | None = None,
    ) -> Finding:
        """Return a finding of this partition."""
        start, end = (None, None) if offsets is None else offsets
        return Finding(
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            kind=kind,
            severity=severity,
            detail=detail,
            object=object,
            start_offset=start,
            end_offset=end,
        )

    def is_old(self, at_ms: int) -> bool:
        """Tell whether something of that time is older than the grace time."""
        return at_ms + self.grace_ms <= self.now_ms

    def manifest_state(self) -> ManifestState | None:
        """Return what the manifests say, as their readers see it."""
        return follow(each for each in self.manifests.values() if isinstance(each, Manifest))

    def stable(self, *states: SegmentState) -> list[SegmentMetadata]:
        """Return the segments in these states, by offset, without those that just changed."""
        if self.remote is None:
            return []
        return [
            each
            for each in self.remote.segments()
            if each.state in states and each.segment_id not in self.changed
        ]

    def readable(self, state: ManifestState | None) -> list[SegmentMetadata]:
        """Return the segments that readers rely on: by the metadata, or by manifests alone."""
        if self.remote is not None:
            return self.stable(SegmentState.COPY_FINISHED)
        return [] if state is None else list(state.segments.values())
