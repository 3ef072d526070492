"""A reader of manifests finds an unbroken chain, or says why not, whatever changes meanwhile."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.base.object_store import Failure, ObjectInfo, Page, StoreError
from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.tasks.manifest_reader import read_state
from ottla.tiered.manifest import LISTINGS_MAX, Manifest, ManifestState
from ottla.tiered.manifest_codec import encode_manifest
from ottla.tiered.object_names import manifest_name
from tests.unit.tiered.support import FINISHED, PARTITION, TOPIC, TOPIC_ID, segment


def manifest(sequence: int, *, base: bool = False, **fields: Any) -> bytes:
    made = Manifest(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        sequence=sequence,
        leader_epoch=fields.pop("leader_epoch", 1),
        tiered_epoch=1,
        floor=0,
        log_start_offset=0,
        epochs=((1, 0),),
        is_base=base,
        added=(segment(sequence + 1, sequence * 10, sequence * 10 + 9, state=FINISHED),),
    )
    return encode_manifest(made)


def name(sequence: int) -> str:
    return manifest_name(TOPIC, TOPIC_ID, PARTITION, sequence)


class Calls:
    """A store of manifests. `before_read`: what happens before each read."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.before_read: Callable[[], object] = lambda: None
        self.listings = 0
        self.reads: list[str] = []

    def list_page(self, prefix: str, after: str, *, until_ms: int) -> Iterator[Any]:
        self.listings += 1
        names = sorted(each for each in self.objects if each.startswith(prefix) and each > after)
        infos = tuple(ObjectInfo(each, len(self.objects[each]), 0) for each in names[:40])
        return Page(infos, len(names) <= 40)
        yield

    def read(self, name: str, size_bytes_max: int, *, until_ms: int) -> Iterator[Any]:
        self.before_read()
        self.reads.append(name)
        return self.objects.get(name, StoreError(Failure.NOT_FOUND, name))
        yield


def chain(first: int, last: int) -> dict[str, bytes]:
    return {
        name(each): manifest(each, base=each % 100 == 0 or each == first)
        for each in range(first, last + 1)
    }


def read(calls: Calls) -> Any:
    dialogue: Dialogue[Any] = read_state(
        calls,
        TOPIC,
        TOPIC_ID,
        PARTITION,
        until_ms=1_000,  # type: ignore[arg-type]
    )
    with pytest.raises(StopIteration) as end:
        next(dialogue)
    return end.value.value


def state(calls: Calls) -> ManifestState:
    found = read(calls)
    assert isinstance(found, ManifestState), found
    return found


def test_only_what_follows_the_last_base_is_read() -> None:
    calls = Calls(chain(0, 205))
    assert state(calls).sequence == 205
    assert calls.reads == [name(each) for each in range(200, 206)]


def test_where_the_last_base_is_a_replaced_leader_s_the_hundred_before_are_read() -> None:
    objects = chain(100, 199)
    objects |= {name(200): b"damaged", name(201): manifest(201, base=True)}
    assert state(Calls(objects)).sequence == 201
    del objects[name(201)]
    found = read(Calls(objects))
    assert found.startswith(f"{name(200)}: ")


def test_nothing_and_a_hole() -> None:
    assert read(Calls({})) is None
    objects = chain(0, 5)
    objects[name(9)] = manifest(9)
    assert read(Calls(objects)) == "no unbroken chain leads to manifest 9"


def test_manifests_that_are_removed_meanwhile_are_listed_again() -> None:
    calls = Calls(chain(0, 99))
    newer = chain(100, 205)

    def remove() -> None:
        if len(calls.reads) == 50:
            calls.objects = newer

    calls.before_read = remove
    assert state(calls).sequence == 205
    calls = Calls(chain(0, 9))
    calls.before_read = lambda: calls.objects.pop(name(5), None)

    def put_back(*args: Any, **how: Any) -> Iterator[Any]:
        calls.objects[name(5)] = manifest(5)
        return Calls.list_page(calls, *args, **how)

    calls.list_page = put_back  # type: ignore[method-assign]
    assert "change faster" in read(calls)
    assert calls.listings == LISTINGS_MAX


def test_another_manifest_under_a_name_is_damage() -> None:
    objects = chain(0, 5)
    objects[name(5)] = manifest(4)
    assert read(Calls(objects)) == f"{name(5)}: it is another manifest"


def test_a_store_that_fails() -> None:
    calls = Calls(chain(0, 3))
    failure = StoreError(Failure.DENIED, "no")

    def fail(*_args: Any, **_how: Any) -> Iterator[Any]:
        return failure
        yield

    calls.read = fail  # type: ignore[method-assign]
    assert read(calls) is failure
    calls.list_page = fail  # type: ignore[method-assign]
    assert read(calls) is failure
