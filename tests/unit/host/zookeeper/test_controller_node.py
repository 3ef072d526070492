"""One controller controls a ZooKeeper cluster, sends requests to brokers, and is replaced.

Method: real controllers on a simulated ZooKeeper, fake brokers that record requests.
"""

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, NO_UUID, Uuid
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.step import Decision, Step
from ottla.controller.zookeeper.controlled_shutdown import controlled_shutdown
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord, PartitionChangeRecord
from ottla.metadata.topics import DIRECTORY_LOST
from ottla.metadata.znodes import multis, paths
from ottla.metadata.znodes.partition_state import decode_state
from ottla.metadata.znodes.topic import Assignment, encode_topic
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import update_metadata as update

from .controller_harness import ControllerHarness
from .test_controller_requests import set_isr


@pytest.fixture
def sim() -> ControllerHarness:
    made = ControllerHarness()
    made.start(1, 2, 3)
    return made


def test_the_first_broker_is_elected_and_sends_the_complete_state(sim: ControllerHarness) -> None:
    assert sim.controller.id == 1
    assert sim.data(paths.CONTROLLER_EPOCH) == b"1"
    for node in sim.nodes.values():
        assert node.knows_brokers() == [1, 2, 3]
        assert node.controller.election.controller_id == 1
        assert node.failures == []


def test_a_topic_of_a_tool_is_brought_online_and_sent_to_brokers(sim: ControllerHarness) -> None:
    sim.create("t", (1, 2), (2, 3))
    partition = sim.partition("t", 1)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 0)
    assert sim.nodes[3].led("t", 1).is_new
    assert sim.nodes[1].led("t", 1) is None
    assert sim.nodes[1].knows("t", 1).leader == 2
    assert sim.image.topics.by_name("t") is not None


