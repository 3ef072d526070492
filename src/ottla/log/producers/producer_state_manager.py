"""The producer state of one log and its snapshots on the disk.

`state` is the producers as of the log's end. A snapshot of an offset (`<offset>.snapshot`) is
written where a segment is sealed and when the log is closed, so that a start, a truncation and the
copier to remote storage need not read the log from its beginning.

Source: ProducerStateManager, UnifiedLog.rebuildProducerState.
"""

from collections.abc import Container, Iterable

from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.local_log import LocalLog
from ottla.log.producers.producer_state import ProducerEntry, ProducerState
from ottla.log.recovery.producer_replay import prune_snapshots, rebuild_producers, write_snapshot


class ProducerStateManager:
    """See the module. `snapshots`: their offsets, ascending but for the latest."""

    __slots__ = ("_disk", "_local", "snapshots", "state")

    def __init__(
        self, disk: Disk, local: LocalLog, state: ProducerState, snapshots: list[int]
    ) -> None:
        self._disk = disk
        self._local = local
        self.state = state
        self.snapshots = snapshots

    def take_snapshot(self, offset: int) -> None:
        """Write the state as of `offset`; the next flush syncs it. Raises: OSError."""
        path = write_snapshot(self._disk, self._local.directory, offset, self.state)
        self._local.note_unsynced(path)
        self._local.names_changed = True
        if offset not in self.snapshots:
            self.snapshots.append(offset)

    def remove_all_snapshots(self) -> None:
        """Remove every snapshot, also one that is not known. Raises: OSError."""
        self.snapshots = prune_snapshots(self._disk, self._local.directory, -1)

    def remove_snapshots(self, offsets: Container[int]) -> None:
        """Remove the snapshots of these offsets, as far as there are any. Raises: OSError."""
        for offset in [each for each in self.snapshots if each in offsets]:
            self._disk.remove(
                f"{self._local.directory}/{names.segment_name(offset, names.SNAPSHOT)}"
            )
            self.snapshots.remove(offset)

    def remove_snapshots_below(self, offset: int) -> None:
        """Remove the snapshots of deleted segments. Raises: OSError."""
        self.remove_snapshots(range(offset))

    def start_with(self, entries: Iterable[ProducerEntry]) -> None:
        """Begin again, for an empty log, with what is known from elsewhere."""
        self.state = ProducerState(self._local.name, entries)

    def rebuild(self, high_watermark: int) -> None:
        """Return to the state at the log's end, which a truncation has moved. Raises: OSError."""
        local, end = self._local, self._local.log_end_offset
        before = self.state.entries
        self.state = rebuild_producers(
            self._disk, local.directory, local.name, local.extents(), end
        )
        # Afterwards: rebuilding removes snapshots that are damaged.
        self.snapshots = prune_snapshots(self._disk, local.directory, end)
        self.state.fill_append_times(lambda entry: _appended_ms(before.get(entry.producer_id)))
        self.state.replicated_to(high_watermark)


def _appended_ms(former: ProducerEntry | None) -> int | None:
    # A producer's remaining batches were appended before the truncated ones.
    return None if former is None else former.appended_ms
