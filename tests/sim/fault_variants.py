"""Ottla with one rule subtly broken: kept but off by one, applied too late, forgotten in one path.

Unlike those of `variants` they are to be found by the standard mix of the simulator, without a
scenario made for them, and by a checker of promises, not by an assertion or by missing progress:
see `standard_mix`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH
from ottla.base.pending import completed
from ottla.base.zookeeper import ANY_VERSION, Check, SetData
from ottla.broker import partition
from ottla.broker.api import k63_broker_heartbeat
from ottla.broker.partition import Partition
from ottla.broker.purgatory import Purgatory
from ottla.broker.replication import follower_rules, replica_fetcher
from ottla.broker.replication.followers import FollowerState
from ottla.broker.replication.isr_manager import IsrManager
from ottla.broker.zookeeper.zk_metadata import ZkMetadata
from ottla.controller.brokers import brokers
from ottla.controller.partitions import isr as isr_module
from ottla.host.kraft.quorum_storage import QuorumStorage
from ottla.host.zookeeper.store import store_writing
from ottla.host.zookeeper.store.store_writing import Done, Writer
from ottla.log.dirs.replica_deletion import _ReplicaDeletion
from ottla.log.file_cache import Handle
from ottla.log.flushing import FlushOwner, LogFlusher
from ottla.log.log_truncation import LogTruncation
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord
from ottla.metadata.znodes import multis, write_topics
from ottla.metadata.znodes.paths import CONTROLLER_EPOCH
from ottla.raft.election import FILE_NAME as QUORUM_STATE
from ottla.raft.election import ElectionState, encode_election
from ottla.raft.flushing import Flushing
from ottla.raft.snapshots import PART_SUFFIX, StoredSnapshot, inspect_snapshot
from ottla.raft.values import OffsetAndEpoch

from .replaced import replaced
from .rule import variant

# -- the order of durability -------------------------------------------------------------------


@contextmanager
def stores_its_vote_without_a_sync() -> Iterator[None]:
    """A voter answers when quorum-state has its new content, durable or not."""

    def store(self: QuorumStorage, state: ElectionState) -> None:
        path = f"{self._directory}/{QUORUM_STATE}"
        file = self._disk.open(f"{path}.tmp", create=True)
        file.truncate(0)
        file.append([encode_election(state)])
        file.close()
        self._disk.rename(f"{path}.tmp", path)

    with replaced(QuorumStorage, "store_election", store):
        yield


@contextmanager
def fetches_metadata_before_it_is_flushed() -> Iterator[None]:
    """A voter's fetch offset covers records that are not durable."""
    with replaced(Flushing, "is_done", property(lambda self: True)):
        yield


@contextmanager
def names_snapshots_without_a_sync() -> Iterator[None]:
    """A metadata snapshot counts before its name is durable."""

    def freeze(self: QuorumStorage, snapshot: OffsetAndEpoch) -> StoredSnapshot:
        part, path = self._path(snapshot, PART_SUFFIX), self._path(snapshot)
        data = self._disk.read_bytes(part)
        last_ms = inspect_snapshot(data)
        self._disk.rename(part, path)
        return StoredSnapshot(id=snapshot, size_bytes=len(data), last_contained_ms=last_ms)

    with replaced(QuorumStorage, "_freeze", freeze):
        yield


@contextmanager
def lowers_its_recovery_point_late() -> Iterator[None]:
    """The checkpoint follows a truncation at some time, and not before the next append."""
    with replaced(LogTruncation, "_is_limited", lambda self, limits: True):
        yield


@contextmanager
def counts_flushes_as_done() -> Iterator[None]:
    """The recovery point moves when a flush begins."""
    start = LogFlusher._start

    def early(self: LogFlusher, owner: FlushOwner) -> None:
        start(self, owner)
        if self._job is not None:
            owner.flushed(self._job)

    with replaced(LogFlusher, "_start", early):
        yield


@contextmanager
def confirms_before_the_rename_is_durable() -> Iterator[None]:
    """A deletion is confirmed when the directory is renamed, durable or not."""

    def scanned(self: Any, directory: Any, result: Any) -> None:
        self._ended(directory, result if isinstance(result, OSError) else None)

    with replaced(_ReplicaDeletion, "_scanned", scanned):
        yield


@contextmanager
def follows_without_waiting_for_its_flush() -> Iterator[None]:
    """With log.flush.interval.messages=1 a follower fetches on before it has flushed."""
    with replaced(replica_fetcher, "gather", lambda flushes: completed([])):
        yield


@contextmanager
def commits_metadata_that_its_leader_has_not_flushed() -> Iterator[None]:
    """A controller counts its own copy of what it has only appended."""
    end = property(lambda self: self._log.end_offset)
    with replaced(Flushing, "flushed_to", end):
        yield


@contextmanager
def leaves_configurations_out_of_snapshots() -> Iterator[None]:
    """A metadata snapshot has no configurations."""
    to_records = ClusterImage.to_records

    def without(self: ClusterImage) -> Iterator[Any]:
        return (each for each in to_records(self) if not isinstance(each, ConfigRecord))

    with replaced(ClusterImage, "to_records", without):
        yield


