"""Every order ends acknowledged or dropped, or is due for a retry; none is lost, or out twice.

Method: an owner that stores what it wants and the results, as the deletion ledger does, and
brokers whose requests are answered in order. Hypothesis draws what happens: answers of each kind,
requests that are dropped or lost with the broker's process, failovers, time. The invariants are
checked after each event; in the end everything works again and all that was wanted must be done.
"""

from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH
from ottla.controller.broker_orders import BrokerOrders, OrderState
from ottla.controller.retry_queue import RETRY_FIRST_MS, RETRY_MS_MAX
from tests.drawn import examples

IN_PROGRESS = Error.OPERATION_NOT_ATTEMPTED
FAILED = Error.KAFKA_STORAGE_ERROR
BROKERS = (1, 2)
KEYS = ("a", "b", "c")
ANSWERS = (Error.NONE, IN_PROGRESS, FAILED)


def tracker() -> BrokerOrders[str]:
    return BrokerOrders(in_progress={IN_PROGRESS})


def states(orders: BrokerOrders[str]) -> dict[tuple[int, str], OrderState]:
    return {(broker_id, key): state for broker_id, _, key, state in orders}


class Request(NamedTuple):
    """A request in a broker's channel."""

    epoch: int
    keys: tuple[str, ...]


class Owner(RuleBasedStateMachine):
    """See the module. `stored`: the last recorded result of what is wanted, None = none yet."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.last_epoch = 100
        self.epochs = dict.fromkeys(BROKERS, NO_EPOCH)
        self.requests: dict[int, list[Request]] = {each: [] for each in BROKERS}
        self.stored: dict[tuple[int, str], Error | None] = {}
        self.unrecorded: dict[tuple[int, str], Error] = {}
        self.orders = tracker()
        for broker_id in BROKERS:
            self.start(broker_id)

    # -- the owner -----------------------------------------------------------------------------

    def order(self, *, retried: tuple[int, ...] = ()) -> None:
        """Order what has no result, and on the brokers `retried` what failed."""
        for broker_id, epoch in self.epochs.items():
            if epoch == NO_EPOCH:
                continue
            results = {key: self.stored.get((broker_id, key), Error.NONE) for key in KEYS}
            wanted = [
                key
                for key, result in results.items()
                if result is None or (result is FAILED and broker_id in retried)
            ]
            if keys := self.orders.begin(broker_id, epoch, wanted):
                self.requests[broker_id].append(Request(epoch, tuple(keys)))
            if FAILED in results.values():
                self.orders.failed(broker_id, epoch, now_ms=self.now_ms)

    @rule(broker_id=st.sampled_from(BROKERS), key=st.sampled_from(KEYS))
    def want(self, broker_id: int, key: str) -> None:
        self.stored.setdefault((broker_id, key), None)
        self.order()

    @precondition(lambda self: self.unrecorded)
    @rule()
    def record(self) -> None:
        recorded, self.unrecorded = self.unrecorded, {}
        for (broker_id, key), error in recorded.items():
            self.stored[broker_id, key] = error
            self.orders.recorded(broker_id, key)
        self.order()

    @rule()
    def fail_over(self) -> None:
        """A new controller knows what is stored; its requests fence those of the last one."""
        self.requests = {each: [] for each in BROKERS}
        self.unrecorded = {}
        self.orders = tracker()
        self.order(retried=BROKERS)

    @rule()
    def pass_time(self) -> None:
        due_ms = self.orders.due_ms
        if due_ms is None:
            return
        assert due_ms - self.now_ms <= RETRY_MS_MAX
        self.now_ms = max(self.now_ms, due_ms)
        retries = self.orders.end_backoffs(self.now_ms)
        self.order(retried=(*retries.delayed, *retries.failed))

    # -- the brokers ---------------------------------------------------------------------------

    @rule(broker_id=st.sampled_from(BROKERS), error=st.sampled_from(ANSWERS))
    def answer(self, broker_id: int, error: Error) -> None:
        if not self.requests[broker_id]:
            return
        request = self.requests[broker_id].pop(0)
        results = dict.fromkeys(request.keys, error)
        final = self.orders.answered(broker_id, request.epoch, results, now_ms=self.now_ms)
        assert set(final) in ({*request.keys}, set())
        assert bool(final) == (error is not IN_PROGRESS)
        self.unrecorded |= {(broker_id, key): each for key, each in final.items()}
        again = self.orders.answered(broker_id, request.epoch, results, now_ms=self.now_ms)
        assert not again, "an answer counts once"

    @rule(broker_id=st.sampled_from(BROKERS))
    def drop(self, broker_id: int) -> None:
        if self.requests[broker_id]:
            epoch, keys = self.requests[broker_id].pop(0)
            self.orders.dropped(broker_id, epoch, keys, now_ms=self.now_ms)

    @rule(broker_id=st.sampled_from(BROKERS))
    def start(self, broker_id: int) -> None:
        """Start, or restart; what was sent to the last process is lost with it."""
        self.last_epoch += 1
        self.epochs[broker_id] = self.last_epoch
        late, self.requests[broker_id] = self.requests[broker_id], []
        self.orders.broker_changed(broker_id, self.last_epoch)
        self.order(retried=(broker_id,))
        for epoch, keys in late:
            done = dict.fromkeys(keys, Error.NONE)
            assert not self.orders.answered(broker_id, epoch, done, now_ms=self.now_ms)
            self.orders.dropped(broker_id, epoch, keys, now_ms=self.now_ms)

    @rule(broker_id=st.sampled_from(BROKERS))
    def stop(self, broker_id: int) -> None:
        self.epochs[broker_id] = NO_EPOCH
        self.requests[broker_id] = []
        self.orders.broker_changed(broker_id, NO_EPOCH)

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def none_is_under_way_twice(self) -> None:
        for requests in self.requests.values():
            keys = [key for request in requests for key in request.keys]
            assert len(keys) == len(set(keys))

    @invariant()
    def everything_is_done_or_under_way_or_due(self) -> None:
        found = states(self.orders)
        for broker_id, key in self.stored:
            is_sent = any(key in request.keys for request in self.requests[broker_id])
            state, result = found.get((broker_id, key)), self.stored[broker_id, key]
            assert is_sent == (state is OrderState.SENT)
            assert ((broker_id, key) in self.unrecorded) == (state is OrderState.ANSWERED)
            if result is Error.NONE:
                assert state is None, "what is done is not ordered"
            elif self.epochs[broker_id] == NO_EPOCH:
                assert state in (None, OrderState.ANSWERED)
            elif state is OrderState.DELAYED or (state is None and result is FAILED):
                assert self.orders.due_ms is not None
            else:
                assert state is not None, "nobody would ever order it"

    def teardown(self) -> None:
        for broker_id in BROKERS:
            if self.epochs[broker_id] == NO_EPOCH:
                self.start(broker_id)
        for _ in range(6):
            for broker_id in BROKERS:
                while self.requests[broker_id]:
                    self.answer(broker_id, Error.NONE)
            self.record()
            self.pass_time()
        assert set(self.stored.values()) <= {Error.NONE}
        assert not list(self.orders)


TestOwner = Owner.TestCase
TestOwner.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)


def test_what_is_in_progress_is_asked_again_and_less_and_less_often() -> None:
    orders = tracker()
    assert orders.begin(1, 5, ["a"]) == ["a"]
    now_ms, pauses = 0, []
    for _ in range(9):
        assert orders.answered(1, 5, {"a": IN_PROGRESS}, now_ms=now_ms) == {}
        assert orders.due_ms is not None
        pauses.append(orders.due_ms - now_ms)
        assert orders.begin(1, 5, ["a"]) == [], "it has its backoff"
        now_ms = orders.due_ms
        assert orders.end_backoffs(now_ms - 1).delayed == {}
        assert orders.end_backoffs(now_ms).delayed == {1: ["a"]}
        assert orders.begin(1, 5, ["a"]) == ["a"]
    assert pauses[:3] == [RETRY_FIRST_MS, 2 * RETRY_FIRST_MS, 4 * RETRY_FIRST_MS]
    assert pauses[-1] == RETRY_MS_MAX
    assert orders.answered(1, 5, {"a": Error.NONE}, now_ms=now_ms) == {"a": Error.NONE}
    orders.recorded(1, "a")
    orders.begin(1, 5, ["b"])
    orders.answered(1, 5, {"b": IN_PROGRESS}, now_ms=now_ms)
    assert orders.due_ms == now_ms + RETRY_FIRST_MS, "the broker has done something meanwhile"


def test_the_backoff_of_failures_is_not_that_of_what_is_in_progress() -> None:
    orders = tracker()
    for _ in range(4):
        orders.failed(1, 5, now_ms=0)
        assert orders.due_ms is not None
        orders.end_backoffs(orders.due_ms)
    orders.failed(1, 5, now_ms=0)
    orders.begin(1, 5, ["a"])
    orders.answered(1, 5, {"a": IN_PROGRESS}, now_ms=0)
    assert orders.due_ms == RETRY_FIRST_MS
    retries = orders.end_backoffs(RETRY_FIRST_MS)
    assert (retries.delayed, retries.failed) == ({1: ["a"]}, set())
    assert orders.due_ms == 16 * RETRY_FIRST_MS


def test_an_answer_is_kept_over_a_restart_until_it_is_recorded() -> None:
    """A second order could be out when the first one's answer ends what it was for."""
    orders = tracker()
    orders.begin(1, 5, ["a", "b"])
    orders.answered(1, 5, {"a": Error.NONE}, now_ms=0)
    for epoch in (NO_EPOCH, 6):
        orders.broker_changed(1, epoch)
        assert states(orders) == {(1, "a"): OrderState.ANSWERED}
    assert orders.begin(1, 6, ["a", "b"]) == ["b"]


