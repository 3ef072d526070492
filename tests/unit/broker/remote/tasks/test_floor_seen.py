"""Since when a process knows that segments are dead: noted with each floor that it replays."""

from ottla.broker.remote.tasks.floor_seen import FloorSeen
from ottla.metadata.tiering import WHOLE_TOPIC
from ottla.tiered.remote_log import RemoteLog
from tests.unit.tiered.support import fence, replayed, restore_started, segment

NOW_MS = 9_000


def looked(*looks: tuple[RemoteLog | None, int]) -> FloorSeen:
    seen = FloorSeen()
    for remote, now_ms in looks:
        seen.look(remote, now_ms)
    return seen


def test_a_segment_is_dead_since_its_floor_was_replayed() -> None:
    seen = looked(
        (None, 1_000), (replayed(), 2_000), (replayed(fence(5, 3, floor=1)), 3_000), (None, 4_000)
    )
    assert seen.dead_since_ms(segment(1, 0, 9, tiered_epoch=1), NOW_MS) == 3_000
    assert seen.dead_since_ms(segment(2, 0, 9, tiered_epoch=2), NOW_MS) == NOW_MS
    seen.look(replayed(fence(6, 3, floor=1)), 5_000)
    assert seen.dead_since_ms(segment(1, 0, 9, tiered_epoch=1), NOW_MS) == 3_000
    seen.look(replayed(fence(6, 4, floor=3)), 6_000)
    assert seen.dead_since_ms(segment(2, 0, 9, tiered_epoch=2), NOW_MS) == 6_000


def test_segments_of_a_restored_topic_are_not_dead_since_the_purge_of_its_former_life() -> None:
    remote = replayed(fence(WHOLE_TOPIC, WHOLE_TOPIC, floor=WHOLE_TOPIC))
    seen = looked((remote, 1_000))
    for record in (restore_started(), fence(6, 2)):
        remote.replay(record)
    seen.look(remote, 2_000)
    assert seen.dead_since_ms(segment(1, 0, 9, tiered_epoch=2), NOW_MS) == NOW_MS
    remote.replay(fence(6, 3, floor=2))
    seen.look(remote, 3_000)
    assert seen.dead_since_ms(segment(1, 0, 9, tiered_epoch=2), NOW_MS) == 3_000