@contextmanager
def takes_an_answer_for_lost() -> Iterator[None]:
    """A leader whose AlterPartition has failed as a whole does not ask again."""

    def keep(self: IsrManager, taken: Any) -> None:
        if self._failure is Error.NONE:
            self._waiting = {**taken, **self._waiting}

    with replaced(IsrManager, "_keep", keep):
        yield


@contextmanager
def leaves_retired_files_open() -> Iterator[None]:
    """What a handle lets go of with its last pin stays open."""
    unpin = Handle.unpin

    def careless(self: Handle) -> None:
        closing, self._closing = self._closing, False
        unpin(self)
        if closing and self._pins == 0:
            self._file = None
            self._cache._idle.pop(self, None)

    with replaced(Handle, "unpin", careless):
        yield


# -- requests ----------------------------------------------------------------------------------


@contextmanager
def forgets_deadlines() -> Iterator[None]:
    """What waits in a purgatory is answered ten times later than it was asked to be."""
    add = Purgatory.add

    def late(self: Purgatory, keys: Any, *, deadline_ms: int, **rest: Any) -> Any:
        operation = add(self, keys, deadline_ms=deadline_ms, **rest)
        if operation._timer is not None:
            operation._timer.cancel()
            operation._timer = self._timers.at(deadline_ms + 20_000, operation._time_out)
        return operation

    with replaced(Purgatory, "add", late):
        yield


# -- in-sync replicas --------------------------------------------------------------------------


@contextmanager
def commits_by_the_smaller_set() -> Iterator[None]:
    """What a leader has proposed does not count until it is answered."""
    with replaced(Partition, "maximal_isr", property(lambda self: self.isr)):
        yield


@contextmanager
def takes_in_whoever_reaches_the_high_watermark() -> Iterator[None]:
    """A follower may join below the offset at which its leader's epoch began."""
    propose = Partition.maybe_expand_isr

    def lax(self: Partition, fetching: Any = None) -> None:
        start, self.epoch_start_offset = self.epoch_start_offset, -1
        try:
            propose(self, fetching)
        finally:
            self.epoch_start_offset = start

    with replaced(Partition, "maybe_expand_isr", lax):
        yield


@contextmanager
def ignores_broker_epochs_of_fetches() -> Iterator[None]:
    """A fetch of a previous incarnation counts for the current one."""

    def epochs(self: Partition) -> dict[int, int]:
        return dict.fromkeys((*self.followers, self.node_id), NO_EPOCH)

    def may_join(broker: Any, follower: FollowerState) -> bool:
        has_fetched = follower.broker_epoch is not None and not follower.refused
        return broker is not None and broker.active and has_fetched

    with (
        replaced(partition, "check_broker_epoch", lambda broker, follower, broker_epoch: None),
        replaced(partition, "may_join", may_join),
        replaced(Partition, "_broker_epochs", epochs),
    ):
        yield


@contextmanager
def completes_produces_in_a_later_epoch() -> Iterator[None]:
    """A delayed produce completes by the high watermark of a later leader epoch."""

    def committed(self: Partition, next_offset: int) -> Error | None:
        if self.gone:
            return self.gone
        if self.log is None:
            return Error.KAFKA_STORAGE_ERROR
        return Error.NONE if self.log.high_watermark >= next_offset else None

    with replaced(Partition, "committed", committed):
        yield


@contextmanager
def trusts_what_followers_said_in_other_epochs() -> Iterator[None]:
    """A leader goes on with what it knew of its followers before others led."""
    begin, fetched = Partition._begin_epoch, {}

    def trusting(self: Partition, led_previous_epoch: bool) -> None:
        known = fetched.get(id(self), {})
        for node, follower in self.followers.items():
            if follower.log_end_offset < 0 and node in known:
                self.followers[node] = known[node]
        begin(self, True)

    note_fetch = Partition.note_fetch

    def note(self: Partition, follower: Any, requested: Any, broker_epoch: int) -> bool:
        fetched[id(self)] = dict(self.followers)
        return note_fetch(self, follower, requested, broker_epoch)

    with replaced(Partition, "_begin_epoch", trusting), replaced(Partition, "note_fetch", note):
        yield


@contextmanager
def cuts_to_another_epochs_end() -> Iterator[None]:
    """A follower cuts to the end of an epoch that it does not know itself (KIP-279)."""

    def truncation_offset(log: Any, epoch: int, end_offset: int) -> int:
        return min(end_offset, log.log_end_offset) if end_offset >= 0 else log.high_watermark

    with replaced(follower_rules, "truncation_offset", truncation_offset):
        yield


@contextmanager
def counts_one_record_too_many() -> Iterator[None]:
    """A follower's fetch offset is taken for the last record that it has."""
    fetched = FollowerState.fetched

    def off_by_one(self: FollowerState, fetch_offset: int, **rest: Any) -> None:
        fetched(self, fetch_offset, **rest)
        if fetch_offset < rest["leader_end"]:
            self.log_end_offset = fetch_offset + 1

    with replaced(FollowerState, "fetched", off_by_one):
        yield


