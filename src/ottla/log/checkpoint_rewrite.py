"""Rewriting a directory's checkpoints where they speak of logs that are no more what they were.

A log that leaves, or is shortened, makes the entries of its directory's checkpoints untrue. The
four files have an entry for each log there, so they are written once for all that a batch of
deletions takes away, not once for each log or step of it (KAFKA-10002, KAFKA-13815).

Order: the directories' new names are made durable, then the checkpoints are written, then
`rewritten` completes. The other way round a power loss could bring a log back without its entries,
with the records that had been deleted from it.

Source: LogManager.asyncDelete with checkpoint = false, ReplicaManager.stopPartitions.
"""

from collections.abc import Callable
from functools import partial

from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Disk, Workers
from ottla.base.timers import Timers
from ottla.log.log_dir import LogDir, Written


class CheckpointRewrites:
    """See the module.

    Fields: `failed`: takes a directory offline whose disk fails; `is_busy`: tells whether a batch
            is under way, at whose end somebody calls `begin`.
    """

    def __init__(
        self,
        disk: Disk,
        workers: Workers,
        clock: Clock,
        timers: Timers,
        *,
        failed: Callable[[LogDir, OSError], None],
        is_busy: Callable[[], bool],
    ) -> None:
        self._disk = disk
        self._workers = workers
        self._clock = clock
        self._timers = timers
        self._failed = failed
        self._is_busy = is_busy
        self._due: dict[str, LogDir] = {}
        """The directories whose checkpoints are to be written, and are not yet."""
        self._running: set[str] = set()
        self._last: dict[str, Written] = {}
        """The end of what is due in a directory, or else of what was begun last."""

    def schedule(self, directory: LogDir | None) -> None:
        """Have a directory's checkpoints written, after this turn or at the end of the batch.

        None = that of a log which has left.
        """
        if directory is None or directory.path in self._due:
            return
        self._due[directory.path] = directory
        self._last[directory.path] = Pending()
        self._timers.at(self._clock.monotonic_ms(), self._begin_unless_busy)

    def begin(self) -> None:
        """Write now what is due; where a directory's are being written, right after that."""
        for path in [path for path in self._due if path not in self._running]:
            self._begin(path)

    def rewritten(self, directory: LogDir) -> Written:
        """Return the promise that no checkpoint speaks of what has left a directory by now.

        An error is that of the new names: they may not be durable. That a checkpoint cannot be
        written is none: the directory is offline then, and the start after its mending drops the
        entries of logs that it does not find, before a log is made there.
        """
        return self._last.get(directory.path, completed(None))

    def _begin_unless_busy(self) -> None:
        if not self._is_busy():
            self.begin()

    def _begin(self, path: str) -> None:
        directory, told = self._due.pop(path), self._last[path]
        self._running.add(path)
        going = directory.deleting_names()

        def synced(result: BaseException | None) -> None:
            if isinstance(result, OSError):
                self._failed(directory, result)
                ended(result)
            elif result is not None:
                raise result
            else:
                if directory.is_online:  # Else an error was told before: to somebody else.
                    directory.durable_renames |= going & directory.deleting_names()
                directory.checkpoint_all().then(lambda _: ended(None))

        def ended(result: OSError | None) -> None:
            self._running.discard(path)
            if path in self._due:
                self._begin_unless_busy()
            told.complete(result)

        self._workers.submit(partial(self._disk.sync_dir, path), synced)
