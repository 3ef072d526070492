"""Nodes crash, lose power, hang, stop and come back, and the promise's bound is kept.

Method: clusters without drawn faults, to which each test does what its name says.
"""

import json
from typing import Any

import pytest

from ottla.host.kraft.broker_mode import KRaftBroker
from ottla.log import names
from ottla.log.dirs.dir_loading import DirLoader, PartitionDir
from ottla.testing.sim import Faults, Sim
from ottla.testing.sim.faults.fault_injector import FaultInjector
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.watch.deletions import deletions_left, partition_dirs_left
from ottla.testing.sim.watch.observations import (
    Acknowledged,
    HighWatermarkMoved,
    NodeChanged,
    PartitionSet,
    QuorumLed,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest

from .requests import TOPIC, Writer

pytestmark = pytest.mark.drawn(6)

SETTLED_MS = 3_000


def served(seed: int = 1, **options: Any) -> tuple[Sim, Writer]:
    """Return a cluster that has been written to for some seconds."""
    sim = Sim(seed, **options)
    writer = Writer(sim, pause_ms=50)
    sim.run(ms=6_000)
    assert writer.acknowledged > 50
    return sim, writer


def leader_of(sim: Sim, partition: int = 0) -> SimNode:
    topic = sim.image.topics.by_name(TOPIC)
    assert topic is not None
    return sim.nodes[topic.partitions[partition].leader]


def ends(node: SimNode) -> dict[int, int]:
    """Return the log ends of the written topic's partitions."""
    assert node.broker is not None
    return {
        each.partition_id: each.log.log_end_offset
        for each in node.broker.replicas.hosted()
        if each.topic == TOPIC and each.log is not None
    }


def test_a_crashed_process_loses_nothing_and_its_machine_what_was_not_synced() -> None:
    for lose_unflushed in (False, True):
        sim, writer = served()
        node = leader_of(sim)
        before = ends(node)
        assert sum(before.values()) >= writer.acknowledged
        node.crash(lose_unflushed=lose_unflushed)
        assert not node.alive
        found: list[dict[int, int]] = []
        # Before it can fetch anything from others: they are gone.
        for other in sim.nodes.values():
            if other.is_broker and other is not node:
                other.crash(lose_unflushed=False)
        node.restart()
        sim.run_until(lambda node=node: node.broker is not None, limit_ms=30_000)  # type: ignore[misc]
        found.append(ends(node))
        if lose_unflushed:
            assert sum(found[0].values()) < sum(before.values())
            assert sim.marks["unsynced-lost"] == 1
        else:
            assert found[0] == before


def test_a_killed_broker_registers_once_it_knows_of_its_last_registration() -> None:
    """It died before it wrote that epoch; by the previous one it would count as unclean."""
    sim, _writer = served()
    node = leader_of(sim)
    registered = sim.image.brokers[node.id].epoch
    for other in sim.nodes.values():
        other.crash(lose_unflushed=False)
    for log_dir in node.config.log_dirs:
        note = json.loads(node.disk.read_bytes(f"{log_dir}/{names.RUNNING}"))
        assert note["brokerEpoch"] == registered
        former = json.dumps({**note, "brokerEpoch": registered - 1}).encode()
        node.disk.write_atomic(f"{log_dir}/{names.RUNNING}", former)
    node.restart()
    sim.run(ms=10_000)  # No controller is up.
    assert node.broker is None
    for other in sim.nodes.values():
        other.restart()
    sim.run_until(lambda: node.broker is not None, limit_ms=60_000)
    assert node.core is not None
    assert node.core.broker is not None
    kraft = node.core.broker.mode
    assert isinstance(kraft, KRaftBroker)
    assert kraft.lifecycle.config.previous_broker_epoch == registered


def test_one_killed_and_one_without_power_lose_no_acknowledged_write() -> None:
    """Both were in sync; the one without a power loss has all records, whichever is back first."""
    sim, _writer = served()
    acknowledged: dict[tuple[int, int], int] = {}
    sim.observe(
        lambda seen: (
            acknowledged.update({(seen.partition, seen.offset): seen.crc})
            if isinstance(seen, Acknowledged)
            else None
        )
    )
    sim.run(ms=4_000)
    dark, killed, paused = sorted(
        (node for node in sim.nodes.values() if node.is_broker), key=lambda node: node.id
    )
    paused.pause()
    sim.run(ms=15_000)  # Out of the in-sync replicas, after which the two go on alone.
    assert leader_of(sim) is not paused
    killed.crash(lose_unflushed=False)
    dark.crash(lose_unflushed=True)
    dark.restart()
    sim.run(ms=500)
    killed.restart()
    sim.run(ms=20_000)
    paused.resume()
    sim.run_until(lambda: sim.leaderless() == 0, limit_ms=60_000)
    sim.run(ms=10_000)
    assert len(acknowledged) > 50
    held = {index: end for node in (killed, paused, dark) for index, end in ends(node).items()}
    for partition, offset in acknowledged:
        assert offset < held[partition]
    for node in (killed, paused, dark):
        assert node.broker is not None
        for partition in node.broker.replicas.hosted():
            if partition.topic == TOPIC:
                assert partition.log is not None
                for (index, offset), crc in acknowledged.items():
                    if index == partition.partition_id:
                        assert crc_at(partition.log, offset) == crc
    assert sim.problems == []


def crc_at(log: Any, offset: int) -> int:
    found = log.read(offset, max_bytes=1, upper_bound=log.log_end_offset, at_least_one=True)
    data = b"".join(piece.read() for piece in found.slices)
    for piece in found.slices:
        piece.release()
    return int.from_bytes(data[17:21], "big")


def test_a_paused_leader_is_replaced_and_follows_when_it_goes_on() -> None:
    sim, writer = served()
    old = leader_of(sim)
    old.pause()
    assert old.paused
    sim.run(ms=15_000)
    new = leader_of(sim)
    assert new is not old
    count = writer.acknowledged
    sim.run(ms=3_000)
    assert writer.acknowledged > count
    old.resume()
    sim.run_until(lambda: ends(old) == ends(new), limit_ms=30_000)


def test_a_stopped_node_shuts_down_cleanly_and_may_come_back() -> None:
    sim, _ = served()
    seen: list[NodeChanged] = []
    sim.observe(lambda what: seen.append(what) if isinstance(what, NodeChanged) else None)
    node = leader_of(sim)
    node.stop(back_after_ms=1_000)
    sim.run_until(lambda: not node.alive, limit_ms=SETTLED_MS)
    assert sim.image.brokers[node.id].fenced or sim.image.brokers[node.id].in_controlled_shutdown
    sim.run_until(lambda: node.serves, limit_ms=10_000)
    assert [each.what for each in seen] == ["stopped", "started", "serves"]
    assert node.incarnation == 2
    assert sim.problems == []


def test_controllers_may_lose_power_one_after_the_other() -> None:
    sim, writer = served()
    leaders: list[int] = []
    sim.observe(lambda what: leaders.append(what.node) if isinstance(what, QuorumLed) else None)
    for _ in range(4):
        active = [n for n in sim.nodes.values() if n.runtime is not None and n.runtime.active]
        active[0].crash(lose_unflushed=True)
        sim.run(ms=100)
        active[0].restart()
        sim.run(ms=5_000)
    assert len(leaders) >= 4
    before = sim.image.position
    count = writer.acknowledged
    sim.run(ms=6_000)
    assert sim.image.position > before
    assert writer.acknowledged > count
    assert sim.problems == []


def test_a_full_disk_ends_a_controller_which_is_started_again() -> None:
    sim, _ = served()
    active = next(n for n in sim.nodes.values() if n.runtime is not None and n.runtime.active)
    active.disk.capacity = active.disk.used_bytes()
    sim.run(ms=20_000)
    assert sim.marks["node-ended-by-itself"] > 0
    sim.heal()
    sim.run_until(lambda: all(node.serves for node in sim.nodes.values()), limit_ms=30_000)
    assert sim.problems == []


def test_healing_brings_everybody_back() -> None:
    sim, writer = served(seed=4)
    nodes = list(sim.nodes.values())
    nodes[0].crash(lose_unflushed=False)
    nodes[1].pause()
    nodes[3].crash()
    nodes[4].disk.capacity = 0
    sim.net.cut |= {(nodes[2].id, nodes[5].id)}
    sim.run(ms=10_000)
    sim.heal()
    sim.run_until(lambda: all(node.serves for node in nodes), limit_ms=60_000)
    sim.run_until(lambda: sim.leaderless() == 0, limit_ms=10_000)
    count = writer.acknowledged
    sim.run(ms=5_000)
    assert writer.acknowledged > count


def test_brokers_lose_power_only_within_the_promises_bound() -> None:
    """min.insync.replicas is 2: one may lose power, another only when the first has caught up."""
    sim, _ = served()
    fault_injector = FaultInjector(sim, Faults(power=1.0), sim._stream("test"))
    first, second, _third = (node for node in sim.nodes.values() if node.is_broker)
    assert sim.min_insync_replicas == 2
    assert fault_injector.may_lose_power(first)
    fault_injector.crash(first)
    assert sim.marks["power-lost"] == 1
    assert not fault_injector.may_lose_power(second)
    assert fault_injector.may_lose_power(first), "again"
    assert all(
        fault_injector.may_lose_power(node) for node in sim.nodes.values() if not node.is_broker
    )
    fault_injector.crash(second)
    assert (sim.marks["power-lost"], sim.marks["crashed"]) == (1, 1)
    sim.run_until(lambda: sim.is_whole(first.id, since_incarnation=2), limit_ms=60_000)
    assert fault_injector.may_lose_power(second)


def test_other_shapes_of_clusters_serve_too() -> None:
    for options in (
        {"brokers": 1, "controllers": 1},
        {"brokers": 1, "controllers": 1, "combined": True},
        {"brokers": 3, "controllers": 3, "combined": True},
        {"brokers": 5, "controllers": 5},
    ):
        sim, writer = served(**options)
        assert writer.failed == 0
        assert sim.problems == []
        assert len(sim.nodes) == (
            options["brokers"]
            if options.get("combined")
            else options["brokers"] + options["controllers"]
        )


def test_what_is_observed_is_what_happened() -> None:
    sim = Sim(1)
    seen: list[Any] = []
    sim.observe(seen.append)
    writer = Writer(sim)
    sim.run(ms=8_000)
    acknowledged = [each for each in seen if isinstance(each, Acknowledged)]
    assert len(acknowledged) >= writer.acknowledged > 20
    places = [(each.partition, each.offset) for each in acknowledged]
    assert len(set(places)) == len(places)
    sets = [each for each in seen if isinstance(each, PartitionSet)]
    assert {(each.topic, each.partition) for each in sets} == {(TOPIC, 0), (TOPIC, 1)}
    assert all(each.epoch == 0 for each in acknowledged)
    assert len({each.node for each in seen if isinstance(each, QuorumLed)}) == 1


def test_a_high_watermark_that_moves_without_a_message_is_observed_at_once() -> None:
    """A flush advances it, and a follower may serve a read up to there before the next request."""
    sim, _writer = served()
    node = leader_of(sim)
    assert node.broker is not None
    partition = next(each for each in node.broker.replicas.hosted() if each.topic == TOPIC)
    log, seen = partition.log, list[int]()
    assert log is not None
    moved_to = log.log_end_offset + 1

    def move() -> None:
        log.offsets.high_watermark = moved_to
        sim.observe(
            lambda each: (
                seen.append(sim.scheduler.now_us)
                if isinstance(each, HighWatermarkMoved) and each.offset == moved_to
                else None
            )
        )

    at_us = sim.scheduler.now_us + 1
    sim.scheduler.at(at_us, move, node._process)
    sim.run(ms=1)
    assert seen[:1] == [at_us]


def test_a_failed_log_dir_affects_its_own_partitions_only() -> None:
    sim, writer = served(config={"log.dirs": "/data,/more", "num.partitions": "4"})
    node = leader_of(sim)
    assert node.broker is not None
    node.disk.fail(path="/more/", times=None)
    sim.run(ms=15_000)
    assert node.serves, "the other log directory works"
    assert [each.path for each in node.broker.log_dirs.offline_dirs] == ["/more"]
    count = writer.acknowledged
    sim.run(ms=3_000)
    assert writer.acknowledged > count
    sim.heal()
    sim.run_until(lambda: node.incarnation == 2 and node.serves, limit_ms=30_000)
    sim.run_until(lambda: sim.is_whole(node.id, since_incarnation=2), limit_ms=60_000)
    assert sim.problems == []


def test_a_log_dir_that_goes_offline_without_a_fault_of_its_disk_is_a_bug() -> None:
    """The others take over, and a restart heals it: no client would notice."""
    sim, writer = served()
    node = leader_of(sim)
    assert node.broker is not None
    partition = next(each for each in node.broker.replicas.hosted() if each.topic == TOPIC)
    assert partition.log is not None
    partition.log.segments.active.log.file().close()
    sim.run_until(lambda: node.incarnation == 2 and node.serves, limit_ms=30_000)
    sim.heal()
    sim.run_until(lambda: sim.is_whole(node.id, since_incarnation=2), limit_ms=60_000)
    assert writer.acknowledged > 50
    assert [(where, "Errno 9" in what) for _, where, what in sim.problems] == [
        (f"node {node.id}, incarnation 1", True)
    ]


def test_a_process_may_die_during_a_write_and_recovers() -> None:
    sim, writer = served()
    returned: list[int] = []
    for operations in (1, 2, 3, 5, 8, 13):
        node = leader_of(sim)

        def back(node: SimNode = node) -> None:
            returned.append(node.id)
            sim.scheduler.after(300_000, node.restart)

        incarnation = node.incarnation
        node.crash_within(operations, lose_unflushed=False, then=back)
        sim.run_until(
            lambda node=node, incarnation=incarnation: node.incarnation > incarnation,
            limit_ms=20_000,
        )  # type: ignore[misc]
        sim.run_until(lambda: all(each.serves for each in sim.nodes.values()), limit_ms=60_000)
    assert len(returned) == sim.marks["crashed-while-writing"] == 6
    count = writer.acknowledged
    sim.run(ms=15_000)
    assert writer.acknowledged > count
    assert sim.leaderless() == 0
    assert sim.problems == []


def test_a_broker_that_dies_right_after_its_registration_has_lost_nothing_either() -> None:
    """Its log directories still have the previous epoch; what it wrote then is all there."""
    sim, _ = served()
    first, second, third = (node for node in sim.nodes.values() if node.is_broker)
    third.pause()
    sim.run(ms=15_000)
    first.crash(lose_unflushed=False)
    states: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    sim.observe(
        lambda seen: (
            states.append((seen.state.isr, seen.state.elr))
            if isinstance(seen, PartitionSet)
            else None
        )
    )
    sim.run(ms=15_000)
    assert {elr for _, elr in states} == {(first.id,)}
    for _ in range(2):
        epoch = sim.image.brokers[first.id].epoch
        first.pace.slowest_us = 10_000_000  # The epoch is not written in time.
        first.restart()
        sim.run_until(
            lambda epoch=epoch: sim.image.brokers[first.id].epoch > epoch, limit_ms=30_000
        )  # type: ignore[misc]
        first.crash(lose_unflushed=False)
    assert second.serves
    first.pace.slowest_us = 4_000
    first.restart()
    sim.run_until(lambda: first.serves, limit_ms=60_000)
    assert all(first.id in (*isr, *elr) for isr, elr in states), states
    assert sim.problems == []


@pytest.mark.parametrize("keeps", [False, True])
def test_a_directory_that_a_crash_leaves_half_removed_is_removed_by_the_next_process(
    keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`keeps`: a start is broken, that keeps what does not say which topic it was of."""
    if keeps:
        classify = DirLoader._classify

        def keeping(self: DirLoader, found: PartitionDir) -> bool:
            if found.topic_id is None:
                self.directory.strays.add(found.name)
                return False
            return classify(self, found)

        monkeypatch.setattr(DirLoader, "_classify", keeping)
    sim, _writer = served(config={"log.segment.delete.delay.ms": "500"})
    node, met = sim.nodes[1], list[str]()

    def back() -> None:
        assert node.disk.exists(met[0])
        assert not node.disk.exists(f"{met[0]}/{names.PARTITION_METADATA}"), "as this seed draws it"
        sim.scheduler.after(100_000, node.restart)

    def dies_in_removal(node: SimNode, operation: str, path: str) -> None:
        if operation == "rmtree" and not met:
            met.append(path)
            node.crash_within(1, lose_unflushed=False, then=back)

    node.disk_written = dies_in_removal
    request = DeleteTopicsRequest(topic_names=(TOPIC,), timeout_ms=5_000)
    sim.client_port("admin").send(node.id, request, 5, 8_000)
    sim.run_until(lambda: node.incarnation == 2 and node.serves, limit_ms=30_000)
    assert met
    sim.run(ms=8_000)
    assert deletions_left(sim) == []
    assert [each for each in partition_dirs_left(sim) if met[0] in each] == (
        [f"node {node.id} still has {met[0]}, half removed"] if keeps else []
    )
    assert sim.problems == []
