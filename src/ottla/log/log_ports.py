"""What logs need of the world, as one value for all logs of a node."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timers
from ottla.log.file_cache import FileCache

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog


def ignore_failure(log: "PartitionLog", error: OSError) -> None:
    """Do nothing: for logs whose owner asks for every flush itself."""


@dataclass(slots=True, kw_only=True)
class LogPorts:
    """What logs need of the world. `jitter_ms(bound)` returns an integer of [0, bound]."""

    disk: Disk
    files: FileCache
    workers: Workers
    timers: Timers
    clock: Clock
    on_failure: Callable[["PartitionLog", OSError], None] = ignore_failure
    jitter_ms: Callable[[int], int] = field(default=lambda bound: 0)
