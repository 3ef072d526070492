"""The recovery point of the metadata log: `.ottla_recovery_point` in its directory.

A start cannot tell damage from the torn end that a crash leaves, unless it knows what was flushed.
A voter has acknowledged what it has flushed, which may be committed by that: without it, it must
not start and vote. So after each flush the offset is written here, into the page cache; the file is
synced at most once a second, and at a clean shutdown. After the end of the process the offset is
exact; after a power loss it may be older, and so lower, never wrong. It is lowered, durably, before
the log is truncated.

The file has three slots of one line each: `<offset, 20 digits> <CRC-32, 8 hexadecimal digits>`.
One is durable and not written, one is written, and the third is being synced. So whatever a power
loss leaves of the other two, one slot is valid.
"""

import posixpath
import zlib
from collections.abc import Callable

from ottla.base.ports import Clock, Disk, File, Workers

FILE_NAME = ".ottla_recovery_point"
SLOT_BYTES = 30
SLOTS = (0, 1, 2)
EMPTY_SLOT = b" " * (SLOT_BYTES - 1) + b"\n"
SYNC_MS = 1_000
"""How long an offset may wait for its sync; each costs an fsync."""


class RecoveryPointDamaged(Exception):
    """The file has no valid slot."""


def _slot(offset: int) -> bytes:
    digits = f"{offset:020d}"
    return f"{digits} {zlib.crc32(digits.encode()):08x}\n".encode()


def _offset_in(slot: bytes) -> int | None:
    digits = slot[:20]
    if not digits.isdigit():
        return None
    return int(digits) if slot == _slot(int(digits)) else None


def _slots(disk: Disk, path: str) -> list[int | None]:
    data = disk.read_bytes(path)
    return [_offset_in(data[at * SLOT_BYTES : (at + 1) * SLOT_BYTES]) for at in SLOTS]


def read_recovery_point(disk: Disk, directory: str) -> int:
    """Return the offset before which all is durable; 0 where there is no file.

    Raises: OSError, RecoveryPointDamaged.
    """
    path = posixpath.join(directory, FILE_NAME)
    if not disk.exists(path):
        return 0
    found = [each for each in _slots(disk, path) if each is not None]
    if not found:
        raise RecoveryPointDamaged(f"{path} is damaged")
    return max(found)


class RecoveryPoint:
    """The file of one directory. All calls but the periodic sync block.

    `on_failure` is called with the error of a failed sync.
    """

    def __init__(self, disk: Disk, directory: str, *, clock: Clock, workers: Workers) -> None:
        """Blocks. Raises: OSError, RecoveryPointDamaged."""
        self.offset = read_recovery_point(disk, directory)
        self.on_failure: Callable[[OSError], None] = lambda error: None
        self._disk = disk
        self._path = posixpath.join(directory, FILE_NAME)
        self._clock = clock
        self._workers = workers
        self._file: File | None = None
        self._exists = disk.exists(self._path)
        self._durable = 0
        """The slot that a power loss does not change."""
        self._writing = 1
        self._syncing_slot: int | None = None
        self._synced_ms = clock.monotonic_ms() - SYNC_MS
        self._syncing = False
        if self._exists:
            # Which slots are durable is unknown: a sync may have failed since they were written,
            # after which they can be read, and another sync writes nothing.
            self._replace(self.offset)

    def _free_slot(self) -> int:
        return next(each for each in SLOTS if each not in (self._durable, self._syncing_slot))

    def raised(self, offset: int) -> None:
        """Write that the log is durable up to `offset`. Raises: OSError."""
        if offset <= self.offset:
            return
        if not self._exists:
            self._replace(offset)
            return
        if self._file is None:
            self._file = self._disk.open(self._path)
        self._file.write_at(self._writing * SLOT_BYTES, _slot(offset))
        self.offset = offset
        self._sync_soon()

    def lower(self, offset: int) -> None:
        """Write, durably, that the log may be truncated to `offset`. Blocks. Raises: OSError."""
        if offset < self.offset:
            self._replace(offset)

    def _replace(self, offset: int) -> None:
        self.close()
        self._disk.write_atomic(self._path, _slot(offset) + EMPTY_SLOT * (len(SLOTS) - 1))
        self.offset = offset
        self._exists = True
        self._durable, self._writing, self._syncing_slot = 0, 1, None

    def sync_now(self) -> None:
        """Sync the file. Blocks. Raises: OSError."""
        if self._file is not None:
            self._file.sync()

    def _sync_soon(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._syncing or now_ms - self._synced_ms < SYNC_MS:
            return
        self._syncing, self._synced_ms = True, now_ms
        self._syncing_slot = self._writing
        self._writing = self._free_slot()

        def sync() -> None:
            # Its own descriptor: the other one may be closed meanwhile.
            file = self._disk.open(self._path)
            try:
                file.sync()
            finally:
                file.close()

        self._workers.submit(sync, self._synced)

    def _synced(self, outcome: BaseException | None) -> None:
        self._syncing = False
        synced, self._syncing_slot = self._syncing_slot, None
        if outcome is None and synced is not None:  # Else the file was replaced meanwhile.
            self._durable = synced
        if isinstance(outcome, OSError):
            self.on_failure(outcome)
        elif outcome is not None:
            raise outcome

    def close(self) -> None:
        """Release the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
