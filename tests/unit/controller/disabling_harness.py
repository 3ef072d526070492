"""A cluster in one value for tests of disablements: brokers, their queues, a controller.

A broker knows the metadata up to some point, as a follower of them does, and catches up when the
test has it do so; one that starts has all of them before it may lead. It copies segments of what it
leads while it takes the topic for ENABLED. It complies with an order once it knows its tiered
epoch, and a leader then writes a fence for its leader epoch. When a topic becomes DISABLED it is
noted where that was not true.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER, Uuid
from ottla.controller.disabling.acknowledgements import Acknowledgements, Missing
from ottla.controller.disabling.disabling_manager import (
    DisablingAnswered,
    DisablingDropped,
    DisablingManager,
    Event,
    Work,
    finish_disabling,
)
from ottla.controller.disabling.disabling_orders import (
    DisabledReplica,
    DisablingOrder,
    Result,
    request_of,
    results_of,
)
from ottla.controller.manager_events import (
    Committed,
    Elected,
    TimePassed,
    WorkDecided,
    WorkRefused,
)
from ottla.controller.mode_policy import KRAFT_MODE, ZOOKEEPER_MODE, ModePolicy
from ottla.controller.retry_queue import RETRY_MS_MAX
from ottla.controller.topics.configs import Alteration, alter_configs
from ottla.metadata.brokers import FeatureRange, record_of
from ottla.metadata.delta import ClusterDelta, replay
from ottla.metadata.features import OTTLA_VERSION, TIERING
from ottla.metadata.image import EMPTY, ClusterImage, PartitionImage
from ottla.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
    TopicTieringRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering, tiering_record
from ottla.wire.messages import disable_remote_topic as wire

from .builders import broker, context, uuid

TOPIC = 2
ENABLE = "remote.storage.enable"
POLICY = "remote.log.disable.policy"
TIERED = {"remote.log.storage.system.enable": "true", "ottla.remote.storage.uri": "file:///r"}
MODES = {"kraft": KRAFT_MODE, "zookeeper": ZOOKEEPER_MODE}
LEVELS = (FeatureRange(OTTLA_VERSION, 0, TIERING),)


@dataclass
class Machine:
    """A broker's process. `epoch`: of its registration, None = it does not run. `known`: the
    metadata that it has. `fails`: it answers this error."""

    epoch: int | None = None
    known: ClusterImage = EMPTY
    queue: list[DisablingOrder] = field(default_factory=list)
    fails: Error | None = None


@dataclass
class Orders:
    """All orders, and how many requests they were."""

    replicas: list[tuple[int, DisabledReplica]] = field(default_factory=list)
    count: int = 0


class DisablingHarness:
    """See the module. Time is one clock for all."""

    def __init__(
        self, mode: ModePolicy = KRAFT_MODE, broker_ids: Iterable[int] = (1, 2, 3)
    ) -> None:
        self.mode = mode
        self.image: ClusterImage = EMPTY
        self.now_ms = 1_000
        self.epochs = 100
        self.machines = {broker_id: Machine() for broker_id in broker_ids}
        self.acknowledgements = Acknowledgements()
        self.manager = DisablingManager(self.acknowledgements)
        self.is_active = False
        self.work: Work | None = None
        self.wake_at_ms: int | None = None
        self.orders = Orders()
        self.fences: set[tuple[Uuid, int, int, int]] = set()
        """Topic, partition, leader epoch and tiered epoch."""
        self.wrongs: list[str] = []
        self.finished = 0
        self.write([FeatureLevelRecord(name=OTTLA_VERSION, feature_level=TIERING)])
        for broker_id in self.machines:
            self.start(broker_id)
        self.elect()

    # -- the metadata --------------------------------------------------------------------------

    def write(self, records: Iterable[Record]) -> ClusterDelta | None:
        """Make records facts, and let the controller follow."""
        listed = list(records)
        if not listed:
            return None
        offset = self.image.position[0] + len(listed)
        delta = replay(self.image, listed, offset=offset, epoch=1)
        self._inspect(delta)
        self.image = delta.image
        if self.is_active:
            self.step(Committed(delta))
        return delta

    def create(
        self, name: str = "t", assignment: dict[int, tuple[int, ...]] | None = None
    ) -> TopicTiering:
        """Make a topic with remote storage, which all that run know."""
        topic_id = uuid(name)
        self.write([
            TopicRecord(name=name, topic_id=topic_id),
            ConfigRecord(resource_type=TOPIC, resource_name=name, name=ENABLE, value="true"),
            tiering_record(TopicTiering(topic_id=topic_id)),
        ])  # fmt: skip
        self.grow(name, {0: (1, 2)} if assignment is None else assignment)
        self.learn()
        return self.state(name)

    def grow(self, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
        """Add partitions, led by their first replica that runs."""
        for number, replicas in assignment.items():
            live = [each for each in replicas if self.machines[each].epoch is not None]
            self.write([
                PartitionRecord(
                    partition_id=number, topic_id=uuid(name), replicas=replicas,
                    isr=tuple(live) or replicas, leader=live[0] if live else NO_LEADER,
                    leader_epoch=0, partition_epoch=0,
                )
            ])  # fmt: skip

    def state(self, name: str = "t") -> TopicTiering:
        return self.image.tiering[uuid(name)]

    def is_disabled(self, name: str = "t") -> bool:
        return self.state(name).state is TieringState.DISABLED

    def configure(self, name: str = "t", **values: str) -> Error:
        """Alter a topic's configuration as a request does."""
        changes = tuple((key.replace("_", "."), 0, value) for key, value in values.items())
        decided = alter_configs(
            self.image,
            [Alteration((TOPIC, name), changes)],
            incremental=True,
            validate_only=False,
            context=replace(context(TIERED), mode=self.mode),
        )
        self.write(decided.step.records)
        return decided.reply[0].error

    def disable(self, policy: str = "retain", name: str = "t") -> None:
        error = self.configure(
            name, remote_log_disable_policy=policy, remote_storage_enable="false"
        )
        assert error is Error.NONE

    def enable(self, name: str = "t") -> None:
        assert self.configure(name, remote_storage_enable="true") is Error.NONE

    def delete(self, name: str = "t") -> None:
        """Remove a topic."""
        self.write([RemoveTopicRecord(topic_id=uuid(name))])

    def partition(self, name: str = "t", number: int = 0) -> PartitionImage:
        topic = self.image.topics.by_name(name)
        assert topic is not None
        return topic.partitions[number]

    def lead(self, leader: int, name: str = "t", number: int = 0) -> None:
        """Elect a leader, or nobody."""
        self.write([
            PartitionChangeRecord(partition_id=number, topic_id=uuid(name), leader=leader)
        ])  # fmt: skip

    def reassign(self, replicas: tuple[int, ...], name: str = "t", number: int = 0) -> None:
        """Give a partition other replicas at once; the leader stays, if it may."""
        before = self.partition(name, number)
        leader = before.leader if before.leader in replicas else replicas[0]
        self.write([
            PartitionChangeRecord(
                partition_id=number, topic_id=uuid(name), replicas=replicas, isr=replicas,
                leader=leader,
            )
        ])  # fmt: skip

    # -- brokers -------------------------------------------------------------------------------

    def start(self, broker_id: int, *, level: int = TIERING) -> None:
        """Start a broker's process and register it; it has all metadata before it may lead."""
        self.epochs += 1
        machine = self.machines[broker_id]
        machine.epoch, machine.queue = self.epochs, []
        features = (FeatureRange(OTTLA_VERSION, 0, level),)
        self.write([
            *self._leaves(broker_id),
            record_of(broker(broker_id, epoch=self.epochs, features=features)),
        ])  # fmt: skip
        machine.known = self.image
        self._elect_leaders()
        machine.known = self.image

    def stop(self, broker_id: int) -> None:
        """Kill a broker, and let the cluster see it."""
        machine = self.machines[broker_id]
        epoch, machine.epoch = machine.epoch, None
        dropped, machine.queue = machine.queue, []
        assert epoch is not None
        for order in dropped:
            self.step(DisablingDropped(broker_id, epoch, order.replicas))
        if self.mode is ZOOKEEPER_MODE:
            self.write(self._leaves(broker_id))
        else:
            known = self.image.brokers[broker_id]
            self.write([record_of(replace(known, fenced=True))])
        self._elect_leaders()

    def unregister(self, broker_id: int) -> None:
        """Remove a broker from the cluster."""
        self.write(self._leaves(broker_id))
        self._elect_leaders()

    def _leaves(self, broker_id: int) -> list[Record]:
        known = self.image.brokers.get(broker_id)
        if known is None:
            return []
        return [UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=known.epoch)]

    def _elect_leaders(self) -> None:
        """Let a live replica lead where none does."""
        for topic in self.image.topics:
            for number, partition in topic.in_order():
                runs = {each for each in partition.replicas if self._runs(each)}
                if partition.leader in runs or (not runs and partition.leader == NO_LEADER):
                    continue
                self.lead(min(runs) if runs else NO_LEADER, topic.name, number)

    def _runs(self, broker_id: int) -> bool:
        return self.machines[broker_id].epoch is not None

    def learn(self, *broker_ids: int) -> None:
        """Let brokers catch up with the metadata; without ids all."""
        for broker_id in broker_ids or self.machines:
            if self._runs(broker_id):
                self.machines[broker_id].known = self.image

    def carry_out(self, broker_id: int, *, answer: bool = True) -> list[Result]:
        """Let a broker process what comes first in its queue. Without an answer the request is
        sent again: it stays first."""
        machine = self.machines[broker_id]
        order = machine.queue[0]
        sent = request_of(self.image_of(order), order, controller_id=9, controller_epoch=1)
        response = self._response(broker_id, sent.request)
        results = results_of(order, response)
        if answer:
            machine.queue.pop(0)
            assert machine.epoch is not None
            self.step(DisablingAnswered(broker_id, machine.epoch, results))
        return list(results.values())

    def image_of(self, order: DisablingOrder) -> ClusterImage:
        """Return an image that has the states of an order, as it had when it was sent."""
        tiering = self.image.tiering
        for each in order.replicas:
            known = TopicTiering(
                topic_id=each.topic_id,
                state=TieringState.DISABLING,
                tiered_epoch=each.tiered_epoch,
                policy=DisablePolicy.RETAIN,
            )
            tiering = tiering.set(each.topic_id, known)
        return replace(self.image, tiering=tiering)

    def _response(
        self, broker_id: int, request: wire.DisableRemoteTopicRequest
    ) -> wire.DisableRemoteTopicResponse:
        return wire.DisableRemoteTopicResponse(
            error_code=Error.NONE,
            topics=tuple(
                wire.DisableRemoteTopicTopicResult(
                    topic_id=topic.topic_id,
                    tiered_epoch=topic.tiered_epoch,
                    partitions=tuple(
                        self._comply(broker_id, topic, number) for number in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )

    def _comply(
        self, broker_id: int, asked: wire.DisableRemoteTopicTopic, number: int
    ) -> wire.DisableRemoteTopicPartitionResult:
        machine = self.machines[broker_id]
        known = machine.known.tiering.get(asked.topic_id)
        topic = machine.known.topics.by_id(asked.topic_id)
        error, role, epoch = Error.NONE, wire.FOLLOWER, -1
        if machine.fails is not None:
            error = machine.fails
        elif known is None or topic is None or number not in topic.partitions:
            gone = self.image.topics.by_id(asked.topic_id) is None
            error = Error.UNKNOWN_TOPIC_ID if gone else Error.OPERATION_NOT_ATTEMPTED
        elif known.tiered_epoch < asked.tiered_epoch:
            error = Error.OPERATION_NOT_ATTEMPTED
        elif known.tiered_epoch > asked.tiered_epoch:
            error = Error.FENCED_LEADER_EPOCH
        else:
            partition = topic.partitions[number]
            epoch = partition.leader_epoch
            if partition.leader == broker_id:
                role = wire.LEADER
                self.fences.add((asked.topic_id, number, epoch, asked.tiered_epoch))
        return wire.DisableRemoteTopicPartitionResult(
            partition_index=number, error_code=error, role=role, leader_epoch=epoch
        )

    # -- the controller ------------------------------------------------------------------------

    def elect(self) -> None:
        """Have another controller begin: it knows what is stored, and old orders are dropped."""
        for machine in self.machines.values():
            machine.queue = []
        self.manager = DisablingManager(self.acknowledgements)
        self.is_active, self.work = True, None
        self.step(Elected(self.image))

    def step(self, event: Event) -> None:
        """Let the controller process an event; its orders are queued."""
        if not self.is_active:
            return
        ready = self.manager.step(event, now_ms=self.now_ms)
        self.wake_at_ms = ready.wake_at_ms
        for order in ready.orders:
            self.orders.count += 1
            self.orders.replicas += ((order.broker_id, each) for each in order.replicas)
            machine = self.machines[order.broker_id]
            assert machine.epoch == order.broker_epoch, "an order to a process that does not run"
            machine.queue.append(order)
        if ready.work is not None:
            assert self.work is None, "two decisions at once"
            self.work = ready.work

    def decide(self, *, dies: bool = False, refused: bool = False) -> None:
        """Make the decision that waits. `dies`: the controller, after it has written."""
        work, self.work = self.work, None
        assert work is not None
        if refused:
            self.step(WorkRefused())
            return
        decided = finish_disabling(self.image, work)
        if dies:
            self.is_active = False
        self.write(decided.step.records)
        self.finished += len(decided.reply)
        if not dies:
            self.step(WorkDecided())

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.step(TimePassed(self.now_ms))

    def missing(self, name: str = "t") -> list[Missing]:
        return list(self.acknowledgements.missing(self.image, self.state(name)))

    def settle(self) -> None:
        """Let all brokers that run comply, and the controller decide, until nothing happens."""
        for _ in range(1_000):
            self.learn()
            busy = [each for each, machine in self.machines.items() if machine.queue]
            for broker_id in busy:
                self.carry_out(broker_id)
            if self.work is not None:
                self.decide()
            elif self.wake_at_ms is not None and self.wake_at_ms <= self.now_ms:
                self.wait(0)
            elif not busy:
                return
        raise AssertionError("it does not end")

    def heal(self) -> None:
        """Start what is down; wait until all is done."""
        if not self.is_active:
            self.elect()
        for broker_id, machine in self.machines.items():
            machine.fails = None
            if machine.epoch is None:
                self.start(broker_id)
        self._elect_leaders()
        for _ in range(20):
            self.settle()
            self.wait(RETRY_MS_MAX)
        self.settle()

    # -- what must hold ------------------------------------------------------------------------

    def _inspect(self, delta: ClusterDelta) -> None:
        """Note what is not true of a topic that becomes DISABLED with this change."""
        for topic_id in delta.changed_tiering:
            before, after = delta.before.tiering.get(topic_id), delta.image.tiering.get(topic_id)
            if after is None or after.state is not TieringState.DISABLED or before is None:
                continue
            if before.state is TieringState.DISABLING:
                self.wrongs += self._wrongs_of(delta.image, after)

    def _wrongs_of(self, image: ClusterImage, tiering: TopicTiering) -> Iterable[str]:
        topic = image.topics.by_id(tiering.topic_id)
        assert topic is not None
        for number, partition in topic.in_order():
            for broker_id in filter(self._runs, partition.replicas):
                known = self.machines[broker_id].known.tiering.get(tiering.topic_id)
                if known is None or known.tiered_epoch < tiering.tiered_epoch:
                    yield f"broker {broker_id} still copies {topic.name}-{number}"
            fence = (topic.id, number, partition.leader_epoch, tiering.tiered_epoch)
            is_led = partition.leader != NO_LEADER and self._runs(partition.leader)
            if is_led and fence not in self.fences:
                yield f"{topic.name}-{number} has no fence in its leader epoch"
            if not is_led and tiering.policy is DisablePolicy.DELETE:
                yield f"{topic.name}-{number} has no leader that gave up its remote segments"


def tiering_records(records: Sequence[Record]) -> list[TopicTieringRecord]:
    """Return those of tiering states."""
    return [each for each in records if isinstance(each, TopicTieringRecord)]
