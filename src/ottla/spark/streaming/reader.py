"""`spark.readStream.format("ottla")`: what Spark calls for each batch of a stream.

Spark keeps the position in its checkpoint, and calls in this order: `latestOffset` with the end of
the last batch, which is committed then; it writes the answer to its log, so that the batch is
repeated if anything fails from here on; `partitions` with both ends; `read` in the tasks; it
commits the sink's output and then the batch. After a restart a batch that was written to the log
and not committed begins with `partitions`.

So a batch depends on its two positions alone, and what is asked of the cluster or kept in memory
only decides how far the next one reads. One process lives as long as the query and makes all calls
but `read`; Spark builds a reader more often than that, so nothing is opened before it is needed.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.client.partitions import TopicPartition
from ottla.spark import lookup
from ottla.spark.losses import report_losses
from ottla.spark.options import Limit
from ottla.spark.planner import Task
from ottla.spark.planning import PartitionFacts, check_named, timestamps_of
from ottla.spark.raw_options import log
from ottla.spark.streaming.advance import (
    OnRecreate,
    Unread,
    Until,
    advanced,
    beginning,
    stretches,
    survey,
)
from ottla.spark.streaming.group_commits import GroupCommits
from ottla.spark.streaming.logs import Logs, open_logs, report_replaced
from ottla.spark.streaming.offsets import StreamOffset
from ottla.spark.streaming.options import StreamOptions
from ottla.spark.streaming.rate_limits import (
    Ends,
    cuts_by_bytes,
    ends_of,
    is_delayed,
    limited_by_offsets,
)
from ottla.spark.tasks import read_task
from ottla.spark.tiers import tier_lookup
from ottla.spark.tiers.tier_planning import Place

# pyspark is not type-checked, hence its classes are Any to mypy.
# mypy: disable-error-code="misc"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream. Raises: OptionError, ClusterError, RemoteStorageError, DataLossError."""

    def __init__(self, options: StreamOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self._logs: Logs | None = None
        self._group: GroupCommits | None = None
        self._latest: StreamOffset | None = None
        """The end of the logs at the last look, for Spark's progress reports."""
        self._until: Until | None = None
        """Where a query with the trigger AvailableNow ends."""
        self._last_batch_ms: int | None = None
        self._idle_until = 0.0
        self._reported: set[str] = set()

    # -- where a stream begins and ends -------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new query begins.

        Spark asks again when it repeats the first batch, whose own position says where it began.
        """
        read = self.options.read
        facts = self._open_logs().partitions(None)
        keys = sorted(each.key for each in facts)
        check_named(read.starting, keys, "startingOffsets")
        starting: Limit = read.starting
        wanted = timestamps_of(starting, keys)
        found = self._open_logs().offsets_at(wanted) if wanted else {}
        offset, losses = beginning(
            facts, starting, found, latest_where_none_since=read.latest_where_none_since
        )
        report_losses(losses, fail=read.fail_on_data_loss)
        return offset.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the ends of the logs now: the query reads nothing behind them."""
        facts = self._open_logs().partitions(StreamOffset({}))
        self._until = {each.key: (each.topic_id, each.latest) for each in facts}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit where an option sets one, else none.

        Spark passes it back, unless the trigger reads all there is. It can hold one number only,
        so `latestOffset` applies the options instead.
        """
        options = self.options
        if options.offsets_max is not None:
            return ReadMaxRows(options.offsets_max)
        if options.bytes_max is not None:
            return ReadMaxBytes(options.bytes_max)
        if options.offsets_min is not None:
            return ReadMinRows(options.offsets_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends; `start` = there is nothing to read."""
        begin = StreamOffset.of(start)
        self._pause_if_idle()
        facts = self._open_logs().partitions(begin)
        self._commit_to_group(begin, facts)
        unread = self._unread(begin, facts)
        everything = advanced(begin, unread, {})
        self._latest = everything if self._until is None else None
        end = everything
        if not isinstance(limit, ReadAllAvailable):
            end = self._limited(begin, unread)
        if end == begin:
            self._idle_until = time.monotonic() + self._open_logs().pause_ms / 1000
        else:
            self._last_batch_ms = _now_ms()
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end of the logs at the last look."""
        return None if self._latest is None else self._latest.to_json()

    def _unread(self, begin: StreamOffset, facts: list[PartitionFacts]) -> list[Unread]:
        read = self.options.read
        found = survey(
            begin,
            facts,
            is_subscribed=lambda key: lookup.includes(read.subscription, key),
            until=self._until,
        )
        if self.options.on_recreate is OnRecreate.FAIL:
            report_replaced(found.replaced, self.options.on_recreate)
        if read.fail_on_data_loss:
            report_losses(found.losses, fail=True)
        self._report_once([*found.replaced, *found.losses])
        return found.unread

    def _report_once(self, messages: list[str]) -> None:
        for each in messages:
            if each not in self._reported:
                log.warning("data loss: %s", each)
        self._reported = set(messages)

    # -- how far a batch reads ----------------------------------------------------------------

    def _limited(self, begin: StreamOffset, unread: list[Unread]) -> StreamOffset:
        options = self.options
        # A query that ends when it has read everything must not wait for more.
        if options.offsets_min is not None and self._until is None:
            waited = None if self._last_batch_ms is None else _now_ms() - self._last_batch_ms
            if is_delayed(
                unread,
                options.offsets_min,
                waited_ms=waited,
                delay_ms_max=options.delay_ms_max,
            ):
                return begin
        limits = []
        if options.offsets_max is not None:
            limits.append(limited_by_offsets(unread, options.offsets_max))
        if options.bytes_max is not None:
            limits.append(self._limited_by_bytes(unread, options.bytes_max))
        return advanced(begin, unread, ends_of(unread, *limits))

    def _limited_by_bytes(self, unread: list[Unread], bytes_max: int) -> Ends:
        """Return where the bytes end; in remote segments as exactly as the offset index says."""
        places: dict[TopicPartition, list[Place]] = self._open_logs().places(
            [each for each in unread if len(each)]
        )
        cuts = cuts_by_bytes(places, bytes_max)
        ends = {key: cut.offset for key, cut in cuts.items()}
        inside = [
            (key, cut, cut.place.segment)
            for key, cut in cuts.items()
            if cut.place.segment is not None and cut.size_bytes < cut.place.size_bytes
        ]
        session = self._open_logs().session()
        if session is None:
            return ends
        found = tier_lookup.read_positions(session, [segment for _, _, segment in inside])
        for (key, cut, _), positions in zip(inside, found, strict=True):
            if positions is not None:
                ends[key] = cut.offset_by(positions)
        return ends

    def _pause_if_idle(self) -> None:
        """Wait where there was nothing new just now: Spark asks every 10 ms."""
        if self._until is None:
            time.sleep(max(0.0, self._idle_until - time.monotonic()))

    # -- batches ------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what each task of a batch reads."""
        wanted = stretches(StreamOffset.of(start), StreamOffset.of(end))
        return self._open_logs().plan(wanted) if wanted else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one task; depends on nothing but the task and the log."""
        if isinstance(partition, Task):
            yield from read_task(partition, self.options.read, self.columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Take note that a batch is over; Spark says so after it has planned the next one."""

    def stop(self) -> None:
        """Close all connections."""
        if self._logs is not None:
            self._logs.close()
        if self._group is not None:
            self._group.close()

    def _commit_to_group(self, begin: StreamOffset, facts: list[PartitionFacts]) -> None:
        """Commit the end of the last batch: Spark asks what comes next once it is committed.

        Not in `commit`, which Spark does not call for the last batch of a query.
        """
        if self.options.commit_group is None:
            return
        if self._group is None:
            self._group = GroupCommits(self.options.read.brokers, self.options.commit_group)
        reached = {each.key: begin.position_of(each.key, each.topic_id) for each in facts}
        self._group.commit({key: each for key, each in reached.items() if each is not None})

    def _open_logs(self) -> Logs:
        if self._logs is None:
            self._logs = open_logs(self.options)
        return self._logs


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
