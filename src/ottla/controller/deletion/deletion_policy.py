"""What becomes of the deletions in the ledger: one pure decision, for both policies.

`decide` checks some deletions and returns the records to write. It depends on the image and on
`DeletionWork`, the controller's events since, and keeps no state: a decision that conflicted with
another writer's is made again with the same work. It depends on the present state, not on how it
came about, so a new controller decides all of them once and continues from there (KAFKA-1681).

Every transition of a replica is one that `replica_states` allows; a replica whose transition is
illegal stays in its state, and the others proceed.

CLASSIC. A deletion begins unless a reassignment or a preferred election of the topic runs. Then
all replicas on live brokers are started, the others are ineligible until their broker is back.
A replica that failed is ineligible until its broker responds that it is deleted: the order is
repeated (`deletion_manager`), but only a new result is written. When all have succeeded, the topic
is removed, and after it the deletion is finished. Differences from Kafka 3.9: after
a failover live replicas do not wait for a dead one, as they did not before it; a
replica is retried as soon as it can be, not when no other one is under way; partitions that a
tool adds to a topic in deletion are deleted with it (Kafka removes them again, KAFKA-6612);
disabling deletions stops those that have not begun, and no others: half-deleted topics stay so.

AT_ONCE. The topic is removed already; nothing makes it ineligible. A replica on a broker that was
unregistered is abandoned, and the receipt says so.

Both. The remote part of a topic with a tiering state is PENDING from the entry's first record on.
The receipt waits until it is PURGED (`purge_reports`) or ABANDONED (`abandon_purge`), the topic's
name does not.

Source: TopicDeletionManager.scala, Kafka 3.9; KAFKA-330, KAFKA-6612, KAFKA-9946.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.limits import RECEIPTS_PER_STEP_MAX
from ottla.controller.partitions.replica_states import ReplicaState, is_legal
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import (
    BROKER_DOWN,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    DeletionState,
    HaltReason,
    Policy,
    Reason,
    Remote,
    ReplicaStatus,
    header_record,
    replicas_record,
)
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.metadata.records import ForgetDeletionRecord, Record, RemoveTopicRecord
from ottla.metadata.topics import DIRECTORY_LOST, PartitionImage

NOT_YET: Final = Error.OPERATION_NOT_ATTEMPTED
"""A result that changes nothing: the broker has not replayed the topic's removal yet."""


class Replica(NamedTuple):
    """One replica of a partition of a topic, which is named by its id."""

    broker_id: int
    topic_id: Uuid
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionWork:
    """The deletions to check, and what happened to them since the last decision.

    Fields: `topics`: whose deletions to check; those of `results` and `lost` are among them.
            `results`: of the orders to delete replicas, from the brokers' responses.
            `lost`: replicas whose log directories have failed.
            `vanished`: topics whose metadata others removed, as they were.
            `preferred_elections`, `reassignments`: topics with preferred elections under way,
            and with reassignments that were requested but are not in the image.
            `enabled`: whether deletions may begin (delete.topic.enable).
            `receipts_until_ms`: receipts up to that time are purged, as many as one step may.
    """

    topics: frozenset[Uuid] = frozenset()
    results: Mapping[Replica, Error] = field(default_factory=dict)
    lost: frozenset[Replica] = frozenset()
    vanished: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    preferred_elections: frozenset[str] = frozenset()
    reassignments: frozenset[str] = frozenset()
    enabled: bool = True
    receipts_until_ms: int | None = None


class IllegalTransition(NamedTuple):
    """A transition of a replica that was refused: a bug, to be logged."""

    replica: Replica
    source: ReplicaState
    target: ReplicaState


def decide(
    image: ClusterImage, work: DeletionWork, *, wall_ms: int, marked: Collection[str] | None = None
) -> Decision[tuple[IllegalTransition, ...]]:
    """Return what to write, splittable anywhere; the reply is empty unless there is a bug.

    `marked`: the topics that have a marker as `image` was read: a classic deletion that has not
    begun is cancelled without one. None = deletions are not marked.
    """
    records: list[Record] = []
    illegal: list[IllegalTransition] = []
    results = _by_topic(work.results.items())
    scheduled = (image.deletions.of(each) for each in work.topics)
    pending = [each for each in scheduled if each is not None and not each.is_finished]
    for deletion in sorted(pending, key=lambda each: (each.name, each.topic_id)):
        is_marked = marked is None or deletion.name in marked
        this = _Evaluation(image, deletion, work, results.get(deletion.topic_id, {}), is_marked)
        this.run(wall_ms)
        records += this.records
        illegal += this.illegal
    if work.receipts_until_ms is not None:
        records += (
            ForgetDeletionRecord(topic_id=each.topic_id)
            for each in islice(
                image.deletions.receipts_until(work.receipts_until_ms), RECEIPTS_PER_STEP_MAX
            )
        )
    return Decision(Step(tuple(records), atomic=False), tuple(illegal))


