"""A restored partition's new log, killed at any step: it begins at its log start, or is empty.

Method: a broker's log directory on the simulator's disk. The log begins behind the remote segments,
and a record is appended as soon as the log takes it, between any two of the background's jobs. A
run without a crash counts the disk's operations; one run for each ends before it, by a kill or by a
power loss. The next start finds the log with its remote prefix, or one that is begun again; where
its records were deleted, it stays as it is.
"""

import contextlib
from typing import Literal

import pytest

from ottla.base.errors import ApiError
from ottla.broker.logs.log_creation import begin_restored
from ottla.log.config import LogConfig
from ottla.metadata.tiering import RestoredPartition
from tests.unit.log.killed_log_dir import KilledLogDir
from tests.unit.log.support import TOPIC_ID, append, batch

CONFIG = LogConfig(retention_ms=-1, remote_storage=True, local_retention_ms=0)
RESTORED = RestoredPartition(
    partition=0, leader_epoch=7, log_start_offset=10, end_offset=40, epochs=((0, 10), (2, 30))
)
EMPTIED = RestoredPartition(partition=0, leader_epoch=7, log_start_offset=40, end_offset=40)
"""All of whose remote segments had expired."""

POWER = [None, 1, 2]
"""A kill, and power losses by seed."""

Role = Literal["leader", "follower"]


class Broker(KilledLogDir):
    """A broker that hosts the partition. `appended`: records that were acknowledged to it."""

    def __init__(self, restored: RestoredPartition, role: Role) -> None:
        self.restored = restored
        self.role = role
        super().__init__(CONFIG)
        self.appended = 0
        self.watch()

    def host(self) -> None:
        """Host the partition, as the replica manager does."""
        log = self.dirs.get_or_create("t", TOPIC_ID, 0, CONFIG)
        if begin_restored(log, self.restored):
            self.dirs.checkpoint_log_start(log)

    def work(self) -> None:
        """Host the partition and append; the background's jobs run one by one in between."""
        self.host()
        while True:
            self.append()
            if not self.workers.run(1):
                if self.env.timers.next_ms() is None:
                    return
                self.env.pass_ms(1_000)

    def settle(self) -> None:
        """Run the background's jobs."""
        while self.workers.run(1) or self.env.timers.next_ms() is not None:
            self.env.pass_ms(1_000)

    def append(self) -> None:
        """Append a record if there is none, and the log takes it."""
        log = self.log
        if log.log_end_offset > 40:
            return
        with contextlib.suppress(ApiError):
            if self.role == "leader":
                append(log, batch([b"v"]), epoch=7)
            else:
                data = batch([b"v"], base_offset=40, leader_epoch=7)
                log.append_as_follower(data, now_ms=1_000_000)
            self.appended = 1

    def run(self, killed_at: int | None = None) -> int:
        """Work up to the operation at which it is killed; return the operations."""
        return self.count(self.work, killed_at)

    def check_start(self) -> None:
        """Check the log as hosted after a start."""
        log = self.log
        assert (log.log_start_offset, log.local_log_start_offset) == (
            self.restored.log_start_offset,
            40,
        )
        assert log.epochs.entries[: len(self.restored.epochs)] == self.restored.epochs


@pytest.mark.parametrize("restored", [RESTORED, EMPTIED], ids=["with segments", "without"])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_every_step_may_be_the_last(role: Role, restored: RestoredPartition) -> None:
    whole = Broker(restored, role)
    count = whole.run()
    whole.check_start()
    assert whole.log.log_end_offset == 41
    assert count > 15
    found = set()
    for killed_at in range(1, count + 2):
        for power in POWER:
            broker = Broker(restored, role)
            broker.run(killed_at)
            try:
                broker.end(power)
                broker.start()
                broker.host()
                broker.check_start()
                end = broker.log.log_end_offset
                if power is None:
                    # A kill loses nothing that was appended.
                    assert end == 40 + broker.appended
                found.add(end)
                broker.run()
                broker.check_start()
                assert broker.log.log_end_offset == 41
            except AssertionError as error:
                error.add_note(f"killed at operation {killed_at}, {broker.last}; power {power}")
                raise
    assert found == {40, 41}


@pytest.mark.parametrize("log_start", [30, 40])
def test_records_that_were_deleted_stay_deleted(log_start: int) -> None:
    broker = Broker(RESTORED, "leader")
    broker.host()
    broker.settle()
    broker.log.delete_records(log_start)
    broker.dirs.checkpoint_log_start(broker.log)
    broker.settle()
    broker.end(None)
    broker.start()
    broker.host()
    log = broker.log
    assert (log.log_start_offset, log.local_log_start_offset) == (log_start, 40)
    assert log.log_end_offset == 40
