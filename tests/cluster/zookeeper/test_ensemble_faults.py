"""An ensemble, its brokers and the ways between them fail under load: nothing is lost.

Method: three brokers over three ZooKeeper servers, a gate in each way between them; an idempotent
producer with acks=all and min.insync.replicas=2 writes all the time, a consumer reads along. The
ensemble's leader, the controller, both at once are killed; sessions end; a broker is cut off from
ZooKeeper alone, by connections that break and by ones that stall. After each round every partition
takes records and topics can be created; at the end every record is on every replica once and in
order, leaders can be elected, and ZooKeeper's own logs show that only elected controllers wrote.

A part of the rounds is drawn by the commit; `make soak` runs them all, and as many more as
OTTLA_ENSEMBLE_ROUNDS says, drawn from OTTLA_ENSEMBLE_SEED.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ...drawn import FAULT_ROUNDS, drawn
from ..conftest import Reports, new_replicated_topic
from ..fault_load import Load
from ..fault_rounds import Cost, Scene, table
from ..leader_watch import LeaderWatch
from .ensemble import Ensemble

MORE_ROUNDS = int(os.environ.get("OTTLA_ENSEMBLE_ROUNDS", "0"))
SEED = int(os.environ.get("OTTLA_ENSEMBLE_SEED", "1"))

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300 + 60 * MORE_ROUNDS),
    pytest.mark.drawn(2, of="long faults"),
]

PARTITIONS = 4
QUICK = {"zookeeper.session.timeout.ms": "2000", "offsets.topic.num.partitions": "4"}
LONGER_THAN_A_SESSION = 3.0
"""ZooKeeper looks at sessions once in a tick of 0.5 s."""


class EnsembleScene(Scene):
    """Brokers under load, and the ensemble below them."""

    def __init__(self, ensemble: Ensemble, load: Load, watch: LeaderWatch) -> None:
        super().__init__(ensemble.cluster, load, watch)
        self.ensemble = ensemble
        self._rounds = 0

    def give_back(self) -> None:
        """Let all brokers and servers run again, and reach one another."""
        self.ensemble.heal()
        super().give_back()

    def play(self, act: "EnsembleAct") -> Cost:
        """Play a round to its end; what must go on afterwards does."""

        def played(_: Scene) -> None:
            act(self)

        played.__name__ = act.__name__
        cost = self.run(played)
        self._rounds += 1
        self.ensemble.check_topics_can_be_created(f"after-{self._rounds}")
        return cost

    def kill_zookeeper_leader(self) -> int:
        """Kill the server that leads the ensemble; return its number."""
        leader = self.ensemble.servers.leader()
        assert leader is not None
        self.ensemble.servers.kill(leader)
        return leader

    def wait_zookeeper_leader(self) -> None:
        """Wait until the servers that are left have a leader."""
        self.ensemble.wait(lambda: self.ensemble.servers.leader() is not None)

    def wait_gone(self, broker: int) -> None:
        """Wait until a broker's session is over."""
        self.ensemble.wait(lambda: self.ensemble.session(broker) == 0)


EnsembleAct = Callable[[EnsembleScene], None]


def zookeeper_leader_killed(scene: EnsembleScene) -> None:
    scene.kill_zookeeper_leader()
    scene.wait_zookeeper_leader()
    scene.load.wait_progress()


def controller_killed(scene: EnsembleScene) -> None:
    old = scene.controller
    scene.kill(old)
    scene.next_controller(old)


def zookeeper_leader_and_controller_killed(scene: EnsembleScene) -> None:
    old = scene.controller
    scene.kill(old)
    scene.kill_zookeeper_leader()
    scene.next_controller(old)


def session_of_a_leader_expired(scene: EnsembleScene) -> None:
    scene.ensemble.expire(scene.other_leader(scene.controller))


def session_of_the_controller_expired(scene: EnsembleScene) -> None:
    epoch = scene.ensemble.epoch()
    scene.ensemble.expire(scene.controller)
    scene.ensemble.wait_elected(after=epoch)


def leader_cut_off_from_zookeeper(scene: EnsembleScene) -> None:
    leader = scene.other_leader(scene.controller)
    scene.ensemble.cut(leader)
    scene.wait_gone(leader)
    scene.wait(0.5)