def test_a_dead_broker_leads_nothing_any_more(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    sim.nodes[2].kill()
    sim.until(lambda: sim.partition("t").leader == 3)
    sim.settle()
    assert sim.partition("t").isr == (3,)
    assert sim.nodes[3].led("t").leader == 3
    assert sim.nodes[1].knows_brokers() == [1, 3]


def test_kafka_708_last_isr_member_stays(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    sim.nodes[2].kill()
    sim.until(lambda: sim.partition("t").leader == 3)
    sim.nodes[3].kill()
    sim.until(lambda: sim.partition("t").leader == NO_LEADER)
    assert sim.partition("t").isr == (3,)
    sim.start(3)
    sim.until(lambda: sim.partition("t").leader == 3)


def test_kafka_7235_a_fast_bounce_is_noticed(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    before = sim.image.brokers[2].epoch
    sim.nodes[2].expire()
    sim.until(lambda: sim.image.brokers.get(2) is not None and sim.image.brokers[2].epoch > before)
    sim.settle()
    assert sim.partition("t").leader == 3
    assert sim.nodes[2].led("t").leader == 3
    assert sim.nodes[2].knows_brokers() == [1, 2, 3]


def test_a_restart_while_a_controller_takes_over_ends_the_previous_leaderships(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the load and the first request there are elections to write, which take time."""
    monkeypatch.setattr(multis, "ZOOKEEPER_MULTI_OPERATIONS_MAX", 5)

    def orphaned() -> ControllerHarness:
        sim = ControllerHarness()
        sim.start(1, 2, 3)
        sim.create("t", (2, 3))
        sim.create("u", *[(1, 2, 3)] * 30)
        sim.wait(sim.nodes[2].controller.stop())  # It bounces, and is not to be elected.
        sim.nodes[1].kill()
        return sim

    sim = orphaned()
    sim.until(lambda: bool(sim.active_controllers()))
    loaded_us = sim.scheduler.now_us
    for later_ms in range(-4, 12, 2):
        sim = orphaned()
        sim.scheduler.run_until(loaded_us + 1_000 * later_ms)
        sim.nodes[2].bounce()
        sim.until(lambda sim=sim: bool(sim.active_controllers()) and sim.partition("t").leader == 3)
        sim.settle()
        assert sim.leader_epochs.sent_too_early == []
        assert sim.nodes[2].led("t").leader == 3


def test_a_restart_is_decided_on_before_what_is_queued() -> None:
    """A state that is written between the two has the new broker epoch beside the former ISR: the
    next controller took the new process for the one that was in sync."""
    sim = ControllerHarness()
    sim.start(1, 2, 3, 4)
    sim.create("t", (2, 3, 4))
    sim.create("u", (2, 4))
    set_isr(sim, "t", (2, 3))
    sim.settle()
    controller, brokers, before = sim.controller.controller, sim.image.brokers, sim.partition("t")
    moved = IsrChange(
        topic_id=sim.image.topics.id_of("t") or NO_UUID,
        partition_id=0,
        leader_epoch=before.leader_epoch,
        partition_epoch=before.partition_epoch,
        isr=tuple((each, brokers[each].epoch) for each in (2, 3, 4)),
    )

    def other(image: ClusterImage) -> Decision[None]:
        found = image.topics.by_name("u")
        assert found is not None
        isr = (2,) if len(found.partitions[0].isr) == 2 else (2, 4)
        record = PartitionChangeRecord(topic_id=found.id, partition_id=0, isr=isr)
        return Decision(Step((record,)), None)

    sim.nodes[3].bounce()
    for _ in range(10):
        controller.run(other)
    controller.run(
        lambda image: alter_partition(
            image, [moved], broker_id=2, broker_epoch=brokers[2].epoch, context=controller.context
        )
    )
    written = decode_state("t", 0, sim.data(paths.state("t", 0)) or b"")
    state = written
    while state == written:
        sim.scheduler.run_until(sim.scheduler.now_us + 50)
        state = decode_state("t", 0, sim.data(paths.state("t", 0)) or b"")
    assert sim.image.brokers[3].epoch > brokers[3].epoch
    assert state.isr == (2,)


def test_another_broker_takes_over(sim: ControllerHarness) -> None:
    sim.create("t", (1, 2, 3))
    sim.nodes[1].kill()
    sim.until(lambda: bool(sim.active_controllers()))
    assert sim.controller.id in (2, 3)
    sim.until(lambda: sim.partition("t").leader == 2)
    sim.settle()
    assert sim.data(paths.CONTROLLER_EPOCH) == b"2"
    assert sim.nodes[3].led("t").leader == 2
    assert sim.nodes[3].controller_epoch == 2
    sim.create("u", (3,))
    assert sim.nodes[2].knows("u").leader == 3


def test_kafka_4443_a_new_controller_sends_live_brokers_before_leaders() -> None:
    sim = ControllerHarness()
    sim.start(1, 2, 3)
    sim.create("t", (2, 3))
    for node in sim.nodes.values():
        node.requests.clear()
    sim.nodes[1].kill()
    sim.until(lambda: bool(sim.active_controllers()))
    sim.settle()
    for node in (sim.nodes[2], sim.nodes[3]):
        kinds = [type(each) for each in node.requests]
        assert kinds[0] is update.UpdateMetadataRequest
        assert node.requests[0].topic_states == ()
        assert lai.LeaderAndIsrRequest in kinds


def test_a_controller_that_stops_makes_way_at_once(sim: ControllerHarness) -> None:
    began_us = sim.scheduler.now_us
    sim.wait(sim.nodes[1].controller.stop())
    sim.until(lambda: bool(sim.active_controllers()))
    assert sim.scheduler.now_us - began_us < 1_000_000
    assert sim.controller.id in (2, 3)
    assert not sim.nodes[1].controller.is_active


def test_an_expired_session_answers_queued_requests(sim: ControllerHarness) -> None:
    node = sim.nodes[1]
    sim.model.cut(node.client.name)
    answers = [node.controller.run(lambda image: Decision(_touch(image), "done")) for _ in range(3)]
    sim.until(lambda: bool({2, 3} & {each.id for each in sim.active_controllers()}))
    sim.model.heal(node.client.name)
    sim.until(lambda: not node.controller.is_active)
    assert [sim.wait(each) for each in answers] == [_IS_NOT_CONTROLLER] * 3
    late = sim.wait(node.controller.run(lambda image: Decision(Step(), "late")))
    assert late == _IS_NOT_CONTROLLER
    sim.settle()
    assert [each.id for each in sim.active_controllers()] == [sim.controller.id]
    assert sim.data(paths.CONTROLLER_EPOCH) == b"2"


def test_kafka_1096_a_paused_controller_neither_writes_nor_is_obeyed(
    sim: ControllerHarness,
) -> None:
    sim.create("t", (2, 3))
    sleeper = sim.nodes[1]
    sleeper.client.process.paused = True
    sim.until(lambda: any(each.id != 1 for each in sim.active_controllers()))
    sim.settle()
    version = sim.version(paths.state("t", 0))
    answer = sleeper.controller.run(lambda image: Decision(_touch(image), "done"))
    sleeper.controller.channels.send(())
    sim.scheduler.resume(sleeper.client.process)
    assert sim.wait(answer) == _IS_NOT_CONTROLLER
    sim.settle()
    assert not sleeper.controller.is_active
    assert sim.version(paths.state("t", 0)) == version
    assert len(sim.active_controllers()) == 1


def test_a_broker_with_a_newer_controller_epoch_ends_the_term(
    sim: ControllerHarness,
) -> None:
    sim.create("t", (2, 3))
    sim.nodes[2].controller_epoch = 9
    sim.put(paths.topic("u"), encode_topic([(0, Assignment((2, 3)))], Uuid(bytes(15) + b"u")))
    # It is elected again, as often as it takes.
    sim.until(lambda: int(sim.data(paths.CONTROLLER_EPOCH) or b"0") >= 9)
    sim.settle()
    assert len(sim.active_controllers()) == 1


def test_a_controlled_shutdown_is_granted(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    sim.create("alone", (2,))
    epoch, config = sim.image.brokers[2].epoch, sim.controller.controller.context.config
    remaining = sim.run_on(
        sim.controller, lambda image: controlled_shutdown(image, config, 2, epoch)
    )
    assert remaining == ()
    sim.settle()
    assert sim.partition("t").leader == 3
    assert sim.nodes[2].stopped("t") is not None
    assert not sim.nodes[2].stopped("t").delete_partition


def test_a_failed_log_directory_moves_leaders_away(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    node = sim.nodes[2]
    node.storage_errors.add(("t", 0))
    data = b'{"version":1,"broker":2,"event":1}'
    sim.put(f"{paths.LOG_DIR_EVENTS}/log_dir_event_0000000000", data)
    sim.until(lambda: sim.partition("t").leader == 3)
    assert sim.partition("t").directory(2) == DIRECTORY_LOST
    sim.settle()
    assert sim.names(paths.LOG_DIR_EVENTS) == []
    assert sim.nodes[1].knows("t").offline_replicas == (2,)


def test_leaders_are_balanced_soon_after_an_election(sim: ControllerHarness) -> None:
    sim.create("t", (2, 3))
    sim.nodes[2].kill()
    sim.until(lambda: sim.partition("t").leader == 3)
    sim.start(2)
    _join_isr(sim, "t", 2)
    sim.wait(sim.nodes[1].controller.stop())
    sim.until(lambda: bool(sim.active_controllers()))
    sim.until(lambda: sim.partition("t").leader == 2, limit_ms=10_000)


# -- helpers -----------------------------------------------------------------------------------


class _NotController:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiError) and other.error is Error.NOT_CONTROLLER

    __hash__ = None  # type: ignore[assignment]


_IS_NOT_CONTROLLER = _NotController()


def _touch(image: ClusterImage) -> Step:
    return Step((ConfigRecord(resource_type=2, resource_name="t", name="a", value="b"),))


def _join_isr(sim: ControllerHarness, topic: str, broker_id: int) -> None:
    partition = sim.partition(topic)
    topic_id = sim.image.topics.id_of(topic)
    assert topic_id is not None
    record = PartitionChangeRecord(
        partition_id=0, topic_id=topic_id, isr=(*partition.isr, broker_id)
    )
    sim.run_on(sim.controller, lambda image: Decision(Step((record,)), None))


def test_a_controller_that_is_fenced_as_it_takes_over_sends_no_leaders(
    sim: ControllerHarness,
) -> None:
    sim.create("t", (2, 3))
    sim.nodes[1].kill()
    sim.nodes[2].kill()
    sim.nodes[2].expire()
    last = sim.nodes[3]
    while not last.controller.is_active:
        sim.scheduler.run_until(sim.scheduler.now_us + 20)
    # Its write of the new leader instead of broker 2 is in flight, and is rejected.
    sim.model.cut(last.client.name)
    sim.put(paths.CONTROLLER_EPOCH, b"5")
    sim.model.heal(last.client.name)
    sim.until(lambda: sim.data(paths.CONTROLLER_EPOCH) == b"6")
    sim.settle()
    assert sim.partition("t").leader == 3
    requests = [each for each in sim.nodes[3].requests if isinstance(each, lai.LeaderAndIsrRequest)]
    assert {each.controller_epoch for each in requests} == {1, 6}
