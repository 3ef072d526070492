"""Flushing a log: a worker thread syncs files while the loop goes on appending.

The loop prepares a job: it writes the new entries of indexes and leader epochs to their files, and
opens and pins every file with unsynced bytes. The worker syncs them by descriptor, so a rename of
the directory does no harm, and renames the new epoch file. Back on the loop the recovery point
moves.

Source: UnifiedLog.{flush, roll}, LocalLog.flush; KAFKA-15391, KAFKA-13403 (a renamed directory).
"""

import contextlib
from dataclasses import dataclass, field

from ottla.base.pending import Pending
from ottla.base.ports import Disk, File
from ottla.log.file_cache import Handle
from ottla.log.segment import Segment

Flushed = Pending[OSError | None]


@dataclass(slots=True, kw_only=True)
class FlushJob:
    """One flush.

    Fields: `offset`: up to where the log is durable once `run` has returned, unless the log was
            truncated since; `truncation_count`: the log's when the job was prepared;
            `with_active`: the active segment is included; `active_base`: its base offset then.
    """

    disk: Disk
    offset: int
    truncation_count: int
    with_active: bool
    active_base: int
    segments: list[Segment] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    own_files: list[File] = field(default_factory=list)
    """Opened and closed by this job alone."""
    renames: list[tuple[str, str]] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Sync everything. Blocks: for a worker thread. Raises: OSError."""
        try:
            for file in (*self.files, *self.own_files):
                file.sync()
            # If the directory was renamed for deletion its names do not matter any more.
            for source, target in self.renames:
                with contextlib.suppress(FileNotFoundError):
                    self.disk.rename(source, target)
            for directory in self.directories:
                with contextlib.suppress(FileNotFoundError):
                    self.disk.sync_dir(directory)
        finally:
            for file in self.own_files:
                file.close()

    def release(self, *, failed: bool) -> None:
        """Unpin the files, on the loop; after a failure the segments are unsynced again."""
        for handle in self.handles:
            handle.unpin()
        self.handles.clear()
        for file in self.own_files:
            file.close()
        if failed:
            for segment in self.segments:
                segment.unsynced = True
