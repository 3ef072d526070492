"""Each fault of manifests is found by its name: among themselves, and against the metadata."""

from dataclasses import replace

from ottla.spark.jobs.rules.findings import Kind, Severity
from ottla.tiered.object_names import manifest_name
from tests.unit.tiered.support import DELETED, DELETING, FINISHED, fence, segment, update

from ..support import GRACE_MS, KEY, NOW_MS, Store, finished, offsets, sound


def test_a_damaged_manifest() -> None:
    store = sound()
    store.write_manifest()
    store.manifests[1] = "a manifest fails its checksum"
    kinds = {each.kind: each for each in store.found()}
    assert set(kinds) == {Kind.MANIFEST_DAMAGED, Kind.MANIFEST_CHAIN_BROKEN}
    assert kinds[Kind.MANIFEST_DAMAGED].detail == "a manifest fails its checksum"
    assert kinds[Kind.MANIFEST_DAMAGED].object == manifest_name(*KEY, 1)
    # A base behind it begins a chain anew.
    store.write_manifest()
    assert store.kinds() == [Kind.MANIFEST_DAMAGED]


def test_a_missing_manifest() -> None:
    store = sound()
    for _ in range(3):
        store.write_manifest()
    del store.manifests[2], store.objects[manifest_name(*KEY, 2)]
    (found,) = store.found()
    assert (found.kind, found.severity) == (Kind.MANIFEST_MISSING, Severity.WARNING)
    assert found.object == manifest_name(*KEY, 2)


def test_manifests_that_a_base_made_needless_may_be_gone() -> None:
    store = sound()
    for _ in range(205):
        store.write_manifest()
    for number in (*range(100), 150):
        del store.manifests[number], store.objects[manifest_name(*KEY, number)]
    # Base 205 keeps those from 200 on.
    assert store.kinds() == []
    del store.manifests[203], store.objects[manifest_name(*KEY, 203)]
    assert store.kinds() == [Kind.MANIFEST_MISSING]


def test_a_broken_chain() -> None:
    store = sound()
    for _ in range(2):
        store.write_manifest(is_base=False, added=(), partition_count=None, configs=None)
    del store.manifests[1], store.objects[manifest_name(*KEY, 1)]
    assert store.kinds() == [Kind.MANIFEST_CHAIN_BROKEN, Kind.MANIFEST_MISSING]
    del store.manifests[0], store.objects[manifest_name(*KEY, 0)]
    assert Kind.MANIFEST_CHAIN_BROKEN in store.kinds()
    assert Kind.MANIFEST_CHAIN_BROKEN in store.kinds(remote=None)


def test_a_manifest_that_lags() -> None:
    store = sound()
    made, log = finished(4, 60, 79)
    store.copy(made, log)
    (found,) = store.found()
    assert (found.kind, found.severity, offsets([found])) == (
        Kind.MANIFEST_BEHIND,
        Severity.WARNING,
        [(60, 79)],
    )
    # Within the grace time a manifest may follow its copy.
    store.records[-1] = replace(update(4, FINISHED), event_timestamp_ms=NOW_MS - GRACE_MS + 1)
    assert store.kinds() == []


def test_no_manifest_at_all() -> None:
    store = sound()
    store.manifests.clear()
    del store.objects[manifest_name(*KEY, 0)]
    (found,) = store.found()
    assert (found.kind, offsets([found])) == (Kind.MANIFEST_BEHIND, [(0, 59)])


def test_a_manifest_lists_a_forgotten_segment() -> None:
    store = sound()
    store.records += [update(1, DELETING), update(1, DELETED)]
    found = [each for each in store.found() if each.kind is not Kind.ORPHAN_OBJECT]
    assert [(each.kind, each.severity) for each in found] == [(Kind.MANIFEST_AHEAD, Severity.ERROR)]
    assert offsets(found) == [(0, 19)]
    assert Kind.MANIFEST_AHEAD not in store.kinds(changed=[segment(1, 0, 1).segment_id])


def test_a_manifest_lists_a_segment_that_is_being_deleted() -> None:
    store = sound()
    store.records.append(replace(update(1, DELETING), event_timestamp_ms=NOW_MS - GRACE_MS + 1))
    assert store.kinds() == []
    store.records[-1] = update(1, DELETING)
    assert store.kinds() == [Kind.MANIFEST_BEHIND, Kind.UNFINISHED_SEGMENT]


def test_a_manifest_lists_a_segment_that_is_being_copied() -> None:
    store = sound()
    late = replace(segment(4, 60, 79), event_timestamp_ms=NOW_MS)
    store.records.append(late)
    listed = (*store.look().remote.finished(), replace(late, state=FINISHED))  # type: ignore[union-attr]
    store.write_manifest(added=listed)
    found = store.found()
    assert {each.kind for each in found} == {Kind.MANIFEST_AHEAD}


def test_a_manifest_with_another_segment_than_the_metadata() -> None:
    store = sound()
    first, *others = store.manifests[0].added  # type: ignore[union-attr]
    store.manifests.clear()
    store.write_manifest(added=(replace(first, size_bytes=7), *others))
    (found,) = store.found()
    assert (found.kind, offsets([found])) == (Kind.MANIFEST_AHEAD, [(0, 19)])


def test_a_manifest_of_epochs_without_a_fence() -> None:
    for epochs in ({"leader_epoch": 2}, {"tiered_epoch": 2}):
        store = sound()
        store.write_manifest(**epochs)
        assert store.kinds() == [Kind.MANIFEST_AHEAD]


def test_a_segment_whose_copy_was_fenced_is_listed() -> None:
    store = Store([fence(1)])
    store.copy(*finished(1, 0, 19))
    made, _ = finished(2, 20, 39)
    store.records += [made, fence(2), update(2, FINISHED)]
    listed = (*store.look().remote.finished(), replace(made, state=FINISHED))  # type: ignore[union-attr]
    store.write_manifest(added=listed)
    found = store.found(refused=[made.segment_id], now_ms=5_000)
    assert [(each.kind, each.severity) for each in found] == [(Kind.FENCED_SEGMENT, Severity.ERROR)]
    assert "was fenced" in found[0].detail


def test_a_segment_at_the_floor_is_listed() -> None:
    store = sound()
    store.records.append(replace(fence(1, 2, floor=1), event_timestamp_ms=NOW_MS - GRACE_MS + 1))
    assert store.kinds() == []  # The floor in a manifest is the first act of the purge.
    store.records[-1] = fence(1, 2, floor=1)
    kinds = store.kinds()
    assert kinds.count(Kind.FENCED_SEGMENT) == 3
    assert Kind.MANIFEST_BEHIND in kinds
    store.write_manifest()
    assert set(store.kinds()) == {Kind.UNFINISHED_SEGMENT}


def test_metadata_that_are_lost() -> None:
    store = sound()
    store.records.clear()
    found = [each for each in store.found() if each.kind is not Kind.ORPHAN_OBJECT]
    assert [(each.kind, *offsets([each])) for each in found] == [(Kind.METADATA_MISSING, (0, 59))]
