"""A stop in order ends soon, also where no controller can let a broker go, and it is a clean one.

Method: simulated clusters without other faults. ZooKeeper, or most of the quorum, is gone or frozen
when nodes are stopped, one or all at once. What the stop writes is looked for on the disk.
"""

from collections.abc import Callable, Iterable

import pytest

from ottla.log.names import CLEAN_SHUTDOWN
from ottla.testing.sim import Sim
from ottla.testing.sim.node import SimNode
from ottla.testing.sim.watch.deletion_steps import controller_of

PROMISE_MS = 15_000
SLOW_QUORUM = {
    "controller.quorum.fetch.timeout.ms": "20000",
    "controller.quorum.election.timeout.ms": "20000",
}
PATIENT = {
    "controlled.shutdown.max.retries": "100",
    "controlled.shutdown.retry.backoff.ms": "1000",
}


def started(**how: object) -> Sim:
    sim = Sim(3, **how)  # type: ignore[arg-type]
    until(sim, lambda: all(node.serves for node in sim.nodes.values()))
    until(sim, lambda: len(sim.image.broker_ids()) == 3)
    sim.run(2_000)
    return sim


def until(sim: Sim, holds: Callable[[], bool]) -> None:
    sim.run_until(holds, limit_ms=60_000)


def check_stops(sim: Sim, nodes: Iterable[SimNode]) -> None:
    stopping = list(nodes)
    incarnations = {node.id: node.incarnation for node in stopping}
    began_ms = sim.now_ms
    for node in stopping:
        node.stop(back_after_ms=600_000)
    until(sim, lambda: not any(node.alive for node in stopping))
    assert sim.now_ms - began_ms <= PROMISE_MS
    for node in stopping:
        assert node.incarnation == incarnations[node.id]
        for log_dir in node.config.log_dirs if node.is_broker else ():
            assert node.disk.exists(f"{log_dir}/{CLEAN_SHUTDOWN}"), f"node {node.id} is not clean"


@pytest.mark.parametrize("silently", [False, True], ids=["dead", "frozen"])
@pytest.mark.parametrize("config", [{}, PATIENT], ids=["defaults", "patient"])
def test_without_zookeeper(silently: bool, config: dict[str, str]) -> None:
    sim = started(brokers=3, zookeeper=True, config=config)
    assert sim.zookeeper is not None
    sim.zookeeper.model.down(silently=silently)
    sim.run(100)
    check_stops(sim, sim.nodes.values())


def test_without_zookeeper_one_after_the_other() -> None:
    """The controller's broker last: it is asked until then, and cannot write."""
    sim = started(brokers=3, zookeeper=True)
    controller = controller_of(sim)
    assert sim.zookeeper is not None
    sim.zookeeper.model.down(silently=True)
    for node in sorted(sim.nodes.values(), key=lambda node: node.id == controller.id):
        check_stops(sim, [node])


def test_with_a_frozen_controller_over_zookeeper() -> None:
    sim = started(brokers=3, zookeeper=True, config={"zookeeper.session.timeout.ms": "60000"})
    controller = controller_of(sim)
    controller.pause()
    check_stops(sim, [node for node in sim.nodes.values() if node.id != controller.id])


@pytest.mark.parametrize("config", [{}, SLOW_QUORUM], ids=["defaults", "slow quorum"])
@pytest.mark.parametrize("frozen", [False, True], ids=["dead", "frozen"])
@pytest.mark.parametrize("combined", [False, True], ids=["separate", "combined"])
def test_without_a_majority(combined: bool, frozen: bool, config: dict[str, str]) -> None:
    sim = started(brokers=3, controllers=3, combined=combined, config=config)
    voters = [node for node in sim.nodes.values() if node.config.is_controller]
    lost = [controller_of(sim), *(each for each in voters if each != controller_of(sim))][:2]
    for node in lost:
        if frozen:
            node.pause()
        else:
            node.crash(lose_unflushed=False)
    sim.run(100)
    check_stops(sim, [node for node in sim.nodes.values() if node not in lost])
