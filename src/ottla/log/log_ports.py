"""The ports and callbacks that all logs of a node share."""

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
    """See the module.

    Fields: `on_failure`: called when a worker's disk operation failed; `has_checkpoints`: the
            recovery points and log starts of these logs are checkpointed, and a start uses them;
            `on_truncated`: called when a truncation requires the log's checkpoints to be rewritten;
            `on_rolled`: called when a segment is sealed and another one is active;
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
    on_rolled: Callable[["PartitionLog"], None] = ignore
    jitter_ms: Callable[[int], int] = field(default=lambda bound: 0)
