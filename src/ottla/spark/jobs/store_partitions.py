"""Which partitions the store has objects of, and what a task lists and reads of one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ottla.base.ids import Uuid
from ottla.base.object_store import ObjectInfo
from ottla.spark.jobs.metadata_log import Key
from ottla.spark.jobs.rules.findings import FINDINGS_MAX, Finding, Kind, Severity
from ottla.spark.jobs.store_access import StoreAccess
from ottla.tiered.manifest import BASE_EVERY, LISTINGS_MAX, Manifest, first_to_read
from ottla.tiered.manifest_codec import MANIFEST_BYTES_MAX, decode_manifest
from ottla.tiered.object_names import (
    behind_partition,
    manifest_name,
    parse_directory_name,
    parse_manifest_name,
    partition_prefix,
)


@dataclass(slots=True)
class StoredPartitions:
    """What a listing shows. `foreign`: findings of objects that are in no partition's directory."""

    keys: set[Key] = field(default_factory=set)
    foreign: list[Finding] = field(default_factory=list)

    @property
    def ids(self) -> set[tuple[str, Uuid]]:
        """The topics and their ids."""
        return {(topic, topic_id) for topic, topic_id, _ in self.keys}


def stored_partitions(store: StoreAccess, topics: Collection[str] = ()) -> StoredPartitions:
    """Return the partitions that have objects; `topics`: only of these, () = of all.

    A page of each partition is listed, not all of its objects.
    """
    found = StoredPartitions()
    if not topics:
        _discover(store, found, "")
    for each in sorted(set(topics)):
        _discover(store, found, f"{each}-")
    if topics:
        found.keys = {key for key in found.keys if key[0] in topics}
        found.foreign = []
    return found


def _discover(store: StoreAccess, found: StoredPartitions, begin: str) -> None:
    after = begin
    while True:
        page = store.list_page("", after)
        for each in page.objects:
            if begin and not each.name.startswith(begin):
                return
            parsed = parse_directory_name(each.name)
            if parsed is not None:
                found.keys.add(parsed)
            elif len(found.foreign) < FINDINGS_MAX:
                found.foreign.append(_foreign(each))
        if page.is_last or not page.objects:
            return
        after = page.objects[-1].name
        if parse_directory_name(after) is not None:
            after = behind_partition(after)


def _foreign(each: ObjectInfo) -> Finding:
    return Finding(
        topic="",
        topic_id=None,
        partition=-1,
        kind=Kind.FOREIGN_OBJECT,
        severity=Severity.WARNING,
        detail=f"not in a partition's directory; {each.size_bytes} bytes",
        object=each.name,
    )


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a partition by name, and those of its manifests that readers read."""

    objects: Mapping[str, ObjectInfo]
    manifests: Mapping[int, Manifest | str]


def list_partition(store: StoreAccess, key: Key, *, all_manifests: bool) -> Listing:
    """List a partition's directory and read its manifests.

    Manifests come and old ones go meanwhile: where one that was listed is gone all is listed again.
    """
    prefix = partition_prefix(*key)
    for _ in range(LISTINGS_MAX):
        objects = {each.name: each for each in store.list_objects(prefix)}
        manifests = _read_manifests(store, key, objects, all_manifests=all_manifests)
        if manifests is not None:
            return Listing(objects, manifests)
    raise TimeoutError(f"the manifests of {prefix} change faster than they can be read")


def _read_manifests(
    store: StoreAccess, key: Key, objects: Collection[str], *, all_manifests: bool
) -> dict[int, Manifest | str] | None:
    """Return the manifests since the last base; None = one of them is gone."""
    numbers = sorted(each for each in map(parse_manifest_name, objects) if each is not None)
    found: dict[int, Manifest | str] = {}
    if not numbers:
        return found
    begin = 0 if all_manifests else first_to_read(numbers[-1])
    while True:
        for number in numbers:
            if number < begin or number in found:
                continue
            manifest = _read_manifest(store, key, number)
            if manifest is None:
                return None
            found[number] = manifest
        if begin <= numbers[0] or any(_is_base(each) for each in found.values()):
            return found
        begin -= BASE_EVERY


def _is_base(manifest: Manifest | str) -> bool:
    return isinstance(manifest, Manifest) and manifest.is_base


def _read_manifest(store: StoreAccess, key: Key, number: int) -> Manifest | str | None:
    topic, topic_id, partition = key
    data = store.read_or_none(
        manifest_name(topic, topic_id, partition, number), 0, MANIFEST_BYTES_MAX
    )
    if data is None:
        return None
    try:
        manifest = decode_manifest(data)
    except ValueError as error:
        return str(error)
    if (manifest.sequence, manifest.topic_id, manifest.partition) != (number, topic_id, partition):
        return "it is the manifest of another number or partition"
    return manifest
