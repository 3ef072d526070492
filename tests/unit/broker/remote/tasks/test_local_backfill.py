"""Rule 34: a follower whose local log begins later than its leader's copies what it lacks.

Method: a follower's log in real log directories, on a disk that loses what was not synced; the
leader is a log with all records, or a list of answers. Work is queued, so that a run ends, for each
number of pieces of work, right there: by a kill or by a power loss. After it, and after the next
start, the follower has either nothing of the range or all of it, and in the end all.
"""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.backoff import Backoff
from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending, completed
from ottla.broker.remote.dialogue import Task
from ottla.broker.remote.environment import LeaderRecords
from ottla.broker.remote.held_bytes import HeldBytes
from ottla.broker.remote.tasks.local_backfill import LocalBackfill
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import iter_headers
from tests.unit.broker.harness import FakeDice
from tests.unit.log.node import Node, create
from tests.unit.log.support import (
    Environment,
    QueuedWorkers,
    append,
    content,
    offset_for_timestamp,
    produced,
    values,
)
from tests.unit.log.test_partition_log import marker
from tests.unit.log.test_remote_prefix import CONFIG, NOW, bases, filled, starts

START, LOCAL, END = 4, 10, 24
OFF = replace(CONFIG, remote_storage=False)


def leader_log() -> PartitionLog:
    """Return a log of two leader epochs."""
    log = filled(filled(Environment().open(CONFIG), 6), END - 6, epoch=3)
    assert log.log_end_offset == END
    return log


class Follower:
    """A broker with a replica whose local log begins at LOCAL."""

    def __init__(self, leader: PartitionLog, held: HeldBytes | None = None) -> None:
        self.leader = leader
        self.held = HeldBytes(1 << 20) if held is None else held
        self.node = Node(QueuedWorkers())
        self.workers = cast(QueuedWorkers, self.node.env.workers)
        self.dirs, _ = self.node.start()
        self.log = create(self.dirs)
        self.log.reconfigure(CONFIG)
        self.reads: list[int] = []
        self.answers: list[bytes | ApiError] = []
        self.chunk = 150
        self.task: Task | None = None
        for segment in leader.local_segments():
            data = content(leader, segment.base_offset, segment.end_offset)
            if data:
                self.log.append_as_follower(bytearray(data), now_ms=NOW)
        self.log.advance_high_watermark(END)
        self.node.run()
        self.log.flush()
        self.node.run()
        self.log.remote_copied_to(LOCAL - 1)
        self.log.expire_segments(NOW)
        self.dirs.delete_expired_segments()
        self.dirs.checkpoint()
        self.settle()
        assert starts(self.log) == (0, LOCAL, END)
        assert bases(self.log)[0] == LOCAL

    def settle(self) -> None:
        for _ in range(30):
            self.node.pass_ms(100)

    def restart(self) -> None:
        """Begin another process."""
        self.workers.queue.clear()
        self.dirs, _ = self.node.start()
        found = self.dirs.get("t", 0)
        assert found is not None
        self.log = found
        self.log.reconfigure(OFF)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def begin(self) -> None:
        """Learn the leader's log start, and begin to copy."""
        self.log.reconfigure(OFF)
        self.log.advance_log_start(START)
        env = self.node.env
        environment: Any = SimpleNamespace(
            workers=self.workers,
            dice=FakeDice(),
            calls=SimpleNamespace(backoff=Backoff()),
            backfill_bytes=self.held,
        )
        records = LeaderRecords(
            read=self.read,
            cancel=lambda topic_id, partition: None,
            store_local_start=lambda log: self.dirs.checkpoint_log_start(log),
        )
        log = self.log
        backfill = LocalBackfill(environment, records, log, lambda: log.has_remote_prefix)
        self.task = Task(backfill.run(), env.timers, cast(Any, env.clock))
        self.task.start()

    def read(self, topic_id: Uuid, partition: int, offset: int) -> Pending[bytes | ApiError]:
        self.reads.append(offset)
        if self.answers:
            return completed(self.answers.pop(0))
        data = content(self.leader, offset)
        size = max(
            at + header.size_in_bytes
            for at, header in iter_headers(data)
            if at == 0 or at + header.size_in_bytes <= self.chunk
        )
        return completed(data[: size + 30])  # The last batch is cut off.

    def run(self) -> None:
        self.settle()
        assert self.task is not None
        assert self.task.is_over

    def check(self) -> None:
        """Check that it has all from the log start on, as the leader."""
        assert starts(self.log) == (START, START, END)
        assert values(self.log) == [each for each in values(self.leader) if each[0] >= START]
        assert content(self.log, START) == content(self.leader, START)
        assert self.log.epochs.entries == ((0, START), (3, 6))
        assert self.log.size_bytes == sum(each.size_bytes for each in self.log.local_segments())
        for timestamp in range(1_000_000, 1_000_000 + END):
            own, leaders = (offset_for_timestamp(log, timestamp) for log in (self.log, self.leader))
            assert own is not None
            assert leaders is not None
            assert own.offset == max(leaders.offset, START)

    def files(self) -> list[str]:
        return [
            name
            for name in self.node.disk.listdir(self.log.directory)
            if not name.endswith(".deleted")
        ]


