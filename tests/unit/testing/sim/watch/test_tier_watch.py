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


@pytest.mark.parametrize("exists", [True, False])
def test_a_local_log_starts_behind_what_is_copied_unless_its_topic_is_deleted(
    exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remote segments of a deleted topic may be purged before a broker stops its replica."""
    topics = SimpleNamespace(by_id=lambda _topic_id: SimpleNamespace() if exists else None)
    sim, events = Sim(1, brokers=1, controllers=1), list[TierEvent]()
    monkeypatch.setattr(sim, "image", SimpleNamespace(topics=topics))
    watch = TierWatch(sim, events.append, LogWatch(sim, lambda _event: None))
    log: Any = SimpleNamespace(
        log_start_offset=0,
        local_log_start_offset=19,
        epochs=SimpleNamespace(entries=(EpochEntry(3, 0),)),
    )
    watch._local_start_moved(1, (NO_UUID, 0), log, 0)
    moved = LocalStartMoved((NO_UUID, 0), 1, 0, 19, 0, sim.now_ms)
    assert events == ([moved] if exists else [])
