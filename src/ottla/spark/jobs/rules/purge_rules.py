"""What is left in the store of what was to be deleted. Pure.

Of a deleted topic no object may be left. Of a topic whose tiered storage was turned off with
`delete` none may be left of a segment of the floor's tiered epoch and below; the segments of later
epochs, and the manifests, which name the floor, stay.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.base.ids import Uuid
from ottla.base.object_store import ObjectInfo
from ottla.spark.jobs.rules.topic_status import Existence, TopicStatus
from ottla.tiered.manifest import ManifestState
from ottla.tiered.object_names import parse_manifest_name, parse_object_name
from ottla.tiered.remote_log import RemoteLog


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of one partition. `example`: one of the objects, "" = there is none."""

    objects: int = 0
    size_bytes: int = 0
    example: str = ""
    manifest_lags: bool = False
    """The newest manifest does not name the floor: readers of the store alone may see segments."""


def left_of(objects: Collection[ObjectInfo]) -> Left:
    """Return objects as what is left."""
    return Left(
        len(objects),
        sum(each.size_bytes for each in objects),
        min((each.name for each in objects), default=""),
    )


def left_of_floor(
    objects: Mapping[str, ObjectInfo],
    remote: RemoteLog,
    changed: Collection[Uuid],
    manifests: ManifestState | None,
    floor: int,
) -> Left:
    """Return what is left of a floor.

    `remote`: the metadata after the listing; an object that is not of a segment above the floor
    counts. `changed`: segments that changed since before the listing; they may have been deleted.
    """
    found = []
    for name, each in objects.items():
        parsed = parse_object_name(name)
        if parsed is None:
            if parse_manifest_name(name) is None:
                found.append(each)
            continue
        known = remote.get(parsed.segment_id)
        is_alive = known is not None and known.tiered_epoch > floor
        if not is_alive and (known is not None or parsed.segment_id not in changed):
            found.append(each)
    left = left_of(found)
    lags = manifests is not None and manifests.floor < floor
    return Left(left.objects, left.size_bytes, left.example, lags)


def is_proven(status: TopicStatus, left: Left) -> bool:
    """Tell whether nothing is left, and the cluster says so, too."""
    if left.objects or left.manifest_lags:
        return False
    if status.existence is Existence.EXISTS:
        return not status.purge_pending
    return status.existence is Existence.PURGED
