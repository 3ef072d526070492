"""Reads the manifests of a partition, as a reader that asks no broker does.

Manifests come, and old ones go, while they are read. One that is missing after it was listed means
that a newer base is there: everything is listed again.
"""

from ottla.base.ids import Uuid
from ottla.base.object_store import Failure, ObjectInfo, StoreError
from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.store_calls import StoreCalls
from ottla.tiered.manifest import (
    BASE_EVERY,
    LISTINGS_MAX,
    Manifest,
    ManifestState,
    first_to_read,
    follow,
)
from ottla.tiered.manifest_codec import MANIFEST_BYTES_MAX, decode_manifest_of
from ottla.tiered.object_names import manifest_name, manifest_prefix, parse_manifest_name

Listed = dict[int, ObjectInfo]


def list_objects(
    calls: StoreCalls, prefix: str, *, until_ms: int, after: str = ""
) -> Dialogue[list[ObjectInfo] | StoreError]:
    """Return all objects below a directory, by name."""
    found: list[ObjectInfo] = []
    while True:
        page = yield from calls.list_page(prefix, after, until_ms=until_ms)
        if isinstance(page, StoreError):
            return page
        found += page.objects
        if page.is_last or not page.objects:
            return found
        after = page.objects[-1].name


def list_manifests(
    calls: StoreCalls, topic: str, topic_id: Uuid, partition: int, *, until_ms: int
) -> Dialogue[Listed | StoreError]:
    """Return the manifests of a listing, by number."""
    prefix = manifest_prefix(topic, topic_id, partition)
    objects = yield from list_objects(calls, prefix, until_ms=until_ms)
    if isinstance(objects, StoreError):
        return objects
    numbered = ((parse_manifest_name(each.name), each) for each in objects)
    return {number: each for number, each in numbered if number is not None}


def read_state(
    calls: StoreCalls, topic: str, topic_id: Uuid, partition: int, *, until_ms: int
) -> Dialogue[ManifestState | StoreError | str | None]:
    """Return what the manifests say; None = there are none, a text = why they cannot be read."""
    for _ in range(LISTINGS_MAX):
        listed = yield from list_manifests(calls, topic, topic_id, partition, until_ms=until_ms)
        if isinstance(listed, StoreError):
            return listed
        if not listed:
            return None
        highest = max(listed)
        begin = first_to_read(highest)
        found: dict[int, Manifest] = {}
        damaged: list[str] = []
        state: ManifestState | None = None
        is_missing = False
        while state is None and not is_missing and begin > -BASE_EVERY:
            for number in sorted(each for each in listed if begin <= each and each not in found):
                name = manifest_name(topic, topic_id, partition, number)
                data = yield from calls.read(name, MANIFEST_BYTES_MAX, until_ms=until_ms)
                if isinstance(data, StoreError) and data.failure is Failure.NOT_FOUND:
                    is_missing = True
                    break
                if isinstance(data, StoreError):
                    return data
                try:
                    found[number] = decode_manifest_of(data, topic_id=topic_id, sequence=number)
                except ValueError as error:
                    damaged.append(f"{name}: {error}")
            state = follow(found.values())
            begin -= BASE_EVERY
        if is_missing:
            continue
        if state is not None and state.sequence == highest:
            return state
        # What the last ones say is lost: segments may be gone, and others may have come.
        return damaged[-1] if damaged else f"no unbroken chain leads to manifest {highest}"
    return "its manifests change faster than they can be read"
