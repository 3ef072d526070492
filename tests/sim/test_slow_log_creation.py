"""Brokers that take long to create logs keep every promise.

Method: standard histories in which each new partition is prepared for, one log in 100 ms, while
other changes of the metadata are committed, topics are deleted and nodes die.
"""

import pytest

from ottla.base.pending import Pending, completed
from ottla.broker import replica_manager
from ottla.host.log_creation import LogCreation
from ottla.metadata.delta import ClusterDelta
from ottla.testing.scenarios.runner import PlayOptions, play

from ..drawn import drawn_seeds

LOG_MS = 100


class Slow:
    """Fields: `prepared`: how many changes waited for logs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.prepared = 0
        monkeypatch.setattr(replica_manager, "LOGS_AT_ONCE_MAX", 0)
        monkeypatch.setattr(
            LogCreation, "prepare", lambda creation, delta: self._prepare(creation, delta)
        )

    def _prepare(self, creation: LogCreation, delta: ClusterDelta) -> Pending[None]:
        broker = creation._broker()
        steps = None if broker is None else broker.replicas.prepare(delta)
        if broker is None or steps is None:
            return completed(None)
        self.prepared += 1
        ready: Pending[None] = Pending()

        def create_one() -> None:
            if creation._stopped.done:
                return
            try:
                next(steps)
            except StopIteration:
                ready.complete(None)
            else:
                broker.timers.at(broker.clock.monotonic_ms() + LOG_MS, create_one)

        create_one()
        return ready


@pytest.mark.parametrize("seed", drawn_seeds(1, of=3))
def test_a_history_in_which_logs_are_created_slowly_is_true(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(monkeypatch)
    report = play(seed, PlayOptions())
    assert report.judgement.violations == ()
    assert slow.prepared > 10
