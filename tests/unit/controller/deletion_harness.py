"""A cluster in one value for tests of deletions: brokers with disks, their queues, a controller.

Brokers do what requests ask for and nothing else. A classic order names topics as StopReplica does,
so a broker deletes whatever has that name; the same queue has what it is to host, and
a new controller sends all of it again. The other kind names ids, and brokers know from the
metadata what to host. Every order that would hit a topic that lives is noted.
"""

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.deletion.abandon_purge import AbandonedPurge, abandon_purge
from ottla.controller.deletion.delete_topics import mark_topics
from ottla.controller.deletion.deletion_events import (
    DeletionsAnswered,
    Event,
    IneligibleTopics,
    OrdersDropped,
)
from ottla.controller.deletion.deletion_manager import DeletionManager
from ottla.controller.deletion.deletion_orders import DeletionOrder
from ottla.controller.deletion.deletion_policy import (
    IllegalTransition,
    Replica,
    at_once_records,
    decide,
)
from ottla.controller.deletion.purge_reports import (
    PartitionPurge,
    PurgeReport,
    PurgeReports,
    take_report,
)
from ottla.controller.manager_events import Committed, Elected, TimePassed, WorkDecided
from ottla.controller.retry_queue import RETRY_MS_MAX
from ottla.metadata.brokers import record_of
from ottla.metadata.deletions import DeletionImage, DeletionState, Policy
from ottla.metadata.delta import ClusterDelta, replay
from ottla.metadata.features import OTTLA_VERSION, OTTLA_VERSION_LEVEL
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import (
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.tiering import TopicTiering, tiering_record
from ottla.metadata.topics import DIRECTORY_LOST, partition_record

from .builders import broker, context, uuid

Log = tuple[str, Uuid, int]
"""A log on a disk: by its topic's name and id, and its number."""

RETENTION_MS = 1_000_000_000


@dataclass
class Machine:
    """A broker's machine. `epoch`: of the process that runs, None = none does."""

    epoch: int | None = None
    disk: set[Log] = field(default_factory=set)
    is_failed: bool = False
    is_late: bool = False
    """It lags behind the metadata."""
    queue: list[DeletionOrder | Log] = field(default_factory=list)
    """A log in here is one to host, as LeaderAndIsr says."""


class DeletionHarness:
    """See the module. Time is one clock for all."""

    def __init__(self, policy: Policy, broker_ids: Iterable[int], *, enabled: bool = True) -> None:
        self.policy = policy
        self.enabled = enabled
        self.image: ClusterImage = EMPTY
        self.now_ms = 1_000
        self.manager = DeletionManager(enabled=enabled, retention_ms=RETENTION_MS)
        self.machines = {broker_id: Machine() for broker_id in broker_ids}
        self.is_active = False
        self.epochs = 100
        self.ids = 0
        self.wrongs: list[str] = []
        self.illegal: list[IllegalTransition] = []
        self.orders = 0
        self.written: list[Record] = []
        self.preferred_elections: frozenset[str] = frozenset()
        self.purges = PurgeReports()
        """Of the present controller's term."""
        self.is_tiered = False
        self.reported: set[tuple[Uuid, int]] = set()
        """What any purger has reported to be purged."""
        self.abandoned: set[Uuid] = set()
        """Whose purges a test has given up."""
        for broker_id in self.machines:
            self.start(broker_id)
        self.elect()

    def clone(self) -> "DeletionHarness":
        """Return an independent copy; images and records are shared."""
        return deepcopy(self, {id(each): each for each in (self.image, *self.written)})

    # -- the metadata --------------------------------------------------------------------------

    def write(self, records: Iterable[Record]) -> ClusterDelta:
        """Make records facts, and let the controller follow."""
        listed = list(records)
        self.written += listed
        offset = self.image.position[0] + len(listed)
        delta = replay(self.image, listed, offset=offset, epoch=1)
        self.image = delta.image
        self.step(Committed(delta))
        return delta

    def create(self, name: str, assignment: dict[int, tuple[int, ...]]) -> Uuid:
        """Make a topic, with logs on the machines that run."""
        self.ids += 1
        return self.create_again(uuid(f"{name}-{self.ids}"), name, assignment)

    def create_again(
        self, topic_id: Uuid, name: str, assignment: dict[int, tuple[int, ...]]
    ) -> Uuid:
        """Make a topic of an id, as somebody does who restores its znodes."""
        self.write([TopicRecord(name=name, topic_id=topic_id)])
        self.grow(topic_id, assignment)
        return topic_id

    def grow(self, topic_id: Uuid, assignment: dict[int, tuple[int, ...]]) -> None:
        """Add partitions, which brokers host unless the topic goes."""
        topic = self.image.topics.by_id(topic_id)
        assert topic is not None
        self.write(
            PartitionRecord(
                partition_id=number, topic_id=topic_id, replicas=replicas, isr=replicas,
                leader=replicas[0], leader_epoch=0, partition_epoch=0,
            )
            for number, replicas in assignment.items()
        )  # fmt: skip
        if self.image.is_being_deleted(topic.name):
            return
        for number, replicas in assignment.items():
            for broker_id in replicas:
                self._host(broker_id, (topic.name, topic_id, number))

    def _host(self, broker_id: int, log: Log) -> None:
        machine = self.machines[broker_id]
        if machine.epoch is None or log in machine.disk:
            return
        if self.policy is Policy.CLASSIC:
            machine.queue.append(log)
        else:
            machine.disk.add(log)

    def _host_all(self, broker_id: int) -> None:
        """Tell a broker of all that is assigned to it and is not going."""
        for topic in self.image.topics:
            if self.image.is_being_deleted(topic.name):
                continue
            for number, partition in topic.in_order():
                if broker_id in partition.replicas:
                    self._host(broker_id, (topic.name, topic.id, number))

    def mark(self, name: str) -> Error:
        """Ask for a classic deletion."""
        topic_id = self.image.topics.id_of(name)
        assert topic_id is not None
        decided = mark_topics(
            self.image, {name: topic_id}, enabled=self.enabled, wall_ms=self.now_ms
        )
        self.write(decided.step.records)
        return decided.reply.refused.get(name, Error.NONE)

    def delete(self, name: str) -> None:
        """Delete a topic at once."""
        topic = self.image.topics.by_name(name)
        assert topic is not None
        entry = at_once_records(self.image, topic, wall_ms=self.now_ms)
        self.write([RemoveTopicRecord(topic_id=topic.id), *entry])

    def reassign(self, topic_id: Uuid, replicas: tuple[int, ...]) -> None:
        """Begin to move partition 0 of a topic; the new replicas get a log."""
        topic = self.image.topics.by_id(topic_id)
        assert topic is not None
        before = topic.partitions[0].replicas
        both = (*replicas, *(each for each in before if each not in replicas))
        self.write([
            PartitionChangeRecord(
                partition_id=0, topic_id=topic_id, replicas=both,
                adding_replicas=tuple(each for each in replicas if each not in before),
                removing_replicas=tuple(each for each in before if each not in replicas),
            )
        ])  # fmt: skip
        for broker_id in replicas:
            self._host(broker_id, (topic.name, topic_id, 0))

    def end_reassignment(self, topic_id: Uuid) -> None:
        """End a move: who left has deleted its log."""
        topic = self.image.topics.by_id(topic_id)
        assert topic is not None
        partition = topic.partitions[0]
        left = tuple(r for r in partition.replicas if r not in partition.removing_replicas)
        gone = (topic.name, topic_id, 0)
        for broker_id in partition.removing_replicas:
            machine = self.machines[broker_id]
            machine.disk.discard(gone)
            machine.queue = [each for each in machine.queue if each != gone]
        self.write([
            PartitionChangeRecord(
                partition_id=0, topic_id=topic_id, replicas=left, isr=left,
                adding_replicas=(), removing_replicas=(),
            )
        ])  # fmt: skip

    def remove_by_hand(self, name: str) -> None:
        """Remove a topic's metadata, as an operator with a ZooKeeper client does."""
        topic_id = self.image.topics.id_of(name)
        assert topic_id is not None
        self.write([RemoveTopicRecord(topic_id=topic_id)])

    def fail_log_dir(self, topic_id: Uuid, broker_id: int, number: int = 0) -> None:
        """Fail the log directory of a replica, as reported in a broker's response."""
        topic = self.image.topics.by_id(topic_id)
        assert topic is not None
        before = topic.partitions[number]
        lost = tuple(
            DIRECTORY_LOST if each == broker_id else directory
            for each, directory in zip(before.replicas, before.directories, strict=True)
        )
        self.write([partition_record(topic_id, number, replace(before, directories=lost))])

    def run_elections(self, *names: str) -> None:
        """Have preferred elections of just these topics under way."""
        self.preferred_elections = frozenset(names)
        self.step(IneligibleTopics(preferred_elections=self.preferred_elections))

    # -- brokers -------------------------------------------------------------------------------

    def start(self, broker_id: int) -> None:
        """Start a broker's process, and register it: again, where the last one is still listed."""
        self.epochs += 1
        machine = self.machines[broker_id]
        machine.epoch, machine.queue = self.epochs, []
        self.write([*self._leaves(broker_id), record_of(broker(broker_id, epoch=self.epochs))])
        self._host_all(broker_id)

    def stop(self, broker_id: int) -> None:
        """Kill a broker, and let the cluster see it."""
        machine = self.machines[broker_id]
        epoch, machine.epoch = machine.epoch, None
        dropped, machine.queue = machine.queue, []
        assert epoch is not None
        for order in dropped:
            if not isinstance(order, DeletionOrder):
                continue
            self.step(OrdersDropped(broker_id, epoch, tuple(order.replicas())))
        if self.policy is Policy.CLASSIC:
            self.write(self._leaves(broker_id))
        else:
            self.write([record_of(broker(broker_id, epoch=epoch, fenced=True))])

    def unregister(self, broker_id: int) -> None:
        """Take a broker out of the cluster."""
        self.write(self._leaves(broker_id))

    def _leaves(self, broker_id: int) -> list[Record]:
        known = self.image.brokers.get(broker_id)
        if known is None:
            return []
        return [UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=known.epoch)]

    def send(self, orders: Iterable[DeletionOrder]) -> None:
        """Queue orders; one to a process that is gone is dropped."""
        for order in orders:
            self.orders += 1
            machine = self.machines[order.broker_id]
            self._inspect(order)
            if machine.epoch == order.broker_epoch:
                machine.queue.append(order)

    def _inspect(self, order: DeletionOrder) -> None:
        for replica in order.replicas():
            lives = self.image.topics.by_id(replica.topic_id) is not None
            if lives and not self.image.deletions.is_being_deleted(replica.topic_id):
                self.wrongs.append(f"{replica} of a living topic was ordered away")

    def carry_out(self, broker_id: int, *, answer: bool = True) -> dict[Replica, Error]:
        """Let a broker do what comes first in its queue; without an answer it is asked again."""
        machine = self.machines[broker_id]
        order = machine.queue[0]
        if not isinstance(order, DeletionOrder):
            machine.disk.add(order)
            machine.queue.pop(0)
            return {}
        results = {each: self._delete(machine, order, each) for each in order.replicas()}
        if answer:
            machine.queue.pop(0)
            assert machine.epoch is not None
            self.step(DeletionsAnswered(broker_id, machine.epoch, results))
        return results

    def _delete(self, machine: Machine, order: DeletionOrder, replica: Replica) -> Error:
        if machine.is_late:
            return Error.OPERATION_NOT_ATTEMPTED
        if machine.is_failed:
            return Error.KAFKA_STORAGE_ERROR
        name = next(each.name for each in order.topics if each.topic_id == replica.topic_id)
        for log in sorted(machine.disk):
            named = log[0] == name if self.policy is Policy.CLASSIC else log[1] == replica.topic_id
            if named and log[2] == replica.partition:
                self._judge(log, replica)
                machine.disk.discard(log)
        return Error.NONE

    def _judge(self, log: Log, replica: Replica) -> None:
        """Note the deletion of a log that somebody still wants."""
        topic = self.image.topics.by_id(log[1])
        partition = None if topic is None else topic.partitions.get(log[2])
        wanted = partition is not None and replica.broker_id in partition.replicas
        if wanted and not self.image.deletions.is_being_deleted(log[1]):
            self.wrongs.append(f"{log} was deleted, which lives")

    # -- the controller ------------------------------------------------------------------------

    def elect(self) -> None:
        """Have another controller begin: it knows what is stored, and old orders are void."""
        for machine in self.machines.values():
            machine.queue = []
        self.manager = DeletionManager(enabled=self.enabled, retention_ms=RETENTION_MS)
        self.purges = PurgeReports()
        self.is_active = True
        ready = self.manager.step(Elected(self.image), now_ms=self.now_ms, is_idle=False)
        self.step(IneligibleTopics(preferred_elections=self.preferred_elections))
        for broker_id in self.machines:
            self._host_all(broker_id)
        self.send(ready.orders)

    def tier(self, topic_id: Uuid) -> None:
        """Give a topic remote storage."""
        self.write([tiering_record(TopicTiering(topic_id=topic_id))])

    def report(
        self, topic_id: Uuid, *partitions: int | PartitionPurge, broker_id: int = 1
    ) -> Error:
        """Have a broker report that partitions of a topic are purged; return the topic's error."""
        registered = self.image.brokers.get(broker_id)
        report = PurgeReport(
            broker_id=broker_id,
            broker_epoch=0 if registered is None else registered.epoch,
            topics={topic_id: tuple(map(_purged, partitions))},
        )
        self.reported |= {(topic_id, each) for each in partitions if isinstance(each, int)}
        decided = take_report(self.image, self.purges, report)
        if decided.step.records:
            self.write(decided.step.records)
        return decided.reply[topic_id]

    def abandon(self, topic_id: Uuid) -> AbandonedPurge:
        """Have an operator give up the purge of a topic. Raises: ApiError."""
        level = self.image.features.set(OTTLA_VERSION, OTTLA_VERSION_LEVEL)
        decided = abandon_purge(
            replace(self.image, features=level),
            topic_id,
            validate_only=False,
            context=replace(context(), purges=self.purges),
        )
        if decided.step.records:
            self.write(decided.step.records)
        return decided.reply

    def step(self, event: Event) -> None:
        """Have the controller handle an event, and decide when a test says so."""
        if self.is_active:
            self.send(self.manager.step(event, now_ms=self.now_ms, is_idle=False).orders)

    def decide(self, *, only: int | None = None) -> int:
        """Decide once; return how many records that gave. `only`: as many are written, and then
        the controller dies."""
        work = self.manager.take_work()
        if work is None:
            return 0
        decided = decide(self.image, work, wall_ms=self.now_ms)
        self.illegal += decided.reply
        records = decided.step.records
        if only is not None:
            # Each record is a write of its own: the step says that it may be cut anywhere.
            for record in records[:only]:
                self.write([record])
            self.elect()
        else:
            if records:
                self.write(records)
            self.step(WorkDecided())
        return len(records)

    def settle(self) -> None:
        """Let everything happen that can without help from outside, pauses included."""
        for _ in range(30):
            self._run_dry()
            due_ms = self.manager.next_due_ms
            if due_ms - self.now_ms > RETRY_MS_MAX:
                return  # Only the look at everything is left.
            self.pass_time()

    def pass_time(self) -> None:
        """Go on to when the controller has something to do by its clock."""
        due_ms = self.manager.next_due_ms
        self.now_ms = max(self.now_ms, due_ms)
        self.step(TimePassed(self.now_ms))

    def _run_dry(self) -> None:
        for _ in range(200):
            wrote = self.decide()
            waiting = [each for each, machine in self.machines.items() if machine.queue]
            for broker_id in waiting:
                self.carry_out(broker_id)
            if not wrote and not waiting and not self.manager.has_work:
                return
        raise AssertionError("the controller and its brokers never come to rest")

    # -- looking -------------------------------------------------------------------------------

    def entry(self, topic_id: Uuid) -> DeletionImage:
        """Return the entry of a topic in the ledger."""
        found = self.image.deletions.of(topic_id)
        assert found is not None
        return found

    def states(self, topic_id: Uuid) -> dict[tuple[int, int], str]:
        """Return the state of each listed replica, by broker and partition, in words."""
        return {
            (broker_id, number): _enum_texts(standing.state, standing.reason.name)
            for broker_id, standing, numbers in self.entry(topic_id).rows()
            for number in numbers
        }

    def logs_of(self, topic_id: Uuid) -> set[tuple[int, int]]:
        """Return where logs of a topic are: broker and partition."""
        return {
            (broker_id, log[2])
            for broker_id, machine in self.machines.items()
            for log in machine.disk
            if log[1] == topic_id
        }


def _purged(reported: int | PartitionPurge) -> PartitionPurge:
    if isinstance(reported, int):
        return PartitionPurge(partition=reported, is_purged=True)
    return reported


def _enum_texts(state: DeletionState, reason: str) -> str:
    return state.name if reason == "NONE" else f"{state.name} {reason}"
