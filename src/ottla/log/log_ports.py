"""What logs need of the world, as one value for all logs of a node."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timers
from ottla.log.file_cache import FileCache

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog


def ignore(log: "PartitionLog") -> None:
    """Do nothing: for logs without checkpoints."""


def ignore_failure(log: "PartitionLog", error: OSError) -> None:
    """Do nothing: for logs whose owner asks for every flush itself."""


@dataclass(slots=True, kw_only=True)
class LogPorts:
    """What logs need of the world.

    Fields: `on_failure`: a worker met a broken disk; `has_checkpoints`: somebody writes the
            recovery points and log starts of these logs, and a start believes them;
            `on_truncated`: the checkpoints of a log say too much, and are to be written anew;
            `jitter_ms(bound)`: an integer of [0, bound].
    """

    disk: Disk
    files: FileCache
    workers: Workers
    timers: Timers
    clock: Clock
    on_failure: Callable[["PartitionLog", OSError], None] = ignore_failure
    has_checkpoints: bool = True
    on_truncated: Callable[["PartitionLog"], None] = ignore
    jitter_ms: Callable[[int], int] = field(default=lambda bound: 0)
