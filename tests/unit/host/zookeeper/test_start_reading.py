"""The first read from ZooKeeper: one id for the cluster, and an image without this broker.

Method: the simulator's model of ZooKeeper in virtual time.
"""

from dataclasses import replace

from ottla.base.ids import Uuid
from ottla.broker.zookeeper.zk_metadata import without_own_leadership
from ottla.host.log_dirs.node_dirs import verdict_on
from ottla.host.steps import drive
from ottla.host.zookeeper.start_reading import (
    cluster_id_of,
    read_deleted,
    read_image,
    without_deleted,
)
from ottla.log.dirs.dir_loading import Verdict
from ottla.metadata.deletions import DeletionImage, DeletionState, Policy, ReplicaStatus
from ottla.metadata.deletions_json import encode_deletion
from ottla.metadata.delta import replay
from ottla.metadata.image import ClusterImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.config import encode_config
from ottla.metadata.znodes.partition_state import StateZnode

from .harness import Client, ZooKeeperHarness

TOPIC_ID = Uuid(b"t" * 16)
DELETED_ID = Uuid(b"g" * 16)


class Dice:
    """Other bytes each time."""

    def __init__(self, first: int) -> None:
        self._next = first

    def random_bytes(self, count: int) -> bytes:
        self._next += 1
        return bytes([self._next]) * count

    def below(self, bound: int) -> int:
        return 0


def ids_found(seed: int) -> list[object]:
    """Return what three brokers find that start at once, while connections break."""
    sim = ZooKeeperHarness(seed)
    sim.make_cluster()
    sessions = [Client(sim, f"broker {number}").start() for number in (1, 2, 3)]
    sim.model.faults.broken = 0.2
    ended: list[object] = []
    for number, session in enumerate(sessions):
        drive(cluster_id_of(session, Dice(10 * number)), ended.append)
    sim.until(lambda: len(ended) == 3)
    return ended


def test_brokers_that_start_at_once_agree_on_the_cluster_s_id() -> None:
    for seed in range(8):
        found = ids_found(seed)
        assert len(set(found)) == 1
        assert isinstance(found[0], str)


def stored() -> ZooKeeperHarness:
    sim = ZooKeeperHarness()
    sim.make_cluster()
    sim.register(1)
    sim.register(2)
    sim.put_topic("t", [(1, 2), (2, 1), (1,)], TOPIC_ID)
    for number, leader in ((0, 1), (1, 2)):
        state = StateZnode(leader=leader, leader_epoch=4, isr=(1, 2), controller_epoch=1)
        sim.put_state("t", number, state)
    sim.put(paths.config((2, "t")), encode_config({"retention.ms": "5"}))
    sim.put("/brokers/topics/garbage", b"[")
    return sim


def test_what_is_stored_is_what_a_broker_starts_from_but_for_itself() -> None:
    sim = stored()
    image = sim.drive(read_image(sim.tool, 1))
    assert image.broker_ids() == [2]
    topic = image.topics.by_id(TOPIC_ID)
    assert topic is not None
    assert [number for number, _ in topic.in_order()] == [0, 1, 2]
    assert (topic.partitions[0].leader, topic.partitions[0].leader_epoch) == (1, 4)
    assert topic.partitions[2].leader_epoch == -1
    assert dict(image.configs.of(2, "t")) == {"retention.ms": "5"}
    assert image.topics.names() == ["t"]


def test_nothing_is_led_before_the_controller_has_spoken() -> None:
    """Its request may have the stored epoch, which must count as a newer one then."""
    sim = stored()
    image = sim.drive(read_image(sim.tool, 1))
    begun = replay(image, without_own_leadership(image, 1), offset=1, epoch=-1).image
    topic = begun.topics.by_id(TOPIC_ID)
    assert topic is not None
    before = image.topics.by_id(TOPIC_ID)
    assert before is not None
    own, others = topic.partitions[0], topic.partitions[1]
    assert (own.leader, own.leader_epoch, own.isr) == (-1, 3, (1, 2))
    assert own.partition_epoch == before.partitions[0].partition_epoch - 1
    assert others == before.partitions[1]


def with_receipts(*, garbage: bool) -> ZooKeeperHarness:
    """Return a cluster whose ledger has a topic that is there, one that is gone, and rubbish."""
    sim = stored()
    if not garbage:
        sim.delete("/brokers/topics/garbage")
    for topic_id in (TOPIC_ID, DELETED_ID):
        entry = DeletionImage(topic_id=topic_id, name="t", policy=Policy.CLASSIC, asked_ms=5)
        sim.put(paths.deletion(topic_id), encode_deletion(entry))
    sim.put(f"{paths.DELETIONS}/rubbish", b"")
    return sim


def read_by_1(sim: ZooKeeperHarness) -> ClusterImage:
    image: ClusterImage = sim.drive(read_image(sim.tool, 1))
    return image


def test_partition_directories_of_deleted_topics_are_deleted_at_the_start() -> None:
    """Whatever the entry says: a topic with an entry that is not there any more does not return."""
    image = read_by_1(with_receipts(garbage=False))
    assert verdict_on(image, 1, DELETED_ID, 0) is Verdict.DELETE
    assert verdict_on(image, 1, Uuid(b"u" * 16), 0) is Verdict.STRAY
    kept = image.deletions.of(TOPIC_ID)
    assert kept is not None
    assert (kept.asked_ms, kept.is_finished) == (5, False)
    assert verdict_on(image, 1, TOPIC_ID, 0) is Verdict.KEEP
    assert len(without_deleted(image).deletions) == 0


def test_of_unknown_topics_those_are_deleted_whose_deletion_has_begun() -> None:
    """One that waits for its deletion is served, and its mark may yet be taken away."""
    sim = with_receipts(garbage=False)
    suspects = frozenset({TOPIC_ID, DELETED_ID, Uuid(b"u" * 16)})
    assert sim.drive(read_deleted(sim.tool, suspects)) == frozenset()
    entry = DeletionImage(topic_id=DELETED_ID, name="t", policy=Policy.CLASSIC, asked_ms=5)
    begun = entry.with_status(1, ReplicaStatus(DeletionState.STARTED), (0,))
    for each in (begun, replace(entry, finished_ms=6)):
        sim.delete(paths.deletion(DELETED_ID))
        sim.put(paths.deletion(DELETED_ID), encode_deletion(each))
        assert sim.drive(read_deleted(sim.tool, suspects)) == {DELETED_ID}
        assert sim.drive(read_deleted(sim.tool, frozenset({TOPIC_ID}))) == frozenset()
    sim.delete(paths.deletion(DELETED_ID))
    sim.put(paths.deletion(DELETED_ID), b"[")
    assert sim.drive(read_deleted(sim.tool, suspects)) == frozenset()


def test_a_topic_that_cannot_be_read_may_be_the_one_that_looks_deleted() -> None:
    image = read_by_1(with_receipts(garbage=True))
    assert verdict_on(image, 1, DELETED_ID, 0) is Verdict.STRAY
    assert image.deletions.of(TOPIC_ID) is not None
