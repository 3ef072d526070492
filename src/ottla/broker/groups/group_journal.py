"""The offsets partition of a shard: appending to it, and reading it from its start.

Appends go through the replica manager with acks=all. Loading reads and decodes in worker
threads, a chunk at a time, and only applies each chunk on the loop, so that a long log does not
stall the broker. It can be cancelled when the partition moves away.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.base.limits import GROUP_LOAD_BYTES_MAX
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock, Workers
from ottla.broker.produce.delayed_produce import AppendResult
from ottla.broker.replica_manager import ReplicaManager
from ottla.coordinator import loading
from ottla.coordinator.records import RecordPair
from ottla.coordinator.shard import Shard, Written
from ottla.log.config import LogConfig
from ottla.log.file_cache import FileSlice, SliceCopy
from ottla.log.validation import expanded_bytes_max
from ottla.records.batch import HEADER_SIZE, parse_header
from ottla.records.builder import NewRecord, encode_batch
from ottla.records.compression import Buffer, Codec
from ottla.records.errors import CorruptBatch

logger = logging.getLogger(__name__)

UNTIL_LEADERSHIP_ENDS_MS = 2**31 - 1
"""How long an append may wait for its replicas: the shard has its own timeouts for clients, and
needs the append's result however late it comes."""

WARNINGS_MAX = 20
"""Undecodable records that are logged in one load."""


class GroupJournal:
    """One partition of `__consumer_offsets`, which this broker leads."""

    def __init__(
        self, replicas: ReplicaManager, partition: int, *, clock: Clock, codec: Codec
    ) -> None:
        self._replicas = replicas
        self._partition = partition
        self._clock = clock
        self._codec = codec

    def append(self, records: Iterable[RecordPair]) -> Written:
        """Append as one batch; raise ApiError where nothing was written.

        Each key has the group's id, so a small request may name many times what the log allows.
        """
        log = self._replicas.partition(OFFSETS_TOPIC, self._partition).leader_log()
        first_offset = log.log_end_offset
        now_ms = self._clock.now_ms()
        rows: list[NewRecord] = []
        left = self._bytes_max(log.config)
        for key, value in records:
            left -= len(key) + len(value or b"")
            if left < 0:
                raise ApiError(Error.MESSAGE_TOO_LARGE)
            rows.append((key, value, (), now_ms))
        batch = encode_batch(rows, codec=self._codec)
        result = self._replicas.append(
            OFFSETS_TOPIC,
            self._partition,
            bytearray(batch),
            timeout_ms=UNTIL_LEADERSHIP_ENDS_MS,
            origin="coordinator",
        )
        if isinstance(result, Pending):
            return Written(first_offset, result.map(_error_of))
        if result.error:
            raise ApiError(result.error, result.message)
        return Written(first_offset, completed(Error.NONE))

    def _bytes_max(self, config: LogConfig) -> int:
        """Return how many bytes the keys and values of a batch may have, uncompressed."""
        return config.batch_bytes_max if self._codec is Codec.NONE else expanded_bytes_max(config)


def _error_of(result: AppendResult) -> Error:
    return result.error


class GroupLoad:
    """Loads a shard from its partition's log; `done` is called once, with None or the error.

    After `cancel` it is not called.
    """

    def __init__(
        self,
        shard: Shard,
        replicas: ReplicaManager,
        partition: int,
        *,
        workers: Workers,
        chunk_bytes: int,
        done: Callable[[Exception | None], None],
    ) -> None:
        self.shard = shard
        self.is_cancelled = False
        self.started_ms = shard.clock.monotonic_ms()
        self.loader = loading.Loader()
        self.deleted_topics: dict[Uuid, str] = {}
        """Topics that were deleted while it loads, with their names."""
        self._replicas = replicas
        self._partition = partition
        self._workers = workers
        self._chunk_bytes = min(chunk_bytes, GROUP_LOAD_BYTES_MAX)
        self._done = done
        self._passed_over = 0

    def cancel(self) -> None:
        """Stop after the chunk that is being read."""
        self.is_cancelled = True

    def advance(self) -> None:
        """Read the next chunk, or finish where there is none."""
        try:
            log = self._replicas.partition(OFFSETS_TOPIC, self._partition).leader_log()
            position = max(self.loader.position, log.log_start_offset)
            if position >= log.log_end_offset:
                self._finish(None)
                return
            read = log.read(
                position,
                max_bytes=self._chunk_bytes,
                upper_bound=log.log_end_offset,
                at_least_one=True,
            )
        except ApiError as refusal:
            self._finish(refusal)
            return
        except OSError as error:
            self._disk_failed(error)
            return
        if not read.size:
            self._finish(None)  # Compaction has removed the last offsets.
            return
        self._workers.submit(
            lambda: self._decode(read.slices), lambda outcome: self._decoded(read.slices, outcome)
        )

    def replicated(self) -> Pending[Error]:
        """Return the promise that all loaded records are committed, or the error."""
        try:
            return self._replicas.replicated(
                OFFSETS_TOPIC, self._partition, timeout_ms=UNTIL_LEADERSHIP_ENDS_MS
            )
        except ApiError as refusal:
            return completed(refusal.error)

    def _decode(self, slices: Sequence[FileSlice | SliceCopy]) -> list[loading.Step]:
        data = b"".join([piece.read() for piece in slices])
        before = self.loader.position
        steps = self.loader.decode(whole_batches(data))
        if self.loader.position == before:
            raise CorruptBatch(f"nothing whole to read at offset {before}")
        return steps

    def _decoded(
        self, slices: Sequence[FileSlice | SliceCopy], outcome: list[loading.Step] | BaseException
    ) -> None:
        for piece in slices:
            piece.release()
        if self.is_cancelled:
            return
        if isinstance(outcome, OSError):
            self._disk_failed(outcome)
            return
        if isinstance(outcome, BaseException):
            self._finish(outcome if isinstance(outcome, Exception) else RuntimeError(str(outcome)))
            return
        self._warn()
        loading.apply(self.shard, outcome)
        self.advance()

    def _warn(self) -> None:
        """Log the skipped records, up to WARNINGS_MAX of them."""
        for passed in self.loader.skipped:
            self._passed_over += 1
            if self._passed_over > WARNINGS_MAX:
                continue
            logger.warning(
                "%s-%d: %s at offset %d cannot be decoded (%s); skipping it",
                OFFSETS_TOPIC,
                self._partition,
                "batch" if passed.is_batch else "record",
                passed.offset,
                passed.reason,
            )
            if self._passed_over == WARNINGS_MAX:
                logger.warning(
                    "%s-%d: further records that cannot be decoded are skipped without a log line",
                    OFFSETS_TOPIC,
                    self._partition,
                )

    def _disk_failed(self, error: OSError) -> None:
        """Fail, and take the log directory offline, so that another replica may lead."""
        self._finish(error)
        with suppress(ApiError):
            self._replicas.storage_failed(
                self._replicas.partition(OFFSETS_TOPIC, self._partition), error
            )

    def _finish(self, error: Exception | None) -> None:
        if error is None:
            loading.finish(self.shard)
        self._done(error)


def whole_batches(data: Buffer) -> memoryview:
    """Return `data` without a batch cut off at its end; the first must be whole.

    Raises: CorruptBatch.
    """
    view = memoryview(data)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        size = parse_header(view, position, whole=position == 0).size_in_bytes
        if position + size > len(view):
            break
        position += size
    return view[:position]
