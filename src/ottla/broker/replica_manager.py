"""All partitions that this broker hosts: lookup, appends, leadership changes, deletion.

Everything runs on the loop. An append that must wait for replicas waits in a purgatory under its
partitions; appends, leadership changes and deletions wake what waits. All partitions of one request
are appended before any fetch is woken, so that a fetch of the same partitions sees the whole
request.

Source: Kafka's ReplicaManager.scala and DelayedProduce.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, NO_UUID, Uuid
from ottla.base.pending import Pending, completed, gather
from ottla.base.ports import Buffer, Clock, Workers, is_shortage
from ottla.base.timers import Timers
from ottla.base.turns import Steps
from ottla.broker.fetch.delayed_fetch import FetchReader
from ottla.broker.fetch.fetch_sessions import FetchPartition, Key
from ottla.broker.fetch.read_replica import Selector
from ottla.broker.fetch.remote_port import RemoteReads
from ottla.broker.logs.log_creation import (
    LOGS_AT_ONCE_MAX,
    begin_restored,
    create_logs,
    get_or_create_log,
    new_partitions,
)
from ottla.broker.metrics import TopicMetrics
from ottla.broker.partition import ACKS_ALL, Origin, Partition, PartitionEnvironment
from ottla.broker.ports import CloseConnection
from ottla.broker.produce.batch_work import BatchWork
from ottla.broker.produce.delayed_produce import AppendResult, Wait, delay_produce, refused
from ottla.broker.produce.heavy_batches import HeavyBatches, Outcome
from ottla.broker.purgatory import Purgatory
from ottla.broker.replication.damaged_logs import DamagedLogs, may_copy_again
from ottla.broker.summary import Summary
from ottla.log.dirs.undeletable_dirs import UndeletableDir
from ottla.log.file_cache import OutOfDescriptors
from ottla.log.validation import Allowance, Examined, TooHeavy
from ottla.metadata.image import EMPTY, ClusterImage, TopicImage

if TYPE_CHECKING:
    from ottla.log.config import LogConfig
    from ottla.log.dirs.log_dir import LogDir
    from ottla.log.dirs.log_dirs import LogDirs
    from ottla.log.flushing import Flushed
    from ottla.log.partition_log import PartitionLog
    from ottla.log.results import DamagedLog
    from ottla.metadata.delta import ClusterDelta

logger = logging.getLogger(__name__)

_new = tuple.__new__
_NONE = Error.NONE

COORDINATOR_TIMEOUT_MS = 5_000
"""offsets.commit.timeout.ms: how long a coordinator's own append waits for its replicas."""


class TopicSettings(NamedTuple):
    """The settings of a topic's partitions."""

    log: "LogConfig"
    min_insync_replicas: int = 1


