"""What the watch of remote storage reports of a broker's logs.

Method: a log by its numbers alone, in a cluster that was not started.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.base.ids import NO_UUID
from ottla.log.epoch_cache import EpochEntry
from ottla.testing.history.tiers import LocalStartMoved, TierEvent
from ottla.testing.sim import Sim
from ottla.testing.sim.watch.log_watch import LogWatch
from ottla.testing.sim.watch.tier_watch import TierWatch
from ottla.tiered.segment_metadata import NO_FLOOR
from tests.unit.tiered.support import segment

LOG: Any = SimpleNamespace(
    log_start_offset=0,
    local_log_start_offset=19,
    epochs=SimpleNamespace(entries=(EpochEntry(3, 0),)),
)


@pytest.mark.parametrize("exists", [True, False])
def test_a_local_log_starts_behind_what_is_copied_unless_its_topic_is_deleted(
    exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remote segments of a deleted topic may be purged before a broker stops its replica."""
    topics = SimpleNamespace(by_id=lambda _topic_id: SimpleNamespace() if exists else None)
    sim, events = Sim(1, brokers=1, controllers=1), list[TierEvent]()
    monkeypatch.setattr(sim, "image", SimpleNamespace(topics=topics, tiering={}))
    watch = TierWatch(sim, events.append, LogWatch(sim, lambda _event: None))
    watch._local_start_moved(1, (NO_UUID, 0), LOG, 0)
    moved = LocalStartMoved((NO_UUID, 0), 1, 0, 19, 0, sim.now_ms)
    assert events == ([moved] if exists else [])


@pytest.mark.parametrize(
    ("floor", "leads", "copied_to", "is_wrong"),
    [
        (1, False, 18, False),
        (1, True, 18, True),
        (1, False, 17, True),  # It was never copied.
        (NO_FLOOR, False, 18, True),
    ],
)
def test_a_follower_may_count_on_what_was_given_up_a_moment_ago(
    floor: int, leads: bool, copied_to: int, is_wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim, events = Sim(1, brokers=1, controllers=1), list[TierEvent]()
    topics = SimpleNamespace(by_id=lambda _topic_id: SimpleNamespace())
    tiering = {NO_UUID: SimpleNamespace(remote_floor_epoch=floor)}
    monkeypatch.setattr(sim, "image", SimpleNamespace(topics=topics, tiering=tiering))
    copied = segment(1, 0, copied_to, ((3, 0),))
    remote = SimpleNamespace(finished=lambda: [copied])
    metadata = SimpleNamespace(remote_log=lambda *_key: remote)
    broker = SimpleNamespace(image=sim.image, remote=SimpleNamespace(metadata=metadata))
    monkeypatch.setattr(sim, "nodes", {1: SimpleNamespace(broker=broker)})
    watch = TierWatch(sim, events.append, LogWatch(sim, lambda _event: None))
    monkeypatch.setattr(watch, "leads", lambda *_key: leads)
    watch._local_start_moved(1, (NO_UUID, 0), LOG, 0)
    assert bool(events) is is_wrong


@pytest.mark.parametrize(("opened", "is_new"), [("before", False), ("after", True)])
def test_a_log_that_is_opened_after_a_leader_moved_its_start_may_lack_what_is_before(
    opened: str, is_new: bool
) -> None:
    """Whether or not a record of remote storage was committed since."""
    sim = Sim(1, brokers=1, controllers=1)
    logs = LogWatch(sim, lambda _event: None)
    watch, key = TierWatch(sim, [].append, logs), (NO_UUID, 0)
    logs.log_started(key, 12)
    sim.run(ms=1_000)
    before_ms = sim.now_ms
    sim.run(ms=1_000)
    logs.log_started(key, 24)
    sim.run(ms=1_000)
    watch._logs[1, key] = LOG, 1, before_ms if opened == "before" else sim.now_ms
    assert watch._is_new(1, key, 12) is is_new
    assert not watch._is_new(1, key, 24)
