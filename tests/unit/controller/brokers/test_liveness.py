"""Who is alive, by the clock that is handed in.

Method: times as numbers; the image says who is fenced.
"""

from ottla.base.ids import NO_OFFSET
from ottla.controller.brokers.liveness import NEVER, BrokerLiveness

from ..builders import SESSION_MS, broker, cluster

IMAGE = cluster(broker(1), broker(2), broker(3, fenced=True))


def test_a_session_lasts_its_time_and_no_longer() -> None:
    liveness = BrokerLiveness(SESSION_MS)
    assert not liveness.is_alive(1, 0)
    liveness.touch(1, 0)
    assert liveness.is_alive(1, SESSION_MS - 1)
    assert not liveness.is_alive(1, SESSION_MS)
    liveness.touch(1, SESSION_MS)
    assert liveness.is_alive(1, SESSION_MS + 1)


def test_sessions_begin_anew_at_a_new_controller() -> None:
    liveness = BrokerLiveness(SESSION_MS)
    liveness.touch(9, 0)
    liveness.activate(IMAGE, 100)
    assert [each for each in (1, 2, 3, 9) if liveness.is_alive(each, 100)] == [1, 2, 3]


def test_a_broker_that_is_known_to_be_dead_has_no_session() -> None:
    liveness = BrokerLiveness(SESSION_MS)
    liveness.activate(IMAGE, 100, dead=(2,))
    assert [each for each in (1, 2) if liveness.is_alive(each, 100)] == [1]
    assert liveness.stalest(IMAGE) == (100, 2)
    liveness.register(2, 100)
    assert liveness.is_alive(2, 100)


def test_sessions_are_extended_by_a_time_without_heartbeats() -> None:
    liveness = BrokerLiveness(SESSION_MS)
    liveness.touch(1, 0)
    liveness.touch(2, 500)
    liveness.extend_sessions(600, 700)
    assert liveness.stalest(IMAGE) == (600 + SESSION_MS, 1)
    assert not liveness.is_alive(2, 700 + SESSION_MS), "no heartbeat is in the future"


def test_the_stalest_is_the_one_silent_longest_fenced_ones_aside() -> None:
    liveness = BrokerLiveness(SESSION_MS)
    assert liveness.stalest(IMAGE) is None
    assert liveness.next_check_ms(IMAGE) is None
    for broker_id, at_ms in ((3, 0), (2, 10), (1, 20), (9, 0)):
        liveness.touch(broker_id, at_ms)
    assert liveness.stalest(IMAGE) == (10 + SESSION_MS, 2)
    assert liveness.next_check_ms(IMAGE) == 10 + SESSION_MS
    liveness.forget(2)
    liveness.forget(2)
    assert liveness.stalest(IMAGE) == (20 + SESSION_MS, 1)


def test_offsets_go_forward_within_a_registration() -> None:
    liveness = BrokerLiveness(SESSION_MS)
    liveness.touch(1, 0, 50)
    liveness.touch(1, 1, 40)
    liveness.touch(2, 1, 60)
    assert liveness.lowest_metadata_offset([1, 2]) == 50
    assert liveness.lowest_metadata_offset([2]) == 60
    assert liveness.lowest_metadata_offset([1, 3]) == NO_OFFSET
    assert liveness.lowest_metadata_offset([]) == NEVER
    liveness.register(1, 5)
    assert liveness.lowest_metadata_offset([1]) == NO_OFFSET


def test_a_shutdown_offset_that_nobody_remembers_counts_as_passed() -> None:
    liveness = BrokerLiveness(SESSION_MS)
    assert liveness.shutdown_offset(1) == NO_OFFSET
    liveness.touch(1, 0)
    assert liveness.shutdown_offset(1) == NO_OFFSET
    liveness.begin_controlled_shutdown(1, 77)
    assert liveness.shutdown_offset(1) == 77
