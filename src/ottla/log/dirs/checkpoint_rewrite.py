"""Rewriting a log directory's checkpoints after logs of it were deleted or truncated.

A deleted or truncated log leaves wrong entries in its directory's checkpoints. The four files have
an entry for each log, so they are rewritten once for a whole batch of deletions, not once for each
log or step (KAFKA-10002, KAFKA-13815).

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
from ottla.log.dirs.log_dir import LogDir, Written


class CheckpointRewrites:
    """See the module.

    Fields: `failed`: takes a directory offline whose disk fails; `is_busy`: whether a batch of
            deletions is in progress, at whose end `write_due` is called.
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
        """The directories whose checkpoints are to be written."""
        self._running: set[str] = set()
        self._last: dict[str, Written] = {}
        """By directory: the promise of the write that is due, else of the one begun last."""

    def schedule(self, directory: LogDir | None) -> None:
        """Write a directory's checkpoints after this turn, or at the end of the batch.

        None = the log has no directory any more.
        """
        if directory is None or directory.path in self._due:
            return
        self._due[directory.path] = directory
        self._last[directory.path] = Pending()
        self._timers.at(self._clock.monotonic_ms(), self._write_due_unless_busy)

    def write_due(self) -> None:
        """Write now what is due, or right after a write in progress of the same directory."""
        for path in [path for path in self._due if path not in self._running]:
            self._write(path)

    def rewritten(self, directory: LogDir) -> Written:
        """Return a promise that completes when no checkpoint has an entry of a log deleted so far.

        Its error is that of the directory sync: the new names may not be durable. A failed write of
        a checkpoint is no error: the directory goes offline, and its next start drops the entries
        of logs that it does not find before it creates any log.
        """
        return self._last.get(directory.path, completed(None))

    def _write_due_unless_busy(self) -> None:
        if not self._is_busy():
            self.write_due()

    def _write(self, path: str) -> None:
        directory, written = self._due.pop(path), self._last[path]
        self._running.add(path)
        deleting = directory.deleting_names()

        def synced(result: BaseException | None) -> None:
            if isinstance(result, OSError):
                self._failed(directory, result)
                ended(result)
            elif result is not None:
                raise result
            else:
                if directory.is_online:  # Else another sync may have got the disk's error.
                    directory.durable_renames |= deleting & directory.deleting_names()
                directory.checkpoint_all().then(lambda _: ended(None))

        def ended(result: OSError | None) -> None:
            self._running.discard(path)
            if path in self._due:
                self._write_due_unless_busy()
            written.complete(result)

        self._workers.submit(partial(self._disk.sync_dir, path), synced)
