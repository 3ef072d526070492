"""What the tasks of an audit do: list, read and compare partitions; then check bytes.

One unit of work is a partition of `__remote_log_metadata`, with the user partitions whose records
it has; without brokers it is one user partition. A partition is looked at in this order:

    metadata up to their end; where the local log starts; a listing, and manifests;
    metadata up to their end again; where the log starts

What changed in between is left out of the comparison. Findings are kept only if a second look,
which begins anew, has them too.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final

from ottla.base.ids import Uuid
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.errors import ClientError
from ottla.records.errors import RecordsError
from ottla.spark.errors import RemoteStorageError
from ottla.spark.jobs.cluster_facts import log_starts, statuses
from ottla.spark.jobs.metadata_log import (
    Key,
    MetadataChanged,
    MetadataPartition,
    UserLog,
    is_given_up,
)
from ottla.spark.jobs.rules.findings import Finding, Kind, Severity, confirmed
from ottla.spark.jobs.rules.partition_rules import check_partition
from ottla.spark.jobs.rules.partition_view import LocalTier, PartitionView
from ottla.spark.jobs.rules.segment_bytes import (
    RANGE_BYTES,
    SegmentChecker,
    check_auxiliary,
    index_entries,
    segment_finding,
    size_fault,
)
from ottla.spark.jobs.rules.topic_status import Existence, check_absent
from ottla.spark.jobs.store_access import StoreAccess
from ottla.spark.jobs.store_partitions import Listing, list_partition
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import SegmentMetadata

NO_METADATA: Final = -1
"""The metadata partition of a unit without one: no broker is asked, or there is no such topic."""
SECOND_LOOK_S: Final = 2.0
"""How long after the first look the second one begins: a manifest follows its copy by less."""
AUXILIARY_BYTES_MAX: Final = 64 * 1024 * 1024

_EXPECTED: Final = (ClientError, RemoteStorageError, MetadataChanged, RecordsError, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """What to audit.

    Fields: `remote_storage`: the store's URI. `cluster`: None = compare objects with manifests
            alone. `topics`: names, () = all. `deep`: read all bytes. `grace_s`: what is younger may
            be under way. `timeout_s`: how long an operation of the store is repeated.
    """

    remote_storage: str
    cluster: ClientConfig | None = None
    topics: tuple[str, ...] = ()
    deep: bool = False
    grace_s: float = 3_600.0
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Unit:
    """A partition of the metadata topic, and those partitions of it that the store has."""

    metadata_partition: int
    stored: tuple[Key, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What was looked at in one partition. `segments`: readable ones."""

    topic: str
    topic_id: Uuid
    partition: int
    objects: int
    object_bytes: int
    segments: int
    manifests: int
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """A segment whose bytes are to be checked.

    `next_offset`: from there on `metadata_partition` says what became of it since.
    """

    segment: SegmentMetadata
    metadata_partition: int
    next_offset: int


Result = Finding | Summary | Work


@dataclass(slots=True)
class Ports:
    """What the tasks of one process use; `client`: None = no brokers."""

    store: StoreAccess
    client: ClusterClient | None
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], object] = time.sleep


def audit_unit(unit: Unit, options: AuditOptions) -> Iterator[Result]:
    """Yield what one unit of an audit finds; a unit that fails is a finding, too."""
    client: AbstractContextManager[ClusterClient | None] = nullcontext()
    if options.cluster is not None:
        client = ClusterClient(options.cluster)
    with StoreAccess(options.remote_storage, options.timeout_s) as store, client as connected:
        yield from UnitAudit(unit, options, Ports(store, connected)).run()


