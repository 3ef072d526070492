"""A simulated cluster over ZooKeeper forms, and writes of topics' znodes by others than the
controller are reported.

Method: whole clusters for some virtual seconds; writes of a client that is no controller. The image
of the znodes follows each of their changes, although unchanged topics are not decoded again.
"""

from random import Random

from ottla.base.ids import Uuid
from ottla.base.zookeeper import (
    Check,
    Create,
    Delete,
    Operation,
    SessionState,
    SetData,
    ZkError,
)
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.partition_state import StateZnode, encode_state
from ottla.metadata.znodes.topic import Assignment, encode_topic
from ottla.testing.sim import Faults, Sim
from ottla.testing.sim.watch.observations import UnfencedWrite
from ottla.testing.sim.zookeeper.zookeeper_mode import (
    NO_RATES,
    ZooKeeperRates,
    image_of,
    within_zookeeper_guarantees,
)
from ottla.testing.sim.zookeeper.zookeeper_session import session_opener
from ottla.testing.sim.zookeeper.zookeeper_tree import Author, Tree


def test_a_cluster_forms_the_same_way_each_time() -> None:
    sim = Sim(3, brokers=2, zookeeper=True)
    sim.run(ms=4_000)
    assert sim.problems == []
    assert all(node.serves for node in sim.nodes.values())
    assert sorted(sim.image.brokers) == [1, 2]
    assert sim.zookeeper is not None
    assert sim.zookeeper.controller_id in (1, 2)
    assert sim.marks["controller-elected"] == 1
    again = sim.again()
    again.run(ms=4_000)
    assert again.digest == sim.digest


def test_writes_of_others_than_the_controller_are_reported() -> None:
    sim = Sim(1, brokers=1, zookeeper=True)
    writes: list[UnfencedWrite] = []
    sim.observe(lambda each: writes.append(each) if isinstance(each, UnfencedWrite) else None)
    sim.run(ms=3_000)
    assert sim.zookeeper is not None
    session = session_opener(sim.zookeeper.model, "a stranger")(lambda state: None)
    path = paths.topic("t")
    version = sim.zookeeper.model.tree.nodes[paths.CONTROLLER_EPOCH].version
    fence = Check(paths.CONTROLLER_EPOCH, version)
    # No fence; the fence, looked up by somebody else; a fence that refuses is no change.
    for operations in ((Create(path, b"{"),), (fence, Delete(path))):
        pending = session.multi(operations)
        sim.run_until(lambda: pending.done, limit_ms=5_000)  # noqa: B023  Awaited here.
        assert not isinstance(pending.value, ZkError)
    refused = session.multi((Check(paths.CONTROLLER_EPOCH, version + 1), Create(path)))
    sim.run_until(lambda: refused.done, limit_ms=5_000)
    assert isinstance(refused.value, ZkError)
    assert session.state is SessionState.CONNECTED
    assert [(each.client, each.controller_id) for each in writes] == [("a stranger", 1)] * 2
    assert all(path in each.changed for each in writes)


def test_faults_are_drawn_and_end_with_healing() -> None:
    assert ZooKeeperRates().mix(Random(1)) == ZooKeeperRates().mix(Random(1))
    assert len({ZooKeeperRates().mix(Random(seed)) for seed in range(9)}) > 5
    faults = within_zookeeper_guarantees(Faults.ROUGH)
    assert (faults.power, faults.full_disks, faults.bad_log_dirs) == (0, 0, 0)
    assert faults.crashes == Faults.ROUGH.crashes
    sim = Sim(2, brokers=3, zookeeper=True, faults=Faults.ROUGH)
    sim.run(ms=40_000)
    sim.heal()
    assert sim.zookeeper is not None
    assert sim.zookeeper.rates != NO_RATES
    assert sim.zookeeper.model.is_up
    sim.run_until(lambda: all(node.serves for node in sim.nodes.values()), limit_ms=40_000)
    sim.run_until(lambda: sorted(sim.image.brokers) == [1, 2, 3], limit_ms=20_000)


ID, OTHER_ID = Uuid(b"\1" * 16), Uuid(b"\2" * 16)


class Znodes:
    """A tree with the topics `t` and `u`, of two partitions each."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.zxid = 0
        for parent in ("/brokers", paths.TOPICS):
            self.change(Create(parent))
        for name, topic_id in (("t", ID), ("u", OTHER_ID)):
            self.create(name, topic_id)

    def change(self, *operations: Operation) -> None:
        self.zxid += 1
        assert not isinstance(self.tree.apply(operations, Author(0, self.zxid, 0)), ZkError)

    def create(self, name: str, topic_id: Uuid) -> None:
        self.change(
            Create(paths.topic(name), topic(topic_id)),
            Create(f"{paths.topic(name)}/partitions"),
            *(
                operation
                for number in (0, 1)
                for operation in (
                    Create(f"{paths.topic(name)}/partitions/{number}"),
                    Create(paths.state(name, number), state(leader=1)),
                )
            ),
        )

    def topic(self, name: str) -> TopicImage:
        image = image_of(self.tree, self.zxid)
        assert image.position[0] == self.zxid
        found = image.topics.by_name(name)
        assert found is not None
        return found

    def partition(self, name: str, number: int) -> PartitionImage:
        return self.topic(name).partitions[number]


def topic(topic_id: Uuid) -> bytes:
    return encode_topic([(number, Assignment((1, 2))) for number in (0, 1)], topic_id)


def state(leader: int) -> bytes:
    return encode_state(
        StateZnode(leader=leader, leader_epoch=leader, controller_epoch=1, isr=(1, 2))
    )


def test_the_image_of_the_znodes_follows_each_change() -> None:
    znodes = Znodes()
    before, other = znodes.partition("t", 0), znodes.topic("u")
    assert (before.leader, before.isr) == (1, (1, 2))
    znodes.change(SetData(paths.state("t", 0), state(leader=2)))
    assert znodes.partition("t", 0).leader == 2
    assert znodes.partition("t", 1).leader == 1
    assert znodes.topic("u") == other
    # The same data again, at another version.
    znodes.change(SetData(paths.state("t", 0), state(leader=1)))
    assert znodes.partition("t", 0).leader == 1
    assert znodes.partition("t", 0).partition_epoch == before.partition_epoch + 2
    znodes.change(SetData(paths.topic("t"), topic(Uuid(b"\3" * 16))))
    assert znodes.topic("t").id == Uuid(b"\3" * 16)
    znodes.change(Delete(paths.state("t", 1)))
    assert znodes.partition("t", 1).leader == -1


def test_a_topic_that_is_deleted_is_not_in_the_image() -> None:
    znodes = Znodes()
    znodes.topic("t")
    znodes.change(
        *(Delete(paths.state("t", number)) for number in (0, 1)),
        *(Delete(f"{paths.topic('t')}/partitions/{number}") for number in (0, 1)),
        Delete(f"{paths.topic('t')}/partitions"),
        Delete(paths.topic("t")),
    )
    assert [each.name for each in image_of(znodes.tree, znodes.zxid).topics] == ["u"]
    znodes.create("t", ID)
    assert znodes.partition("t", 0).leader == 1
