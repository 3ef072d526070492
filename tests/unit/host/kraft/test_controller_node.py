"""A broker without heartbeats is fenced when its session ends, whatever else is late or fails.

Method: the controller role on a disk in memory; manual time. Brokers are their records.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.ids import Uuid
from ottla.controller.brokers.liveness import BrokerLiveness
from ottla.controller.step import Decision, Step
from ottla.controller.topics.configs import Alteration, alter_configs
from ottla.host.kraft.controller_node import RECHECK_MS, ControllerNode
from ottla.host.kraft.quorum_log import open_quorum_storage
from ottla.host.log_dirs.storage import bootstrap_records
from ottla.metadata.brokers import BrokerImage, Endpoint, record_of
from ottla.metadata.features import ELR_VERSION
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import PartitionRecord, TopicRecord
from tests.unit.host.fake_brokers import PORT, FakeBrokers
from tests.unit.host.harness import CLUSTER_ID, Dice, Harness

SESSION_MS = 9_000
PROPERTIES = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "metadata.max.idle.interval.ms": "0",
}
FEATURES = {ELR_VERSION: 0}


def running(
    harness: Harness,
    *,
    brokers: FakeBrokers | None = None,
    features: Mapping[str, int] = FEATURES,
    properties: Mapping[str, str] = PROPERTIES,
) -> ControllerNode:
    config = NodeConfig.parse(dict(properties))
    harness.disk.mkdir("/meta")
    storage = open_quorum_storage(
        harness.disk,
        "/meta",
        clock=harness.clock,
        timers=harness.timers,
        workers=harness.workers,
        segment_bytes=config["metadata.log.segment.bytes"],
        segment_ms=config["metadata.log.segment.ms"],
    )
    failures: list[str] = []
    ports = SimpleNamespace(
        clock=harness.clock,
        dice=Dice(1),
        timers=harness.timers,
        workers=harness.workers,
        connect=(brokers or FakeBrokers()).connect,
    )
    controller = ControllerNode(
        config,
        cluster_id=CLUSTER_ID,
        listeners=(Endpoint("CONTROLLER", "localhost", 9093),),
        storage=storage,
        bootstrap=bootstrap_records(features),
        ports=cast(Any, ports),
        on_failure=failures.append,
    )
    controller.log.start()
    harness.workers.run()
    assert controller.ready.done
    return controller


def add_broker(
    harness: Harness, controller: ControllerNode, broker_id: int, *, epoch: int = -1
) -> None:
    """Make an unfenced broker with a heartbeat now; its epoch is its id by default."""
    broker = BrokerImage(
        id=broker_id,
        epoch=broker_id if epoch < 0 else epoch,
        incarnation_id=Uuid(bytes([broker_id]) * 16),
        endpoints=(Endpoint("PLAINTEXT", "localhost", PORT + broker_id),),
        fenced=False,
    )
    controller.run(lambda _image: Decision(Step((record_of(broker),)), None))
    controller.context.liveness.touch(broker_id, harness.clock.monotonic_ms())
    harness.workers.run()


def fenced(controller: ControllerNode) -> list[int]:
    brokers = controller.runtime.committed_image.brokers
    return sorted(broker_id for broker_id, broker in brokers.items() if broker.fenced)


def test_each_broker_is_fenced_at_the_end_of_its_own_session() -> None:
    harness = Harness()
    controller = running(harness)
    add_broker(harness, controller, 11)
    harness.advance(3_000)
    add_broker(harness, controller, 12)
    add_broker(harness, controller, 13)
    harness.advance(SESSION_MS - 3_000 - 1)
    assert fenced(controller) == []
    harness.advance(2)
    assert fenced(controller) == [11]
    controller.context.liveness.touch(12, harness.clock.monotonic_ms())
    harness.advance(3_000)
    assert fenced(controller) == [11, 13]
    harness.advance(SESSION_MS)
    assert fenced(controller) == [11, 12, 13]


def test_many_brokers_without_heartbeats_are_all_fenced() -> None:
    harness = Harness()
    controller = running(harness)
    for broker_id in range(11, 61):
        add_broker(harness, controller, broker_id)
    harness.advance(SESSION_MS + 1)
    assert fenced(controller) == list(range(11, 61))


def test_a_controller_that_was_paused_fences_no_broker_for_its_own_pause() -> None:
    harness = Harness()
    controller = running(harness)
    add_broker(harness, controller, 11)
    add_broker(harness, controller, 12)
    harness.advance(2_000)
    harness.clock.elapsed_ms += 5 * SESSION_MS
    harness.advance(1_000)
    assert fenced(controller) == []
    controller.context.liveness.touch(12, harness.clock.monotonic_ms())
    harness.advance(SESSION_MS - 2_000)
    assert fenced(controller) == [11], "the rest of its session counts as ever"


@pytest.mark.parametrize("timer_first", [False, True])
def test_nor_for_a_pause_while_the_fencing_of_a_dead_one_is_written(timer_first: bool) -> None:
    harness = Harness()
    controller = running(harness)
    for broker_id in (11, 12, 13):
        add_broker(harness, controller, broker_id)
    keep_alive(harness, controller, 12, 13, ms=SESSION_MS - RECHECK_MS)
    harness.clock.elapsed_ms += RECHECK_MS
    harness.timers.run_due(harness.clock.elapsed_ms)
    assert harness.workers.waiting, "the flush is under way"
    harness.clock.elapsed_ms += 5 * SESSION_MS
    if timer_first:
        harness.timers.run_due(harness.clock.elapsed_ms)
    harness.workers.run()
    assert fenced(controller) == [11]
    harness.advance(RECHECK_MS)
    controller.context.liveness.touch(12, harness.clock.monotonic_ms())
    harness.advance(SESSION_MS - RECHECK_MS)
    assert fenced(controller) == [11, 13], "the rest of its session counts as ever"


def test_a_slow_write_is_no_pause(caplog: pytest.LogCaptureFixture) -> None:
    """While it is under way heartbeats are taken, so sessions end as ever."""
    harness = Harness()
    controller = running(harness)
    for broker_id in (11, 12):
        add_broker(harness, controller, broker_id)
    keep_alive(harness, controller, 12, ms=SESSION_MS - RECHECK_MS)
    for _ in range(SESSION_MS // RECHECK_MS):
        harness.clock.elapsed_ms += RECHECK_MS
        harness.timers.run_due(harness.clock.elapsed_ms)
    assert len(harness.workers.waiting) == 1, "one decision at a time"
    harness.workers.run()
    assert fenced(controller) == [11, 12]
    assert "paused" not in caplog.text


class ConfusedLiveness(BrokerLiveness):
    """Names a broker that does not exist, until it is set right."""

    def __init__(self, session_timeout_ms: int) -> None:
        super().__init__(session_timeout_ms)
        self.asked = 0
        self.sane = False

    def stalest(self, image: ClusterImage) -> tuple[int, int] | None:
        self.asked += 1
        return super().stalest(image) if self.sane else (0, 99)


def test_a_decision_that_fails_is_retried_later(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    controller = running(harness)
    liveness = ConfusedLiveness(SESSION_MS)
    controller.context = replace(controller.context, liveness=liveness)
    add_broker(harness, controller, 11)
    harness.advance(SESSION_MS + RECHECK_MS)
    assert "controller operation failed" in caplog.text
    assert 0 < liveness.asked < 100, "not again and again at once"
    liveness.sane = True
    harness.advance(RECHECK_MS)
    assert fenced(controller) == [11]


def test_after_a_stop_no_session_is_checked() -> None:
    harness = Harness()
    controller = running(harness)
    add_broker(harness, controller, 11)
    controller.stop()
    harness.advance(2 * SESSION_MS)
    assert fenced(controller) == []


# -- periodic elections --------------------------------------------------------------------------

TOPIC = Uuid(b"topic-----------")


def add_partition(
    harness: Harness, controller: ControllerNode, isr: tuple[int, ...], leader: int
) -> None:
    """Make a topic of one partition of the brokers 11 and 12."""
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(11, 12),
        isr=isr,
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
    )
    records = (TopicRecord(name="t", topic_id=TOPIC), partition)
    controller.run(lambda _image: Decision(Step(records), None))
    harness.workers.run()


def leader(controller: ControllerNode) -> int:
    topic = controller.runtime.committed_image.topics.by_id(TOPIC)
    assert topic is not None
    return topic.partitions[0].leader


def keep_alive(harness: Harness, controller: ControllerNode, *brokers: int, ms: int) -> None:
    """Let time pass in which brokers send heartbeats."""
    for _ in range(ms // RECHECK_MS):
        for broker_id in brokers:
            controller.context.liveness.touch(broker_id, harness.clock.monotonic_ms())
        harness.advance(RECHECK_MS)


def test_leaders_are_balanced_every_so_often() -> None:
    harness = Harness()
    controller = running(harness)
    add_broker(harness, controller, 11)
    add_broker(harness, controller, 12)
    add_partition(harness, controller, isr=(11, 12), leader=12)
    keep_alive(harness, controller, 11, 12, ms=299_000)
    assert leader(controller) == 12
    keep_alive(harness, controller, 11, 12, ms=2_000)
    assert leader(controller) == 11


def test_permission_for_unclean_elections_is_acted_upon_at_once() -> None:
    harness = Harness()
    controller = running(harness)
    add_broker(harness, controller, 11)
    add_broker(harness, controller, 12)
    add_partition(harness, controller, isr=(11,), leader=11)
    keep_alive(harness, controller, 12, ms=SESSION_MS + RECHECK_MS)
    assert (fenced(controller), leader(controller)) == ([11], -1)
    change = Alteration((2, "t"), (("unclean.leader.election.enable", 0, "true"),))
    controller.run(
        lambda image: alter_configs(
            image, [change], incremental=True, validate_only=False, context=controller.context
        )
    )
    harness.workers.run()
    assert leader(controller) == 12


def test_elections_that_the_previous_controller_left_undone_are_held() -> None:
    harness = Harness()
    controller = running(harness)
    add_broker(harness, controller, 11)
    add_partition(harness, controller, isr=(11, 12), leader=12)
    controller.stop()
    harness.workers.run()
    again = running(harness)
    harness.workers.run()
    assert leader(again) == 11
