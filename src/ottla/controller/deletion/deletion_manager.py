"""The deletion manager: the controller's soft state of topic deletions, beside the ledger.

`step(event) -> Ready`: every event goes in here, and the work to decide, the orders to send and the
time to wake it come out (`deletion_events`). It holds nothing that must survive a failover: what
happened and is not decided yet, which orders are under way (`broker_orders`), and backoffs. A newly
elected controller begins with a new one, which checks all deletions.

All orders come from `_order`, the first and the repeated ones. There a failed replica is ordered
again when its broker's backoff is over, when its broker is back, and by a new controller. The
ledger keeps the reason of the failure meanwhile: a disk that stays broken for weeks costs no
further record.

`now_ms` is monotonic.
Source: TopicDeletionManager.scala (failReplicaDeletion, retryDeletionForIneligibleReplicas,
resumeDeletions), Kafka 3.9; KAFKA-330.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.controller.broker_orders import BrokerOrders
from ottla.controller.deletion.deletion_events import (
    DeletionsAnswered,
    Event,
    IneligibleTopics,
    MarkersChanged,
    OrdersDropped,
)
from ottla.controller.deletion.deletion_orders import DeletionOrder, orders_of, replicas_to_delete
from ottla.controller.deletion.deletion_policy import (
    NOT_YET,
    DeletionWork,
    Replica,
    has_failed,
    is_lost,
    is_reachable,
)
from ottla.controller.manager_events import (
    Committed,
    Elected,
    Ready,
    TimePassed,
    WorkDecided,
    WorkRefused,
)
from ottla.controller.retry_queue import RetryQueue
from ottla.metadata.deletions import STARTED, DeletionImage
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, TopicImage

FULL_CHECK_MS: Final = 300_000
"""How often all deletions are checked without an event. Receipts are purged at least as often."""

RECEIPT_PURGE_MS_MIN: Final = 10_000
"""The shortest interval of receipt purges: receipts expire in whole minutes."""


class DeletionManager:
    """One term's. `retention_ms`: how long receipts are kept. The first event is `Elected`."""

    def __init__(self, *, enabled: bool, retention_ms: int) -> None:
        self._enabled = enabled
        self._retention_ms = retention_ms
        # A receipt that is kept for a minute must not stay for six.
        self._purge_interval_ms = min(FULL_CHECK_MS, max(RECEIPT_PURGE_MS_MIN, retention_ms))
        self._image = EMPTY
        self._orders: BrokerOrders[Replica] = BrokerOrders(in_progress={NOT_YET})
        self._undecided = Undecided()
        self._vanished: dict[Uuid, TopicImage] = {}
        """Topics whose metadata others removed, until their deletions have ended."""
        self._ineligible = IneligibleTopics()
        self._receipts_until_ms: int | None = None
        self._purge_until_ms: int | None = None
        self._next_full_check_ms = self._next_purge_ms = 0
        self._is_deciding = False

    def step(
        self, event: Event, *, now_ms: int, is_idle: bool = True
    ) -> Ready[DeletionOrder, DeletionWork]:
        """Handle one event. `is_idle`: whether the caller would decide at once."""
        handler: Callable[[DeletionManager, Any, int], tuple[DeletionOrder, ...] | None]
        handler = _HANDLERS[type(event)]
        orders = handler(self, event, now_ms) or ()
        work = self.take_work() if is_idle else None
        wake_at_ms = now_ms if self.has_work else self.next_due_ms
        return Ready(wake_at_ms, orders, work)

    # -- events --------------------------------------------------------------------------------

    def _elected(self, event: Elected, now_ms: int) -> tuple[DeletionOrder, ...]:
        """Begin with the stored deletions: all are checked, and orders sent where possible.

        A broker may get an order that it has carried out for the last controller already; its
        response is the same.
        """
        assert self._image is EMPTY, "a manager is of one term"
        self._image = image = event.image
        self._next_full_check_ms = now_ms + FULL_CHECK_MS
        self._next_purge_ms = now_ms + self._purge_interval_ms
        pending = image.deletions.pending()
        self._undecided.schedule(each.topic_id for each in pending)
        return self._order(pending, now_ms, retried=image.brokers)

    def _committed(self, event: Committed, now_ms: int) -> tuple[DeletionOrder, ...]:
        delta = event.delta
        self._image = image = delta.image
        touched: dict[Uuid, DeletionImage] = {}
        for topic_id in delta.changed_deletions:
            deletion, before = image.deletions.of(topic_id), delta.before.deletions.of(topic_id)
            is_open = deletion is not None and not deletion.is_finished
            if before is None or (before.is_finished and is_open):
                self._undecided.schedule([topic_id])
            elif deletion is not None and deletion.remote is not before.remote:
                self._undecided.schedule([topic_id])  # A receipt may have waited for the purge.
            elif deletion is None and before.is_finished:
                # One step purges some of the expired receipts: there may be more.
                self._receipts_until_ms = self._purge_until_ms
            if deletion is not None:
                touched[topic_id] = deletion
            if deletion is None or deletion.is_finished:
                self._vanished.pop(topic_id, None)
            if before is not None:
                self._withdraw_changed(before, deletion)
        self._follow_topics(delta)
        for deletion in self._follow_brokers(delta):
            touched[deletion.topic_id] = deletion
        return self._order(touched.values(), now_ms, retried=delta.changed_brokers)

    def _withdraw_changed(self, before: DeletionImage, after: DeletionImage | None) -> None:
        """Withdraw orders of replicas whose status changed: they are ordered again, if at all."""
        is_open = after is not None and not after.is_finished
        for broker_id, rows in before.replicas.items():
            for standing, partition_ids in rows.items():
                is_kept = is_open and (standing == STARTED or has_failed(standing))
                kept = after.partitions_at(broker_id, standing) if after and is_kept else ()
                for each in partition_ids.difference(kept):
                    self._orders.withdraw(broker_id, Replica(broker_id, before.topic_id, each))

    def _follow_topics(self, delta: ClusterDelta) -> None:
        deletions = delta.image.deletions
        for topic_id, change in delta.changed_topics.items():
            if not deletions.is_queued(topic_id):
                continue
            noted = self._undecided.of(topic_id)
            for partition_id in change.partitions:
                partition = change.new.partitions[partition_id]
                before = change.old.partitions.get(partition_id)
                noted.lost.update(
                    Replica(broker_id, topic_id, partition_id)
                    for broker_id in partition.replicas
                    if is_lost(partition, broker_id) and not is_lost(before, broker_id)
                )
        for topic_id, topic in delta.deleted_topics.items():
            if deletions.is_queued(topic_id):
                self._undecided.schedule([topic_id])
                self._vanished[topic_id] = topic

    def _follow_brokers(self, delta: ClusterDelta) -> list[DeletionImage]:
        """Take brokers that appeared, left or changed; return the deletions concerned."""
        changed = delta.changed_brokers
        if not changed:
            return []
        for broker_id in changed:
            broker = delta.image.brokers.get(broker_id)
            self._orders.broker_changed(broker_id, NO_EPOCH if broker is None else broker.epoch)
        concerned = [
            each
            for each in delta.image.deletions.pending()
            if not changed.isdisjoint(each.replicas)
        ]
        self._undecided.schedule(each.topic_id for each in concerned)
        return concerned

    def _answered(self, event: DeletionsAnswered, now_ms: int) -> None:
        final = self._orders.answered(
            event.broker_id, event.broker_epoch, event.results, now_ms=now_ms
        )
        for replica, error in final.items():
            if self._is_wanted(replica):
                self._undecided.of(replica.topic_id).results[replica] = error
            else:  # Its deletion was cancelled or has ended: there is nothing to record.
                self._orders.recorded(replica.broker_id, replica)

    def _is_wanted(self, replica: Replica) -> bool:
        """Tell whether the ledger waits for a replica to be deleted."""
        deletion = self._image.deletions.of(replica.topic_id)
        if deletion is None or deletion.is_finished:
            return False
        standing = deletion.status(replica.broker_id, replica.partition)
        return standing is not None and (standing == STARTED or has_failed(standing))

    def _dropped(self, event: OrdersDropped, now_ms: int) -> None:
        self._orders.dropped(event.broker_id, event.broker_epoch, event.replicas, now_ms=now_ms)

    def _set_ineligible(self, event: IneligibleTopics, _now_ms: int) -> None:
        before, self._ineligible = self._ineligible, event
        for name in (before.preferred_elections | before.reassignments) ^ (
            event.preferred_elections | event.reassignments
        ):
            topic_id = self._image.topics.id_of(name)
            if topic_id is not None and self._image.deletions.is_queued(topic_id):
                self._undecided.schedule([topic_id])

    def _markers_changed(self, event: MarkersChanged, _now_ms: int) -> None:
        """Check deletions in wait that have no marker any more: they are cancelled."""
        self._undecided.schedule(
            each.topic_id
            for each in self._image.deletions.pending()
            if not each.has_begun and each.name not in event.names
        )

    def _time_passed(self, event: TimePassed, now_ms: int) -> tuple[DeletionOrder, ...]:
        """End backoffs that are over; at intervals purge old receipts and check all deletions."""
        self._undecided.queue.end_pauses(now_ms)
        retries = self._orders.end_backoffs(now_ms)
        if now_ms >= self._next_purge_ms:
            self._next_purge_ms = now_ms + self._purge_interval_ms
            self._receipts_until_ms = self._purge_until_ms = event.wall_ms - self._retention_ms
        deletions = self._image.deletions
        unsent = {replica.topic_id for keys in retries.delayed.values() for replica in keys}
        found = (deletions.of(each) for each in sorted(unsent))
        resent = self._order([each for each in found if each], now_ms, retried=retries.delayed)
        is_due = now_ms >= self._next_full_check_ms
        if not (retries.failed or is_due):
            return resent
        pending = deletions.pending()
        if is_due:
            self._next_full_check_ms = now_ms + FULL_CHECK_MS
            self._undecided.schedule(each.topic_id for each in pending)
        return resent + self._order(pending, now_ms, retried=retries.failed)

    # -- decisions -----------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Tell whether there is something to decide now."""
        has_any = self._undecided.queue.has_any or self._receipts_until_ms is not None
        return has_any and not self._is_deciding

    def take_work(self) -> DeletionWork | None:
        """Return what to decide now, None = nothing; `step` does it for a caller that is idle."""
        if not self.has_work:
            return None
        self._is_deciding = True
        taken = self._undecided.take()
        receipts_until_ms = None
        if not taken:  # Receipts are purged apart: a failure must not delay a deletion.
            receipts_until_ms, self._receipts_until_ms = self._receipts_until_ms, None
        return DeletionWork(
            topics=frozenset(taken),
            results={
                replica: error
                for noted in taken.values()
                for replica, error in noted.results.items()
                # A refused decision may have written it already, and another order be under way.
                if self._orders.is_answered(replica.broker_id, replica)
            },
            lost=frozenset().union(*(noted.lost for noted in taken.values())),
            vanished={each: self._vanished[each] for each in taken if each in self._vanished},
            preferred_elections=self._ineligible.preferred_elections,
            reassignments=self._ineligible.reassignments,
            enabled=self._enabled,
            receipts_until_ms=receipts_until_ms,
        )

    def _decided(self, _event: WorkDecided, _now_ms: int) -> None:
        self._is_deciding = False
        for noted in self._undecided.decided().values():
            for replica in noted.results:
                # 1. The work holds the response to an older order. 2. The decision starts the
                # replica again, and the next order is sent with its first write. 3. The response to
                # that one comes before the rest is written: it is not in the work.
                if not self._undecided.has_result(replica):
                    self._orders.recorded(replica.broker_id, replica)

    def _refused(self, _event: WorkRefused, now_ms: int) -> None:
        self._is_deciding = False
        self._undecided.refused(now_ms)

    @property
    def next_due_ms(self) -> int:
        """Return when there is something to do without an event."""
        due = (self._undecided.queue.due_ms, self._orders.due_ms)
        always = (self._next_full_check_ms, self._next_purge_ms)
        return min(*always, *(each for each in due if each is not None))

    # -- orders --------------------------------------------------------------------------------

    def _order(
        self, deletions: Iterable[DeletionImage], now_ms: int, *, retried: Collection[int]
    ) -> tuple[DeletionOrder, ...]:
        """Return orders for what is STARTED and not ordered, and on the brokers `retried` for
        what failed; begin the backoffs after which that is retried.
        """
        image = self._image
        pending = [each for each in deletions if not each.is_finished]
        wanted: dict[int, list[Replica]] = {}
        for broker_id, topic_id, partition_ids in replicas_to_delete(
            image, pending, retried=retried
        ):
            wanted.setdefault(broker_id, []).extend(
                Replica(broker_id, topic_id, each) for each in partition_ids
            )
        orders: list[DeletionOrder] = []
        for broker_id, replicas in sorted(wanted.items()):
            new = self._orders.begin(broker_id, image.brokers[broker_id].epoch, replicas)
            orders += orders_of(image, broker_id, new)
        failed = {
            broker_id
            for deletion in pending
            for broker_id, rows in deletion.replicas.items()
            if any(map(has_failed, rows)) and is_reachable(image, broker_id)
        }
        for broker_id in failed:
            self._orders.failed(broker_id, image.brokers[broker_id].epoch, now_ms=now_ms)
        return tuple(orders)


