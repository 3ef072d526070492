"""ZooKeeper mode in the simulator: the ensemble of a simulated cluster, what it is seen to hold,
and what goes wrong between it and the nodes.

What the znodes say is the truth that nodes are judged by: after each transaction that changes
brokers, topics or deletions the image is read from the tree anew. The same look finds writes that
are not the ruling controller's: each change below `/brokers/topics`, and of the ledger of
deletions, has to check `/controller_epoch`, and has to come from the node that made that epoch. (A
deposed one that looked up the new version would pass the check alone; KAFKA-6082.)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from random import Random
from typing import TYPE_CHECKING

from ottla.base.zookeeper import Check, Create, OpenSession, SetData, ZnodeData
from ottla.metadata.delta import delta_between, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.load import Snapshot, records_of
from ottla.metadata.znodes.topic import decode_topic
from ottla.testing.sim.faults import Faults
from ottla.testing.sim.net import MS
from ottla.testing.sim.observations import QuorumLed, UnfencedWrite
from ottla.testing.sim.world import Process
from ottla.testing.sim.zookeeper import Written, ZooKeeperModel
from ottla.testing.sim.zookeeper_tree import Tree

if TYPE_CHECKING:
    from ottla.testing.sim.sim import Sim

MINUTE_US = 60_000 * MS


@dataclass(frozen=True, slots=True)
class ZooKeeperRates:
    """What goes wrong: chances for one request, and how often a minute.

    Fields: `slow`, `broken`: of a message, of a request's connection. `cuts`: a node is cut off
            from ZooKeeper alone; `expiries`: a session ends; `outages`: nobody is answered.
            `removals`: an operator deletes `/controller`, so that another one is elected while the
            session of the former one goes on.
    """

    slow: float = 0.01
    broken: float = 0.003
    cuts: float = 3.0
    expiries: float = 1.5
    outages: float = 0.8
    removals: float = 1.5

    def mix(self, random: Random) -> "ZooKeeperRates":
        """Return the rates of one history: each none, few or all of it."""
        drawn = {
            each.name: getattr(self, each.name) * random.choice((0.0, 0.25, 1.0))
            for each in fields(self)
        }
        return replace(self, **drawn)


NO_RATES = ZooKeeperRates(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class ZooKeeperSide:
    """The ensemble of one simulated cluster. `ruler`: the node that made the present epoch."""

    def __init__(self, sim: "Sim", chance: Callable[[str], Random], *, faults: bool) -> None:
        self._sim = sim
        self.model = ZooKeeperModel(sim.world, chance("zookeeper"), told=sim.note, mark=sim.mark)
        self.rates = ZooKeeperRates().mix(chance("zookeeper rates")) if faults else NO_RATES
        self.ruler = -1
        self._random = chance("zookeeper mischief")
        self._is_over = False
        self.model.observe(self._written)

    def opener(self, node_id: int, process: Process, timeout_ms: int) -> OpenSession:
        """Return a node's way to the ensemble."""
        return self.model.opener(node_id, process, session_timeout_ms=timeout_ms)

    # -- what goes wrong -----------------------------------------------------------------------

    def begin_mischief(self) -> None:
        """Let things go wrong from now on."""
        rates, faults = self.rates, self.model.faults
        faults.slow, faults.broken = rates.slow, rates.broken
        kinds = (
            (rates.cuts, self._cut),
            (rates.expiries, self._expire),
            (rates.outages, self._down),
            (rates.removals, self._remove_controller),
        )
        for rate, act in kinds:
            if rate:
                self._again(rate, act)

    def heal(self) -> None:
        """Let nothing go wrong any more."""
        self._is_over = True
        self.model.heal_all()

    def _again(self, rate: float, act: Callable[[], None]) -> None:
        def strike() -> None:
            if not self._is_over:
                act()
                self._again(rate, act)

        self._sim.world.after(int(self._random.expovariate(rate) * MINUTE_US), strike)

    def _later(self, most_ms: int, act: Callable[[], None]) -> None:
        self._sim.world.after(self._random.randrange(50, most_ms) * MS, act)

    def _victim(self) -> int:
        """Return a node; often the ruling one."""
        if self.ruler >= 0 and self._random.random() < 0.4:
            return self.ruler
        return self._random.choice(list(self._sim.nodes))

    def _cut(self) -> None:
        victim, model = self._victim(), self.model
        if self._random.random() < 0.3:
            model.hold_answers(victim)
        else:
            model.cut(victim)
        self._later(self._random.choice((1_000, 5_000, 20_000)), lambda: model.heal(victim))

    def _expire(self) -> None:
        victim = self._victim()
        sessions = [each.id for each in self.model.sessions.values() if each.client == victim]
        for session in sessions:
            self.model.expire(session)

    def _down(self) -> None:
        self.model.down(silently=self._random.random() < 0.4)
        self._later(self._random.choice((500, 3_000, 12_000)), self.model.up)

    def _remove_controller(self) -> None:
        """Let an operator force an election; the former controller mostly hears of it late."""
        ruler, model = self.ruler, self.model
        if ruler >= 0 and self._random.random() < 0.7:
            model.hold_answers(ruler)
            self._later(self._random.choice((300, 2_000, 5_000)), lambda: model.heal(ruler))
        model.remove(paths.CONTROLLER)

    # -- what is seen --------------------------------------------------------------------------

    def _written(self, written: Written) -> None:
        changes = [each for each in written.operations if not isinstance(each, Check)]
        for change in changes:
            if change.path == paths.CONTROLLER_EPOCH and isinstance(change, Create | SetData):
                self._elected(written, int(change.data))
        touched = [each.path for each in changes]
        topics = any(path.startswith(f"{paths.TOPICS}/") for path in touched)
        ledger = any(path.startswith(f"{paths.DELETIONS}/") for path in touched)
        if topics or ledger:
            self._judge(written)
            self._look(written.zxid)
        elif any(path.startswith(f"{paths.BROKER_IDS}/") for path in touched):
            self._look(written.zxid)

    def _elected(self, written: Written, epoch: int) -> None:
        node = written.client
        if epoch > 0 and isinstance(node, int):
            self.ruler = node
            life = self._sim.nodes[node].life
            self._sim.tell(QuorumLed(written.at_ms, node, life, epoch))

    def _judge(self, written: Written) -> None:
        checks = [each for each in written.operations if isinstance(each, Check)]
        is_fenced = any(each.path == paths.CONTROLLER_EPOCH for each in checks)
        if not is_fenced or written.client != self.ruler:
            changed = sorted({each.path for each in written.operations})
            self._sim.tell(UnfencedWrite(written.at_ms, written.client, self.ruler, tuple(changed)))

    def _look(self, zxid: int) -> None:
        image = image_of(self.model.tree, zxid)
        self._sim.delta(delta_between(self._sim.image, image))


