"""A simulated cluster over ZooKeeper forms, and writes of topics' znodes by others than the
controller are reported.

Method: whole clusters for some virtual seconds; writes of a client that is no controller.
"""

from random import Random

from ottla.base.zookeeper import Check, Create, Delete, SessionState, ZkError
from ottla.metadata.znodes import paths
from ottla.testing.sim import Faults, Sim
from ottla.testing.sim.watch.observations import UnfencedWrite
from ottla.testing.sim.zookeeper.zookeeper_mode import (
    NO_RATES,
    ZooKeeperRates,
    within_zookeeper_guarantees,
)
from ottla.testing.sim.zookeeper.zookeeper_session import session_opener


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