@dataclass(slots=True)
class Noted:
    """What happened to one topic's deletion and is not decided; see `DeletionWork`."""

    results: dict[Replica, Error] = field(default_factory=dict)
    lost: set[Replica] = field(default_factory=set)

    def add(self, later: "Noted") -> None:
        """Add what happened later."""
        self.results |= later.results
        self.lost |= later.lost


class Undecided:
    """What happened and is not decided yet, by topic; nothing of it is lost.

    Topics are taken to be decided together, one taken set at a time. After `decided` they are done;
    after `refused` they are kept, and `queue` retries them without delaying other topics.
    """

    def __init__(self) -> None:
        self._noted: dict[Uuid, Noted] = {}
        self.queue: RetryQueue[Uuid] = RetryQueue()
        self._taken: dict[Uuid, Noted] = {}

    def of(self, topic_id: Uuid) -> Noted:
        """Return what happened to a topic, to be added to, and schedule the topic."""
        noted = self._noted.get(topic_id)
        if noted is None:
            noted = self._noted[topic_id] = Noted()
            self.queue.add((topic_id,))
        return noted

    def schedule(self, topic_ids: Iterable[Uuid]) -> None:
        """Have the deletions of topics checked."""
        for topic_id in topic_ids:
            self.of(topic_id)

    def has_result(self, replica: Replica) -> bool:
        """Tell whether there is a result for a replica that was not taken yet."""
        noted = self._noted.get(replica.topic_id)
        return noted is not None and replica in noted.results

    def take(self) -> Mapping[Uuid, Noted]:
        """Return what to decide together; empty = nothing."""
        assert not self._taken, "what was taken was neither decided nor refused"
        self._taken = {each: self._noted.pop(each) for each in self.queue.take()}
        return self._taken

    def decided(self) -> Mapping[Uuid, Noted]:
        """What was taken is committed; return it."""
        taken, self._taken = self._taken, {}
        self.queue.done(taken)
        return taken

    def refused(self, now_ms: int) -> None:
        """What was taken could not be written, or not all of it."""
        taken, self._taken = self._taken, {}
        for topic_id, noted in taken.items():
            noted.add(self._noted.get(topic_id, Noted()))
            self._noted[topic_id] = noted
        self.queue.failed(list(taken), now_ms)


_HANDLERS: Final[Mapping[type, Callable[..., tuple[DeletionOrder, ...] | None]]] = {
    Elected: DeletionManager._elected,
    Committed: DeletionManager._committed,
    DeletionsAnswered: DeletionManager._answered,
    OrdersDropped: DeletionManager._dropped,
    IneligibleTopics: DeletionManager._set_ineligible,
    MarkersChanged: DeletionManager._markers_changed,
    WorkDecided: DeletionManager._decided,
    WorkRefused: DeletionManager._refused,
    TimePassed: DeletionManager._time_passed,
}