FLUSHED = {"log.flush.interval.messages": "1"}
"""With this nothing is acknowledged that is not durable where it was written."""

FLUSHED_SHARE = 0.25


def flushes_everything(random: Random, faults: Faults, given: Mapping[str, str]) -> bool:
    """Draw whether a history's brokers make durable what they acknowledge, and may lose power."""
    name = next(iter(FLUSHED))
    return faults.directed and name not in given and random.random() < FLUSHED_SHARE


def within_zookeepers_promises(faults: Faults, *, flushed: bool = False) -> Faults:
    """Return the faults without those that a cluster of this mode may lose records by.

    Without eligible leader replicas and with logs that are flushed in the background, a replica
    that lost its power, or a folder, may be the last one in sync. `flushed`: they are not.
    """
    power = faults.power if flushed else 0.0
    return replace(faults, power=power, full_disks=0.0, bad_folders=0.0)


def image_of(tree: Tree, zxid: int) -> ClusterImage:
    """Return the brokers, topics and deletions that the znodes name. Position: the zxid."""
    topics = _below(tree, paths.TOPICS)
    brokers = _below(tree, paths.BROKER_IDS)
    keys = [(name, number) for name, got in topics.items() for number in _numbers(name, got)]
    states = {}
    for key in keys:
        state = tree.get(paths.state(*key))
        states[key] = state if isinstance(state, ZnodeData) else None
    deletions = _below(tree, paths.DELETIONS)
    snapshot = Snapshot(
        brokers={int(name): got for name, got in brokers.items()},
        topics=topics,
        states=states,
        deletions={paths.deletion_id(name): got for name, got in deletions.items()},
    )
    return replay(EMPTY, records_of(snapshot).records, offset=zxid, epoch=0).image


def _below(tree: Tree, parent: str) -> dict[str, ZnodeData]:
    names = tree.children(parent)
    found = {}
    for name in names if isinstance(names, tuple) else ():
        got = tree.get(f"{parent}/{name}")
        assert isinstance(got, ZnodeData)
        found[name] = got
    return found


def _numbers(name: str, got: ZnodeData) -> list[int]:
    try:
        return sorted(decode_topic(name, got.data).partitions)
    except ZnodeError:
        return []