def _by_topic(results: Iterable[tuple[Replica, Error]]) -> dict[Uuid, dict[Replica, Error]]:
    found: dict[Uuid, dict[Replica, Error]] = {}
    for replica, error in results:
        found.setdefault(replica.topic_id, {})[replica] = error
    return found


class _BrokerStatus(Enum):
    """Whether a broker can be ordered to delete replicas."""

    LIVE = "live"
    DOWN = "down"
    UNREGISTERED = "unregistered"


def is_reachable(image: ClusterImage, broker_id: int) -> bool:
    """Tell whether a broker can get orders; one in controlled shutdown still can."""
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.fenced


def has_failed(standing: ReplicaStatus) -> bool:
    """Tell whether a broker failed to delete such a replica although it was up."""
    is_ineligible = standing.state is DeletionState.INELIGIBLE
    return is_ineligible and standing.reason is not Reason.BROKER_DOWN


def _broker_status(image: ClusterImage, policy: Policy, broker_id: int) -> _BrokerStatus:
    if is_reachable(image, broker_id):
        return _BrokerStatus.LIVE
    # In ZooKeeper mode a broker that is down is not registered either.
    is_known = policy is Policy.CLASSIC or broker_id in image.brokers
    return _BrokerStatus.DOWN if is_known else _BrokerStatus.UNREGISTERED


