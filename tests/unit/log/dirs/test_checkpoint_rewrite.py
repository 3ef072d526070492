"""Checkpoints that speak of logs that are no more: written once for many, and waited for.

Method: two directories on a disk in memory, workers that wait, a batch that the test declares.
"""

from ottla.base.pending import Pending
from ottla.log.dirs.checkpoint_rewrite import CheckpointRewrites
from ottla.log.dirs.log_dir import CHECKPOINTS, LogDir
from tests.unit.log.support import Environment, QueuedWorkers


class Site:
    """Rewrites, and what they do to the disk."""

    def __init__(self) -> None:
        self.workers = QueuedWorkers()
        self.env = Environment(workers=self.workers)
        self.is_busy = False
        self.failed: list[OSError] = []
        self.dirs = [self._directory("/d1"), self._directory("/d2")]
        self.rewrites = CheckpointRewrites(
            self.env.disk,
            self.workers,
            self.env.clock,
            self.env.timers,
            failed=self._fail,
            is_busy=lambda: self.is_busy,
        )
        self.written: list[str] = []
        self.env.disk.on_operation = lambda operation, path: (
            self.written.append(path) if operation == "write_atomic" else None
        )

    def _directory(self, path: str) -> LogDir:
        self.env.disk.mkdir(path)
        return LogDir(self.env.disk, self.workers, path, self._fail)

    def _fail(self, directory: LogDir, error: OSError) -> None:
        directory.error = directory.error or error
        self.failed.append(error)

    def schedule(self, directory: LogDir) -> Pending[OSError | None]:
        self.rewrites.schedule(directory)
        return self.rewrites.rewritten(directory)

    def run(self) -> None:
        self.env.pass_ms(0)
        self.workers.run()


def test_rewrites_of_one_turn_are_coalesced_per_directory() -> None:
    site = Site()
    promises = [site.schedule(site.dirs[0]) for _ in range(3)]
    assert site.rewrites.rewritten(site.dirs[1]).value is None, "nothing is due"
    site.run()
    assert sorted(site.written) == sorted(f"/d1/{name}" for name in CHECKPOINTS)
    assert [each.value for each in promises] == [None] * 3


def test_a_batch_is_written_at_its_end() -> None:
    """Of thousands of logs that go in steps each step would have written them all."""
    site = Site()
    early = site.schedule(site.dirs[0])
    site.is_busy = True
    for _ in range(5):
        notified = site.schedule(site.dirs[0])
        site.run()
    assert not site.written
    assert notified is early
    site.is_busy = False
    site.rewrites.write_due()
    site.run()
    assert len(site.written) == len(CHECKPOINTS)
    assert notified.value is None


def test_what_comes_while_they_are_written_is_written_right_after() -> None:
    site = Site()
    first = site.schedule(site.dirs[0])
    site.env.pass_ms(0)
    site.workers.run(2)
    second = site.schedule(site.dirs[0])
    site.env.pass_ms(0)
    site.workers.run(len(CHECKPOINTS) - 1)
    assert (first.done, second.done) == (True, False)
    site.workers.run()
    assert second.value is None
    # The checkpoint of high watermarks holds the same: it is not written twice.
    assert len(site.written) == 2 * len(CHECKPOINTS) - 1


def test_promises_complete_when_a_directory_fails() -> None:
    """Neither who waited for what was being written, nor who comes later."""
    site = Site()
    first = site.schedule(site.dirs[0])
    site.env.pass_ms(0)
    site.workers.run(1)
    second = site.schedule(site.dirs[0])
    site.env.disk.fail("write_atomic", path=CHECKPOINTS[0])
    site.run()
    assert (first.value, second.value, site.failed) == (None, None, [site.dirs[0].error])
    third = site.schedule(site.dirs[0])
    site.run()
    assert third.value is None
    assert len(site.written) == len(CHECKPOINTS), "an offline directory is left as it is"


def test_a_failed_directory_sync_is_reported() -> None:
    site = Site()
    notified = site.schedule(site.dirs[0])
    site.env.disk.fail("sync_dir", path="/d1")
    site.run()
    assert [notified.value] == site.failed
    assert not site.written
