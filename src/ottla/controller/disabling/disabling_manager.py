"""The disabling manager: the controller's soft state of topics that are DISABLING.

`step(event) -> Ready`, as the deletion manager has it. It holds nothing that must survive a
failover: the acknowledgements so far, which orders are under way (`controller.broker_orders`), and
backoffs. A new controller begins with what is DISABLING in the image, and asks all brokers again; a
broker answers the same for what it has done already.

    events                            DisablingManager              Ready
    elected, committed delta      --> +-----------------+ --> work: `finish_disabling` of topics
    orders answered, dropped      --> | Acknowledgements|           whose acknowledgements are there
    work decided, refused         --> | BrokerOrders    | --> orders, to the brokers' channels
    time passed                   --> +-----------------+ --> wake at

A turn of the loop looks at a limited number of replicas, both to check and to decide: `wake at` is
now where there is more.

`now_ms` is monotonic.
Source: KIP-950's draft, which refers to the way topics are deleted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.controller.broker_orders import BrokerOrders
from ottla.controller.disabling.acknowledgements import (
    NO_BROKER,
    Acknowledgement,
    Acknowledgements,
    Given,
    Reason,
    disabling_state,
    missing,
)
from ottla.controller.disabling.disabling_orders import (
    NOT_YET,
    DisabledReplica,
    DisablingOrder,
    Result,
    orders_of,
)
from ottla.controller.disabling.topic_checks import REPLICAS_PER_STEP_MAX, TopicChecks
from ottla.controller.manager_events import (
    Committed,
    Elected,
    Ready,
    TimePassed,
    WorkDecided,
    WorkRefused,
)
from ottla.controller.retry_queue import RetryQueue
from ottla.controller.step import Decision, Step
from ottla.controller.tiering import disabled
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Record
from ottla.metadata.tiering import tiering_record

FULL_CHECK_MS: Final = 300_000
"""How often all topics that are DISABLING are checked without an event."""

Work = Mapping[Uuid, Given]
"""What is to be decided: the topics that seem to be acknowledged, with what rests on."""


@dataclass(frozen=True, slots=True)
class DisablingAnswered:
    """A broker's response to an order."""

    broker_id: int
    broker_epoch: int
    results: Mapping[DisabledReplica, Result]


@dataclass(frozen=True, slots=True)
class DisablingDropped:
    """An order will have no response."""

    broker_id: int
    broker_epoch: int
    replicas: tuple[DisabledReplica, ...]


Event = (
    Elected
    | Committed
    | DisablingAnswered
    | DisablingDropped
    | WorkDecided
    | WorkRefused
    | TimePassed
)


def finish_disabling(image: ClusterImage, work: Work) -> Decision[tuple[Uuid, ...]]:
    """Return the DISABLED state of the topics that have all acknowledgements in this image.

    Another leader or broker since then needs another acknowledgement. The reply: these topics.
    """
    records: list[Record] = []
    finished: list[Uuid] = []
    for topic_id, given in sorted(work.items()):
        tiering = disabling_state(image, topic_id)
        if tiering is None or tiering.tiered_epoch != given.tiered_epoch:
            continue
        if next(missing(image, tiering, given.acknowledgements), None) is None:
            records.append(tiering_record(disabled(tiering)))
            finished.append(topic_id)
    return Decision(Step(tuple(records), atomic=False), tuple(finished))


