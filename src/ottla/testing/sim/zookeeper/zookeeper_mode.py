"""ZooKeeper mode in the simulator: the ensemble of a cluster, its observations and its faults.

The znodes are the reference for the checkers: after each transaction that changes brokers, topics
or deletions the image is read from the tree again. Writes by others than the active controller are
reported: each change below `/brokers/topics`, and of the deletion ledger, must check
`/controller_epoch`, and must come from the node that wrote that epoch. (A deposed controller that
read the new version would pass the check alone; KAFKA-6082.)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from random import Random

from ottla.base.zookeeper import Check, Create, OpenSession, SetData, ZnodeData
from ottla.metadata.delta import delta_between, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Record
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.load import Snapshot, TieringNodes, records_of
from ottla.metadata.znodes.topic import decode_topic
from ottla.testing.sim.faults.faults import Faults
from ottla.testing.sim.net import MS
from ottla.testing.sim.ports import SimulatedCluster
from ottla.testing.sim.scheduler import Process
from ottla.testing.sim.watch.observations import QuorumLed, UnfencedWrite
from ottla.testing.sim.zookeeper.zookeeper import Written, ZooKeeperModel
from ottla.testing.sim.zookeeper.zookeeper_session import session_opener
from ottla.testing.sim.zookeeper.zookeeper_tree import Tree

MINUTE_US = 60_000 * MS


@dataclass(frozen=True, slots=True)
class ZooKeeperRates:
    """Faults of ZooKeeper: chances per request, and times a minute.

    Fields: `slow`, `broken`: of a message, of a request's connection. `cuts`: a node is cut off
            from ZooKeeper alone; `expiries`: a session expires; `outages`: the ensemble is down.
            `removals`: an operator deletes `/controller`, so that another one is elected while the
            previous controller's session lives.
    """

    slow: float = 0.01
    broken: float = 0.003
    cuts: float = 3.0
    expiries: float = 1.5
    outages: float = 0.8
    removals: float = 1.5

    def mix(self, random: Random) -> "ZooKeeperRates":
        """Draw the rates of one history: each 0, a quarter or all of it."""
        drawn = {
            each.name: getattr(self, each.name) * random.choice((0.0, 0.25, 1.0))
            for each in fields(self)
        }
        return replace(self, **drawn)


NO_RATES = ZooKeeperRates(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


class SimZooKeeper:
    """The ensemble of one simulated cluster. `controller_id`: the broker that wrote the current
    `/controller_epoch`; -1 = none yet."""

    def __init__(
        self, sim: SimulatedCluster, chance: Callable[[str], Random], *, faults: bool
    ) -> None:
        self._sim = sim
        self.model = ZooKeeperModel(
            sim.scheduler, chance("zookeeper"), trace=sim.note, mark=sim.mark
        )
        self.rates = ZooKeeperRates().mix(chance("zookeeper rates")) if faults else NO_RATES
        self.controller_id = -1
        self._random = chance("zookeeper mischief")
        self._is_over = False
        self.model.observe(self._written)

    def opener(self, node_id: int, process: Process, timeout_ms: int) -> OpenSession:
        """Return a function that opens sessions of a node."""
        return session_opener(self.model, node_id, process, session_timeout_ms=timeout_ms)

    # -- faults --------------------------------------------------------------------------------

    def begin_faults(self) -> None:
        """Inject faults from now on."""
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
        """End all faults."""
        self._is_over = True
        self.model.heal_all()

    def _again(self, rate: float, act: Callable[[], None]) -> None:
        def strike() -> None:
            if not self._is_over:
                act()
                self._again(rate, act)

        self._sim.scheduler.after(int(self._random.expovariate(rate) * MINUTE_US), strike)

    def _later(self, most_ms: int, act: Callable[[], None]) -> None:
        self._sim.scheduler.after(self._random.randrange(50, most_ms) * MS, act)

    def _victim(self) -> int:
        """Return a node; often the controller."""
        if self.controller_id >= 0 and self._random.random() < 0.4:
            return self.controller_id
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
        """Delete `/controller`; the previous controller mostly gets the event late."""
        controller_id, model = self.controller_id, self.model
        if controller_id >= 0 and self._random.random() < 0.7:
            model.hold_answers(controller_id)
            self._later(self._random.choice((300, 2_000, 5_000)), lambda: model.heal(controller_id))
        model.remove(paths.CONTROLLER)

    # -- observations --------------------------------------------------------------------------

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
            self.controller_id = node
            incarnation = self._sim.nodes[node].incarnation
            self._sim.notify(QuorumLed(written.at_ms, node, incarnation, epoch))

    def _judge(self, written: Written) -> None:
        checks = [each for each in written.operations if isinstance(each, Check)]
        is_fenced = any(each.path == paths.CONTROLLER_EPOCH for each in checks)
        if not is_fenced or written.client != self.controller_id:
            changed = sorted({each.path for each in written.operations})
            self._sim.notify(
                UnfencedWrite(written.at_ms, written.client, self.controller_id, tuple(changed))
            )

    def _look(self, zxid: int) -> None:
        image = image_of(self.model.tree, zxid)
        self._sim.delta(delta_between(self._sim.image, image))


FLUSHED = {"log.flush.interval.messages": "1"}
"""With this every replica flushes each append before it counts."""

FLUSHED_SHARE = 0.25


def flushes_everything(random: Random, faults: Faults, given: Mapping[str, str]) -> bool:
    """Draw whether a history's brokers flush before they acknowledge, and so may lose power."""
    name = next(iter(FLUSHED))
    return faults.directed and name not in given and random.random() < FLUSHED_SHARE


