"""The deletion manager: what a controller must remember of deletions beside the ledger.

It hears what happens, says when and what to decide, and which orders to send. It holds nothing
that must survive: which orders are out, which brokers are given a pause after they failed. A
controller that is elected begins with an empty one and all deletions to look at; one that
resigns forgets everything.

The way of a deletion: `follow` a change of the image -> `take_wish` -> `deletion_policy.decide`
in the controller's queue -> its records, committed, come back through `follow`, which returns the
orders to send -> an answer, `answered` -> `take_wish` -> ... Whoever drives it looks for a wish
after each call, and calls `tick` when `next_due_ms` says.

`now_ms` is of a clock that never goes back, `wall_ms` are epoch milliseconds.
Source: TopicDeletionManager.scala, Kafka 3.9; KAFKA-330.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.controller.deletion_orders import DeletionOrder, orders_of, wanted_of
from ottla.controller.deletion_policy import NOT_YET, Replica, Wish, is_lost, is_reachable
from ottla.metadata.deletions import (
    STARTED,
    DeletionImage,
    DeletionState,
    Reason,
)
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import EMPTY, ClusterImage

RETRY_FIRST_MS: Final = 500
RETRY_MS_MAX: Final = 60_000
"""How long a broker that failed to delete is left alone: twice as long each time, within these."""
LOOK_AGAIN_MS: Final = 300_000
"""How often everything is looked at without a reason, and receipts are put away."""


class _Phase(Enum):
    """Where an order for a replica is."""

    SENT = "sent"
    """Unanswered. No second one is sent meanwhile, whatever becomes of the replica in the ledger:
    the answer of the first would be taken for the second's."""
    ANSWERED = "answered"
    """The ledger does not know it yet."""
    LATER = "later"
    """It is sent again after a pause, without a word in the ledger."""


@dataclass(slots=True)
class _Orders:
    """What one registration of a broker was told: phases by topic and partition."""

    epoch: int = NO_EPOCH
    phases: dict[Uuid, dict[int, _Phase]] = field(default_factory=dict)
    failures: int = 0
    due_ms: int | None = None
    """When the pause is over."""

    def phase(self, replica: Replica) -> _Phase | None:
        """Return where the order for a replica is, None = there is none."""
        return self.phases.get(replica.topic_id, {}).get(replica.partition)

    def set(self, replica: Replica, phase: _Phase) -> None:
        """Note where the order for a replica is."""
        self.phases.setdefault(replica.topic_id, {})[replica.partition] = phase

    def forget(self, *phases: _Phase) -> None:
        """Forget all orders that are in these phases."""
        self.phases = {
            topic_id: left
            for topic_id, listed in self.phases.items()
            if (left := {number: each for number, each in listed.items() if each not in phases})
        }


