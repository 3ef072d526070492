"""A leader's state of each follower: its log end, and when it was last caught up.

A follower's fetch offset is its log end. It was last caught up at the latest time at which it had
all that the leader had then: a fetch at the leader's log end sets that to now; a fetch at what was
the log end at its previous fetch sets it to the time of that one. So a follower that is always a
little behind a busy leader still counts as caught up.

Source: Kafka's Replica.scala; KIP-903 (broker epochs).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, NO_OFFSET
from ottla.metadata.brokers import BrokerImage

if TYPE_CHECKING:
    from ottla.broker.fetch.fetch_sessions import FetchSession

NEVER_MS = -(2**62)
"""Monotonic; so long ago that it is beyond any lag limit."""


@dataclass(slots=True, kw_only=True)
class FollowerState:
    """One follower, as its leader knows it; times are monotonic.

    Fields: `log_end_offset`, `log_start_offset`: -1 = it has not fetched from this leader yet.
            `leader_end_at_last_fetch`: the leader's log end then. `session`: of its last fetch.
            `broker_epoch`: the newest of its fetches; None = there was none, -1 = they had none.
            `refused`: the controller has rejected it in the ISR since its last fetch.
    """

    log_end_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    last_fetch_ms: int = NEVER_MS
    last_caught_up_ms: int = NEVER_MS
    leader_end_at_last_fetch: int = NO_OFFSET
    broker_epoch: int | None = None
    session: "FetchSession | None" = None
    refused: bool = False

    def fetched(
        self,
        fetch_offset: int,
        *,
        log_start_offset: int,
        leader_end: int,
        broker_epoch: int,
        now_ms: int,
    ) -> None:
        """Note a fetch that agrees with the leader's log."""
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif fetch_offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_last_fetch = max(leader_end, self.leader_end_at_last_fetch)
        self.last_fetch_ms = now_ms
        if not self.has_newer_epoch(broker_epoch):
            self.broker_epoch = broker_epoch
        self.refused = False

    def has_newer_epoch(self, broker_epoch: int) -> bool:
        """Tell whether it has fetched under a newer registration than that of `broker_epoch`."""
        return self.broker_epoch is not None and self.broker_epoch > broker_epoch

    def begin_epoch(self, *, leader_end: int, now_ms: int) -> None:
        """Begin another epoch of the same leader, keeping what is known of an in-sync follower."""
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = self.last_caught_up_ms = now_ms

    def is_caught_up(self, leader_end: int, *, now_ms: int, lag_time_max_ms: int) -> bool:
        """Tell whether it has all, or had all within the last `lag_time_max_ms`."""
        return (
            self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )


def check_broker_epoch(
    broker: BrokerImage | None, follower: FollowerState, broker_epoch: int
) -> None:
    """Raise ApiError unless a fetch carries the broker epoch that is registered.

    A fetch of an older epoch says nothing of what the broker has now. One of a newer epoch, which
    this leader's metadata does not have yet, must be retried, unlike in Kafka: with that
    registration the broker left the ISR, and until the leader knows it, records acknowledged with
    this follower would be on fewer in-sync replicas than the leader believes.

    Where the metadata has no broker epochs (ZooKeeper), an epoch is older if the follower has
    fetched under a newer one. Without this check no other replica could join the ISR:

    1. A fetch of broker 3 is in flight when its process ends. The next process registers under
       another broker epoch, fetches, and joins the ISR.
    2. The fetch arrives. From now on the leader takes its epoch for that of broker 3.
    3. Broker 1 is to join. The controller rejects the ISR, which has the wrong epoch of broker 3.
    """
    if broker_epoch == NO_EPOCH:
        return
    if follower.has_newer_epoch(broker_epoch):
        raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
    if broker is not None and broker.epoch == NO_EPOCH:
        return
    if broker is None or broker_epoch > broker.epoch:
        raise ApiError(Error.UNKNOWN_LEADER_EPOCH)
    if broker_epoch < broker.epoch:
        raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)


def may_join(broker: BrokerImage | None, follower: FollowerState) -> bool:
    """Tell whether the controller would accept a broker in the ISR (KIP-841, KIP-903).

    Its last fetch must carry the registered broker epoch: a follower that restarted with less than
    it had must fetch under its new registration first. One that was refused must fetch again, since
    over ZooKeeper the leader does not know the registered epochs: proposed with each other
    follower, it would keep all of them out of the ISR.
    """
    broker_epoch = follower.broker_epoch
    return (
        broker is not None
        and broker.active
        and broker_epoch is not None
        and not follower.refused
        and (broker.epoch == NO_EPOCH or broker_epoch in (NO_EPOCH, broker.epoch))
    )