class _Evaluation:
    """One deletion, as it is after `records`."""

    def __init__(
        self,
        image: ClusterImage,
        deletion: DeletionImage,
        work: DeletionWork,
        results: Mapping[Replica, Error],
        is_marked: bool,
    ) -> None:
        self.records: list[Record] = []
        self.illegal: list[IllegalTransition] = []
        self._image = image
        self._deletion = deletion
        self._work = work
        self._results = results
        self._is_marked = is_marked

    def run(self, wall_ms: int) -> None:
        """Decide this deletion."""
        if self._deletion.policy is Policy.CLASSIC:
            topic = self._image.topics.by_id(self._deletion.topic_id)
            may_go_on = self._abandon_vanished() if topic is None else self._may_go_on(topic)
            if not may_go_on:
                return
            self._update_listed()
            missing = {} if topic is None else self._unlisted(topic)
        else:
            self._update_listed()
            missing = {}
        if missing:
            self._expect_purge()
        for broker_id, partitions in sorted(missing.items()):
            self._begin(broker_id, partitions)
        self._finish(wall_ms)

    # -- whether it may go on ------------------------------------------------------------------

    def _may_go_on(self, topic: TopicImage) -> bool:
        if self._deletion.has_begun:
            return True  # Reassignments and elections cannot begin any more.
        if not (self._work.enabled and self._is_marked):
            self.records.append(ForgetDeletionRecord(topic_id=topic.id))
            return False
        halt_reason = self._halt_reason(topic)
        if halt_reason is not self._deletion.halted:
            self._set_header(replace(self._deletion, halted=halt_reason))
        return halt_reason is HaltReason.NONE

    def _halt_reason(self, topic: TopicImage) -> HaltReason:
        is_reassigning = any(each.is_reassigning for each in topic.partitions.values())
        if is_reassigning or topic.name in self._work.reassignments:
            return HaltReason.REASSIGNMENT
        if topic.name in self._work.preferred_elections:
            return HaltReason.PREFERRED_ELECTION
        return HaltReason.NONE

    def _abandon_vanished(self) -> bool:
        """Abandon replicas that cannot be ordered any more: another topic may have the name."""
        deletion = self._deletion
        topic = self._work.vanished.get(deletion.topic_id)
        if topic is None and not deletion.has_begun:
            # Its replicas are unknown; a receipt without any would say that nothing is left.
            self.records.append(ForgetDeletionRecord(topic_id=deletion.topic_id))
            return False
        vanished = ReplicaStatus(DeletionState.ABANDONED, Reason.TOPIC_VANISHED)
        for broker_id, standing, partitions in list(deletion.rows()):
            if not standing.is_over:
                self._set_status(broker_id, vanished, partitions)
        missing = {} if topic is None else self._unlisted(topic)
        for broker_id, partition_ids in sorted(missing.items()):
            self._set_status(broker_id, vanished, partition_ids)
        return True

    # -- replicas that are listed --------------------------------------------------------------

    def _update_listed(self) -> None:
        for broker_id, standing, partitions in list(self._deletion.rows()):
            if standing.state is DeletionState.STARTED:
                left = self._apply_results(broker_id, standing, partitions)
                self._check_broker(broker_id, left)
            elif has_failed(standing):
                left = self._apply_results(broker_id, standing, partitions)
                self._resume(broker_id, standing, left)
            elif standing.state is DeletionState.INELIGIBLE:
                self._resume(broker_id, standing, partitions)

    def _apply_results(
        self, broker_id: int, standing: ReplicaStatus, partitions: Collection[int]
    ) -> list[int]:
        """Apply results and lost directories; return the partitions whose status stays."""
        outcomes: dict[ReplicaStatus, list[int]] = {}
        for partition_id in partitions:
            replica = Replica(broker_id, self._deletion.topic_id, partition_id)
            outcomes.setdefault(self._outcome(replica, standing), []).append(partition_id)
        left = outcomes.pop(standing, [])
        # A failed replica is started again only now: the repeated order was not recorded.
        restart = () if standing.state is DeletionState.STARTED else _RESTART
        for outcome, partition_ids in outcomes.items():
            self._transition(broker_id, partition_ids, (*restart, _STATES[outcome.state]), outcome)
        return left

    def _outcome(self, replica: Replica, standing: ReplicaStatus) -> ReplicaStatus:
        error = self._results.get(replica, NOT_YET)
        if error is Error.NONE:
            return SUCCESSFUL
        if error is not NOT_YET:
            return _failed_status(error)
        is_lost = standing.state is DeletionState.STARTED and replica in self._work.lost
        return LOG_DIR_FAILED if is_lost else standing

    def _check_broker(self, broker_id: int, partitions: list[int]) -> None:
        """Keep replicas STARTED only while their broker is up."""
        broker_status = _broker_status(self._image, self._deletion.policy, broker_id)
        if broker_status is not _BrokerStatus.LIVE:
            ineligible = (ReplicaState.DELETION_INELIGIBLE,)
            self._transition(broker_id, partitions, ineligible, _STOPPED[broker_status])

    def _resume(self, broker_id: int, standing: ReplicaStatus, partitions: Collection[int]) -> None:
        """Start replicas whose broker is back; abandon those whose broker was unregistered."""
        broker_status = _broker_status(self._image, self._deletion.policy, broker_id)
        if broker_status is _BrokerStatus.UNREGISTERED:
            self._set_status(broker_id, UNREGISTERED, partitions)
        elif broker_status is _BrokerStatus.LIVE and not has_failed(standing):
            self._transition(broker_id, partitions, _RESTART, STARTED)

    # -- replicas that are not -----------------------------------------------------------------

    def _unlisted(self, topic: TopicImage) -> dict[int, list[int]]:
        """Return assigned replicas that the ledger does not list: all of them at the beginning."""
        found: dict[int, list[int]] = {}
        for partition_id, partition in topic.in_order():
            for broker_id in partition.replicas:
                if self._deletion.status(broker_id, partition_id) is None:
                    found.setdefault(broker_id, []).append(partition_id)
        return found

    def _begin(self, broker_id: int, partitions: list[int]) -> None:
        """Start the deletion of replicas of a classic deletion, whose topic still exists."""
        down = not is_reachable(self._image, broker_id)
        lost = [] if down else [each for each in partitions if self._is_lost(broker_id, each)]
        rest = [each for each in partitions if each not in frozenset(lost)]
        # One request stops and deletes a replica, which passes both states.
        ineligible = (ReplicaState.OFFLINE, ReplicaState.DELETION_INELIGIBLE)
        started = (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED)
        source = ReplicaState.OFFLINE if down else ReplicaState.ONLINE
        self._transition(broker_id, lost, ineligible, LOG_DIR_FAILED, source)
        if down:
            self._transition(broker_id, rest, ineligible, BROKER_DOWN, source)
        else:
            self._transition(broker_id, rest, started, STARTED, source)

    def _expect_purge(self) -> None:
        """Have the remote tier purged where that was not expected, or done for fewer partitions.

        Replicas are listed of a topic that became tiered, or got partitions, since it was queued.
        A purge that an operator has abandoned stays so: partitions that somebody adds to the topic
        by hand have nothing in the remote tier.
        """
        is_tiered = self._deletion.topic_id in self._image.tiering
        if is_tiered and self._deletion.remote in (Remote.NONE, Remote.PURGED):
            self._set_header(replace(self._deletion, remote=Remote.PENDING))

    def _is_lost(self, broker_id: int, partition_id: int) -> bool:
        topic = self._image.topics.by_id(self._deletion.topic_id)
        return topic is not None and is_lost(topic.partitions.get(partition_id), broker_id)

    # -- the end -------------------------------------------------------------------------------

    def _finish(self, wall_ms: int) -> None:
        """End a deletion without a replica left: remove the topic, then write the receipt.

        A successor of a controller that died in between finds the topic removed and continues. The
        receipt waits for the remote tier, the removal does not.
        """
        deletion = self._deletion
        if not deletion.replicas_are_over:
            return
        topic = self._image.topics.by_id(deletion.topic_id)
        if topic is not None:
            self.records.append(RemoveTopicRecord(topic_id=topic.id))
            # There were elections since it was queued.
            deletion = replace(deletion, leader_epoch=topic.last_leader_epoch)
        if deletion.remote is not Remote.PENDING:
            deletion = replace(deletion, finished_ms=max(wall_ms, 0))
        elif topic is None:
            return
        self._set_header(replace(deletion, halted=HaltReason.NONE))

    # -- moving --------------------------------------------------------------------------------

    def _transition(
        self,
        broker_id: int,
        partitions: Collection[int],
        path: tuple[ReplicaState, ...],
        standing: ReplicaStatus,
        source: ReplicaState | None = None,
    ) -> None:
        """Take replicas along a path of states; where a transition is illegal they stay."""
        legal: list[int] = []
        for partition_id in partitions:
            before = self._deletion.status(broker_id, partition_id)
            at = source if before is None else _STATES[before.state]
            assert at is not None, "a replica that is not listed has no state of its own"
            for target in path:
                if not is_legal(at, target):
                    replica = Replica(broker_id, self._deletion.topic_id, partition_id)
                    self.illegal.append(IllegalTransition(replica, at, target))
                    break
                at = target
            else:
                legal.append(partition_id)
        self._set_status(broker_id, standing, legal)

    def _set_status(
        self, broker_id: int, standing: ReplicaStatus, partitions: Collection[int]
    ) -> None:
        if not partitions:
            return
        self._deletion = self._deletion.with_status(broker_id, standing, partitions)
        self.records.append(
            replicas_record(self._deletion.topic_id, broker_id, standing, partitions)
        )

    def _set_header(self, deletion: DeletionImage) -> None:
        self._deletion = deletion
        self.records.append(header_record(deletion))