def test_a_broker_that_restarted_is_not_backed_off_for_its_last_process() -> None:
    orders = tracker()
    for _ in range(4):
        orders.begin(1, 5, ["a"])
        orders.dropped(1, 5, ["a"], now_ms=0)
        assert orders.due_ms is not None
        orders.end_backoffs(orders.due_ms)
    orders.broker_changed(1, 6)
    assert orders.due_ms is None
    orders.begin(1, 6, ["a"])
    orders.dropped(1, 6, ["a"], now_ms=0)
    assert orders.due_ms == RETRY_FIRST_MS


@pytest.mark.parametrize("state", OrderState)
def test_what_is_withdrawn_may_be_ordered_anew_unless_an_answer_is_awaited(
    state: OrderState,
) -> None:
    orders = tracker()
    orders.begin(1, 5, ["a"])
    if state is OrderState.ANSWERED:
        orders.answered(1, 5, {"a": Error.NONE}, now_ms=0)
    elif state is OrderState.DELAYED:
        orders.dropped(1, 5, ["a"], now_ms=0)
    assert states(orders) == {(1, "a"): state}
    orders.withdraw(1, "a")
    assert orders.begin(1, 5, ["a"]) == ([] if state is OrderState.SENT else ["a"])


def test_nothing_is_kept_of_a_broker_that_was_unregistered() -> None:
    orders = tracker()
    orders.begin(1, 5, ["a", "b"])
    orders.dropped(1, 5, ["a"], now_ms=0)
    orders.failed(1, 5, now_ms=0)
    orders.broker_changed(1, NO_EPOCH)
    assert orders.due_ms is None
    assert not list(orders)
    assert orders.begin(1, 7, ["a", "b"]) == ["a", "b"]
