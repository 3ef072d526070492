"""Replaying an offsets partition: the log of one coordinator becomes the state of the next.

Batches are read in order. Of plain records only the last of each key in a chunk is decoded:
compaction keeps no more than that either, and a partition not compacted for long is mostly
commits of the same few keys. While a transaction is open every record is decoded, since its
producer's marker decides later, and a tombstone between drops the transaction's offsets.

A record that does not decode, or whose generation contradicts itself, is skipped, with a warning:
what a client once wrote there, as an administrator may, must not make all groups of the partition
unavailable. Corruption, where a checksum is wrong, is not skipped.

Source: Kafka's CoordinatorLoaderImpl and the replay methods of its coordinators.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.base.ids import NO_PRODUCER_ID
from ottla.coordinator.group import Group
from ottla.coordinator.group_states import State
from ottla.coordinator.member import Member
from ottla.coordinator.records import (
    NO_TIMESTAMP,
    BadRecord,
    Fact,
    FactKey,
    GroupFact,
    GroupMetadataValue,
    OffsetFact,
    decode_fact,
    decode_key,
)
from ottla.coordinator.shard import Shard
from ottla.records.batch import check_crc, iter_headers
from ottla.records.compression import Buffer
from ottla.records.control import decode_marker
from ottla.records.errors import RecordsError
from ottla.records.record import Record, read_records


class Replayed(NamedTuple):
    """A fact of the log; of one key, in the order of offsets."""

    fact: Fact
    offset: int
    producer_id: int = NO_PRODUCER_ID


class TransactionMarker(NamedTuple):
    """A transaction's marker."""

    producer_id: int
    committed: bool


Step = Replayed | TransactionMarker


class SkippedRecord(NamedTuple):
    """What cannot be taken: the record at `offset`, or the whole batch that begins there."""

    offset: int
    reason: str
    is_batch: bool = False


class Loader:
    """Reads a partition from its start. `position` is the offset after the last record read.

    `decode` may run in any thread, one at a time; only `apply` touches a shard.
    `skipped`: what the last call of `decode` could not decode.
    """

    def __init__(self) -> None:
        self.position = 0
        self.skipped: list[SkippedRecord] = []
        self.record_count = 0
        self._keys: dict[bytes, FactKey | None] = {}
        self._open: set[int] = set()

    def decode(self, buffer: Buffer) -> list[Step]:
        """Return the facts of whole batches; those before `position` are skipped.

        Raises: RecordsError where the bytes are no batches, or a checksum is wrong.
        """
        self.skipped = []
        steps: list[Step] = []
        plain: list[Record] = []
        for at, header in iter_headers(buffer):
            if header.next_offset <= self.position:
                continue
            check_crc(buffer, at, header)
            self.position = header.next_offset
            try:
                records = read_records(buffer, at, header)
            except RecordsError as error:
                self.skipped.append(SkippedRecord(header.base_offset, str(error), True))
                continue
            self.record_count += len(records)
            if header.is_control or header.is_transactional or self._open:
                self._decode_latest(plain, steps)
                plain = []
            if header.is_control:
                steps += self._markers(header.producer_id, records)
            elif header.is_transactional:
                self._open.add(header.producer_id)
                self._decode_records(records, header.producer_id, steps)
            elif self._open:
                self._decode_records(records, NO_PRODUCER_ID, steps)
            else:
                plain += records
        self._decode_latest(plain, steps)
        return steps

    def _decode_latest(self, records: list[Record], steps: list[Step]) -> None:
        """Decode the last record of each key; where one is bad, the last good one before it."""
        # Facts of different keys do not depend on each other: their order is free.
        latest = {record.key or b"": record for record in records}
        if self._decode_records(latest.values(), NO_PRODUCER_ID, steps):
            return
        bad = {record.offset for record in self.skipped}
        again = {record.key for record in latest.values() if record.offset in bad}
        rest = [each for each in records if each.key in again and each.offset not in bad]
        self._decode_records(rest, NO_PRODUCER_ID, steps)

    def _decode_records(
        self, records: Iterable[Record], producer_id: int, steps: list[Step]
    ) -> bool:
        """Decode records in their order; tell whether all could be."""
        are_all_good = True
        for record in records:
            raw_key = record.key or b""
            try:
                try:
                    key = self._keys[raw_key]
                except KeyError:
                    key = self._keys[raw_key] = decode_key(raw_key)
                if key is not None:
                    fact = decode_fact(key, record.value)
                    _check(fact)
                    steps.append(Replayed(fact, record.offset, producer_id))
            except BadRecord as error:
                self.skipped.append(SkippedRecord(record.offset, str(error)))
                are_all_good = False
        return are_all_good

    def _markers(self, producer_id: int, records: Iterable[Record]) -> Iterator[TransactionMarker]:
        for record in records:
            if (marker := decode_marker(record)) is not None:
                self._open.discard(producer_id)
                yield TransactionMarker(producer_id, marker.committed)


def _check(fact: Fact) -> None:
    """Raise BadRecord for a generation that contradicts itself: no group can be in it."""
    if not isinstance(fact, GroupFact) or fact.value is None or not fact.value.members:
        return
    members = fact.value.members
    if fact.value.protocol is None:
        raise BadRecord("a generation has members and no protocol")
    if len({each.member_id for each in members}) < len(members):
        raise BadRecord("a generation has two members of one id")
    instances = [each.group_instance_id for each in members if each.group_instance_id is not None]
    if len(set(instances)) < len(instances):
        raise BadRecord("a generation has two members of one group instance id")


def apply(shard: Shard, steps: Iterable[Step]) -> None:
    """Replay decoded facts, in their order."""
    offsets = shard.offsets
    for step in steps:
        if isinstance(step, TransactionMarker):
            offsets.end_transaction(step.producer_id, committed=step.committed)
        elif isinstance(step.fact, OffsetFact):
            offsets.replay(step.fact, record_offset=step.offset, producer_id=step.producer_id)
        else:
            replay_group(shard, step.fact)


def finish(shard: Shard) -> None:
    """Create the groups that only have offsets."""
    for group_id in sorted(set(shard.offsets.group_ids())):
        shard.ensure_group(group_id)


def replay_group(shard: Shard, fact: GroupFact) -> None:
    """Replay a group's record: stable where it has members, else empty, or deleted."""
    if (previous := shard.groups.pop(fact.group_id, None)) is not None:
        previous.release_memory()
    if fact.value is not None:
        shard.groups[fact.group_id] = _loaded(shard, fact.group_id, fact.value)


def _loaded(shard: Shard, group_id: str, value: GroupMetadataValue) -> Group:
    group = Group(group_id, shard.outbox, shard.memory)
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.generation = value.generation
    timestamp_ms = value.current_state_timestamp
    group.since_ms = None if timestamp_ms == NO_TIMESTAMP else timestamp_ms
    for each in value.members:
        member = Member(
            each.member_id,
            instance_id=each.group_instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            # Version 0 of the record has no rebalance timeout.
            rebalance_timeout_ms=(
                each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout
            ),
            session_timeout_ms=each.session_timeout,
            protocols=((value.protocol or "", each.subscription),),
            assignment=each.assignment,
        )
        group.add(member, value.protocol_type)
    if group.members:
        group.state = State.STABLE
        if value.leader in group.members:
            group.leader_id = value.leader
    group.refresh_subscription()
    return group