class UnitAudit:
    """The audit of one unit."""

    def __init__(self, unit: Unit, options: AuditOptions, ports: Ports) -> None:
        self._unit = unit
        self._options = options
        self._ports = ports
        self._no_log = UserLog()
        self._metadata: MetadataPartition | None = None
        if ports.client is not None and unit.metadata_partition != NO_METADATA:
            self._metadata = MetadataPartition(ports.client, unit.metadata_partition)

    def run(self) -> Iterator[Result]:
        """Yield findings, a summary of each partition, and the work that is left."""
        keys = set(self._unit.stored)
        try:
            self._read_metadata()
        except _EXPECTED as error:
            for key in sorted(keys):
                yield _not_audited(key, error)
            return
        if self._metadata is not None:
            keys |= {key for key, log in self._metadata.logs.items() if log.remote.count}
        topics = self._options.topics
        suspects: dict[Key, list[Finding]] = {}
        for key in sorted(key for key in keys if not topics or key[0] in topics):
            try:
                look = self._look(key)
            except _EXPECTED as error:
                yield _not_audited(key, error)
                continue
            if look.findings:
                suspects[key] = look.findings
            else:
                yield from self._results(look, [])
        if suspects:
            self._ports.sleep(SECOND_LOOK_S)
        for key, found in suspects.items():
            try:
                look = self._look(key)
                yield from self._results(look, confirmed(found, look.findings))
            except _EXPECTED as error:
                yield _not_audited(key, error)

    def _read_metadata(self) -> None:
        if self._metadata is None:
            return
        try:
            self._metadata.read()
        except MetadataChanged:
            # Records were deleted, or truncated after an unclean election: from the start again.
            assert self._ports.client is not None
            self._metadata = MetadataPartition(self._ports.client, self._unit.metadata_partition)
            self._metadata.read()

    def _results(self, look: "_Look", found: list[Finding]) -> Iterator[Result]:
        """Yield findings, the summary of a partition, and its segments for a deep audit."""
        view = look.view
        yield from found
        readable = view.readable(view.manifest_state()) if look.is_live else []
        yield Summary(
            topic=view.topic,
            topic_id=view.topic_id,
            partition=view.partition,
            objects=len(view.objects),
            object_bytes=sum(each.size_bytes for each in view.objects.values()),
            segments=len(readable),
            manifests=len(view.manifests),
        )
        if not self._options.deep:
            return
        next_offset = 0 if self._metadata is None else self._metadata.next_offset or 0
        for segment in readable:
            log = view.objects.get(object_name(segment, ObjectKind.LOG))
            if log is not None and log.size_bytes == segment.size_bytes:
                yield Work(segment, self._unit.metadata_partition, next_offset)

    def _look(self, key: Key) -> "_Look":
        """Look at a partition once."""
        store, client = self._ports.store, self._ports.client
        if client is None:
            view = self._view(key, list_partition(store, key, all_manifests=self._options.deep))
            return _Look(view, check_partition(view))
        topic, topic_id, partition = key
        self._read_metadata()
        before_log = self._log_of(key).remote
        before = before_log.version
        local = log_starts(client, topic, partition)
        listing = list_partition(store, key, all_manifests=self._options.deep)
        self._read_metadata()
        log = self._log_of(key)
        changed = log.remote.changes_since(before) if log.remote is before_log else None
        if changed is None:
            raise MetadataChanged("more segments changed meanwhile than can be kept apart")
        status = statuses(client, [(topic, topic_id)])[topic_id]
        view = self._view(key, listing)
        if status.existence is not Existence.EXISTS:
            return _Look(view, check_absent(view, status), is_live=False)
        after = None if local is None else log_starts(client, topic, partition)
        view = replace(
            view,
            remote=log.remote,
            refused=frozenset(log.refused),
            changed=frozenset(changed),
            floor_is_purged=status.floor_is_purged,
        )
        if local is not None and after is not None:
            view = replace(
                view, tier=LocalTier(log_start_offset=after[0], local_start_offset=local[1])
            )
        return _Look(view, check_partition(view))

    def _log_of(self, key: Key) -> UserLog:
        return self._no_log if self._metadata is None else self._metadata.log_of(key)

    def _view(self, key: Key, listing: Listing) -> PartitionView:
        topic, topic_id, partition = key
        return PartitionView(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            objects=listing.objects,
            manifests=listing.manifests,
            now_ms=self._ports.now_ms(),
            grace_ms=int(self._options.grace_s * 1_000),
        )


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at a partition. `is_live`: its topic exists, as far as is known."""

    view: PartitionView
    findings: list[Finding]
    is_live: bool = True


def _not_audited(key: Key, error: BaseException) -> Finding:
    return Finding(
        topic=key[0],
        topic_id=key[1],
        partition=key[2],
        kind=Kind.NOT_AUDITED,
        severity=Severity.ERROR,
        detail=str(error) or type(error).__name__,
    )


# Bytes


def check_bytes(work: Work, options: AuditOptions) -> Iterator[Result]:
    """Yield what is wrong with a segment's bytes, and how many were read."""
    segment = work.segment
    key = segment.topic, segment.topic_id, segment.partition
    try:
        with StoreAccess(options.remote_storage, options.timeout_s) as store:
            found, read_bytes = read_segment(store, segment)
        if found and _is_gone(work, options):
            found = []
    except _EXPECTED as error:
        yield _not_audited(key, error)
        return
    yield from found
    yield Summary(
        topic=segment.topic,
        topic_id=segment.topic_id,
        partition=segment.partition,
        objects=0,
        object_bytes=0,
        segments=0,
        manifests=0,
        read_bytes=read_bytes,
    )


def read_segment(store: StoreAccess, segment: SegmentMetadata) -> tuple[list[Finding], int]:
    """Return what is wrong with the objects of a segment, and the bytes that were read."""
    found: list[Finding] = []
    read_bytes = 0
    index: dict[int, int] = {}
    for kind in ObjectKind:
        if kind is ObjectKind.LOG or (kind is ObjectKind.TXN_INDEX and segment.txn_index_empty):
            continue
        small = store.read_or_none(object_name(segment, kind), 0, AUXILIARY_BYTES_MAX)
        if small is None or size_fault(kind, len(small)) is not None:
            continue  # The listing has shown it.
        read_bytes += len(small)
        found += check_auxiliary(segment, kind, small)
        if kind is ObjectKind.OFFSET_INDEX:
            index = index_entries(segment, small)
    checker = SegmentChecker.of(segment, index)
    name = object_name(segment, ObjectKind.LOG)
    for start in range(0, segment.size_bytes, RANGE_BYTES):
        data = store.read_or_none(name, start, min(RANGE_BYTES, segment.size_bytes - start))
        if data is None:
            detail = "it vanished while it was read"
            gone = segment_finding(segment, Kind.MISSING_OBJECT, detail, ObjectKind.LOG)
            return [*found, gone], read_bytes
        checker.add(data)
        read_bytes += len(data)
    return [*found, *checker.end()], read_bytes


def _is_gone(work: Work, options: AuditOptions) -> bool:
    """Tell whether a segment's deletion has begun since its partition was looked at."""
    if options.cluster is None or work.metadata_partition == NO_METADATA:
        return False
    segment = work.segment
    with ClusterClient(options.cluster) as client:
        metadata = MetadataPartition(client, work.metadata_partition)
        since = list(metadata.tail(work.next_offset))
    key = segment.topic, segment.topic_id, segment.partition
    return is_given_up(since, key, segment.segment_id, segment.tiered_epoch)
