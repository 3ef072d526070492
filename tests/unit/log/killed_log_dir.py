"""A broker's log directory on the simulator's disk, and its end at any operation."""

import contextlib
from collections.abc import Callable
from random import Random

from ottla.base.ids import Uuid
from ottla.base.timers import Timers
from ottla.log.config import LogConfig
from ottla.log.dirs.dir_loading import Verdict
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.dirs.meta_properties import MetaProperties, encode_meta_properties
from ottla.log.partition_log import PartitionLog
from ottla.testing.sim.disk import SimDisk

from .support import Environment, QueuedWorkers

CHANGES = frozenset(
    {"append", "write_at", "truncate", "sync", "rename", "remove", "sync_dir", "write_atomic"}
)


class Killed(BaseException):
    """The process ends, in the midst of its work."""


class KilledLogDir:
    """See the module; it has at most the log of t-0.

    Fields: `operations`: how many changed the disk since the work began; `last`: the last of them.
    """

    def __init__(self, config: LogConfig) -> None:
        self.config = config
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
        self.start()

    def watch(self) -> None:
        """Count operations from now on."""
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

    def count(self, work: Callable[[], object], killed_at: int | None = None) -> int:
        """Do some work, up to the operation at which it is killed; return the operations."""
        self.operations, self.killed_at = 0, killed_at
        with contextlib.suppress(Killed):
            work()
        self.killed_at = None
        return self.operations

    def start(self) -> None:
        self.dirs = LogDirs(
            self.disk, self.workers, self.env.clock, self.env.timers, ["/d1"], delete_delay_ms=1_000
        )
        self.dirs.acquire(node_id=1, cluster_id="c")
        self.dirs.load(lambda *_: Verdict.KEEP, lambda _: self.config)
        self.workers.run()

    def end(self, power: int | None) -> None:
        """End the process; `power`: by a power loss with this seed."""
        self.workers.queue.clear()
        self.env.timers = Timers()
        if power is None:
            self.disk.kill()
        else:
            self.disk.lose_power(Random(power))
