"""What a leader knows of each follower: how far it is, when it was last at the end.

A follower's fetch says how far its log reaches. It is caught up as of the last moment at which
it had all that the leader had then: at a fetch that asks for the leader's end, that is now; at
one that asks for what was the end at its fetch before, it is the time of that one. So a
follower that is always a little behind a busy leader still counts as caught up.

Source: Kafka's Replica.scala; KIP-903 (broker epochs).
"""

from dataclasses import dataclass

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_EPOCH, NO_OFFSET
from ottla.metadata.brokers import BrokerImage

NEVER_MS = -(2**62)
"""Monotonic: long before any clock began, so that no lag limit is ever kept since then."""


@dataclass(slots=True, kw_only=True)
class FollowerState:
    """One follower, seen from the leader; times are monotonic.

    Fields: `log_end_offset`, `log_start_offset`: -1 = it has not fetched from this leader yet.
            `leader_end_at_last_fetch`: where the leader's log ended then. `broker_epoch`: of its
            last fetch; None = none came, -1 = the fetch did not say.
    """

    log_end_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    last_fetch_ms: int = NEVER_MS
    last_caught_up_ms: int = NEVER_MS
    leader_end_at_last_fetch: int = NO_OFFSET
    broker_epoch: int | None = None

    def fetched(
        self,
        fetch_offset: int,
        *,
        log_start_offset: int,
        leader_end: int,
        broker_epoch: int,
        now_ms: int,
    ) -> None:
        """Note a fetch that was found to fit the leader's log."""
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif fetch_offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_last_fetch = max(leader_end, self.leader_end_at_last_fetch)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def begin_epoch(self, *, leader_end: int, now_ms: int) -> None:
        """Begin another epoch of the same leader: how far an in-sync follower is stays known."""
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = self.last_caught_up_ms = now_ms

    def is_caught_up(self, leader_end: int, *, now_ms: int, lag_time_max_ms: int) -> bool:
        """Tell whether it has all, or had all not longer ago than a follower may lag."""
        return (
            self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )


def check_broker_epoch(broker: BrokerImage | None, broker_epoch: int) -> None:
    """Raise ApiError unless a fetch comes from the life of its broker that is registered.

    One of a life that is over says nothing of what the broker has now. One of a life that this
    leader has not heard of yet must wait, other than in Kafka: with that registration the
    broker left the in-sync replicas, and until the leader hears of it, what it acknowledged
    with the newcomer's help would be with fewer in-sync replicas than it believes. Where the
    metadata does not tell epochs (ZooKeeper's) all lives are alike.
    """
    if broker_epoch == NO_EPOCH or (broker is not None and broker.epoch == NO_EPOCH):
        return
    if broker is None or broker_epoch > broker.epoch:
        raise ApiError(Error.UNKNOWN_LEADER_EPOCH)
    if broker_epoch < broker.epoch:
        raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)


def may_join(broker: BrokerImage | None, broker_epoch: int | None) -> bool:
    """Tell whether the controller would take a broker into the in-sync replicas (KIP-841, 903).

    The epoch of its last fetch must be the one it is registered with: a follower that came back
    with less than it had must fetch in its new life first.
    """
    return (
        broker is not None
        and broker.active
        and broker_epoch is not None
        and (broker.epoch == NO_EPOCH or broker_epoch in (NO_EPOCH, broker.epoch))
    )