def controller_cut_off_from_zookeeper(scene: EnsembleScene) -> None:
    old = scene.controller
    scene.ensemble.cut(old)
    scene.next_controller(old)
    scene.wait(0.5)


def controller_stalled(scene: EnsembleScene) -> None:
    """What it and ZooKeeper have said to one another meanwhile arrives late."""
    old = scene.controller
    scene.ensemble.stall(old)
    scene.next_controller(old)
    scene.wait(0.5)


def controller_paused(scene: EnsembleScene) -> None:
    old = scene.controller
    scene.pause(old)
    scene.next_controller(old)
    scene.wait(0.5)


def leader_cut_off_for_a_moment(scene: EnsembleScene) -> None:
    """Shorter than its session: nobody else notices."""
    leader = scene.other_leader(scene.controller)
    scene.ensemble.cut(leader)
    scene.wait(0.5)


def controller_cut_off_for_a_moment(scene: EnsembleScene) -> None:
    scene.ensemble.cut(scene.controller)
    scene.wait(0.5)


def all_cut_off_from_zookeeper(scene: EnsembleScene) -> None:
    for plan in scene.cluster.brokers:
        scene.ensemble.cut(plan.id)
    scene.wait(LONGER_THAN_A_SESSION)


def most_of_zookeeper_killed(scene: EnsembleScene) -> None:
    """Without a majority sessions cannot end; nobody is elected, and records go on."""
    scene.kill_zookeeper_leader()
    scene.wait_zookeeper_leader()
    scene.kill_zookeeper_leader()
    scene.load.wait_progress()
    scene.wait(LONGER_THAN_A_SESSION)


def zookeeper_leader_paused(scene: EnsembleScene) -> None:
    leader = scene.ensemble.servers.leader()
    assert leader is not None
    scene.ensemble.servers.pause(leader)
    scene.wait(LONGER_THAN_A_SESSION)


def controller_deposed(scene: EnsembleScene) -> None:
    epoch = scene.ensemble.epoch()
    scene.ensemble.depose()
    scene.ensemble.wait_elected(after=epoch)


def leader_killed_while_the_controller_is_cut_off(scene: EnsembleScene) -> None:
    old = scene.controller
    scene.ensemble.cut(old)
    scene.kill(scene.other_leader(old))
    scene.next_controller(old)


ROUNDS: tuple[EnsembleAct, ...] = (
    zookeeper_leader_killed,
    controller_killed,
    zookeeper_leader_and_controller_killed,
    session_of_a_leader_expired,
    session_of_the_controller_expired,
    leader_cut_off_from_zookeeper,
    controller_cut_off_from_zookeeper,
    controller_stalled,
    controller_paused,
)

LONGER_ROUNDS: tuple[EnsembleAct, ...] = (
    *ROUNDS,
    leader_cut_off_for_a_moment,
    controller_cut_off_for_a_moment,
    all_cut_off_from_zookeeper,
    most_of_zookeeper_killed,
    zookeeper_leader_paused,
    controller_deposed,
    leader_killed_while_the_controller_is_cut_off,
)


def rounds() -> list[EnsembleAct]:
    """Return what is played: some of a few once, and as many more as asked for."""
    more = random.Random(SEED)
    return [
        *drawn(ROUNDS, 2, FAULT_ROUNDS),
        *(more.choice(LONGER_ROUNDS) for _ in range(MORE_ROUNDS)),
    ]


@contextmanager
def under_load(ensemble: Ensemble, topic: str) -> Iterator[EnsembleScene]:
    """Write to, read from and watch a topic; check all of it at the end."""
    with (
        LeaderWatch(ensemble.cluster, topic) as watch,
        Load(ensemble.cluster, topic, PARTITIONS) as load,
    ):
        yield EnsembleScene(ensemble, load, watch)
    load.check()


def test_no_acknowledged_record_is_lost(tmp_path: Path, reports: Reports) -> None:
    with Ensemble(tmp_path, QUICK) as ensemble:
        topic = new_replicated_topic(ensemble.cluster, "ensemble", PARTITIONS)
        with under_load(ensemble, topic) as scene:
            costs = [scene.play(act) for act in rounds()]
        ensemble.check_leaders_can_be_elected(topic)
        ensemble.check_only_rulers_wrote()
    reports.append("time without a leader: three brokers over an ensemble", table(costs))
