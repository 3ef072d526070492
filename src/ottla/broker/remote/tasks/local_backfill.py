"""Copies records from its leader to a follower whose local log begins later than the leader's.

While tiered storage is on, the local logs of replicas may begin at different offsets: what one of
them lacks is in remote storage. Once the remote segments are given up, the partition's log starts
with the local files of its leader. A follower whose own begin later would lose the records between
with the next failover, although they are not expired. So it reads them from the leader, as a
consumer does, and puts them before its first segment (`ottla.log.earlier_segments`). Until that is
durable it does not acknowledge the disablement.

It does so, too, where it was away while tiered storage was turned off and on again, until the new
copies reach its local log.

It is bounded in bytes, not in rate: each leader is asked by one fetch at a time (`remote_storage`
has its size), and by no more while too much is not written yet.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.broker.remote.dialogue import Dialogue, wait
from ottla.log.earlier_segments import EarlierSegment, EarlierSegments
from ottla.records.errors import RecordsError

if TYPE_CHECKING:
    from ottla.broker.remote.environment import LeaderRecords, RemoteEnvironment
    from ottla.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEADER_PAUSE_MS: Final = 100
"""Until the leader's log start, or its next committed records, may have come."""


class LocalBackfill:
    """See the module. `is_needed`: tells whether the follower lacks records now."""

    def __init__(
        self,
        environment: "RemoteEnvironment",
        records: "LeaderRecords",
        log: "PartitionLog",
        is_needed: Callable[[], bool],
    ) -> None:
        self._environment = environment
        self._records = records
        self._log = log
        self._is_needed = is_needed
        self._writer: EarlierSegments | None = None
        self._working: Pending[Any] = completed(None)
        """Completes with the last work in a worker, also where nobody waits for it any more."""

    def run(self) -> Dialogue[None]:
        """Copy until nothing is lacking."""
        failures, log = 0, self._log
        try:
            while not log.failed and self._is_needed():
                try:
                    problem = yield from self._round()
                except (ApiError, OSError, RecordsError) as error:
                    problem = error
                if problem is None:
                    failures = 0
                    continue
                failures += 1
                yield self._pause_ms(problem, failures)
        finally:
            self._abandon()
            self._records.cancel(log.topic_id, log.partition)

    def _pause_ms(self, problem: Exception, failures: int) -> int:
        """Note a failure; return the backoff, in milliseconds."""
        self._abandon()
        if isinstance(problem, ApiError) and problem.error in (
            Error.OFFSET_OUT_OF_RANGE,
            Error.OFFSET_NOT_AVAILABLE,
        ):
            return LEADER_PAUSE_MS  # This replica does not have its leader's log start yet.
        environment = self._environment
        pause_ms = environment.calls.backoff.delay_ms(failures, environment.dice)
        if failures == 1:
            logger.warning(
                "%s: copy of the leader's records before the local log start failed: %s; retrying"
                " in %d ms",
                *(self._log.name, problem, pause_ms),
            )
        return pause_ms

    def _abandon(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            # Not beside its work, which a copy that is cancelled leaves behind in another thread:
            # it would leave files that are open, or close one that is being written.
            workers, abandon = self._environment.workers, writer.abandon
            self._working.then(lambda _: workers.submit(abandon, lambda _: None))

    def _round(self) -> Dialogue[Exception | None]:
        """Copy all that is lacking."""
        log = self._log
        truncation_count, begin = log.truncation_count, log.local_log_start_offset
        writer = self._writer = log.retention.earlier_segments()
        earlier: list[EarlierSegment] = []
        if writer is not None:
            problem = yield from self._read(writer)
            if problem is not None:
                return problem
            earlier = yield from self._work(writer.finish)
        is_same = log.truncation_count == truncation_count and not log.failed
        is_next = writer is None or log.segments.first.base_offset == writer.end
        if not (is_same and is_next and self._is_needed()):
            self._abandon()
            return None  # The log is another one by now, or nothing is lacking any more.
        self._writer = None
        log.retention.prepend_segments(earlier)
        try:
            yield from self._work(lambda: log.ports.disk.sync_dir(log.directory))
            is_lowered = log.retention.lower_local_start(truncation_count)
        except BaseException:
            log.retention.prepends = False  # Retention deletes what was put there.
            raise
        if not is_lowered:
            return None
        logger.info(
            "%s: copied the leader's records from %d to %d, before the local log start",
            *(log.name, log.local_log_start_offset, begin),
        )
        stored = self._records.store_local_start(log)
        stored.then(lambda error: None if error else log.retention.local_start_stored())
        return (yield from wait(stored))

    def _read(self, writer: EarlierSegments) -> Dialogue[Exception | None]:
        log = self._log
        held = self._environment.backfill_bytes
        while not writer.is_complete:
            yield from held.wait()
            found = yield from wait(
                self._records.read(log.topic_id, log.partition, writer.next_offset)
            )
            if isinstance(found, ApiError):
                return found
            if found:
                held.take(len(found))
                try:
                    yield from self._work(lambda data=found: writer.write(data))  # type: ignore[misc]
                finally:
                    held.give_back(len(found))
            else:
                yield LEADER_PAUSE_MS
            if log.failed or not self._is_needed():
                return ApiError(Error.OFFSET_NOT_AVAILABLE)  # It is looked at again.
        return None

    def _work(self, work: Callable[[], T]) -> Dialogue[T]:
        """Do blocking work in a worker. Raises what it raises."""
        done: Pending[T | BaseException] = Pending()
        self._working = done

        def ended(result: "T | BaseException") -> None:
            done.complete(result)

        self._environment.workers.submit(work, ended)
        result = yield from wait(done)
        if isinstance(result, BaseException):
            raise result
        return result
