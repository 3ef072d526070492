"""A segment is read again only where that can tell something new.

Method: a log on a disk in memory, whose file is damaged beneath it; a check is one batch a step.
"""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.remote.dialogue import Task
from ottla.broker.remote.tasks.leader_term import copy_ms_max
from ottla.broker.remote.tasks.segment_checker import SegmentChecker
from ottla.log import segment_check
from ottla.log.results import DamagedLog
from ottla.records.batch import iter_headers
from tests.unit.broker.remote.copy_bench import DIRECTORY, Bench
from tests.unit.log.support import QueuedWorkers

PATH = f"{DIRECTORY}/{0:020d}.log"
BATCHES = 10


class Checked:
    """A broker with a sealed segment, and its checker."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.broker = broker = self.bench.broker(1)
        broker.fill(1)
        self.workers = QueuedWorkers()
        broker.life.environment.workers = self.workers
        self.checker = SegmentChecker(broker.life.environment)
        self.results: list[DamagedLog | None] = []
        self.opened = 0
        broker.disk.on_operation = self._count

    def _count(self, operation: str, path: str) -> None:
        self.opened += (operation, path) == ("open", PATH)

    def begin(self) -> Task:
        files = self.broker.log.segment_files(0)
        assert files is not None

        def dialogue() -> Any:
            try:
                yield from self.checker.check(files)
                self.results.append(None)
            except DamagedLog as damage:
                self.results.append(damage)

        environment = self.broker.life.environment
        task = Task(dialogue(), environment.timers, environment.clock)
        task.start()
        return task

    def run(self) -> tuple[DamagedLog | None, int]:
        """Return what a check finds, and how many batches it has read."""
        before = self.opened
        self.begin()
        while self.workers.run(1):
            pass
        return self.results.pop(), self.opened - before

    def flip(self, number: int) -> Callable[[], object]:
        """Flip a bit of a batch; return what flips it back."""
        disk = self.broker.disk
        data = disk.read_bytes(PATH)
        at = list(iter_headers(data))[number][0] + 70
        disk.corrupt(PATH, at, bytes([data[at] ^ 1]))
        return lambda: disk.corrupt(PATH, at, data[at : at + 1])


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Checked:
    monkeypatch.setattr(segment_check, "PART_BYTES", 1)
    return Checked()


def test_a_damaged_segment_is_read_from_the_damage_on(checked: Checked) -> None:
    repair = checked.flip(6)
    damage, read = checked.run()
    assert damage is not None
    assert (damage.path, damage.good_end, read) == (PATH, 6, 7)
    for _ in range(3):
        damage, read = checked.run()
        assert damage is not None
        assert (damage.good_end, read) == (6, 1)
    repair()
    assert checked.run() == (None, BATCHES - 6)


def test_a_sound_segment_is_read_once_in_the_time_of_a_copy(checked: Checked) -> None:
    assert checked.run() == (None, BATCHES)
    size_bytes = checked.broker.log.local_segments()[0].size_bytes
    for _ in range(2):
        checked.bench.run(copy_ms_max(size_bytes) // 2_000)
        assert checked.run() == (None, 0)
    checked.bench.run(1)
    assert checked.run() == (None, BATCHES)


def test_other_files_are_read_as_a_whole(checked: Checked) -> None:
    assert checked.run() == (None, BATCHES)
    log = checked.broker.log
    log.truncate_to(0)
    checked.broker.fill(1)
    assert checked.run() == (None, BATCHES)


def test_what_a_truncation_has_cut_is_not_damage(checked: Checked) -> None:
    checked.begin()
    checked.workers.run(3)
    checked.broker.log.truncate_to(5)
    checked.workers.run()
    assert checked.results == [None]


def test_a_cancelled_check_is_not_continued(checked: Checked) -> None:
    """One of its steps may still run."""
    task = checked.begin()
    checked.workers.run(3)
    task.cancel()
    checked.workers.run()
    assert checked.run() == (None, BATCHES)