class ReplicaManager:
    """The hosted partitions. `settings` gives a topic's settings as of an image."""

    def __init__(
        self,
        *,
        node_id: int,
        clock: Clock,
        timers: Timers,
        workers: Workers,
        log_dirs: "LogDirs",
        settings: Callable[[ClusterImage, str], TopicSettings],
        environment: PartitionEnvironment | None = None,
        select: Selector | None = None,
        remote: RemoteReads | None = None,
    ) -> None:
        self.node_id = node_id
        self.image: ClusterImage = EMPTY
        self.log_dirs = log_dirs
        self.environment = PartitionEnvironment(brokers={}) if environment is None else environment
        self.produce_purgatory = Purgatory(timers)
        self.delete_records_purgatory = Purgatory(timers)
        """DeleteRecords requests that wait until every live replica has deleted the records."""
        self.fetch_reader = FetchReader(self, clock, timers, select, remote)
        self.batch_work = BatchWork(workers)
        self._heavy = HeavyBatches(self.batch_work)
        self._clock = clock
        self._settings = settings
        self._settings_of: Callable[[str], TopicSettings] = partial(settings, EMPTY)
        self.on_all_log_dirs_failed: Callable[[], None] | None = None
        """Called when the last log directory has failed: the broker must end."""
        self.on_log_dir_failed: Callable[[], None] | None = None
        """Called when a log directory has failed and others are left: to inform the controller."""
        self.on_replica_offline: Callable[[Partition], None] | None = None
        """Called when a replica is offline while its log directory is online."""
        self.damaged = DamagedLogs(log_dirs)
        log_dirs.on_offline = self._dir_failed
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[Uuid, dict[int, Partition]] = {}
        self._by_key: dict[Key, Partition] = {}
        """Each partition twice, by topic id and by topic name, for lookups by requests."""
        self._hosted: tuple[Partition, ...] | None = None
        """All in order; None = not computed since the last change."""
        self._begun: set[Partition] = set()
        self._failures: list[tuple[str, Exception]] = []
        self._metrics: dict[str, TopicMetrics] = {}
        self._answered: list[Partition] = []
        """Partitions whose ISR proposals the metadata change in progress has settled."""
        self._summary = Summary(logger)

    # -- Finding --

    def partition(self, topic: str, partition_id: int) -> Partition:
        """Return a hosted partition; raise ApiError with the code that clients expect."""
        found = self._by_key.get((topic, partition_id))
        if found is not None:
            return found
        known = self.image.topics.by_name(topic)
        if known is not None and partition_id in known.partitions:
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)

    def partition_by_id(self, topic_id: Uuid, partition_id: int) -> Partition:
        """Return a hosted partition; raise ApiError with the code that clients expect."""
        found = self._by_key.get((topic_id, partition_id))
        if found is not None:
            return found
        known = self.image.topics.by_id(topic_id)
        if known is None:
            raise ApiError(Error.UNKNOWN_TOPIC_ID)
        if (known.name, partition_id) in self._by_key:
            raise ApiError(Error.INCONSISTENT_TOPIC_ID)
        if partition_id in known.partitions:
            raise ApiError(Error.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)

    def is_offline(self, topic: str, partition_id: int) -> bool:
        """Tell whether a partition is hosted in a log directory that is offline."""
        found = self._by_key.get((topic, partition_id))
        return found is not None and found.log is None

    def partition_for(self, requested: FetchPartition) -> Partition:
        """Return the partition that a fetch names; raise ApiError as the two lookups above."""
        found = self._by_key.get(requested.key)
        if found is not None:
            return found
        if requested.topic_id == NO_UUID:
            return self.partition(requested.topic, requested.partition_id)
        return self.partition_by_id(requested.topic_id, requested.partition_id)

    def hosted(self) -> tuple[Partition, ...]:
        """Return all hosted partitions, in order of topic and partition."""
        if self._hosted is None:
            self._hosted = tuple(
                partition
                for _, by_partition_id in sorted(self._by_name.items())
                for _, partition in sorted(by_partition_id.items())
            )
        return self._hosted

    @property
    def topic_metrics(self) -> Collection[TopicMetrics]:
        """Return the counters of the hosted topics."""
        return self._metrics.values()

    # -- Appending --

    def append(
        self,
        topic: str,
        partition_id: int,
        data: Buffer,
        *,
        acks: int = ACKS_ALL,
        timeout_ms: int = COORDINATOR_TIMEOUT_MS,
        origin: Origin = "client",
    ) -> AppendResult | Pending[AppendResult]:
        """Append to one partition: used by coordinators for their own logs."""
        try:
            partition = self.partition(topic, partition_id)
        except ApiError as refusal:
            return AppendResult(refusal.error, refusal.message)
        batches = [(partition, data)]
        results = self.append_all(batches, acks=acks, timeout_ms=timeout_ms, origin=origin)
        if isinstance(results, Pending):
            return results.map(_first)
        return results[0]

    def replicated(self, topic: str, partition_id: int, *, timeout_ms: int) -> Pending[Error]:
        """Return the promise that all records that a partition has now are committed, or the error.

        Raises ApiError where this broker does not lead it.
        """
        partition = self.partition(topic, partition_id)
        end = partition.leader_log().log_end_offset
        outcome = partition.committed(end)
        if outcome is not None:
            return completed(outcome)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        results, waits = [AppendResult(Error.NONE)], [Wait(0, partition, end, None)]
        return delay_produce(self.produce_purgatory, results, waits, ACKS_ALL, deadline_ms).map(
            _first_error
        )

    def append_all(
        self,
        batches: Sequence[tuple[Partition, Buffer | Examined]],
        *,
        acks: int,
        timeout_ms: int,
        origin: Origin = "client",
        closed: Pending[None] | None = None,
    ) -> list[AppendResult] | Pending[list[AppendResult]]:
        """Append to several partitions, each by itself; a result for each, in order.

        With acks=all the results wait until every in-sync replica has the records, at most
        `timeout_ms`, or until `closed` completes. A partition that fails does not delay or undo the
        others. A client's batch that takes long to validate is appended later (`heavy_batches`),
        and the results wait for it.

        Raises: CloseConnection where too many of these wait.
        """
        now_ms = self._clock.now_ms()
        allowance = Allowance() if origin == "client" else None
        results: list[AppendResult] = []
        waits: list[Wait] = []
        heavy: list[tuple[int, Partition, Buffer]] = []
        replicated: list[tuple[Partition, int, int]] = []
        for partition, data in batches:
            sent = data.data if isinstance(data, Examined) else data
            partition.metrics.is_used = True
            if not partition.alone:
                replicated.append((partition, len(sent), partition.high_watermark))
            try:
                if sent is data and self._heavy.is_waited_for(partition, sent):
                    raise TooHeavy
                info = partition.append(data, acks, now_ms, origin, allowance)
            except TooHeavy:
                heavy.append((len(results), partition, sent))
                results.append(AppendResult(Error.NONE))
                continue
            except ApiError as refusal:
                partition.metrics.failed_produces += 1
                results.append(refused(partition, refusal))
                continue
            except OSError as error:
                partition.metrics.failed_produces += 1
                self.storage_failed(partition, error)
                results.append(AppendResult(Error.KAFKA_STORAGE_ERROR))
                continue
            if not info.duplicate:
                metrics = partition.metrics
                metrics.messages_in += info.record_count
                metrics.bytes_in += info.size
            flushed = None
            if info.flush_due and partition.log is not None:
                flushed = self._flush(partition, partition.log)
            lags = acks == ACKS_ALL and partition.lags(info.last_offset)
            if lags or (flushed is not None and acks != 0):
                waits.append(Wait(len(results), partition, info.last_offset + 1, flushed))
            results.append(
                _new(AppendResult, (_NONE, None, info[0], info[1], info[2], info[3], ()))
            )
        self._wake_appended(batches, results, replicated)
        appended: list[AppendResult] | Pending[list[AppendResult]] = results
        if waits:
            deadline_ms = self._clock.monotonic_ms() + max(timeout_ms, 0)
            appended = delay_produce(
                self.produce_purgatory, results, waits, acks, deadline_ms, closed
            )
        if not heavy:
            return appended
        return self._with_heavy(appended, heavy, acks, timeout_ms, closed)

    def _wake_appended(
        self,
        batches: Sequence[tuple[Partition, Buffer | Examined]],
        results: list[AppendResult],
        replicated: list[tuple[Partition, int, int]],
    ) -> None:
        """Wake the delayed fetches of what was appended."""
        purgatory = self.fetch_reader.consumer_purgatory
        if purgatory.count:
            for (partition, data), result in zip(batches, results, strict=True):
                if result.error is _NONE and partition.alone:
                    sent = data.data if isinstance(data, Examined) else data
                    purgatory.wake(partition, len(sent))
        if replicated:
            self.fetch_reader.wake_followers(
                [(partition, size) for partition, size, _ in replicated]
            )
            for partition, _, high_watermark in replicated:
                if partition.high_watermark != high_watermark:
                    self.high_watermark_moved(partition)

    def _with_heavy(
        self,
        light: list[AppendResult] | Pending[list[AppendResult]],
        heavy: Sequence[tuple[int, Partition, Buffer]],
        acks: int,
        timeout_ms: int,
        closed: Pending[None] | None,
    ) -> Pending[list[AppendResult]]:
        """Append the batches of `heavy`, each with its slot, once they are validated."""
        promises = [light if isinstance(light, Pending) else completed(light)]
        for _, partition, data in heavy:
            if self._heavy.is_full:
                raise CloseConnection("too many produced batches wait to be examined")
            late: Pending[list[AppendResult]] = Pending()
            promises.append(late)
            log = partition.log
            if log is None:
                late.complete([AppendResult(Error.KAFKA_STORAGE_ERROR)])
                continue
            # As the first listener: batches that wait behind this one must find it appended.
            self._heavy.examine(partition, data, log.config, closed).then(
                partial(self._append_examined, partition, late, acks, timeout_ms, closed)
            )

        def merge(outcomes: list[list[AppendResult]]) -> list[AppendResult]:
            results, *late = outcomes
            for (slot, _, _), (result,) in zip(heavy, late, strict=True):
                results[slot] = result
            return results

        return gather(promises).map(merge)

    def _append_examined(
        self,
        partition: Partition,
        late: Pending[list[AppendResult]],
        acks: int,
        timeout_ms: int,
        closed: Pending[None] | None,
        outcome: Outcome,
    ) -> None:
        """Append a validated batch, if this broker still leads; complete `late`."""
        if partition.gone:
            late.complete([AppendResult(partition.gone, partition.gone.message)])
            return
        if isinstance(outcome, OSError):
            outcome = ApiError(Error.UNKNOWN_SERVER_ERROR)
        if isinstance(outcome, ApiError):
            partition.metrics.failed_produces += 1
            late.complete([refused(partition, outcome)])
            return
        try:
            appended = self.append_all(
                [(partition, outcome)], acks=acks, timeout_ms=timeout_ms, closed=closed
            )
        except CloseConnection as reason:
            appended = [AppendResult(Error.REQUEST_TIMED_OUT, str(reason))]
        promise = appended if isinstance(appended, Pending) else completed(appended)
        promise.map(late.complete)

    # -- Watermarks and ISR --

    def follower_advanced(self, partition: Partition) -> None:
        """Wake consumers' fetches of a followed partition whose high watermark moved."""
        if self.fetch_reader.consumer_purgatory.count:
            self.fetch_reader.consumer_purgatory.wake(partition)

    def high_watermark_moved(self, partition: Partition) -> None:
        """Wake the requests that wait for the high watermark."""
        if self.produce_purgatory.count:
            self.produce_purgatory.wake(partition)
        if self.fetch_reader.consumer_purgatory.count:
            self.fetch_reader.consumer_purgatory.wake(partition)
        self.fetch_reader.hasten_follower_fetches(partition)

    def follower_moved(self, partition: Partition) -> None:
        """Wake the requests that wait for followers: the high or low watermark may have moved."""
        self.high_watermark_moved(partition)
        if self.delete_records_purgatory.count:
            self.delete_records_purgatory.wake(partition)

    def isr_changed(self, partition: Partition) -> None:
        """Handle a changed ISR: fewer or more replicas may hold the high watermark back."""
        self._commit(partition)
        partition.maybe_expand_isr()

    def recheck(self, *, shrink: bool = False) -> None:
        """Check all led partitions: time or a broker's state may have moved the high watermark.

        `shrink`: propose to remove lagging followers from the ISR, too.
        """
        for partition in tuple(self.hosted()):
            if partition.alone or not partition.is_leader or partition.log is None:
                continue
            if shrink:
                partition.maybe_shrink_isr()
            self._commit(partition)
            if self.delete_records_purgatory.count:
                # Fenced brokers are not waited for.
                self.delete_records_purgatory.wake(partition)

    def _commit(self, partition: Partition) -> None:
        """Advance the high watermark after a change of something besides the replicas' log ends."""
        log = partition.log
        if log is None or not partition.is_leader or log.high_watermark == log.log_end_offset:
            return
        if log.flush_due:
            self._flush(partition, log)
        if partition.advance_high_watermark():
            self.high_watermark_moved(partition)

    def _flush(self, partition: Partition, log: "PartitionLog") -> "Flushed":
        """Flush a led partition's log, and advance the high watermark after that."""
        flushed = log.flush()

        def commit(_: OSError | None) -> None:
            if partition.log is log and partition.is_leader and partition.advance_high_watermark():
                self.high_watermark_moved(partition)

        flushed.then(commit)
        return flushed

    # -- Metadata changes --

    def prepare(self, delta: "ClusterDelta") -> Steps[None] | None:
        """Return the steps that create the logs a change needs, if they are many; `apply` follows.

        Only for changes after the first one, and before another one is applied.
        """
        partitions = list(new_partitions(delta, self.node_id))
        if len(partitions) <= LOGS_AT_ONCE_MAX:
            return None
        config = cache(lambda topic: self._settings(delta.image, topic).log)
        return create_logs(self.log_dirs, partitions, config, node_id=self.node_id)

    def apply(
        self,
        delta: "ClusterDelta",
        *,
        first: bool = False,
        reconfigured: Sequence[str] | None = (),
    ) -> list[tuple[Partition, bool]]:
        """Host, lead, stop and delete partitions by the metadata; deletions come first.

        `first` = the whole metadata at a start: a missing log may be in a log directory that is
        offline, and is not created again. `reconfigured`: the topics whose settings changed, None =
        all. They are applied before any partition: nothing may be committed by a new, smaller ISR
        and the old min.insync.replicas.

        Returns the partitions whose leadership was checked, with whether this broker begins to
        lead them now; those no longer hosted are in the list, too, as not led. A partition that
        fails does not delay the others: `applied` returns it.
        """
        self.image = delta.image
        self.environment.brokers = delta.image.brokers
        # Partitions of one topic share its settings.
        self._settings_of = cache(lambda topic: self._settings(delta.image, topic))
        configured = self._configure(self._by_name if reconfigured is None else reconfigured)
        touched: list[tuple[Partition, bool]] = []
        self._answered = []
        for topic in delta.deleted_topics.values():
            partition_ids = sorted(self._by_id.get(topic.id, {}))
            touched += [
                (self._drop(topic.id, partition_id), False) for partition_id in partition_ids
            ]
        for change in delta.changed_topics.values():
            for partition_id in change.partitions:
                touched += self._try_to_apply(change.new, partition_id, is_new=not first)
        for topic in delta.created_topics.values():
            for partition_id in sorted(topic.partitions):
                touched += self._try_to_apply(topic, partition_id, is_new=not first)
        self._summary.log()
        for partition in configured:
            self._commit(partition)
        for partition in self._answered:
            self.isr_changed(partition)
        for partition, began in touched:
            if began and partition.log is not None and partition.log.flush_due:
                self._commit(partition)  # Nobody may append and flush it, for long.
        self._wake_each([partition for partition, _began in touched])
        return touched

    def applied(self, partitions: Collection[Partition]) -> list[tuple[str, Exception]]:
        """Confirm that the result of `apply` was handled; return the partitions that failed.

        Until then each further `apply` of a partition returns again that this broker begins to
        lead it.
        """
        self._begun.difference_update(partitions)
        failures, self._failures = self._failures, []
        return failures

    def _try_to_apply(
        self, topic: TopicImage, partition_id: int, *, is_new: bool
    ) -> list[tuple[Partition, bool]]:
        try:
            return self._apply_partition(topic, partition_id, is_new=is_new)
        except Exception as error:
            self._failures.append((f"{topic.name}-{partition_id}", error))
            return []

    def _configure(self, topics: Iterable[str]) -> list[Partition]:
        """Apply the settings of these topics to their partitions; return these."""
        found: list[Partition] = []
        for topic in sorted(topics):
            hosted = self._by_name.get(topic)
            if hosted:
                settings = self._settings_of(topic)
                for partition in hosted.values():
                    partition.min_insync_replicas = settings.min_insync_replicas
                    log = partition.log
                    if log is not None:
                        log.reconfigure(settings.log)
                        if log.flush_due:
                            # With a new flush.messages, replicated records count as flushed.
                            self._flush(partition, log)
                    found.append(partition)
        return found

    def _apply_partition(
        self, topic: TopicImage, partition_id: int, *, is_new: bool
    ) -> list[tuple[Partition, bool]]:
        state = topic.partitions[partition_id]
        partition = self._by_id.get(topic.id, {}).get(partition_id)
        if self.node_id not in state.replicas:
            if partition is None:
                return []
            # Other brokers host it: a producer must go there, not fail.
            return [(self._drop(topic.id, partition_id, Error.NOT_LEADER_OR_FOLLOWER), False)]
        if partition is None:
            partition = self._host(topic, partition_id, is_new=is_new)
        requested = partition.pending
        before = partition.leader_epoch, partition.partition_epoch
        try:
            if partition.apply(state):
                self._begun.add(partition)
        except Exception:
            # It must not lead in an epoch that it has not begun; the retry begins it.
            partition.leader = NO_LEADER
            partition.leader_epoch, partition.partition_epoch = before
            raise
        if requested is not None and partition.pending is None and before[0] == state.leader_epoch:
            self._answered.append(partition)
        return [(partition, partition.is_leader and partition in self._begun)]

    def _host(self, topic: TopicImage, partition_id: int, *, is_new: bool) -> Partition:
        settings = self._settings_of(topic.name)
        log = failure = None
        try:
            log = get_or_create_log(
                self.log_dirs,
                topic,
                partition_id,
                settings.log,
                node_id=self.node_id,
                is_new=is_new,
            )
            # It may have been loaded before the broker had its dynamic settings.
            log.reconfigure(settings.log)
            tiering = self.image.tiering.get(topic.id)
            restored = None if tiering is None else tiering.restored_partition(partition_id)
            if begin_restored(log, restored):
                self.log_dirs.checkpoint_log_start(log)
        except OSError as error:
            if is_shortage(error):
                raise OutOfDescriptors(f"{topic.name}-{partition_id}") from error
            failure = error
            name = f"{topic.name}-{partition_id}"
            self._summary.add(logging.ERROR, "log creation failed", f"{name} ({error})")
        partition = Partition(
            topic.name,
            topic.id,
            partition_id,
            node_id=self.node_id,
            log=log,
            metrics=self._metrics.setdefault(topic.name, TopicMetrics(topic.name)),
            environment=self.environment,
        )
        partition.min_insync_replicas = settings.min_insync_replicas
        self._by_id.setdefault(topic.id, {})[partition_id] = partition
        self._by_name[topic.name] = self._by_id[topic.id]
        self._by_key[topic.id, partition_id] = self._by_key[topic.name, partition_id] = partition
        self._hosted = None
        if log is not None and failure is not None:
            # It could not begin where it has to, and would take records for other offsets.
            self.storage_failed(partition, failure)
        return partition

    def _drop(
        self, topic_id: Uuid, partition_id: int, gone: Error = Error.UNKNOWN_TOPIC_OR_PARTITION
    ) -> Partition:
        """Stop hosting a partition and delete its log; the caller wakes what waits for it."""
        hosted = self._by_id[topic_id]
        partition = hosted.pop(partition_id)
        self._hosted = None
        del self._by_key[topic_id, partition_id]
        if self._by_key.get((partition.topic, partition_id)) is partition:
            del self._by_key[partition.topic, partition_id]
        if not hosted:
            del self._by_id[topic_id]
            if self._by_name.get(partition.topic) is hosted:
                del self._by_name[partition.topic]
                del self._metrics[partition.topic]
        partition.gone = gone
        self._begun.discard(partition)
        try:
            self.log_dirs.delete(partition.topic, partition_id)
        except UndeletableDir:
            pass  # Its log directory is fine, and the deletion request gets the reason.
        except OSError as error:
            self.storage_failed(partition, error)
        partition.log = None
        return partition

    def _wake_each(self, partitions: Sequence[Partition]) -> None:
        """Wake all delayed requests of these partitions, after all of them have changed."""
        self.produce_purgatory.wake_each(partitions)
        self.fetch_reader.wake_each(partitions)
        self.delete_records_purgatory.wake_each(partitions)

    # -- Disk failure --

    def storage_failed(self, partition: Partition, error: OSError) -> None:
        """Take the log directory of a partition offline, with all its logs.

        The want of a file descriptor is no failure of a disk.
        """
        log = partition.log
        if log is not None:
            directory = self.log_dirs.directory_of(log)
            logs = self.log_dirs.fail(log, error)
            if logs:
                path = log.directory if directory is None else directory.path
                self._take_offline(path, logs, error)

    def log_damaged(self, partition: Partition, damage: "DamagedLog", *, fetched: bool) -> bool:
        """Handle damage that a truncation found; return whether to truncate before the damage.

        Else the replica is offline now. `fetched`: its leader has accepted a fetch of it in this
        epoch. See `damaged_logs`.
        """
        goes_on = not fetched and may_copy_again(self.image, partition, self.node_id)
        self.damaged.found_by_truncation(partition, damage, goes_on=goes_on)
        if not goes_on:
            self._wake_each([partition])
            if self.on_replica_offline is not None:
                self.on_replica_offline(partition)
        return goes_on

    def log_unreadable(self, partition: Partition, offset: int, refusal: ApiError) -> None:
        """Note a failed read; see `damaged_logs`."""
        self.damaged.found_by_read(partition, offset, refusal)

    def _dir_failed(self, directory: "LogDir", logs: "list[PartitionLog]") -> None:
        """Handle a log directory that failed in a background task."""
        self._take_offline(directory.path, logs, directory.error)

    def _take_offline(self, path: str, logs: "list[PartitionLog]", error: OSError | None) -> None:
        logger.error("log directory %s failed: %s; its %d logs are offline", path, error, len(logs))
        hit: list[Partition] = []
        for log in logs:
            partition = self._by_id.get(log.topic_id, {}).get(log.partition)
            if partition is not None and partition.log is log:
                partition.log = None
                hit.append(partition)
        self._wake_each(hit)
        callback = (
            self.on_log_dir_failed if self.log_dirs.online_dirs else self.on_all_log_dirs_failed
        )
        if callback is not None:
            callback()


def _first_error(results: list[AppendResult]) -> Error:
    return results[0].error


def _first(results: list[AppendResult]) -> AppendResult:
    return results[0]
