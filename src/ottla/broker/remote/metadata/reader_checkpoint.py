"""The checkpoint of one metadata partition's reader: what a restart need not read again.

One file for each metadata partition, `remote-log-metadata-checkpoint/<partition>` in a log
directory. It holds the offset from which to read on, and for each user partition its replayed
state with the offset up to which that has been replayed. These offsets may differ: the states are
taken one after the other while reading goes on.

    magic    4 bytes   "ORLM"
    version  int16     1
    crc32c   uint32    of all that follows
    topic id 16 bytes, partition int32 of the metadata topic
    offset   int64     from which to read on
    epoch    int32     leader epoch of the last record below it, -1 = none
    end      int64     no state is ahead of this offset
    epoch    int32     leader epoch of the last record below `end`
    count    int32     of states, each:
        topic id 16 bytes, partition int32, offset int64, size int32, state (`RemoteLog.image`)

Numbers are big-endian. A checkpoint is only a saving: one that is damaged, of another version or
of a former topic is ignored, and the metadata partition is read from its start.
"""

import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.ports import Disk, Workers
from ottla.broker.remote.metadata.metadata_chunks import UserPartition

logger = logging.getLogger(__name__)

DIR_NAME: Final = "remote-log-metadata-checkpoint"
MAGIC: Final = b"ORLM"
VERSION: Final = 1

_HEAD = struct.Struct(">4shI")
_READER = struct.Struct(">16siqiqii")
_STATE = struct.Struct(">16siqi")


class CheckpointDamaged(ValueError):
    """A checkpoint file cannot be used; the message says why."""


class UserState(NamedTuple):
    """A user partition's state as of `offset`: records from there on are not replayed yet."""

    offset: int
    image: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderCheckpoint:
    """The state of a metadata partition's reader.

    Fields: `topic_id`, `partition`: of the metadata topic. `offset`: where to read on; no state is
            behind it, and none ahead of `end_offset`. `epoch`, `end_epoch`: the leader epochs
            of the last records below these two.
    """

    topic_id: Uuid
    partition: int
    offset: int
    epoch: int
    end_offset: int
    end_epoch: int
    states: Mapping[UserPartition, UserState]


def encode_checkpoint(checkpoint: ReaderCheckpoint) -> bytes:
    """Return the file's content."""
    parts = [
        _READER.pack(
            checkpoint.topic_id,
            checkpoint.partition,
            checkpoint.offset,
            checkpoint.epoch,
            checkpoint.end_offset,
            checkpoint.end_epoch,
            len(checkpoint.states),
        )
    ]
    for (topic_id, partition), state in checkpoint.states.items():
        assert checkpoint.offset <= state.offset <= checkpoint.end_offset
        parts += (_STATE.pack(topic_id, partition, state.offset, len(state.image)), state.image)
    body = b"".join(parts)
    return _HEAD.pack(MAGIC, VERSION, crc32c(body)) + body


def decode_checkpoint(data: bytes) -> ReaderCheckpoint:
    """Return a file's checkpoint. Raises: CheckpointDamaged."""
    try:
        magic, version, crc = _HEAD.unpack_from(data)
        if magic != MAGIC:
            raise CheckpointDamaged("it is no checkpoint")
        if version != VERSION:
            raise CheckpointDamaged(f"its version is {version}, expected {VERSION}")
        body = data[_HEAD.size :]
        if crc32c(body) != crc:
            raise CheckpointDamaged("its checksum does not match")
        fields = _READER.unpack_from(body)
        topic_id, partition, offset, epoch, end_offset, end_epoch, count = fields
        position = _READER.size
        states: dict[UserPartition, UserState] = {}
        for _ in range(count):
            user_topic, user_partition, at, size = _STATE.unpack_from(body, position)
            position += _STATE.size
            image = body[position : position + size]
            if size < 0 or len(image) != size:
                raise CheckpointDamaged("it is cut off")
            position += size
            states[Uuid(user_topic), user_partition] = UserState(at, image)
    except struct.error:
        raise CheckpointDamaged("it is cut off") from None
    if position != len(body):
        raise CheckpointDamaged(f"{len(body) - position} bytes follow its end")
    return ReaderCheckpoint(
        topic_id=Uuid(topic_id),
        partition=partition,
        offset=offset,
        epoch=epoch,
        end_offset=end_offset,
        end_epoch=end_epoch,
        states=states,
    )


class CheckpointFiles:
    """The checkpoint files of one broker, read and written in workers.

    `log_dir`: the log directory that has them.
    """

    def __init__(self, *, disk: Disk, workers: Workers, log_dir: str) -> None:
        self._disk = disk
        self._workers = workers
        self._dir = f"{log_dir}/{DIR_NAME}"

    def read(self, topic_id: Uuid, partition: int) -> Pending[ReaderCheckpoint | None]:
        """Return a metadata partition's checkpoint; None where there is none that can be used."""
        found: Pending[ReaderCheckpoint | None] = Pending()
        path = self._path(partition)

        def work() -> ReaderCheckpoint | None:
            try:
                data = self._disk.read_bytes(path)
            except FileNotFoundError:
                return None
            return decode_checkpoint(data)

        def done(result: ReaderCheckpoint | BaseException | None) -> None:
            if isinstance(result, BaseException):
                logger.warning(
                    "reading %s failed: %s; reading the metadata partition from its start",
                    *(path, result),
                )
                result = None
            # One of a former topic is stale, not damaged: no line for it.
            if result is not None and (result.topic_id, result.partition) != (topic_id, partition):
                result = None
            found.complete(result)

        self._workers.submit(work, done)
        return found

    def write(self, checkpoint: ReaderCheckpoint) -> Pending[bool]:
        """Replace a metadata partition's checkpoint; return whether that succeeded."""
        written: Pending[bool] = Pending()
        path = self._path(checkpoint.partition)

        def work() -> None:
            self._disk.mkdir(self._dir)
            self._disk.write_atomic(path, encode_checkpoint(checkpoint))

        def done(result: BaseException | None) -> None:
            if result is not None:
                logger.warning("writing %s failed: %s; retrying later", path, result)
            written.complete(result is None)

        self._workers.submit(work, done)
        return written

    def remove(self, partition: int) -> Pending[None]:
        """Remove a metadata partition's checkpoint, if there is one."""
        removed: Pending[None] = Pending()
        path = self._path(partition)

        def done(result: BaseException | None) -> None:
            if result is not None:
                logger.warning("removing %s failed: %s", path, result)
            removed.complete(None)

        self._workers.submit(lambda: self._disk.remove(path), done)
        return removed

    def _path(self, partition: int) -> str:
        return f"{self._dir}/{partition}"
