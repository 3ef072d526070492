"""OffsetCommit, OffsetFetch and OffsetDelete: the checks, and what is written.

Source: Kafka's OffsetMetadataManager and ClassicGroup; KIP-447 (stable fetches), KIP-496
(deleting offsets), KIP-709 (several groups in one fetch).
"""

from collections.abc import Sequence
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, NO_UUID, Uuid
from ottla.base.pending import Pending, completed
from ottla.coordinator.group import Group
from ottla.coordinator.group_states import State
from ottla.coordinator.offset_store import CommittedOffset
from ottla.coordinator.rebalancing import touch
from ottla.coordinator.records import NO_TIMESTAMP, OffsetFact, fits
from ottla.coordinator.shard import Shard
from ottla.coordinator.values import (
    NO_MEMBER,
    Commit,
    FetchedOffset,
    OffsetToCommit,
    PartitionKey,
)

TIMESTAMP_MAX: Final = 2**63 - 1


def commit(shard: Shard, request: Commit) -> Pending[list[Error]]:
    """Process an OffsetCommit; the result has one error for each of its offsets.

    Of several offsets of one partition the last is stored. A commit of a member counts as a
    heartbeat.
    """
    group = shard.groups.get(request.group_id)
    error = _check_commit(group, request)
    if error:
        return completed([error] * len(request.offsets))
    if group is not None and group.state in (State.STABLE, State.PREPARING):
        touch(shard, group, group.members[request.member_id])
    errors = [_check_metadata(shard, each.metadata or "") for each in request.offsets]
    now_ms = shard.clock.now_ms()
    last = {
        (each.topic, each.partition): each
        for each, refused in zip(request.offsets, errors, strict=True)
        if not refused
    }
    if not last:
        return completed(errors)
    stored = shard.write(
        _fact(request, each, now_ms, shard.topic_id_of(each.topic)) for each in last.values()
    )
    if not (stored.done and stored.value):
        shard.ensure_group(request.group_id)
    return stored.map(lambda outcome: [refused or outcome for refused in errors])


def _check_metadata(shard: Shard, metadata: str) -> Error:
    is_too_large = len(metadata) > shard.config.offset_metadata_bytes_max or not fits(metadata)
    return Error.OFFSET_METADATA_TOO_LARGE if is_too_large else Error.NONE


def _check_commit(group: Group | None, request: Commit) -> Error:
    if not fits(request.group_id):
        return Error.INVALID_GROUP_ID
    is_member = request.generation >= 0
    if group is None:
        if not is_member:
            return Error.NONE  # A client that only keeps offsets here makes a simple group.
        # Clients that do not know the newer error join again on the older one.
        missing = Error.GROUP_ID_NOT_FOUND
        return missing if request.knows_group_id_not_found else Error.ILLEGAL_GENERATION
    if not is_member and group.state is State.EMPTY:
        return Error.NONE
    if is_member or request.member_id != NO_MEMBER or request.instance_id is not None:
        if error := group.check_member(request.member_id, request.instance_id):
            return error
        if request.generation != group.generation:
            return Error.ILLEGAL_GENERATION
    else:
        return Error.UNKNOWN_MEMBER_ID  # Only members commit offsets of a group in use.
    if group.state is State.COMPLETING:
        return Error.REBALANCE_IN_PROGRESS
    return Error.NONE


def _fact(request: Commit, offset: OffsetToCommit, now_ms: int, topic_id: Uuid) -> OffsetFact:
    expire_ms = NO_TIMESTAMP
    if request.retention_ms is not None:
        # Clients may name any int64; "for ever" must not overflow that of the record.
        expire_ms = min(max(0, now_ms + request.retention_ms), TIMESTAMP_MAX)
    committed = CommittedOffset(
        offset=offset.offset,
        # The one version of the record with an expiry has no leader epoch.
        leader_epoch=offset.leader_epoch if request.retention_ms is None else NO_EPOCH,
        metadata=offset.metadata or "",
        commit_ms=now_ms,
        expire_ms=expire_ms,
        record_offset=-1,
        topic_id=topic_id,
    )
    return OffsetFact(request.group_id, offset.topic, offset.partition, committed.to_value())


def fetch(
    shard: Shard, group_id: str, wanted: Sequence[PartitionKey] | None, *, require_stable: bool
) -> Pending[tuple[Error, list[FetchedOffset]]]:
    """Return the offsets of these partitions, or of all that have any (None).

    They are read at once and returned when the writes before are replicated: one that is made
    meanwhile may still be lost. If the writes time out, the error is NOT_COORDINATOR, the one
    error on which every client looks for the coordinator again.
    """
    stored = shard.offsets
    keys = wanted
    if keys is None:
        keys = [
            key
            for key in stored.stable_keys(group_id)
            if _committed(shard, group_id, key, shard.topic_id_of(key[0]))
        ]
    found = [
        _fetched(
            key,
            topic_id := shard.topic_id_of(key[0]),
            _committed(shard, group_id, key, topic_id),
            require_stable and stored.is_pending(group_id, *key),
        )
        for key in keys
    ]

    def result(error: Error) -> tuple[Error, list[FetchedOffset]]:
        return (Error.NOT_COORDINATOR, []) if error else (Error.NONE, found)

    return shard.settled().map(result)


def _committed(
    shard: Shard, group_id: str, key: PartitionKey, topic_id: Uuid
) -> CommittedOffset | None:
    """Return an offset of the topic that has the name now, not of one that had it before.

    `topic_id`: of the topic that has it now; zero = there is none.
    """
    stored = shard.offsets.get(group_id, *key)
    if stored is None or stored.topic_id == NO_UUID:
        return stored
    return stored if topic_id in (NO_UUID, stored.topic_id) else None


def _fetched(
    key: PartitionKey, topic_id: Uuid, stored: CommittedOffset | None, unstable: bool
) -> FetchedOffset:
    if unstable:
        return FetchedOffset(*key, error=Error.UNSTABLE_OFFSET_COMMIT, topic_id=topic_id)
    if stored is None:
        return FetchedOffset(*key, topic_id=topic_id)
    return FetchedOffset(
        *key, stored.offset, stored.leader_epoch, stored.metadata, topic_id=topic_id
    )


def delete_offsets(
    shard: Shard, group_id: str, keys: Sequence[PartitionKey]
) -> Pending[tuple[Error, list[Error]]]:
    """Delete offsets; return the error for all, then one for each."""
    if group_id == "":
        return completed((Error.INVALID_GROUP_ID, []))
    group = shard.groups.get(group_id)
    if group is None:
        return completed((Error.GROUP_ID_NOT_FOUND, []))
    if group.state is not State.EMPTY and not group.is_consumer_group:
        return completed((Error.NON_EMPTY_GROUP, []))  # Its members' subscriptions cannot be read.
    errors = [
        Error.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(topic) else Error.NONE
        for topic, _ in keys
    ]
    known = set(shard.offsets.keys(group_id))
    deleted = dict.fromkeys(
        key for key, refused in zip(keys, errors, strict=True) if not refused and key in known
    )
    stored = shard.write(
        [OffsetFact(group_id, topic, partition, None) for topic, partition in deleted]
    )
    return stored.map(lambda error: (error, [] if error else errors))