class DisablingManager:
    """One term's. The first event is `Elected`. `acknowledgements`: shared with those who read."""

    def __init__(self, acknowledgements: Acknowledgements) -> None:
        self._acknowledgements = acknowledgements
        self._image = EMPTY
        self._topics: set[Uuid] = set()
        """That are DISABLING."""
        self._checks = TopicChecks()
        self._is_missing = False
        """Whether the topic that is being checked lacks an acknowledgement, as far as it is."""
        self._orders: BrokerOrders[DisabledReplica] = BrokerOrders(
            in_progress=frozenset(Error) - {Error.NONE}
        )
        self._awaited: Counter[Uuid] = Counter()
        """By topic, how many requests have not ended: a large topic is checked after the last."""
        self._complete: RetryQueue[Uuid] = RetryQueue()
        self._taken: tuple[Uuid, ...] = ()
        self._is_deciding = False
        self._next_full_check_ms = 0

    def step(
        self, event: Event, *, now_ms: int, is_idle: bool = True
    ) -> Ready[DisablingOrder, Work]:
        """Handle one event. `is_idle`: whether the caller would decide at once."""
        handler: Callable[[DisablingManager, Any, int], Iterable[Uuid]]
        handler = _HANDLERS[type(event)]
        self._checks.add(handler(self, event, now_ms))
        orders = self._check()
        work = self._take_work() if is_idle else None
        is_due = self._has_work or self._checks.has_any
        wake_at_ms = now_ms if is_due else self._next_due_ms
        return Ready(wake_at_ms, orders, work)

    # -- events: each returns the topics to check ----------------------------------------------

    def _elected(self, event: Elected, now_ms: int) -> Iterable[Uuid]:
        assert self._image is EMPTY, "a manager is of one term"
        self._image = event.image
        self._acknowledgements.clear()
        self._next_full_check_ms = now_ms + FULL_CHECK_MS
        self._follow_states(event.image.tiering)
        return set(self._topics)

    def _committed(self, event: Committed, now_ms: int) -> Iterable[Uuid]:
        delta = event.delta
        self._image = delta.image
        for broker_id in delta.changed_brokers:
            broker = delta.image.brokers.get(broker_id)
            self._orders.broker_changed(broker_id, NO_EPOCH if broker is None else broker.epoch)
        self._follow_states({*delta.changed_tiering, *delta.changed_deletions})
        if delta.changed_brokers:
            return set(self._topics)
        changed = {*delta.changed_tiering, *delta.changed_deletions, *delta.changed_topics}
        return changed & self._topics

    def _follow_states(self, changed: Iterable[Uuid]) -> None:
        for topic_id in changed:
            if disabling_state(self._image, topic_id) is None:
                self._topics.discard(topic_id)
            else:
                self._topics.add(topic_id)
        self._acknowledgements.retain(self._topics)

    def _answered(self, event: DisablingAnswered, now_ms: int) -> Iterable[Uuid]:
        """Take the acknowledgements of an answer; what is none is ordered again later."""
        judged = {
            replica: self._judge(event.broker_id, event.broker_epoch, replica, result)
            for replica, result in event.results.items()
        }
        final = self._orders.answered(event.broker_id, event.broker_epoch, judged, now_ms=now_ms)
        for replica in final:
            # What was acknowledged is known; an acknowledgement that is not enough any more is
            # followed by another order.
            self._orders.recorded(event.broker_id, replica)
        return self._ended(event.results)

    def _judge(
        self, broker_id: int, broker_epoch: int, replica: DisabledReplica, result: Result
    ) -> Error:
        """Take the result of one replica; return it as its order ends."""
        tiering = disabling_state(self._image, replica.topic_id)
        if tiering is None or tiering.tiered_epoch != replica.tiered_epoch:
            return Error.NONE  # Nothing of it is needed any more.
        topic = self._image.topics.by_id(replica.topic_id)
        partition = None if topic is None else topic.partitions.get(replica.partition)
        broker = self._image.brokers.get(broker_id)
        if partition is None or broker is None or broker.epoch != broker_epoch:
            return Error.NONE
        key = replica.partition, broker_id
        error = result.error
        is_leader = broker_id == partition.leader
        if error is Error.UNKNOWN_TOPIC_ID and not is_leader:
            error = Error.NONE  # It has nothing of the topic, so it copies nothing.
            result = Result(error)
        elif error is Error.NONE and (
            result.is_leader is not is_leader
            or result.leader_epoch not in (NO_EPOCH, replica.leader_epoch)
            or (is_leader and result.leader_epoch == NO_EPOCH)
        ):
            error = NOT_YET  # One of the two has not learned of the election yet.
        if error is not Error.NONE:
            self._acknowledgements.fail(tiering, key, error)
            return error
        complied = Acknowledgement(broker_epoch, replica.leader_epoch, is_leader)
        self._acknowledgements.add(tiering, key, complied)
        return Error.NONE

    def _dropped(self, event: DisablingDropped, now_ms: int) -> Iterable[Uuid]:
        self._orders.dropped(event.broker_id, event.broker_epoch, event.replicas, now_ms=now_ms)
        return self._ended(event.replicas)

    def _ended(self, replicas: Iterable[DisabledReplica]) -> set[Uuid]:
        """Take that a request has ended; return its topics without another one."""
        topic_ids = {each.topic_id for each in replicas}
        self._awaited.subtract(topic_ids)
        last = {each for each in topic_ids if self._awaited[each] <= 0}
        for topic_id in last:
            del self._awaited[topic_id]
        return last & self._topics

    def _time_passed(self, event: TimePassed, now_ms: int) -> Iterable[Uuid]:
        """End backoffs that are over; at intervals check all."""
        self._complete.end_pauses(now_ms)
        retries = self._orders.end_backoffs(now_ms)
        if now_ms >= self._next_full_check_ms:
            self._next_full_check_ms = now_ms + FULL_CHECK_MS
            return set(self._topics)
        unsent = {each.topic_id for keys in retries.delayed.values() for each in keys}
        return unsent & self._topics

    # -- decisions -----------------------------------------------------------------------------

    @property
    def _has_work(self) -> bool:
        return self._complete.has_any and not self._is_deciding

    def _take_work(self) -> Work | None:
        if not self._has_work:
            return None
        self._is_deciding = True
        self._taken = tuple(self._complete.take(self._count_decided))
        found = ((each, disabling_state(self._image, each)) for each in self._taken)
        return {
            topic_id: self._acknowledgements.given(tiering)
            for topic_id, tiering in found
            if tiering
        }

    def _count_decided(self, topic_ids: Sequence[Uuid]) -> int:
        """Return how many of the first topics to decide on together: one at least."""
        left = REPLICAS_PER_STEP_MAX
        for number, topic_id in enumerate(topic_ids):
            topic = self._image.topics.by_id(topic_id)
            partitions = () if topic is None else topic.partitions.values()
            left -= sum(len(each.replicas) for each in partitions)
            if left < 0:
                return max(1, number)
        return len(topic_ids)

    def _decided(self, _event: WorkDecided, _now_ms: int) -> Iterable[Uuid]:
        self._is_deciding = False
        self._complete.done(self._taken)
        self._taken = ()
        return ()  # What was not finished waits for a change that is to be committed.

    def _refused(self, _event: WorkRefused, now_ms: int) -> Iterable[Uuid]:
        self._is_deciding = False
        taken, self._taken = self._taken, ()
        self._complete.failed(taken, now_ms)
        return ()

    @property
    def _next_due_ms(self) -> int | None:
        full_check_ms = self._next_full_check_ms if self._topics else None
        due = (self._complete.due_ms, self._orders.due_ms, full_check_ms)
        return min((each for each in due if each is not None), default=None)

    # -- orders --------------------------------------------------------------------------------

    def _check(self) -> tuple[DisablingOrder, ...]:
        """Return orders for what is missing and not ordered; note topics where nothing is."""
        wanted: dict[int, list[DisabledReplica]] = {}
        for part in self._checks.take(self._image, self._topics):
            tiering = disabling_state(self._image, part.topic_id)
            assert tiering is not None, "a topic that is not DISABLING was kept"
            if part.is_first:
                self._is_missing = False
            for each in self._acknowledgements.missing(self._image, tiering, part.partitions):
                self._is_missing = True
                if each.broker_id == NO_BROKER or each.reason is Reason.OLDER_VERSION:
                    continue
                wanted.setdefault(each.broker_id, []).append(
                    DisabledReplica(
                        part.topic_id, tiering.tiered_epoch, each.partition, each.leader_epoch
                    )
                )
            if part.is_last and not self._is_missing:
                self._complete.add((part.topic_id,))
        orders: list[DisablingOrder] = []
        for broker_id, replicas in sorted(wanted.items()):
            epoch = self._image.brokers[broker_id].epoch
            new = self._orders.begin(broker_id, epoch, replicas)
            orders += orders_of(self._image, broker_id, new)
        for order in orders:
            self._awaited.update({each.topic_id for each in order.replicas})
        return tuple(orders)


_HANDLERS: Final[Mapping[type, Callable[..., Iterable[Uuid]]]] = {
    Elected: DisablingManager._elected,
    Committed: DisablingManager._committed,
    DisablingAnswered: DisablingManager._answered,
    DisablingDropped: DisablingManager._dropped,
    WorkDecided: DisablingManager._decided,
    WorkRefused: DisablingManager._refused,
    TimePassed: DisablingManager._time_passed,
}