class DeletionManager:
    """See the module. `retention_ms`: how long receipts are kept."""

    def __init__(self, *, enabled: bool, retention_ms: int) -> None:
        self._enabled = enabled
        self._retention_ms = retention_ms
        self._image = EMPTY
        self._in_office = False
        self._forget()

    def _forget(self) -> None:
        self._orders: dict[int, _Orders] = {}
        self._topics: set[Uuid] = set()
        self._answers: dict[Replica, Error] = {}
        self._lost: set[Replica] = set()
        self._retry: set[int] = set()
        self._electing: frozenset[str] = frozenset()
        self._reassigning: frozenset[str] = frozenset()
        self._receipts_until_ms: int | None = None
        self._look_again_ms = 0

    # -- office --------------------------------------------------------------------------------

    def elected(self, image: ClusterImage, *, now_ms: int) -> tuple[DeletionOrder, ...]:
        """Begin on what is stored: everything is looked at once, and what is STARTED is ordered.

        A broker may be ordered what it has done for the last controller; it answers the same.
        """
        self._forget()
        self._image = image
        self._in_office = True
        self._look_again_ms = now_ms + LOOK_AGAIN_MS
        pending = image.deletions.pending()
        self._topics.update(each.topic_id for each in pending)
        self._retry.update(image.brokers)
        return self._order(pending, now_ms)

    def resigned(self) -> None:
        """Forget everything: another controller decides now."""
        self._forget()
        self._image = EMPTY
        self._in_office = False

    # -- what happens --------------------------------------------------------------------------

    def follow(self, delta: ClusterDelta, *, now_ms: int) -> tuple[DeletionOrder, ...]:
        """Take note of a change of the image, whoever made it; return the orders to send."""
        if not self._in_office:
            return ()
        self._image = image = delta.image
        touched: dict[Uuid, DeletionImage] = {}
        for topic_id in delta.changed_deletions:
            deletion = image.deletions.of(topic_id)
            if delta.before.deletions.of(topic_id) is None:
                self._topics.add(topic_id)
            if deletion is not None:
                touched[topic_id] = deletion
        self._prune(delta)
        self._follow_topics(delta)
        for deletion in self._follow_brokers(delta):
            touched[deletion.topic_id] = deletion
        return self._order(touched.values(), now_ms)

    def _follow_topics(self, delta: ClusterDelta) -> None:
        deletions = delta.image.deletions
        for topic_id, change in delta.changed_topics.items():
            if not deletions.is_queued(topic_id):
                continue
            self._topics.add(topic_id)
            for number in change.partitions:
                partition = change.new.partitions[number]
                before = change.old.partitions.get(number)
                self._lost.update(
                    Replica(broker_id, topic_id, number)
                    for broker_id in partition.replicas
                    if is_lost(partition, broker_id) and not is_lost(before, broker_id)
                )
        self._topics.update(each for each in delta.deleted_topics if deletions.is_queued(each))

    def _follow_brokers(self, delta: ClusterDelta) -> list[DeletionImage]:
        """Take note of brokers that came, went or changed; return the deletions concerned."""
        changed = delta.changed_brokers
        if not changed:
            return []
        for broker_id in changed:
            broker = delta.image.brokers.get(broker_id)
            known = self._orders.get(broker_id)
            if known is not None and (broker is None or broker.epoch != known.epoch):
                # What that process has not answered, it never will. What it has answered stays
                # noted until the ledger knows: a second order would be out when the topic is
                # gone by the first one's answer, and hit the next topic of its name.
                known.epoch = NO_EPOCH if broker is None else broker.epoch
                known.forget(_Phase.SENT, _Phase.LATER)
                known.failures, known.due_ms = 0, None
            if is_reachable(delta.image, broker_id):
                self._retry.add(broker_id)
        concerned = [
            each
            for each in delta.image.deletions.pending()
            if not changed.isdisjoint(each.replicas)
        ]
        self._topics.update(each.topic_id for each in concerned)
        return concerned

    def answered(
        self, broker_id: int, broker_epoch: int, results: Mapping[Replica, Error], *, now_ms: int
    ) -> None:
        """Take a broker's answer, as far as it is one to an order that is out."""
        orders = self._orders.get(broker_id)
        if orders is None or orders.epoch != broker_epoch:
            return
        told = {each: error for each, error in results.items() if orders.phase(each) is _Phase.SENT}
        if Error.NONE in told.values():
            orders.failures = 0
        for replica, error in told.items():
            if error is NOT_YET:
                orders.set(replica, _Phase.LATER)
                continue
            orders.set(replica, _Phase.ANSWERED)
            self._answers[replica] = error
            self._topics.add(replica.topic_id)
        if NOT_YET in told.values():
            _pause(orders, now_ms)

    def dropped(
        self, broker_id: int, broker_epoch: int, replicas: Iterable[Replica], *, now_ms: int
    ) -> None:
        """Hear that an order will have no answer: it is sent again where its broker is there."""
        orders = self._orders.get(broker_id)
        if orders is None or orders.epoch != broker_epoch:
            return
        unanswered = [each for each in replicas if orders.phase(each) is _Phase.SENT]
        for replica in unanswered:
            orders.set(replica, _Phase.LATER)
        if unanswered:
            _pause(orders, now_ms)

    def halted_by(self, *, electing: Iterable[str] = (), reassigning: Iterable[str] = ()) -> None:
        """Hear of which topics preferred elections are under way now, and of which a
        reassignment is asked for that is not in the image yet."""
        before = self._electing | self._reassigning
        self._electing, self._reassigning = frozenset(electing), frozenset(reassigning)
        for name in before ^ (self._electing | self._reassigning):
            topic_id = self._image.topics.id_of(name)
            if topic_id is not None and self._image.deletions.is_queued(topic_id):
                self._topics.add(topic_id)

    @property
    def next_due_ms(self) -> int | None:
        """Return when `tick` has something to do, None = never."""
        if not self._in_office:
            return None
        pauses = [each.due_ms for each in self._orders.values() if each.due_ms is not None]
        return min([self._look_again_ms, *pauses])

    def tick(self, *, now_ms: int, wall_ms: int) -> tuple[DeletionOrder, ...]:
        """End the pauses that are over; now and then look at everything."""
        if not self._in_office:
            return ()
        over: set[int] = set()
        for broker_id, orders in self._orders.items():
            if orders.due_ms is not None and orders.due_ms <= now_ms:
                orders.due_ms = None
                orders.forget(_Phase.LATER)
                over.add(broker_id)
        pending = self._image.deletions.pending() if over or self._is_time(now_ms) else []
        if self._is_time(now_ms):
            self._look_again_ms = now_ms + LOOK_AGAIN_MS
            self._receipts_until_ms = wall_ms - self._retention_ms
            # A decision that came to nothing has left answers behind.
            for orders in self._orders.values():
                orders.forget(_Phase.ANSWERED)
            for replica in self._answers:
                self._orders[replica.broker_id].set(replica, _Phase.ANSWERED)
            concerned = pending
        else:
            concerned = [each for each in pending if not over.isdisjoint(each.replicas)]
        self._retry |= over
        self._topics.update(each.topic_id for each in concerned)
        return self._order(concerned, now_ms)

    def _is_time(self, now_ms: int) -> bool:
        return now_ms >= self._look_again_ms

    # -- what is to be done --------------------------------------------------------------------

    def take_wish(self) -> Wish | None:
        """Return what is to be decided now, once; None = nothing."""
        if not self._topics and self._receipts_until_ms is None:
            return None
        wish = Wish(
            topics=frozenset(self._topics),
            answers=self._answers,
            lost=frozenset(self._lost),
            retry=frozenset(self._retry),
            electing=self._electing,
            reassigning=self._reassigning,
            enabled=self._enabled,
            receipts_until_ms=self._receipts_until_ms,
        )
        self._topics = set()
        self._answers = {}
        self._lost = set()
        self._retry = set()
        self._receipts_until_ms = None
        return wish

    def _prune(self, delta: ClusterDelta) -> None:
        """Forget answers that the ledger has taken in, and what is not to be sent again."""
        for broker_id, orders in self._orders.items():
            for topic_id in delta.changed_deletions & orders.phases.keys():
                listed = orders.phases.pop(topic_id)
                left = {
                    number: phase
                    for number, phase in listed.items()
                    if phase is _Phase.SENT
                    # What was not STARTED before and is now, is to be ordered anew.
                    or all(
                        _is_started(image, Replica(broker_id, topic_id, number))
                        for image in (delta.before, delta.image)
                    )
                }
                if left:
                    orders.phases[topic_id] = left

    def _order(self, deletions: Iterable[DeletionImage], now_ms: int) -> tuple[DeletionOrder, ...]:
        """Return orders for what is STARTED and not ordered; begin pauses after failures."""
        image = self._image
        pending = [each for each in deletions if not each.is_finished]
        found: list[DeletionOrder] = []
        for broker_id, wanted in sorted(wanted_of(image, pending).items()):
            orders = self._of(broker_id)
            new = [each for each in wanted if orders.phase(each) is None]
            for replica in new:
                orders.set(replica, _Phase.SENT)
            found += orders_of(image, broker_id, new)
        for broker_id in {each for deletion in pending for each in _failed_on(deletion)}:
            if is_reachable(image, broker_id) and broker_id not in self._retry:
                _pause(self._of(broker_id), now_ms)
        return tuple(found)

    def _of(self, broker_id: int) -> _Orders:
        orders = self._orders.get(broker_id)
        if orders is None:
            epoch = self._image.brokers[broker_id].epoch
            orders = self._orders[broker_id] = _Orders(epoch)
        assert orders.epoch == self._image.brokers[broker_id].epoch
        return orders


def _is_started(image: ClusterImage, replica: Replica) -> bool:
    deletion = image.deletions.of(replica.topic_id)
    if deletion is None or deletion.is_finished:
        return False
    return deletion.standing(replica.broker_id, replica.partition) == STARTED


def _pause(orders: _Orders, now_ms: int) -> None:
    """Begin a pause, unless there is one."""
    if orders.due_ms is None:
        orders.due_ms = now_ms + min(RETRY_FIRST_MS << min(orders.failures, 20), RETRY_MS_MAX)
        orders.failures += 1


def _failed_on(deletion: DeletionImage) -> Iterable[int]:
    """Yield the brokers that could not delete some replica, though they were there."""
    for broker_id, rows in deletion.replicas.items():
        if any(
            standing.state is DeletionState.INELIGIBLE and standing.reason is not Reason.BROKER_DOWN
            for standing in rows
        ):
            yield broker_id
