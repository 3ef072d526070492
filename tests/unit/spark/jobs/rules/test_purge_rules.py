"""What counts as left of a floor, and what proves that nothing is."""

import pytest

from ottla.spark.jobs.rules.purge_rules import Left, is_proven, left_of, left_of_floor
from ottla.spark.jobs.rules.topic_status import Existence, TopicStatus
from tests.unit.tiered.support import DELETED, TOPIC, TOPIC_ID, fence, segment_id, update

from ..support import Store, finished, sound


def floored() -> Store:
    """Return a store with three segments of tiered epoch 1 at the floor, and one of epoch 2."""
    store = sound()
    store.records.append(fence(1, 2, floor=1))
    store.copy(*finished(4, 60, 79, tiered_epoch=2))
    store.write_manifest()
    return store


def left(store: Store, changed: tuple[bytes, ...] = (), floor: int = 1) -> Left:
    view = store.look()
    assert view.remote is not None
    return left_of_floor(view.objects, view.remote, changed, view.manifest_state(), floor)  # type: ignore[arg-type]


def test_objects_of_the_floor_are_left() -> None:
    found = left(floored())
    assert found.objects == 15
    assert not found.manifest_lags
    assert found.example == sound().name(0, min_kind())
    assert left(floored(), floor=0) == Left()


def min_kind() -> object:
    from ottla.tiered.object_names import ObjectKind

    return ObjectKind.LEADER_EPOCHS  # "epochs" sorts first.


def test_what_the_metadata_have_forgotten_is_left_unless_it_just_changed() -> None:
    store = floored()
    store.records += [update(number, DELETED) for number in (1, 2, 3)]
    assert left(store).objects == 15
    changed = tuple(segment_id(number) for number in (1, 2, 3))
    assert left(store, changed) == Left()
    alive = {name: data for name, data in store.objects.items() if "/manifest/" in name}
    store.objects = alive | {
        name: data for name, data in store.objects.items() if f"/{60:020}-" in name
    }
    assert left(store) == Left()


def test_a_foreign_object_is_left() -> None:
    store = Store()
    store.objects["orders-x/0/foreign"] = b"123"
    assert left(store) == Left(1, 3, "orders-x/0/foreign")


def test_a_manifest_without_the_floor() -> None:
    store = sound()
    store.objects.clear()
    assert left(store).manifest_lags
    assert not left(store, floor=0).manifest_lags


@pytest.mark.parametrize(
    ("existence", "pending", "expected"),
    [
        (Existence.PURGED, False, True),
        (Existence.PURGING, True, False),
        (Existence.UNKNOWN, False, False),
        (Existence.EXISTS, False, True),
        (Existence.EXISTS, True, False),
    ],
)
def test_proof(existence: Existence, pending: bool, expected: bool) -> None:
    status = TopicStatus(
        topic=TOPIC, topic_id=TOPIC_ID, existence=existence, floor=1, purge_pending=pending
    )
    assert is_proven(status, Left()) is expected
    assert not is_proven(status, Left(1, 2, "a"))
    assert not is_proven(status, Left(manifest_lags=True))
    assert left_of([]) == Left()
