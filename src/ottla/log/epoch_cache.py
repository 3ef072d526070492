"""The start offset of each leader epoch in a log: replicas compare them to find where they diverge.

The file `leader-epoch-checkpoint` is a checkpoint of `epoch start_offset` lines. It is written
before the recovery point moves: entries that it lacks after a crash are of segments that recovery
reads, and their batches have their epochs.

The log start moves in memory first, and a crash takes it back. What lies between may be in remote
storage only, where no start reads batches. So the file keeps the epochs from the durable log start
on.

Source: LeaderEpochFileCache, LeaderEpochCheckpointFile; KIP-101, KIP-279.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from ottla.base.ids import NO_EPOCH, NO_OFFSET
from ottla.log.dirs.checkpoints import MalformedFile, decode_checkpoint, encode_checkpoint


class EpochEntry(NamedTuple):
    """The first offset written in an epoch."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch not above the requested one, and its end offset; -1, -1 = unknown."""

    epoch: int
    end_offset: int


UNKNOWN_END = EpochEnd(NO_EPOCH, NO_OFFSET)


class EpochCache:
    """The entries, both fields strictly growing.

    Fields: `dirty`: the file is not up to date; `has_dropped`: the next file lacks entries below
            the log start that the last one has.
    """

    __slots__ = ("_epochs", "_kept", "_starts", "dirty", "has_dropped")

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._kept: list[EpochEntry] = []
        """Below the log start; they are in the file only. The last may be of the first epoch, with
        its whole range."""
        self.dirty = self.has_dropped = False
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)
        self.dirty = False

    @property
    def latest_epoch(self) -> int:
        """The last epoch; -1 where there is none."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(map(EpochEntry, self._epochs, self._starts))

    @property
    def _in_file(self) -> tuple[EpochEntry, ...]:
        known = self._kept[-1].epoch if self._kept else NO_EPOCH
        return (*self._kept, *(each for each in self.entries if each.epoch > known))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add `epoch` at `start_offset`; drop entries that contradict it."""
        assert epoch >= 0
        assert start_offset >= 0
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start_offset:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        while self._kept and (
            self._kept[-1].epoch > epoch or self._kept[-1].start_offset >= start_offset
        ):
            self._kept.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.dirty = True

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that start at or above `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self.dirty = True
        while self._kept and self._kept[-1].start_offset >= end_offset:
            self._kept.pop()
            self.dirty = True

    def truncate_from_start(self, start_offset: int, *, keep_in_file: bool = False) -> None:
        """Drop entries below `start_offset`; the epoch of that offset now starts there.

        `keep_in_file`: the log start is not durable yet, and a start cannot read the epochs below
        from batches; until `start_durable`.
        """
        below = bisect_right(self._starts, start_offset)
        if below == 0 or (below == 1 and self._starts[0] == start_offset):
            return
        if keep_in_file or self._kept:
            self._kept = [each for each in self._in_file if each.start_offset <= start_offset]
        del self._epochs[: below - 1], self._starts[: below - 1]
        self._starts[0] = start_offset
        self.dirty = True

    @property
    def keeps_in_file(self) -> bool:
        """Whether the file keeps entries that are below the log start."""
        return bool(self._kept)

    def start_durable(self, start_offset: int) -> None:
        """Note that no start will find the log start below `start_offset`."""
        before = len(self._kept)
        ends = [each.start_offset for each in self._kept[1:]]
        del self._kept[: bisect_right(ends, start_offset)]
        # Of a log that was truncated to its log start nothing says where that is.
        if self._starts and start_offset >= self._starts[0]:
            self._kept.clear()
        self.has_dropped = self.has_dropped or len(self._kept) < before

    def prepend(self, entries: Iterable[EpochEntry]) -> None:
        """Add the entries that are older than all known ones; others are left out."""
        older: list[EpochEntry] = []
        for entry in entries:
            if self._epochs and not (
                entry.epoch < self._epochs[0] and entry.start_offset < self._starts[0]
            ):
                break
            older.append(entry)
        if older:
            merged = EpochCache((*older, *self.entries))
            self._epochs, self._starts = merged._epochs, merged._starts
            self.dirty = True

    def between(self, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
        """Return the epochs of the offsets in [start, end); the first starts at `start_offset`."""
        part = EpochCache(self.entries)
        part.truncate_from_end(end_offset)
        part.truncate_from_start(start_offset)
        return part.entries

    def clear(self) -> None:
        """Drop everything."""
        self.dirty = self.dirty or bool(self._epochs or self._kept)
        self._epochs.clear()
        self._starts.clear()
        self._kept.clear()

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of `offset`, which may be the next one; -1 = before all known."""
        slot = bisect_right(self._starts, offset)
        return self._epochs[slot - 1] if slot else NO_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the result for OffsetsForLeaderEpoch: see `EpochEnd`.

        An epoch older than all known ones ends where the first known one starts: its records are
        deleted, and the follower must start there.
        """
        if epoch == NO_EPOCH or not self._epochs:
            return UNKNOWN_END
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return UNKNOWN_END
        if above == 0:
            return EpochEnd(epoch, self._starts[0])
        return EpochEnd(self._epochs[above - 1], self._starts[above])

    def encode(self) -> bytes:
        """Return the file's content."""
        return encode_checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in self._in_file)

    @staticmethod
    def decode(data: bytes) -> "EpochCache":
        """Return the cache in a file's content. Raises: MalformedFile."""
        try:
            entries = [EpochEntry(int(a), int(b)) for a, b in decode_checkpoint(data, 2)]
        except ValueError as error:
            raise MalformedFile(f"{error}") from None
        if any(entry.epoch < 0 or entry.start_offset < 0 for entry in entries):
            raise MalformedFile("a leader epoch checkpoint has a negative entry")
        return EpochCache(entries)
