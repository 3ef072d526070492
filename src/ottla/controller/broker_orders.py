"""Orders to brokers that are repeated until their result is recorded.

The owner derives what is to be ordered from stored facts, again and again, and `begin`s it; what is
under way already is left out. This tracker holds what need not survive a failover: which orders are
under way, and which brokers are backed off. A new controller begins with an empty one and orders
all that is stored as wanted; so an order must be idempotent.

    (none) --begin--> SENT --final answer--> ANSWERED --recorded--> (none)
                       |
                       +--in progress, dropped--> DELAYED --backoff over, broker changed--> (none)

A broker that registers with another epoch, or is unregistered, loses its SENT and DELAYED orders:
its previous process will never answer. ANSWERED ones stay until they are recorded. What becomes
(none) and is still wanted is begun by the owner again.

K is the key of what is ordered from a broker. At most one order is under way for a key: an answer
could not be distinguished from the answer to another order.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH
from ottla.controller.retry_queue import Pause

K = TypeVar("K", bound=Any)  # Hashed.


class OrderState(Enum):
    """The state of an order."""

    SENT = "sent"
    ANSWERED = "answered"
    """The broker has answered, and the result is not recorded yet."""
    DELAYED = "delayed"
    """It may be sent again after a backoff."""


class Retries(NamedTuple, Generic[K]):
    """What may be ordered again now.

    Fields: `delayed`: the orders that were DELAYED, by broker; `failed`: the brokers whose
            recorded failures are to be retried.
    """

    delayed: Mapping[int, Collection[K]]
    failed: Collection[int]


@dataclass(slots=True)
class _Broker(Generic[K]):
    """The orders to one registration of a broker."""

    epoch: int
    states: dict[K, OrderState] = field(default_factory=dict)
    delayed: Pause = field(default_factory=Pause)
    """Before DELAYED orders are sent again."""
    failed: Pause = field(default_factory=Pause)
    """Before recorded failures are retried. Successes meanwhile do not shorten it, or a broker with
    one failed log directory would be asked for what lies there with every other order."""

    def forget(self, *states: OrderState) -> list[K]:
        """Remove the orders in these states; return their keys."""
        keys = [key for key, state in self.states.items() if state in states]
        for key in keys:
            del self.states[key]
        return keys


class BrokerOrders(Generic[K]):
    """See the module. `in_progress`: the errors with which a broker asks to be asked again."""

    def __init__(self, *, in_progress: Collection[Error]) -> None:
        self._in_progress = in_progress
        self._brokers: dict[int, _Broker[K]] = {}

    def begin(self, broker_id: int, epoch: int, keys: Iterable[K]) -> list[K]:
        """Begin orders; return the keys to send: those without an order."""
        broker = self._broker(broker_id, epoch)
        new = [key for key in keys if key not in broker.states]
        broker.states.update(dict.fromkeys(new, OrderState.SENT))
        return new

    def failed(self, broker_id: int, epoch: int, *, now_ms: int) -> None:
        """Begin the backoff before a broker's recorded failures are retried, if it has not begun.

        It ends with one retry, so this is called again while failures are recorded.
        """
        self._broker(broker_id, epoch).failed.begin(now_ms)

    def answered(
        self, broker_id: int, epoch: int, results: Mapping[K, Error], *, now_ms: int
    ) -> dict[K, Error]:
        """Take an answer; return the final results to record, of orders that were SENT.

        Backoffs of what is in progress grow until the broker has done something.
        """
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            return {}
        awaited = {key: error for key, error in results.items() if _is_sent(broker, key)}
        if Error.NONE in awaited.values():
            broker.delayed.forget()
        final = {key: error for key, error in awaited.items() if error not in self._in_progress}
        broker.states.update(dict.fromkeys(final, OrderState.ANSWERED))
        self._delay(broker, awaited.keys() - final.keys(), now_ms)
        return final

    def dropped(self, broker_id: int, epoch: int, keys: Iterable[K], *, now_ms: int) -> None:
        """Take that orders will get no answer."""
        broker = self._brokers.get(broker_id)
        if broker is not None and broker.epoch == epoch:
            self._delay(broker, [key for key in keys if _is_sent(broker, key)], now_ms)

    def is_answered(self, broker_id: int, key: K) -> bool:
        """Tell whether the order for a key is answered and not recorded."""
        return self._state(broker_id, key) is OrderState.ANSWERED

    def recorded(self, broker_id: int, key: K) -> None:
        """Remove the order for a key if it is ANSWERED: its result is recorded, or not needed."""
        if self.is_answered(broker_id, key):
            del self._brokers[broker_id].states[key]

    def withdraw(self, broker_id: int, key: K) -> None:
        """Remove the order for a key unless it is SENT: what is wanted has changed."""
        if self._state(broker_id, key) in (OrderState.ANSWERED, OrderState.DELAYED):
            del self._brokers[broker_id].states[key]

    def broker_changed(self, broker_id: int, epoch: int) -> None:
        """Take a broker's registration. `epoch`: NO_EPOCH = it has none."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            return
        if broker.epoch != epoch:
            broker.epoch = epoch
            broker.forget(OrderState.SENT)
            broker.delayed, broker.failed = Pause(), Pause()
        broker.forget(OrderState.DELAYED)  # It may be able to now.
        if epoch == NO_EPOCH and not broker.states:
            del self._brokers[broker_id]

    def end_backoffs(self, now_ms: int) -> Retries[K]:
        """End the backoffs that are over; return what may be ordered again."""
        brokers = self._brokers.items()
        return Retries(
            delayed={
                broker_id: broker.forget(OrderState.DELAYED)
                for broker_id, broker in brokers
                if broker.delayed.end(now_ms)
            },
            failed={broker_id for broker_id, broker in brokers if broker.failed.end(now_ms)},
        )

    @property
    def due_ms(self) -> int | None:
        """Return when the first backoff ends, None = there is none."""
        brokers = self._brokers.values()
        due = (each.due_ms for broker in brokers for each in (broker.delayed, broker.failed))
        return min((each for each in due if each is not None), default=None)

    def __iter__(self) -> Iterator[tuple[int, int, K, OrderState]]:
        """Yield broker, epoch, key and state of all orders."""
        for broker_id, broker in self._brokers.items():
            for key, state in broker.states.items():
                yield broker_id, broker.epoch, key, state

    def _broker(self, broker_id: int, epoch: int) -> _Broker[K]:
        assert epoch != NO_EPOCH, "an order to a broker that is not registered"
        broker = self._brokers.get(broker_id)
        if broker is None:
            broker = self._brokers[broker_id] = _Broker(epoch)
        assert broker.epoch == epoch, "an order to a registration that `broker_changed` did not see"
        return broker

    def _state(self, broker_id: int, key: K) -> OrderState | None:
        broker = self._brokers.get(broker_id)
        return None if broker is None else broker.states.get(key)

    def _delay(self, broker: _Broker[K], keys: Collection[K], now_ms: int) -> None:
        if keys:
            broker.states.update(dict.fromkeys(keys, OrderState.DELAYED))
            broker.delayed.begin(now_ms)


def _is_sent(broker: _Broker[K], key: K) -> bool:
    return broker.states.get(key) is OrderState.SENT