LOG_DIR_FAILED: Final = ReplicaStatus(DeletionState.INELIGIBLE, Reason.FOLDER_FAILED)
UNREGISTERED: Final = ReplicaStatus(DeletionState.ABANDONED, Reason.UNREGISTERED)

_RESTART: Final = (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED)
"""The path of an ineligible replica that is started again."""

_STOPPED: Final = {_BrokerStatus.DOWN: BROKER_DOWN, _BrokerStatus.UNREGISTERED: UNREGISTERED}

_STATES: Final = {
    DeletionState.STARTED: ReplicaState.DELETION_STARTED,
    DeletionState.SUCCESSFUL: ReplicaState.DELETION_SUCCESSFUL,
    DeletionState.INELIGIBLE: ReplicaState.DELETION_INELIGIBLE,
    # The table has no state for an abandoned replica; it has no further transition.
    DeletionState.ABANDONED: ReplicaState.DELETION_INELIGIBLE,
}
assert set(_STATES) == set(DeletionState)


def _failed_status(error: Error) -> ReplicaStatus:
    is_disk = error is Error.KAFKA_STORAGE_ERROR
    reason = Reason.FOLDER_FAILED if is_disk else Reason.REFUSED
    return ReplicaStatus(DeletionState.INELIGIBLE, reason, error)


def is_lost(partition: PartitionImage | None, broker_id: int) -> bool:
    """Tell whether a broker's replica is in a log directory that is known to have failed."""
    if partition is None or broker_id not in partition.replicas:
        return False
    return partition.directory(broker_id) == DIRECTORY_LOST


def new_entry(
    image: ClusterImage, topic: TopicImage, policy: Policy, *, wall_ms: int
) -> DeletionImage:
    """Return the ledger entry of a topic to be deleted, without replicas. `wall_ms`: of now.

    A topic that has a tiering state, whatever state, may have objects in the remote tier.
    """
    return DeletionImage(
        topic_id=topic.id,
        name=topic.name,
        policy=policy,
        asked_ms=max(wall_ms, 0),
        remote=Remote.PENDING if topic.id in image.tiering else Remote.NONE,
        leader_epoch=topic.last_leader_epoch,
    )


def at_once_records(image: ClusterImage, topic: TopicImage, *, wall_ms: int) -> list[Record]:
    """Return the entry of a topic that is removed at once; written atomically with the removal."""
    deletion = new_entry(image, topic, Policy.AT_ONCE, wall_ms=wall_ms)
    held: dict[int, list[int]] = {}
    for partition_id, partition in topic.in_order():
        for broker_id in partition.replicas:
            held.setdefault(broker_id, []).append(partition_id)
    records: list[Record] = [header_record(deletion)]
    for broker_id, partition_ids in sorted(held.items()):
        broker_status = _broker_status(image, Policy.AT_ONCE, broker_id)
        standing = STARTED if broker_status is _BrokerStatus.LIVE else _STOPPED[broker_status]
        records.append(replicas_record(topic.id, broker_id, standing, partition_ids))
    return records