def within_zookeeper_guarantees(faults: Faults, *, flushed: bool = False) -> Faults:
    """Return the faults without those by which a cluster of this mode may lose records.

    Without eligible leader replicas and with background flushes, a replica that lost power, or a
    log directory, may be the last in-sync one. `flushed`: logs are flushed before acknowledging.
    """
    power = faults.power if flushed else 0.0
    return replace(faults, power=power, full_disks=0.0, bad_log_dirs=0.0)


def image_of(tree: Tree, zxid: int) -> ClusterImage:
    """Return the image of the brokers, topics, tiering states and deletions in znodes.

    Its offset is the zxid.
    """
    brokers = _below(tree, paths.BROKER_IDS)
    deletions = _below(tree, paths.DELETIONS)
    others = Snapshot(
        brokers={int(name): got for name, got in brokers.items()},
        deletions={paths.deletion_id(name): got for name, got in deletions.items()},
    )
    records = [*records_of(others).records]
    for name, got in sorted(_below(tree, paths.TOPICS).items()):
        states = tuple(
            (number, _read(tree, paths.state(name, number))) for number in _numbers(name, got.data)
        )
        tiering = None
        if _read(tree, paths.tiering(name)) is not None:
            tiering = TieringNodes(
                _read(tree, paths.tiered_epoch(name)), _read(tree, paths.tiering_state(name))
            )
        records += _topic_records(name, got, states, tiering)
    return replay(EMPTY, records, offset=zxid, epoch=0).image


@lru_cache(maxsize=4096)
def _topic_records(
    name: str,
    topic: ZnodeData,
    states: tuple[tuple[int, ZnodeData | None], ...],
    tiering: TieringNodes | None,
) -> tuple[Record, ...]:
    """Return the records of a topic. Most transactions change the znodes of one topic or none."""
    snapshot = Snapshot(
        topics={name: topic},
        states={(name, number): got for number, got in states},
        tiering={} if tiering is None else {name: tiering},
    )
    return records_of(snapshot).records


def _read(tree: Tree, path: str) -> ZnodeData | None:
    got = tree.get(path)
    return got if isinstance(got, ZnodeData) else None


def _below(tree: Tree, parent: str) -> dict[str, ZnodeData]:
    names = tree.children(parent)
    found = {}
    for name in names if isinstance(names, tuple) else ():
        got = tree.get(f"{parent}/{name}")
        assert isinstance(got, ZnodeData)
        found[name] = got
    return found


@lru_cache(maxsize=4096)
def _numbers(name: str, data: bytes) -> tuple[int, ...]:
    try:
        return tuple(sorted(decode_topic(name, data).partitions))
    except ZnodeError:
        return ()
