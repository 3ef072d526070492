"""Manifests follow the metadata; of several writers one wins, and never a replaced one."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.remote.dialogue import Dialogue, Task
from ottla.broker.remote.tasks.leader_term import LeaderTerm
from ottla.broker.remote.tasks.manifest_writer import ManifestWriter, Refused
from ottla.testing.sim.object_store import ObjectStoreFaults
from ottla.tiered.manifest import Manifest, follow
from ottla.tiered.manifest_codec import decode_manifest
from ottla.tiered.object_names import manifest_name, parse_manifest_name
from tests.unit.broker.remote.copy_bench import ENABLED, HOUR_S, TOPIC_ID, Bench, BenchBroker


def copied(bench: Bench, segments: int = 2) -> BenchBroker:
    broker = bench.broker(1)
    broker.fill(segments)
    broker.lead(5)
    bench.run(30)
    bench.check(broker)
    return broker


def manifests(bench: Bench) -> list[int]:
    found = [parse_manifest_name(name) for name in bench.model.objects]
    return [each for each in found if each is not None]


def writer(broker: BenchBroker, epoch: int) -> ManifestWriter:
    """Return the writer of a term without tasks."""
    return ManifestWriter(LeaderTerm(broker.life.environment, broker.log, epoch, ENABLED))


def update(bench: Bench, broker: BenchBroker, *writers: ManifestWriter) -> list[Any]:
    """Update at once with all writers; return what came of it."""
    results: list[Any] = []

    def whole(each: ManifestWriter) -> Dialogue[None]:
        results.append((yield from each.update()))
        yield from each.remove_needless()

    environment = broker.life.environment
    for each in writers:
        Task(whole(each), environment.timers, environment.clock).start()
    bench.run(60)
    return results


def test_each_copy_is_followed_by_one_manifest() -> None:
    bench = Bench()
    copied(bench, 3)
    assert manifests(bench) == [0, 1, 2]
    bench.run(HOUR_S)
    assert manifests(bench) == [0, 1, 2]


def test_a_new_leader_begins_with_a_base() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.lead(6)
    bench.run(HOUR_S)
    assert manifests(bench) == [0, 1, 2]
    data = bench.model.objects[manifest_name("topic", TOPIC_ID, 0, 2)]
    manifest = decode_manifest(data)
    assert manifest.is_base
    assert manifest.leader_epoch == 6
    assert len(manifest.added) == 2
    assert manifest.partition_count == 1
    bench.check(broker)


def test_nothing_is_written_without_remote_segments() -> None:
    bench = Bench()
    broker = bench.broker(1)
    broker.lead(5)
    bench.run(HOUR_S)
    assert not bench.model.history


def test_a_late_listing_and_another_writer_are_found_out() -> None:
    bench = Bench(faults=ObjectStoreFaults(list_lag_ms=3_600_000))
    broker = copied(bench)
    broker.follow()
    assert update(bench, broker, writer(broker, 6)) == [None]
    assert manifests(bench) == [0, 1, 2]
    bench.check(broker)


def test_of_two_writers_of_one_epoch_one_wins_and_nothing_is_lost() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.follow()
    assert update(bench, broker, writer(broker, 6), writer(broker, 6)) == [None, None]
    bench.check(broker)


def test_a_writer_that_was_replaced_is_refused() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.follow()
    old, new = writer(broker, 6), writer(broker, 7)
    assert update(bench, broker, new) == [None]
    written = manifests(bench)
    old._planner.found(written[-1] - 1)  # It lists none of the newer leader's.
    old._is_loaded = True
    assert update(bench, broker, old) == [Refused.SUPERSEDED]
    assert manifests(bench) == written


def test_a_result_that_was_lost_is_found_by_the_next_update() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.follow()
    lost = writer(broker, 6)
    assert update(bench, broker, lost) == [None]
    broker.log.advance_log_start(5)
    bench.model.faults.lost_answers = 1.0
    assert update(bench, broker, lost) != [None]
    bench.model.faults.lost_answers = 0.0
    assert update(bench, broker, lost) == [None]
    assert manifests(bench) == [0, 1, 2, 3]
    state = bench.manifest()
    assert state is not None
    assert state.log_start_offset == 5


def test_behind_a_damaged_manifest_a_base_follows() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.follow()
    bench.model.put(manifest_name("topic", TOPIC_ID, 0, 2), b"damaged", replace=True)
    late = writer(broker, 6)
    late._planner.found(1)
    late._is_loaded = True
    assert update(bench, broker, late) == [None]
    assert manifests(bench) == [0, 1, 2, 3]
    assert decode_manifest(bench.model.objects[manifest_name("topic", TOPIC_ID, 0, 3)]).is_base


def test_a_store_that_is_down_is_reported_and_the_update_stays_due() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.follow()
    each = writer(broker, 6)
    bench.model.faults.is_down = True
    update(bench, broker, each)
    bench.run(600)
    remote = bench.metadata.replayed()
    assert each.is_stale(remote)
    bench.model.faults.is_down = False
    assert update(bench, broker, each) == [None]
    assert not each.is_stale(remote)


def test_a_segment_that_another_leader_deletes_makes_it_stale() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.follow()
    each = writer(broker, 6)
    assert update(bench, broker, each) == [None]
    assert not each.is_stale(bench.metadata.replayed())
    broker.lead(7)
    broker.log.delete_records(10)
    broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
    bench.run(200)
    assert each.is_stale(bench.metadata.replayed())


def test_deleted_records_are_gone_for_readers_of_the_store_alone() -> None:
    bench = Bench()
    broker = copied(bench, 3)
    for start in (5, 15, 17):  # In the middle of a segment, which therefore stays.
        broker.log.delete_records(start)
        broker.do(lambda: broker.life.manager.log_start_moved(TOPIC_ID, 0))
        bench.run(HOUR_S)
        state = bench.manifest()
        assert state is not None
        assert state.log_start_offset == start
    bench.check(broker, [(10, 20), (20, 30)])
    count = len(manifests(bench))
    bench.run(HOUR_S)
    assert len(manifests(bench)) == count


def test_a_manifest_comes_behind_its_fence_also_where_nothing_is_copied() -> None:
    bench = Bench()
    broker = copied(bench)
    second = bench.broker(2)
    second.copy_of(broker)
    second.lead(6)
    bench.run(60)
    fence = bench.metadata.replayed().fence
    assert fence is not None
    assert (fence.leader_epoch, fence.broker_id) == (6, 2)
    bench.check(second)
    last = decode_manifest(bench.model.objects[manifest_name("topic", TOPIC_ID, 0, 2)])
    assert (last.leader_epoch, last.is_base) == (6, True)


def moved(bench: Bench, broker: BenchBroker, each: ManifestWriter, times: int) -> None:
    """Write so many manifests, each because the log start has moved."""
    for _ in range(times):
        broker.log.advance_log_start(broker.log.log_start_offset + 1)
        assert update(bench, broker, each) == [None]


@pytest.mark.usefixtures("few")
def test_needless_manifests_are_removed_after_a_base() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.follow()
    each = writer(broker, 6)
    moved(bench, broker, each, 4)
    assert manifests(bench) == [0, 1, 2, 3, 4, 5]  # Number 2 is the term's base, 5 the next one.
    moved(bench, broker, each, 4)
    assert manifests(bench) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    bench.model.faults.partial_deletes = 1.0
    moved(bench, broker, each, 1)
    left = manifests(bench)
    assert left[0] < 5
    bench.model.faults.partial_deletes = 0.0
    moved(bench, broker, each, 1)  # What was left is removed with the next manifest.
    assert manifests(bench) == [5, 6, 7, 8, 9, 10, 11]
    # A new term's base keeps the base before, too, also where that was another leader's.
    assert update(bench, broker, writer(broker, 7)) == [None]
    assert manifests(bench) == [10, 11, 12]
    state = bench.manifest()
    assert state is not None
    assert (state.leader_epoch, state.log_start_offset) == (7, 10)


@pytest.mark.usefixtures("few")
def test_a_replaced_leader_that_writes_a_removed_number_again_changes_nothing() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.follow()
    old, new = writer(broker, 6), writer(broker, 7)
    assert update(bench, broker, old) == [None]
    moved(bench, broker, new, 12)
    state = bench.manifest()
    assert 3 not in manifests(bench)
    # It has not read the newer fence, and the number that it writes next is free.
    old._term.is_fenced = lambda remote: False  # type: ignore[method-assign]
    lagging = bench.metadata.replayed()
    assert lagging.fence is not None
    lagging.fence = replace(lagging.fence, leader_epoch=6)
    old._term.remote = lambda: lagging  # type: ignore[method-assign]
    assert update(bench, broker, old) == [None]
    assert 3 in manifests(bench)
    assert bench.manifest() == state
    # The next removal finds it.
    moved(bench, broker, new, 5)
    assert 3 not in manifests(bench)


@pytest.mark.usefixtures("few")
def test_a_reader_between_listing_and_reading_finds_its_chain() -> None:
    bench = Bench()
    broker = copied(bench)
    broker.follow()
    broker.produce(100)
    each = writer(broker, 6)
    for _ in range(20):
        listed = manifests(bench)
        highest = listed[-1]
        first = highest - highest % 5
        moved(bench, broker, each, 3)  # Meanwhile.
        names = [manifest_name("topic", TOPIC_ID, 0, n) for n in listed if n >= first]
        found: list[Manifest] = [decode_manifest(bench.model.objects[name]) for name in names]
        state = follow(found)
        assert state is not None
        assert state.sequence == highest
        assert len(manifests(bench)) <= 10
