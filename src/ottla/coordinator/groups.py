"""A shard's groups: describing, listing, deleting, expiring and unloading them.

Source: Kafka's GroupMetadataManager, GroupCoordinatorShard; KIP-211 (when offsets expire),
KIP-518 and KIP-848 (filters of ListGroups).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.base.pending import Pending, completed
from ottla.coordinator.group import Group
from ottla.coordinator.group_states import NAMES, Event, State
from ottla.coordinator.offset_store import CommittedOffset, has_expiry
from ottla.coordinator.rebalancing import prepare, touch
from ottla.coordinator.records import Fact, GroupFact, OffsetFact
from ottla.coordinator.shard import TOO_LARGE, Shard
from ottla.coordinator.values import GroupView, JoinResponse, SyncResponse

TOMBSTONES_PER_WRITE = 1_000
"""Expiry and topic deletion can concern any number of offsets; a batch is kept this small."""

CLASSIC = "classic"
"""The type of every group here, in ListGroups."""


# --- looking --------------------------------------------------------------------------------


def describe(shard: Shard, group_id: str) -> GroupView | None:
    """Return what DescribeGroups shows; None = there is no such group."""
    group = shard.groups.get(group_id)
    return None if group is None else group.view()


def list_groups(shard: Shard, states: Collection[str], types: Collection[str]) -> list[GroupView]:
    """Return the groups in one of the states and of one of the types; none given = any."""
    wanted = {state.strip().lower() for state in states}
    if types and CLASSIC not in {each.strip().lower() for each in types}:
        return []
    return [
        group.view()
        for _, group in sorted(shard.groups.items())
        if not wanted or NAMES[group.state].lower() in wanted
    ]


# --- deleting -------------------------------------------------------------------------------


def delete_group(shard: Shard, group_id: str) -> Pending[Error]:
    """Delete a group without members, and its offsets."""
    group = shard.groups.get(group_id)
    if group is None:
        return completed(Error.GROUP_ID_NOT_FOUND)
    if group.state is not State.EMPTY:
        return completed(Error.NON_EMPTY_GROUP)
    return _write_in_parts(shard, _tombstones(shard, group_id))


def _tombstones(shard: Shard, group_id: str) -> list[Fact]:
    # The group's own comes last: if the write ends halfway, the group can be deleted again.
    facts: list[Fact] = [OffsetFact(group_id, *key, None) for key in shard.offsets.keys(group_id)]
    facts.append(GroupFact(group_id, None))
    return facts


def topics_deleted(shard: Shard, deleted: Mapping[Uuid, str]) -> Pending[Error]:
    """Delete the offsets of deleted topics, given by id: a new topic begins without any.

    An offset without a topic id is matched by the topic's name; one with another id is of another
    topic, which may have had the name before this coordinator was elected.
    """
    names = frozenset(deleted.values())

    def is_deleted(topic: str, topic_id: Uuid) -> bool:
        return topic_id in deleted or (topic_id == NO_UUID and topic in names)

    return forget_offsets(shard, is_deleted, names)


def forget_offsets(
    shard: Shard, is_deleted: Callable[[str, Uuid], bool], topics: Collection[str] | None = None
) -> Pending[Error]:
    """Delete the offsets for which `is_deleted` is true, given a topic's name and id as committed.

    The id is zero where the commit does not have it. Offsets of open transactions are checked
    likewise, and a partition's offsets are deleted together or not at all: one tombstone deletes
    all of them. `topics`: only these have such offsets; None = any.
    """
    offsets = shard.offsets
    return _write_in_parts(
        shard,
        [
            OffsetFact(group_id, topic, partition, None)
            for group_id in sorted(offsets.groups_of(topics))
            for topic, partition in offsets.keys(group_id)
            if topics is None or topic in topics
            if all(
                is_deleted(topic, each) for each in offsets.topic_ids(group_id, topic, partition)
            )
        ],
    )


def _write_in_parts(shard: Shard, facts: Sequence[Fact]) -> Pending[Error]:
    """Write any number of tombstones; stops after a refused part.

    One that is larger than the log allows is halved: a group's id may be 32 KB long, and
    `max.message.bytes` small.
    """
    stored = completed(Error.NONE)
    start, size = 0, TOMBSTONES_PER_WRITE
    while start < len(facts):
        part = facts[start : start + size]
        stored = shard.write(
            fact
            for fact in part
            # A group may get members between two parts: then it is not deleted.
            if isinstance(fact, OffsetFact) or _is_empty(shard, fact.group_id)
        )
        if not (stored.done and stored.value):
            start += size
        elif stored.value is TOO_LARGE and len(part) > 1:
            size = len(part) // 2
        else:
            break
    return stored


def _is_empty(shard: Shard, group_id: str) -> bool:
    group = shard.groups.get(group_id)
    return group is not None and group.state is State.EMPTY


# --- expiring -------------------------------------------------------------------------------


def expire(shard: Shard) -> Pending[Error]:
    """Delete offsets beyond their retention, then groups with nothing left.

    Retention counts from when a group became empty, or from the commit where the group has no
    members of its own (a simple one) or no longer subscribes to the topic (KIP-211).
    """
    facts: list[Fact] = []
    for group_id, group in sorted(shard.groups.items()):
        expired = list(_expired(shard, group))
        everything = len(expired) == len(shard.offsets.keys(group_id))
        is_idle = group.state is State.EMPTY and not group.pending_members
        if everything and is_idle and not shard.offsets.has_open_transaction(group_id):
            facts += _tombstones(shard, group_id)
        else:
            facts += expired
    return _write_in_parts(shard, facts)


def _expired(shard: Shard, group: Group) -> Iterator[OffsetFact]:
    since = _retention_start(group)
    if since is None:
        return
    now_ms = shard.clock.now_ms()
    for topic, partitions in sorted(shard.offsets.of_group(group.group_id).items()):
        if group.is_subscribed(topic):
            continue
        for partition, offset in sorted(partitions.items()):
            if has_expiry(offset):
                is_over = now_ms >= offset.expire_ms
            else:
                is_over = now_ms - since(offset) >= shard.config.offsets_retention_ms
            if is_over and not shard.offsets.is_pending(group.group_id, topic, partition):
                yield OffsetFact(group.group_id, topic, partition, None)


def _retention_start(group: Group) -> Callable[[CommittedOffset], int] | None:
    """Return from when an offset's retention counts; None = none expires now."""
    if group.protocol_type is None:
        return lambda offset: offset.commit_ms
    if group.state is State.EMPTY:
        since_ms = group.since_ms
        return lambda offset: offset.commit_ms if since_ms is None else since_ms
    if group.state is State.STABLE and group.subscribed_topics is not None:
        return lambda offset: offset.commit_ms
    return None


# --- beginning and ending -------------------------------------------------------------------


def start(shard: Shard) -> None:
    """Begin the sessions of members of loaded groups, from now."""
    for group in shard.groups.values():
        for member in group.members.values():
            touch(shard, group, member)
        if len(group.members) > shard.config.members_max:
            # The limit was lowered: the members that join last are rejected.
            prepare(
                shard, group, f"it has {len(group.members)} members, group.max.size allows less"
            )


def unload(shard: Shard) -> None:
    """Unload the groups: another broker leads the partition now, and clients move to it."""
    for group in shard.groups.values():
        group.end(Event.UNLOAD, shard.clock.now_ms())
        for member in group.members.values():
            group.complete_join(
                member,
                JoinResponse(error=Error.NOT_COORDINATOR, member_id=member.member_id),
            )
            group.complete_sync(member, SyncResponse(error=Error.NOT_COORDINATOR))
    shard.groups.clear()
    shard.fail_waiting(Error.NOT_COORDINATOR)
