"""The ports through which the parts of a log reach the disk, workers and time."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timers
from ottla.log.file_cache import FileCache


@dataclass(slots=True, kw_only=True)
class DiskPorts:
    """See the module; all logs of a node share them.

    Fields: `has_checkpoints`: the recovery points and log starts of these logs are checkpointed,
            and a start uses them; `jitter_ms(bound)`: an integer of [0, bound].
    """

    disk: Disk
    files: FileCache
    workers: Workers
    timers: Timers
    clock: Clock
    has_checkpoints: bool = True
    jitter_ms: Callable[[int], int] = field(default=lambda bound: 0)