def test_a_follower_copies_what_its_leader_has_before_its_own_local_log() -> None:
    follower = Follower(leader_log())
    follower.begin()
    follower.run()
    assert not follower.log.retention.prepends
    assert len(follower.reads) > 1  # In chunks.
    follower.check()
    assert not [name for name in follower.files() if name.endswith(".tmp")]
    follower.node.stop(follower.dirs)
    follower.restart()
    follower.check()


def test_it_is_durable_before_it_counts() -> None:
    follower = Follower(leader_log())
    follower.begin()
    while follower.log.has_remote_prefix:
        assert follower.workers.run(1)
    assert follower.log.retention.prepends
    while follower.log.retention.prepends:
        assert follower.workers.run(1) or not follower.node.pass_ms(10)
    follower.node.disk.crash()
    follower.restart()
    follower.check()


Crash = Callable[[Follower], object]


@pytest.mark.parametrize(
    "crash", [lambda f: f.node.disk.kill(), lambda f: f.node.disk.crash()], ids=["kill", "power"]
)
def test_every_piece_of_work_may_be_the_last(crash: Crash) -> None:
    found: set[tuple[int, int, int]] = set()
    count = 0
    while True:
        follower = Follower(leader_log())
        follower.begin()
        done = 0
        while done < count and (follower.workers.run(1) or not follower.node.pass_ms(10)):
            done += 1
        is_over = follower.task is not None and follower.task.is_over
        is_ready = not follower.log.has_remote_prefix and not follower.log.retention.prepends
        crash(follower)
        follower.restart()
        found.add(starts(follower.log))
        if is_ready:
            assert not follower.log.has_remote_prefix, count
        if follower.log.has_remote_prefix:
            assert bases(follower.log)[0] == LOCAL, count
        follower.begin()
        follower.run()
        follower.check()
        if is_over:
            break
        count += 1
    assert count > 8
    assert {each[1] for each in found} == {START, LOCAL}


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_cancelled_copy_leaves_nothing(is_overtaken: bool) -> None:
    """Also where the work that it was waiting for ends after work that was submitted later."""
    count = 0
    while True:
        follower = Follower(leader_log())
        before = follower.files()
        follower.begin()
        follower.workers.run(count)
        task = follower.task
        assert task is not None
        if task.is_over or not follower.log.has_remote_prefix:
            break
        task.cancel()
        if is_overtaken:
            follower.workers.queue.reverse()
        follower.settle()
        follower.dirs.delete_expired_segments()
        follower.settle()
        assert starts(follower.log) == (START, LOCAL, END), count
        assert set(follower.files()) <= {*before, "leader-epoch-checkpoint.tmp"}, count
        assert not follower.log.retention.prepends
        count += 1
    assert count > 4


def test_it_waits_for_the_leader_s_log_start() -> None:
    follower = Follower(leader_log())
    follower.answers = [ApiError(Error.OFFSET_OUT_OF_RANGE)] * 3
    follower.begin()
    follower.run()
    assert follower.reads[:4] == [START] * 4
    follower.check()


def test_what_the_leader_s_retention_deletes_meanwhile_is_not_missed() -> None:
    follower = Follower(leader_log())
    follower.answers = [b""] * 10**6
    follower.begin()
    follower.settle()
    follower.log.delete_records(LOCAL)
    follower.run()
    assert starts(follower.log) == (LOCAL, LOCAL, END)
    assert not [name for name in follower.files() if name.endswith(".tmp")]


def test_records_of_another_history_are_refused() -> None:
    follower = Follower(leader_log())
    other = filled(filled(Environment().open(CONFIG), 5), END - 5, epoch=4)
    follower.answers = [content(other, START)]
    follower.begin()
    follower.settle()
    follower.run()
    assert follower.reads[:2] == [START, START]
    follower.check()


def test_local_files_that_are_not_deleted_yet_are_kept() -> None:
    follower = Follower(leader_log())
    follower.begin()
    follower.run()
    follower.log.reconfigure(CONFIG)
    follower.log.remote_copied_to(LOCAL - 1)
    follower.log.expire_segments(NOW)
    assert starts(follower.log) == (START, LOCAL, END)
    follower.reads.clear()
    follower.begin()
    follower.run()
    assert follower.reads == []
    follower.check()


def test_aborted_transactions_are_known() -> None:
    leader = filled(Environment().open(CONFIG), 5)
    append(leader, produced(9, 0, 0, transactional=True, size=60))
    append(leader, marker(9, committed=False), origin="coordinator")
    filled(leader, END - leader.log_end_offset, epoch=3)
    follower = Follower(leader)
    follower.begin()
    follower.run()
    expected = leader.aborted_transactions(START, END)
    assert expected
    assert follower.log.aborted_transactions(START, END) == expected


def test_no_more_is_read_while_too_much_is_not_written() -> None:
    """The bound is shared by all partitions; a cancelled one gives back what it held."""
    leader, held = leader_log(), HeldBytes(300)
    followers = [Follower(leader, held) for _ in range(5)]
    for each in followers:
        each.begin()
    reading = [each for each in followers if each.reads]
    assert 0 < len(reading) < len(followers)
    assert 300 <= held.held < 300 + 150 + 30
    assert reading[0].task is not None
    reading[0].task.cancel()
    most = 0
    while not all(each.task is not None and each.task.is_over for each in followers):
        for each in followers:
            each.node.pass_ms(100)
            most = max(most, held.held)
    assert most < 300 + 150 + 30
    assert held.held == 0
    for each in followers:
        if each is not reading[0]:
            each.check()