@contextmanager
def takes_in_followers_that_are_one_short() -> Iterator[None]:
    """A follower may join one record below the high watermark."""
    propose = Partition.maybe_expand_isr

    def lax(self: Partition, fetching: Any = None) -> None:
        short = [each for node, each in self.followers.items() if node not in self.isr]
        for follower in short:
            follower.log_end_offset += 1
        try:
            propose(self, fetching)
        finally:
            for follower in short:
                follower.log_end_offset -= 1

    with replaced(Partition, "maybe_expand_isr", lax):
        yield


# -- the controller ----------------------------------------------------------------------------


@contextmanager
def unfences_who_has_not_asked() -> Iterator[None]:
    """A broker serves once it has caught up with the metadata, its logs loaded or not."""
    following_state = brokers._next_state

    def eager(image: Any, broker: Any, report: Any, *rest: Any) -> Any:
        if broker.fenced and not report.want_shut_down:
            report = replace(report, want_fence=False)
        return following_state(image, broker, report, *rest)

    with replaced(brokers, "_next_state", eager):
        yield


@contextmanager
def takes_old_partition_epochs() -> Iterator[None]:
    """AlterPartition is accepted although the leader does not have the last change."""
    fault = isr_module._fault

    def lax(image: Any, broker_id: int, state: Any, wanted: Any) -> Error:
        if state is not None and wanted.partition_epoch < state.partition_epoch:
            wanted = replace(wanted, partition_epoch=state.partition_epoch)
        return fault(image, broker_id, state, wanted)

    with replaced(isr_module, "_fault", lax):
        yield


@contextmanager
def hears_heartbeats_of_the_dead() -> Iterator[None]:
    """A heartbeat of a previous incarnation counts for the registered one."""
    heartbeat = k63_broker_heartbeat.heartbeat

    def lax(image: Any, report: Any, **rest: Any) -> Any:
        broker = image.brokers.get(report.broker_id)
        if broker is not None and report.broker_epoch != broker.epoch:
            report = replace(report, broker_epoch=broker.epoch, metadata_offset=broker.epoch)
        return heartbeat(image, report, **rest)

    with replaced(k63_broker_heartbeat, "heartbeat", lax):
        yield


# -- ZooKeeper ---------------------------------------------------------------------------------


@contextmanager
def writes_whoever_was_elected_since() -> Iterator[None]:
    """A controller's writes are not bound to the epoch that it was elected in."""

    def any_version(path: str, version: int) -> Check:
        return Check(path, ANY_VERSION if path == CONTROLLER_EPOCH else version)

    with replaced(multis, "Check", any_version), replaced(store_writing, "Check", any_version):
        yield


@contextmanager
def writes_states_over_newer_ones() -> Iterator[None]:
    """A partition's state is set whatever its version is."""

    def anyhow(path: str, data: bytes, version: int) -> SetData:
        return SetData(path, data, ANY_VERSION if path.endswith("/state") else version)

    with replaced(write_topics, "SetData", anyhow):
        yield


@contextmanager
def takes_lost_answers_for_done() -> Iterator[None]:
    """A write whose answer was lost is not looked up."""

    def done(self: Writer, operations: Any) -> Any:
        return Done((None,) * len(operations))
        yield  # As the other one is: a generator.

    with replaced(Writer, "_look_up", done):
        yield


@contextmanager
def hears_former_controllers() -> Iterator[None]:
    """A broker accepts requests from a controller of an older epoch."""
    check = ZkMetadata.check_sender

    def lax(self: ZkMetadata, *, controller_epoch: int, **rest: int) -> Error:
        return check(self, controller_epoch=max(controller_epoch, self.controller_epoch), **rest)

    with replaced(ZkMetadata, "check_sender", lax):
        yield


FAULT_VARIANTS = (
    *map(
        variant,
        (
            stores_its_vote_without_a_sync,
            fetches_metadata_before_it_is_flushed,
            commits_metadata_that_its_leader_has_not_flushed,
            leaves_configurations_out_of_snapshots,
            forgets_deadlines,
            takes_an_answer_for_lost,
            leaves_retired_files_open,
            counts_one_record_too_many,
            takes_in_followers_that_are_one_short,
            unfences_who_has_not_asked,
            trusts_what_followers_said_in_other_epochs,
            cuts_to_another_epochs_end,
            names_snapshots_without_a_sync,
            lowers_its_recovery_point_late,
            counts_flushes_as_done,
            confirms_before_the_rename_is_durable,
            commits_by_the_smaller_set,
            takes_in_whoever_reaches_the_high_watermark,
            ignores_broker_epochs_of_fetches,
            completes_produces_in_a_later_epoch,
            takes_old_partition_epochs,
            hears_heartbeats_of_the_dead,
        ),
    ),
    *(
        variant(each, zookeeper=True)
        for each in (
            follows_without_waiting_for_its_flush,
            writes_whoever_was_elected_since,
            writes_states_over_newer_ones,
            takes_lost_answers_for_done,
            hears_former_controllers,
        )
    ),
)
