"""A leader knows when a follower was last caught up, and who may join the in-sync replicas.

Method: stories of appends and fetches, made up by hypothesis, against the definition: the last
moment t at which the leader's log ended where the newest fetch asks for, or before.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.broker.replication.followers import NEVER_MS, FollowerState, check_broker_epoch, may_join
from ottla.metadata.brokers import BrokerImage


def fetched(follower: FollowerState, offset: int, leader_end: int, now_ms: int) -> None:
    follower.fetched(
        offset, log_start_offset=0, leader_end=leader_end, broker_epoch=1, now_ms=now_ms
    )


def broker(*, epoch: int = 5, fenced: bool = False, leaving: bool = False) -> BrokerImage:
    return BrokerImage(
        id=2,
        epoch=epoch,
        incarnation_id=Uuid(bytes(16)),
        endpoints=(),
        fenced=fenced,
        in_controlled_shutdown=leaving,
    )


class TestCatchingUp:
    """`last_caught_up_ms`."""

    def test_a_fetch_of_the_end_is_caught_up_now(self) -> None:
        follower = FollowerState()
        fetched(follower, 7, 7, 100)
        assert follower.last_caught_up_ms == 100

    def test_a_fetch_of_the_end_before_is_caught_up_as_of_the_fetch_before(self) -> None:
        follower = FollowerState()
        fetched(follower, 7, 9, 100)
        assert follower.last_caught_up_ms == NEVER_MS
        fetched(follower, 9, 12, 200)
        assert follower.last_caught_up_ms == 100

    def test_one_that_does_not_get_on_falls_behind(self) -> None:
        follower = FollowerState()
        fetched(follower, 5, 5, 100)
        for now_ms in range(200, 1_000, 100):
            fetched(follower, 5, 6, now_ms)
        assert follower.last_caught_up_ms == 100
        assert follower.is_caught_up(6, now_ms=350, lag_time_max_ms=250)
        assert not follower.is_caught_up(6, now_ms=351, lag_time_max_ms=250)

    def test_one_at_the_end_is_caught_up_whenever_it_fetched(self) -> None:
        follower = FollowerState()
        fetched(follower, 5, 5, 100)
        assert follower.is_caught_up(5, now_ms=10**9, lag_time_max_ms=1)

    @given(
        story=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 9))),
    )
    def test_the_caught_up_time_is_never_too_late(self, story: list[tuple[int, int, int]]) -> None:
        follower = FollowerState()
        ends = [(0, 0)]  # (since when, the leader's end)
        now_ms, offset = 0, 0
        for appended, behind, passed_ms in story:
            now_ms += passed_ms
            end = ends[-1][1] + appended
            ends.append((now_ms, end))
            offset = max(offset, end - behind)
            fetched(follower, offset, end, now_ms)
            later = [since for since, end in ends if end > offset]
            was_ms = min(later) if later else now_ms
            assert follower.last_caught_up_ms <= was_ms

    def test_another_epoch_of_the_leader_keeps_how_far_it_is(self) -> None:
        follower = FollowerState()
        fetched(follower, 5, 9, 100)
        follower.begin_epoch(leader_end=9, now_ms=500)
        assert (follower.log_end_offset, follower.last_caught_up_ms) == (5, 500)


class TestJoining:
    """`may_join` and `check_broker_epoch`: the broker must be the one that fetched, and stay."""

    @pytest.mark.parametrize(
        ("image", "epoch", "may"),
        [
            (broker(), 5, True),
            (broker(), -1, True),  # Of a request that cannot say it.
            (broker(), 4, False),
            (broker(), 6, False),  # Registered since; the metadata will say so.
            (broker(), None, False),
            (broker(fenced=True), 5, False),
            (broker(leaving=True), 5, False),
            (None, 5, False),
        ],
    )
    def test_who_may_join(self, image: BrokerImage | None, epoch: int | None, may: bool) -> None:
        assert may_join(image, FollowerState(broker_epoch=epoch)) is may

    def test_one_that_was_refused_must_fetch_again(self) -> None:
        follower = FollowerState(broker_epoch=1, refused=True)
        assert not may_join(broker(epoch=1), follower)
        fetched(follower, 0, 0, 100)
        assert may_join(broker(epoch=1), follower)

    @pytest.mark.parametrize(
        ("image", "epoch"), [(broker(), 5), (broker(fenced=True), 5), (broker(), -1), (None, -1)]
    )
    def test_whose_fetch_counts(self, image: BrokerImage | None, epoch: int) -> None:
        check_broker_epoch(image, FollowerState(), epoch)

    @pytest.mark.parametrize(
        ("image", "epoch", "error"),
        [
            (broker(), 4, Error.NOT_LEADER_OR_FOLLOWER),
            (broker(fenced=True), 4, Error.NOT_LEADER_OR_FOLLOWER),
            (broker(), 6, Error.UNKNOWN_LEADER_EPOCH),
            (None, 4, Error.UNKNOWN_LEADER_EPOCH),
        ],
    )
    def test_whose_does_not(self, image: BrokerImage | None, epoch: int, error: Error) -> None:
        with pytest.raises(ApiError) as refusal:
            check_broker_epoch(image, FollowerState(), epoch)
        assert refusal.value.error is error

    @pytest.mark.parametrize(
        ("newest", "epoch", "counts"),
        [
            (None, 4, True),
            (-1, 4, True),
            (5, 5, True),
            (5, 6, True),
            (5, -1, True),  # Of a process that is not registered yet.
            (5, 4, False),
        ],
    )
    def test_without_registered_epochs_the_newest_fetch_tells(
        self, newest: int | None, epoch: int, counts: bool
    ) -> None:
        """Over ZooKeeper, brokers do not receive the others' epochs."""
        follower = FollowerState(broker_epoch=newest)
        if counts:
            check_broker_epoch(broker(epoch=-1), follower, epoch)
            return
        with pytest.raises(ApiError) as refusal:
            check_broker_epoch(broker(epoch=-1), follower, epoch)
        assert refusal.value.error is Error.NOT_LEADER_OR_FOLLOWER

    def test_a_fetch_without_an_epoch_does_not_hide_the_newest(self) -> None:
        follower = FollowerState(broker_epoch=5)
        follower.fetched(0, log_start_offset=0, leader_end=0, broker_epoch=-1, now_ms=0)
        assert follower.broker_epoch == 5
