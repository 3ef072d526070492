"""The deletion manager: the controller's soft state of topic deletions, beside the ledger.

It takes events, and says what to decide next and which orders to send. It holds nothing that must
survive a failover: which orders are in flight, and which brokers are backed off after failures.
A newly elected controller begins with an empty one and checks all deletions; one that resigns
clears it.

The steps of a deletion: `observe` a change of the image -> `take_work` -> `deletion_policy.decide`
in the controller's queue -> its records, committed, come back through `observe`, which returns the
orders to send -> `decided`, or `refused` -> a response, `responded` -> `take_work` -> ... The
caller asks for work after each call, and calls `tick` at `next_due_ms`.

A failed order is sent again by `tick`, by a new controller and when its broker is back, while the
ledger keeps the reason of the failure: a disk that stays broken for weeks costs no further record.

`now_ms` is monotonic, `wall_ms` are epoch milliseconds.
Source: TopicDeletionManager.scala, Kafka 3.9; KAFKA-330.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.controller.deletion.deletion_events import DeletionEvents
from ottla.controller.deletion.deletion_orders import DeletionOrder, orders_of, replicas_to_delete
from ottla.controller.deletion.deletion_policy import (
    NOT_YET,
    DeletionWork,
    Replica,
    has_failed,
    is_lost,
    is_reachable,
)
from ottla.controller.retry_queue import Pause
from ottla.metadata.deletions import STARTED, DeletionImage, ReplicaStatus
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage, TopicImage

FULL_CHECK_MS: Final = 300_000
"""How often all deletions are checked without an event. Receipts are purged at least as often."""

RECEIPT_PURGE_MS_MIN: Final = 10_000
"""The shortest interval of receipt purges: receipts expire in whole minutes."""


class _Phase(Enum):
    """The phase of an order for a replica."""

    SENT = "sent"
    """In flight. No second one is sent meanwhile, whatever the ledger says of the replica: the
    response to the first would be taken for the second's."""
    RESPONDED = "answered"
    """The broker responded, and the ledger does not have the result yet."""
    DELAYED = "later"
    """It is sent again after a backoff; the ledger does not change."""


@dataclass(slots=True)
class _Orders:
    """The orders to one registration of a broker: phases by topic and partition."""

    epoch: int = NO_EPOCH
    phases: dict[Uuid, dict[int, _Phase]] = field(default_factory=dict)
    failed: Pause = field(default_factory=Pause)
    """Before failed replicas are retried. Successes meanwhile do not shorten it, or a broker with
    one failed log directory would get its replicas ordered with every other deletion."""
    delayed: Pause = field(default_factory=Pause)
    """Before DELAYED orders are sent again."""

    def phase(self, replica: Replica) -> _Phase | None:
        """Return the phase of the order for a replica, None = there is none."""
        return self.phases.get(replica.topic_id, {}).get(replica.partition)

    def set_phase(self, replica: Replica, phase: _Phase) -> None:
        self.phases.setdefault(replica.topic_id, {})[replica.partition] = phase

    def drop(self, replica: Replica) -> None:
        """Remove the order for a replica."""
        listed = self.phases[replica.topic_id]
        del listed[replica.partition]
        if not listed:
            del self.phases[replica.topic_id]

    def forget(self, *phases: _Phase) -> set[Uuid]:
        """Remove all orders in these phases; return the topics that had some."""
        concerned = {
            topic_id
            for topic_id, listed in self.phases.items()
            if any(each in phases for each in listed.values())
        }
        for topic_id in concerned:
            listed = self.phases.pop(topic_id)
            remaining = {
                partition_id: each for partition_id, each in listed.items() if each not in phases
            }
            if remaining:
                self.phases[topic_id] = remaining
        return concerned

    def begin(self, epoch: int) -> None:
        """Begin with another process of the broker, or none.

        The previous process will never respond to what is in flight. A response that it gave stays
        until the ledger has it: a second order would still be in flight when the topic is removed
        by the first one's response, and would delete replicas of the next topic of the name.
        """
        self.epoch = epoch
        self.forget(_Phase.SENT, _Phase.DELAYED)
        self.failed, self.delayed = Pause(), Pause()


