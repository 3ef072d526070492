"""Manifests follow the metadata; of several writers one wins, and never a replaced one."""

from typing import Any

from ottla.broker.remote.dialogue import Dialogue, Task
from ottla.broker.remote.leader_term import LeaderTerm
from ottla.broker.remote.manifest_writer import ManifestWriter, Refused
from ottla.testing.sim.object_store import ObjectStoreFaults
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
    old._planner.load((), highest=written[-1] - 1)  # It lists none of the newer leader's.
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
    late._planner.load((), highest=1)
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
