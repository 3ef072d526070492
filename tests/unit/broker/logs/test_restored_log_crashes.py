"""A restored partition's new log, killed at any step: it begins at its log start, or is empty.

Method: a broker's log directory on the simulator's disk. The log begins behind the remote segments,
and a record is appended as soon as the log takes it, between any two of the background's jobs. A
run without a crash counts the disk's operations; one run for each ends before it, by a kill or by a
power loss. The next start finds the log with its remote prefix, or one that is begun again.
"""

import contextlib
from random import Random
from typing import Literal

import pytest

from ottla.base.errors import ApiError
from ottla.base.ids import Uuid
from ottla.base.timers import Timers
from ottla.broker.logs.log_creation import begin_restored
from ottla.log.config import LogConfig
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.dirs.meta_properties import MetaProperties, encode_meta_properties
from ottla.log.partition_log import PartitionLog
from ottla.metadata.tiering import RestoredPartition
from ottla.testing.sim.disk import SimDisk
from tests.unit.log.support import TOPIC_ID, Environment, QueuedWorkers, append, batch

CONFIG = LogConfig(retention_ms=-1, remote_storage=True, local_retention_ms=0)
RESTORED = RestoredPartition(
    partition=0, leader_epoch=7, log_start_offset=10, end_offset=40, epochs=((0, 10), (2, 30))
)
EMPTIED = RestoredPartition(partition=0, leader_epoch=7, log_start_offset=40, end_offset=40)
"""All of whose remote segments had expired."""

CHANGES = frozenset(
    {"append", "write_at", "truncate", "sync", "rename", "remove", "sync_dir", "write_atomic"}
)
POWER = [None, 1, 2]
"""A kill, and power losses by seed."""

Role = Literal["leader", "follower"]


class Killed(BaseException):
    """The process ends, in the midst of its work."""


class Broker:
    """A broker that hosts the partition. `appended`: records that were acknowledged to it."""

    def __init__(self, restored: RestoredPartition, role: Role) -> None:
        self.restored = restored
        self.role = role
        self.workers = QueuedWorkers()
        self.env = Environment(workers=self.workers)
        self.disk = self.env.disk = SimDisk(now_ms=self.env.clock.now_ms)
        self.disk.mkdir("/d1")
        properties = MetaProperties(cluster_id="c", node_id=1, directory_id=Uuid(bytes([9] * 16)))
        self.disk.write_atomic("/d1/meta.properties", encode_meta_properties(properties))
        self.disk.settle()
        self.operations = 0
        self.last = ""
        self.killed_at: int | None = None
        self.appended = 0
        self.start()
        self.disk.on_operation = self._operation

    @property
    def log(self) -> PartitionLog:
        log = self.dirs.get("t", 0)
        assert log is not None
        return log

    def _operation(self, operation: str, path: str) -> None:
        if operation not in CHANGES:
            return
        self.operations += 1
        self.last = f"{operation} {path}"
        if self.operations == self.killed_at:
            raise Killed

    def start(self) -> None:
        self.dirs = LogDirs(
            self.disk, self.workers, self.env.clock, self.env.timers, ["/d1"], delete_delay_ms=1_000
        )
        self.dirs.acquire(node_id=1, cluster_id="c")
        self.dirs.load(lambda *_: Verdict.KEEP, lambda _: CONFIG)
        self.workers.run()

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
        self.operations, self.killed_at = 0, killed_at
        with contextlib.suppress(Killed):
            self.work()
        self.killed_at = None
        return self.operations

    def end(self, power: int | None) -> None:
        """End the process; `power`: by a power loss with this seed."""
        self.workers.queue.clear()
        self.env.timers = Timers()
        if power is None:
            self.disk.kill()
        else:
            self.disk.lose_power(Random(power))

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