class DeletionManager:
    """See the module. `retention_ms`: how long receipts are kept."""

    def __init__(self, *, enabled: bool, retention_ms: int) -> None:
        self._enabled = enabled
        self._retention_ms = retention_ms
        # A receipt that is kept for a minute must not stay for six.
        self._purge_interval_ms = min(FULL_CHECK_MS, max(RECEIPT_PURGE_MS_MIN, retention_ms))
        self._image = EMPTY
        self._is_active = False
        self._forget()

    def _forget(self) -> None:
        self._orders: dict[int, _Orders] = {}
        self._events = DeletionEvents()
        self._vanished: dict[Uuid, TopicImage] = {}
        """Topics whose metadata others removed, until their deletions have ended."""
        self._preferred_elections: frozenset[str] = frozenset()
        self._reassignments: frozenset[str] = frozenset()
        self._receipts_until_ms: int | None = None
        self._purge_until_ms: int | None = None
        self._next_full_check_ms = self._next_purge_ms = 0

    # -- election and resignation --------------------------------------------------------------

    def elected(self, image: ClusterImage, *, now_ms: int) -> tuple[DeletionOrder, ...]:
        """Begin with the stored deletions: all are checked, and orders sent where possible.

        A broker may get an order that it has carried out for the last controller already; its
        response is the same.
        """
        self._forget()
        self._image = image
        self._is_active = True
        self._next_full_check_ms = now_ms + FULL_CHECK_MS
        self._next_purge_ms = now_ms + self._purge_interval_ms
        pending = image.deletions.pending()
        self._events.schedule(each.topic_id for each in pending)
        return self._order(pending, now_ms, retried=image.brokers)

    def resigned(self) -> None:
        """Clear everything: another controller decides now."""
        self._forget()
        self._image = EMPTY
        self._is_active = False

    # -- events --------------------------------------------------------------------------------

    def observe(self, delta: ClusterDelta, *, now_ms: int) -> tuple[DeletionOrder, ...]:
        """Take a change of the image, whoever made it; return the orders to send."""
        if not self._is_active:
            return ()
        self._image = image = delta.image
        touched: dict[Uuid, DeletionImage] = {}
        for topic_id in delta.changed_deletions:
            deletion, before = image.deletions.of(topic_id), delta.before.deletions.of(topic_id)
            is_open = deletion is not None and not deletion.is_finished
            if before is None or (before.is_finished and is_open):
                self._events.schedule([topic_id])
            elif deletion is None and before.is_finished:
                # One step purges some of the expired receipts: there may be more.
                self._receipts_until_ms = self._purge_until_ms
            if deletion is not None:
                touched[topic_id] = deletion
            if deletion is None or deletion.is_finished:
                self._vanished.pop(topic_id, None)
        self._prune(delta)
        self._follow_topics(delta)
        for deletion in self._follow_brokers(delta):
            touched[deletion.topic_id] = deletion
        return self._order(touched.values(), now_ms, retried=delta.changed_brokers)

    def _follow_topics(self, delta: ClusterDelta) -> None:
        deletions = delta.image.deletions
        for topic_id, change in delta.changed_topics.items():
            if not deletions.is_queued(topic_id):
                continue
            events = self._events.of(topic_id)
            for partition_id in change.partitions:
                partition = change.new.partitions[partition_id]
                before = change.old.partitions.get(partition_id)
                events.lost.update(
                    Replica(broker_id, topic_id, partition_id)
                    for broker_id in partition.replicas
                    if is_lost(partition, broker_id) and not is_lost(before, broker_id)
                )
        for topic_id, topic in delta.deleted_topics.items():
            if deletions.is_queued(topic_id):
                self._events.schedule([topic_id])
                self._vanished[topic_id] = topic

    def _follow_brokers(self, delta: ClusterDelta) -> list[DeletionImage]:
        """Take brokers that appeared, left or changed; return the deletions concerned."""
        changed = delta.changed_brokers
        if not changed:
            return []
        for broker_id in changed:
            broker = delta.image.brokers.get(broker_id)
            epoch = NO_EPOCH if broker is None else broker.epoch
            orders = self._orders.get(broker_id)
            if orders is None:
                continue
            if orders.epoch != epoch:
                orders.begin(epoch)
            orders.forget(_Phase.DELAYED)  # It may be able to now.
        concerned = [
            each
            for each in delta.image.deletions.pending()
            if not changed.isdisjoint(each.replicas)
        ]
        self._events.schedule(each.topic_id for each in concerned)
        return concerned

    def responded(
        self, broker_id: int, broker_epoch: int, results: Mapping[Replica, Error], *, now_ms: int
    ) -> None:
        """Take a broker's response, as far as it is one to an order in flight."""
        orders = self._orders.get(broker_id)
        if orders is None or orders.epoch != broker_epoch:
            return
        responses = {
            each: error for each, error in results.items() if orders.phase(each) is _Phase.SENT
        }
        if Error.NONE in responses.values():
            orders.delayed.forget()
        for replica, error in responses.items():
            if error is NOT_YET:
                orders.set_phase(replica, _Phase.DELAYED)
                continue
            orders.set_phase(replica, _Phase.RESPONDED)
            self._events.of(replica.topic_id).results[replica] = error
        if NOT_YET in responses.values():
            orders.delayed.begin(now_ms)

    def dropped(
        self, broker_id: int, broker_epoch: int, replicas: Iterable[Replica], *, now_ms: int
    ) -> None:
        """Take an order that will get no response: it is sent again if its broker is up."""
        orders = self._orders.get(broker_id)
        if orders is None or orders.epoch != broker_epoch:
            return
        unanswered = [each for each in replicas if orders.phase(each) is _Phase.SENT]
        for replica in unanswered:
            orders.set_phase(replica, _Phase.DELAYED)
        if unanswered:
            orders.delayed.begin(now_ms)

    def set_ineligible_topics(
        self, *, preferred_elections: Iterable[str] = (), reassignments: Iterable[str] = ()
    ) -> None:
        """Set the topics whose deletion must not begin now.

        `preferred_elections`: with preferred leader elections under way. `reassignments`: with a
        reassignment that was requested but is not in the image yet.
        """
        before = self._preferred_elections | self._reassignments
        self._preferred_elections, self._reassignments = (
            frozenset(preferred_elections),
            frozenset(reassignments),
        )
        for name in before ^ (self._preferred_elections | self._reassignments):
            topic_id = self._image.topics.id_of(name)
            if topic_id is not None and self._image.deletions.is_queued(topic_id):
                self._events.schedule([topic_id])

    def markers_changed(self, names: Collection[str]) -> None:
        """Take the topics that have a marker now; deletions in wait without one are cancelled."""
        self._events.schedule(
            each.topic_id
            for each in self._image.deletions.pending()
            if not each.has_begun and each.name not in names
        )

    @property
    def next_due_ms(self) -> int | None:
        """Return when `tick` has something to do, None = never."""
        if not self._is_active:
            return None
        pauses = [pause for each in self._orders.values() for pause in (each.failed, each.delayed)]
        due = (self._events.due_ms, *(each.due_ms for each in pauses))
        always = (self._next_full_check_ms, self._next_purge_ms)
        return min(*always, *(each for each in due if each is not None))

    def tick(self, *, now_ms: int, wall_ms: int) -> tuple[DeletionOrder, ...]:
        """End backoffs that are over; at intervals purge old receipts and check all deletions."""
        if not self._is_active:
            return ()
        self._events.end_pauses(now_ms)
        unsent: set[Uuid] = set()
        delayed, failed = set(), set()
        for broker_id, orders in self._orders.items():
            if orders.delayed.end(now_ms):
                delayed.add(broker_id)
                unsent |= orders.forget(_Phase.DELAYED)
            if orders.failed.end(now_ms):
                failed.add(broker_id)
        if now_ms >= self._next_purge_ms:
            self._next_purge_ms = now_ms + self._purge_interval_ms
            self._receipts_until_ms = self._purge_until_ms = wall_ms - self._retention_ms
        deletions = self._image.deletions
        found = (deletions.of(each) for each in sorted(unsent))
        resent = self._order([each for each in found if each], now_ms, retried=delayed)
        is_due = now_ms >= self._next_full_check_ms
        if not (failed or is_due):
            return resent
        pending = deletions.pending()
        if is_due:
            self._next_full_check_ms = now_ms + FULL_CHECK_MS
            self._events.schedule(each.topic_id for each in pending)
        return resent + self._order(pending, now_ms, retried=failed)

    # -- decisions and orders ------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Tell whether there is something to decide now."""
        return self._events.has_any or self._receipts_until_ms is not None

    def take_work(self) -> DeletionWork | None:
        """Return what to decide now; None = nothing. Call `decided` or `refused` next."""
        if not self.has_work:
            return None
        taken = self._events.take()
        receipts_until_ms = None
        if not taken:  # Receipts are purged apart: a failure must not delay a deletion.
            receipts_until_ms, self._receipts_until_ms = self._receipts_until_ms, None
        return DeletionWork(
            topics=frozenset(taken),
            results={
                replica: error
                for events in taken.values()
                for replica, error in events.results.items()
                # A refused decision may have written it already, and another order be in flight.
                if self._orders[replica.broker_id].phase(replica) is _Phase.RESPONDED
            },
            lost=frozenset().union(*(events.lost for events in taken.values())),
            vanished={each: self._vanished[each] for each in taken if each in self._vanished},
            preferred_elections=self._preferred_elections,
            reassignments=self._reassignments,
            enabled=self._enabled,
            receipts_until_ms=receipts_until_ms,
        )

    def decided(self) -> None:
        """The work is decided, and its records are committed."""
        for events in self._events.decided().values():
            for replica in events.results:
                if self._events.has_result(replica):
                    # 1. The work holds the response to an older order. 2. The decision starts the
                    # replica again, and the next order is sent with its first write. 3. The
                    # response to that one comes before the rest is written: it is not in the work.
                    continue
                orders = self._orders[replica.broker_id]
                if orders.phase(replica) is _Phase.RESPONDED:
                    orders.drop(replica)  # The ledger has it now, or did not need it.

    def refused(self, *, now_ms: int) -> None:
        """The work could not be written, or not all of it: it is taken again."""
        self._events.refused(now_ms)

    def _prune(self, delta: ClusterDelta) -> None:
        """Remove responses that the ledger has now, and orders that must not be sent again."""
        for broker_id, orders in self._orders.items():
            for topic_id in delta.changed_deletions & orders.phases.keys():
                listed = orders.phases.pop(topic_id)
                remaining = {
                    partition_id: phase
                    for partition_id, phase in listed.items()
                    if phase is _Phase.SENT
                    # A replica whose status changed is ordered again, if at all.
                    or _is_unchanged(delta, Replica(broker_id, topic_id, partition_id))
                }
                if remaining:
                    orders.phases[topic_id] = remaining

    def _order(
        self,
        deletions: Iterable[DeletionImage],
        now_ms: int,
        *,
        retried: Collection[int] = (),
    ) -> tuple[DeletionOrder, ...]:
        """Return orders for what is STARTED and not ordered, and on the brokers `retried` for
        what failed; begin the backoffs after which that is retried.
        """
        image = self._image
        pending = [each for each in deletions if not each.is_finished]
        new: dict[int, list[Replica]] = {}
        for broker_id, topic_id, partition_ids in replicas_to_delete(
            image, pending, retried=retried
        ):
            orders = self._of(broker_id)
            for partition_id in partition_ids.difference(orders.phases.get(topic_id, ())):
                replica = Replica(broker_id, topic_id, partition_id)
                orders.set_phase(replica, _Phase.SENT)
                new.setdefault(broker_id, []).append(replica)
        for deletion in pending:
            for broker_id in _failed_on(deletion):
                if is_reachable(image, broker_id):
                    self._of(broker_id).failed.begin(now_ms)
        return tuple(
            order
            for broker_id, replicas in sorted(new.items())
            for order in orders_of(image, broker_id, replicas)
        )

    def _of(self, broker_id: int) -> _Orders:
        orders = self._orders.get(broker_id)
        if orders is None:
            epoch = self._image.brokers[broker_id].epoch
            orders = self._orders[broker_id] = _Orders(epoch)
        assert orders.epoch == self._image.brokers[broker_id].epoch
        return orders


def _is_unchanged(delta: ClusterDelta, replica: Replica) -> bool:
    """Tell whether a replica that is to be deleted has the same status in the ledger as before."""
    before, after = (_expected_status(image, replica) for image in (delta.before, delta.image))
    return after is not None and before == after


def _expected_status(image: ClusterImage, replica: Replica) -> ReplicaStatus | None:
    """Return the status of a replica whose broker's response would count, else None."""
    deletion = image.deletions.of(replica.topic_id)
    if deletion is None or deletion.is_finished:
        return None
    standing = deletion.status(replica.broker_id, replica.partition)
    if standing is None:
        return None
    return standing if standing == STARTED or has_failed(standing) else None


def _failed_on(deletion: DeletionImage) -> Iterable[int]:
    """Yield the brokers that failed to delete some replica although they were up."""
    for broker_id, rows in deletion.replicas.items():
        if any(map(has_failed, rows)):
            yield broker_id
