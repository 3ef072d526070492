"""A store with one partition, as values: segments, their objects, manifests and metadata.

A `Store` is sound as it is made; a test damages it and asks what is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.base.object_store import ObjectInfo
from ottla.log.epoch_cache import EpochCache, EpochEntry
from ottla.log.producers.producer_snapshot import encode_snapshot
from ottla.records.batch import iter_headers, restamp
from ottla.records.builder import encode_batch
from ottla.spark.jobs.rules.findings import Finding, Kind
from ottla.spark.jobs.rules.partition_rules import check_partition
from ottla.spark.jobs.rules.partition_view import PartitionView
from ottla.tiered.manifest import Manifest
from ottla.tiered.manifest_codec import encode_manifest
from ottla.tiered.object_names import ObjectKind, manifest_name, object_name
from ottla.tiered.segment_metadata import (
    Epochs,
    MetadataRecord,
    SegmentMetadata,
    epoch_ranges,
)
from tests.unit.tiered.support import (
    FINISHED,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    fence,
    number_of,
    replayed,
    segment,
    update,
)

NOW_MS = 1_000_000_000
GRACE_MS = 60_000
LONG_AGO_MS = 1_000
KEY = (TOPIC, TOPIC_ID, PARTITION)
RECORDS_PER_BATCH = 5


def log_bytes(start: int, end: int, epochs: Epochs, *, value: bytes = b"v" * 20) -> bytes:
    """Return batches of the offsets from start to end, both inclusive."""
    found = bytearray()
    at = start
    while at <= end:
        count = min(RECORDS_PER_BATCH, end + 1 - at)
        batch = bytearray(encode_batch([(None, value, (), 900)] * count))
        epoch = max((epoch for epoch, first in epochs if first <= at), default=0)
        restamp(batch, 0, base_offset=at, leader_epoch=epoch)
        found += batch
        at += count
    return bytes(found)


def index_bytes(start: int, data: bytes) -> bytes:
    """Return the offset index of a log: an entry for each batch but the first."""
    return b"".join(
        (header.last_offset - start).to_bytes(4, "big") + position.to_bytes(4, "big")
        for position, header in iter_headers(data)
        if position
    )


def objects_of(segment: SegmentMetadata, log: bytes) -> dict[str, bytes]:
    """Return the sound objects of a segment."""
    own = (EpochEntry(epoch, start) for epoch, start, _ in epoch_ranges(segment))
    content = {
        ObjectKind.LOG: log,
        ObjectKind.OFFSET_INDEX: index_bytes(segment.start_offset, log),
        ObjectKind.TIME_INDEX: b"",
        ObjectKind.PRODUCER_SNAPSHOT: encode_snapshot([]),
        ObjectKind.LEADER_EPOCHS: EpochCache(own).encode(),
    }
    return {object_name(segment, kind): data for kind, data in content.items()}


def finished(
    number: int, start: int, end: int, epochs: Epochs | None = None, **more: Any
) -> tuple[SegmentMetadata, bytes]:
    """Return a segment's metadata as COPY_STARTED, and its log."""
    found = segment(number, start, end, epochs, **more)
    log = log_bytes(start, end, found.epochs)
    return replace(found, size_bytes=len(log)), log


@dataclass
class Store:
    """One partition. `records`: of the metadata topic; `modified`: in ms, by name."""

    records: list[MetadataRecord] = field(default_factory=lambda: [fence(1)])
    objects: dict[str, bytes] = field(default_factory=dict)
    modified: dict[str, int] = field(default_factory=dict)
    manifests: dict[int, Manifest | str] = field(default_factory=dict)
    view: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def with_segments(*made: tuple[SegmentMetadata, bytes], **more: Any) -> "Store":
        """Return a sound store: each segment is copied, and one manifest lists all."""
        store = Store()
        for each, log in made:
            store.copy(each, log)
        store.write_manifest(**more)
        return store

    @property
    def segments(self) -> list[SegmentMetadata]:
        return [each for each in self.records if isinstance(each, SegmentMetadata)]

    def copy(self, found: SegmentMetadata, log: bytes) -> None:
        epochs = {"leader_epoch": found.leader_epoch, "tiered_epoch": found.tiered_epoch}
        self.records += [found, update(number_of(found), FINISHED, **epochs)]
        self.objects |= objects_of(found, log)

    def name(self, at: int, kind: ObjectKind = ObjectKind.LOG) -> str:
        """Return the name of an object of the segment at a place."""
        return object_name(self.segments[at], kind)

    def write_manifest(self, **more: Any) -> Manifest:
        """Write the next manifest, a base of what is readable."""
        remote = replayed(*self.records)
        sequence = max(self.manifests, default=-1) + 1
        fields: dict[str, Any] = {
            "leader_epoch": 1 if remote.fence is None else remote.fence.leader_epoch,
            "tiered_epoch": 1 if remote.fence is None else remote.fence.tiered_epoch,
            "floor": remote.floor,
            "log_start_offset": 0,
            "epochs": ((1, 0),),
            "is_base": True,
            "added": tuple(remote.finished()),
            "partition_count": 4,
            "configs": {},
        }
        found = Manifest(
            topic=TOPIC,
            topic_id=TOPIC_ID,
            partition=PARTITION,
            sequence=sequence,
            **(fields | more),
        )
        self.put_manifest(found)
        return found

    def put_manifest(self, manifest: Manifest) -> None:
        self.manifests[manifest.sequence] = manifest
        name = manifest_name(*KEY, manifest.sequence)
        self.objects[name] = encode_manifest(manifest)

    def look(self, **more: Any) -> PartitionView:
        """Return what an audit sees."""
        fields: dict[str, Any] = {
            "topic": TOPIC,
            "topic_id": TOPIC_ID,
            "partition": PARTITION,
            "objects": {
                name: ObjectInfo(name, len(data), self.modified.get(name, LONG_AGO_MS))
                for name, data in sorted(self.objects.items())
            },
            "manifests": dict(self.manifests),
            "remote": replayed(*self.records),
            "now_ms": NOW_MS,
            "grace_ms": GRACE_MS,
        }
        return PartitionView(**(fields | self.view | more))

    def found(self, **more: Any) -> list[Finding]:
        return check_partition(self.look(**more))

    def kinds(self, **more: Any) -> list[Kind]:
        return sorted((each.kind for each in self.found(**more)), key=lambda kind: kind.value)


def sound() -> Store:
    """Return a store with three segments."""
    return Store.with_segments(finished(1, 0, 19), finished(2, 20, 39), finished(3, 40, 59))


def offsets(findings: Sequence[Finding]) -> list[tuple[int | None, int | None]]:
    return [(each.start_offset, each.end_offset) for each in findings]
