"""Ottla with one rule of groups or readers broken, for a while: see `variants`.

They are caught by what any seed draws by itself, and by the checkers of groups and readers:
see `standard_mix`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC
from ottla.base.pending import Pending, completed
from ottla.broker.api import k08_offset_commit
from ottla.broker.groups.group_journal import GroupJournal, GroupLoad
from ottla.broker.groups.group_service import GroupService
from ottla.broker.partition import Partition
from ottla.coordinator import groups, loading, offsets, syncing
from ottla.coordinator.group import Group
from ottla.coordinator.group_states import State
from ottla.coordinator.member import Member
from ottla.coordinator.offset_store import OffsetStore
from ottla.coordinator.records import GroupFact, OffsetFact
from ottla.coordinator.shard import Shard
from ottla.log.indexes.timestamp_search import TimestampSearch
from ottla.log.partition_log import PartitionLog
from ottla.log.validation import expanded_bytes_max

from .replaced import replaced
from .rule import has_groups, variant

# -- commits -----------------------------------------------------------------------------------


@contextmanager
def acknowledges_commits_before_they_are_replicated() -> Iterator[None]:
    """A commit is answered when it is in the coordinator's own log."""
    append = GroupJournal.append

    def written(self: GroupJournal, records: Any) -> Any:
        found = append(self, records)
        return type(found)(found.first_offset, completed(Error.NONE))

    with replaced(GroupJournal, "append", written):
        yield


@contextmanager
def forgets_the_generation_of_commits() -> Iterator[None]:
    """Whoever is a member may commit, of whatever generation."""
    check = offsets._check_commit

    def generous(group: Group | None, request: Any) -> Error:
        error = check(group, request)
        return Error.NONE if error is Error.ILLEGAL_GENERATION and group else error

    with replaced(offsets, "_check_commit", generous):
        yield


@contextmanager
def lets_anybody_commit() -> Iterator[None]:
    """Who commits in the current generation need not be a member of it."""
    plain = k08_offset_commit.commit

    def commit(shard: Shard, request: Any) -> Any:
        group = shard.groups.get(request.group_id)
        if group is not None and group.members and request.member_id not in group.members:
            request = replace(request, member_id=next(iter(group.members)), instance_id=None)
        return plain(shard, request)

    with replaced(k08_offset_commit, "commit", commit):
        yield


@contextmanager
def knows_static_members_by_their_instance_id_alone() -> Iterator[None]:
    """A static member that was replaced commits in its successor's place."""
    plain = k08_offset_commit.commit

    def commit(shard: Shard, request: Any) -> Any:
        group = shard.groups.get(request.group_id)
        holder = None if group is None else group.static_members.get(request.instance_id)
        if holder is not None:
            request = replace(request, member_id=holder)
        return plain(shard, request)

    with replaced(k08_offset_commit, "commit", commit):
        yield


# -- reading offsets ---------------------------------------------------------------------------


@contextmanager
def reads_offsets_before_they_are_replicated() -> Iterator[None]:
    """OffsetFetch does not wait for the commits before it."""
    with replaced(Shard, "settled", lambda self: completed(Error.NONE)):
        yield


@contextmanager
def reads_what_it_loaded_before_that_is_replicated() -> Iterator[None]:
    """A new coordinator takes all that it loaded for committed."""
    with replaced(GroupLoad, "replicated", lambda self: completed(Error.NONE)):
        yield


@contextmanager
def answers_before_loading_is_done() -> Iterator[None]:
    """A coordinator serves the groups that it has loaded so far."""
    shard_of = GroupService.shard_of

    def hasty(self: GroupService, group_id: str, *, may_be_empty: bool = False) -> Shard:
        try:
            return shard_of(self, group_id, may_be_empty=may_be_empty)
        except ApiError as refusal:
            load = self._loads.get(self.partition_of(group_id))
            if load is None or refusal.error is not Error.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return load.shard

    with replaced(GroupService, "shard_of", hasty):
        yield


@contextmanager
def goes_on_after_it_resigned() -> Iterator[None]:
    """A coordinator that lost its partition answers from what it knew."""

    def resigned(self: GroupService, partition: int) -> None:
        load = self._loads.pop(partition, None)
        if load is not None:
            load.cancel()

    with replaced(GroupService, "resigned", resigned):
        yield


@contextmanager
def keeps_what_it_knew_in_a_new_epoch() -> Iterator[None]:
    """A broker that led the partition before does not load it again."""
    became_leader, resigned = GroupService.became_leader, GroupService.resigned
    former: dict[tuple[int, int], Shard] = {}

    def leads(self: GroupService, partition: int) -> None:
        kept = former.get((id(self), partition))
        if kept is None:
            became_leader(self, partition)
        else:
            self._shards[partition] = kept

    def left(self: GroupService, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            former[id(self), partition] = shard
            shard.fail_waiting(Error.NOT_COORDINATOR)
        resigned(self, partition)

    with (
        replaced(GroupService, "became_leader", leads),
        replaced(GroupService, "resigned", left),
    ):
        yield


# -- loading -----------------------------------------------------------------------------------


@contextmanager
def loads_no_offsets() -> Iterator[None]:
    """A new coordinator knows groups, and nothing that they have committed."""
    apply = loading.apply

    def groups_only(shard: Shard, steps: Any) -> None:
        apply(shard, [each for each in steps if not isinstance(each.fact, OffsetFact)])

    with replaced(loading, "apply", groups_only):
        yield


@contextmanager
def loads_no_groups() -> Iterator[None]:
    """A new coordinator knows offsets, and neither members nor generations."""
    with replaced(loading, "replay_group", lambda shard, fact: None):
        yield


@contextmanager
def loads_only_the_beginning() -> Iterator[None]:
    """Loading ends after the first read."""
    advance = GroupLoad.advance

    def once(self: GroupLoad) -> None:
        if self.loader.position:
            self._finish(None)
        else:
            advance(self)

    with replaced(GroupLoad, "advance", once):
        yield


@contextmanager
def loads_up_to_the_high_watermark() -> Iterator[None]:
    """What is not known to be committed when a coordinator begins is passed over."""

    def bounded(self: GroupLoad) -> None:
        log = self._replicas.partition(OFFSETS_TOPIC, self._partition).leader_log()
        position = max(self.loader.position, log.log_start_offset)
        if position >= log.high_watermark:
            self._finish(None)
            return
        read = log.read(
            position, max_bytes=1 << 20, upper_bound=log.high_watermark, at_least_one=True
        )
        self._workers.submit(
            lambda: self._decode(read.slices), lambda outcome: self._decoded(read.slices, outcome)
        )

    with replaced(GroupLoad, "advance", bounded):
        yield


@contextmanager
def loads_the_first_of_each_key() -> Iterator[None]:
    """Of several records of a key that are read at once, the oldest counts."""
    decode_records = loading.Loader._decode_records

    def first(self: loading.Loader, records: Any, producer_id: int, steps: Any) -> None:
        decode_records(self, records, producer_id, steps)

    decode = loading.Loader.decode

    def oldest(self: loading.Loader, buffer: Any) -> Any:
        self._open.add(-7)  # As in a transaction, each record is taken by itself.
        steps = decode(self, buffer)
        found: dict[Any, Any] = {}
        for step in steps:
            fact = step.fact
            key = (
                fact.group_id
                if isinstance(fact, GroupFact)
                else (fact.group_id, fact.topic, fact.partition)
            )
            found.setdefault(key, step)
        return list(found.values())

    with (
        replaced(loading.Loader, "_decode_records", first),
        replaced(loading.Loader, "decode", oldest),
    ):
        yield


@contextmanager
def loads_generations_as_new() -> Iterator[None]:
    """A group that is loaded counts its generations from the beginning."""
    loaded = loading._loaded

    def again(shard: Shard, group_id: str, value: Any) -> Group:
        group = loaded(shard, group_id, value)
        if not group.members:
            group.generation = 0
        return group

    with replaced(loading, "_loaded", again):
        yield


# -- what ends offsets -------------------------------------------------------------------------


@contextmanager
def expires_offsets_of_groups_that_rebalance() -> Iterator[None]:
    """A group counts as empty while its members join."""
    expire = groups.expire

    def hasty(shard: Shard) -> Any:
        for group in shard.groups.values():
            if group.state is State.PREPARING:
                facts = [
                    OffsetFact(group.group_id, *key, None)
                    for key in shard.offsets.keys(group.group_id)
                ]
                return shard.write(facts)
        return expire(shard)

    with replaced(groups, "expire", hasty):
        yield


@contextmanager
def counts_retention_in_seconds() -> Iterator[None]:
    """offsets.retention.minutes is taken for seconds: a group that is empty for a moment loses."""
    expired = groups._expired

    def hasty(shard: Shard, group: Group) -> Any:
        config = shard.config
        shard.config = replace(config, offsets_retention_ms=config.offsets_retention_ms // 60)
        try:
            return list(expired(shard, group))
        finally:
            shard.config = config

    with replaced(groups, "_expired", hasty):
        yield


@contextmanager
def forgets_all_topics_with_one() -> Iterator[None]:
    """Where a topic is deleted, its groups lose their offsets of all topics."""
    forget = groups.forget_offsets

    def everything(shard: Shard, is_gone: Any, topics: Any = None) -> Pending[Error]:
        if topics is None:
            return forget(shard, is_gone, topics)
        return groups._write_in_parts(
            shard,
            [
                OffsetFact(group_id, *key, None)
                for group_id in sorted(shard.offsets.groups_of(topics))
                for key in shard.offsets.keys(group_id)
            ],
        )

    with replaced(groups, "forget_offsets", everything):
        yield


# -- generations -------------------------------------------------------------------------------


@contextmanager
def takes_syncs_of_old_generations() -> Iterator[None]:
    """SyncGroup is answered for a generation that is over."""
    check = syncing._check

    def generous(group: Group, request: Any) -> Error:
        error = check(group, request)
        return Error.NONE if error is Error.ILLEGAL_GENERATION else error

    with replaced(syncing, "_check", generous):
        yield


@contextmanager
def assigns_before_the_generation_is_stored() -> Iterator[None]:
    """Members get their partitions before the assignment is replicated, or although it is not."""
    store = syncing._store

    def hasty(shard: Shard, group: Group, leader: Member, request: Any) -> Any:
        write = shard.write
        shard.write = lambda facts: (write(facts), completed(Error.NONE))[1]  # type: ignore[method-assign]
        try:
            return store(shard, group, leader, request)
        finally:
            del shard.write  # type: ignore[method-assign]

    with replaced(syncing, "_store", hasty):
        yield


@contextmanager
def keeps_assignments_of_members_not_named() -> Iterator[None]:
    """A member that its leader gives nothing keeps what it had."""

    def sync_response(self: Group, member: Member) -> Any:
        answer = plain(self, member)
        held: dict[str, bytes] = self.__dict__.setdefault("held", {})
        who = member.instance_id or member.client_id
        if len(answer.assignment) <= 10 and who in held:
            return replace(answer, assignment=held[who])
        held[who] = answer.assignment
        return answer

    plain = Group.sync_response
    with replaced(Group, "sync_response", sync_response):
        yield


# -- offsets in the store ----------------------------------------------------------------------


@contextmanager
def forgets_the_leader_epoch() -> Iterator[None]:
    """An offset is stored without the epoch that came with it."""
    replay = OffsetStore.replay

    def plain(self: OffsetStore, fact: OffsetFact, **rest: Any) -> None:
        if fact.value is not None:
            fact = replace(fact, value=replace(fact.value, leader_epoch=-1))
        replay(self, fact, **rest)

    with replaced(OffsetStore, "replay", plain):
        yield


# -- readers -----------------------------------------------------------------------------------


@contextmanager
def lets_consumers_of_followers_read_to_the_end() -> Iterator[None]:
    """A follower gives consumers all that it has (KIP-392 without its bound)."""
    read = Partition.read

    def to_the_end(
        self: Partition, requested: Any, max_bytes: int, at_least_one: bool, *rest: Any
    ) -> Any:
        log = self.log
        if self.is_leader or log is None or requested.fetch_offset >= log.log_end_offset:
            return read(self, requested, max_bytes, at_least_one, *rest)
        return self.read_to_end(requested, max_bytes, at_least_one)

    with replaced(Partition, "read", to_the_end):
        yield


@contextmanager
def finds_the_batch_of_a_timestamp_only() -> Iterator[None]:
    """ListOffsets for a timestamp names the last record of the batch in which it is found."""
    run = TimestampSearch.run

    def late(self: TimestampSearch) -> Any:
        found = run(self)
        return None if found is None else found._replace(offset=found.offset + 1)

    with replaced(TimestampSearch, "run", late):
        yield


@contextmanager
def looks_for_timestamps_in_the_newest_segment() -> Iterator[None]:
    """ListOffsets for a timestamp begins with the last segment that may have it."""

    def newest(self: PartitionLog, timestamp: int, start_offset: int = 0) -> Any:
        limit = expanded_bytes_max(self.config)
        for segment in reversed(list(self.segments)):
            if segment.max_timestamp.timestamp >= timestamp:
                return segment.search_timestamp(timestamp, self.log_start_offset, limit)
        return None

    with replaced(PartitionLog, "search_timestamp", newest):
        yield


@contextmanager
def passes_over_equal_timestamps() -> Iterator[None]:
    """ListOffsets finds the first record after a timestamp, not at it."""
    search = PartitionLog.search_timestamp

    def later(self: PartitionLog, timestamp: int, start_offset: int = 0) -> Any:
        return search(self, timestamp + 1, start_offset)

    with replaced(PartitionLog, "search_timestamp", later):
        yield


OFFSETS = ("committed offset lost", "offsets logs differ", "coordinator wrong")
GENERATIONS = ("stale commit taken", "generation went back", "partition owned twice")
LOOKUPS = ("timestamp lookup wrong",)

GROUP_VARIANTS = tuple(
    variant(breaks, by=by, suits=has_groups)
    for breaks, by in (
        (acknowledges_commits_before_they_are_replicated, OFFSETS),
        (forgets_the_generation_of_commits, GENERATIONS),
        (lets_anybody_commit, GENERATIONS),
        (knows_static_members_by_their_instance_id_alone, GENERATIONS),
        (reads_offsets_before_they_are_replicated, OFFSETS),
        (reads_what_it_loaded_before_that_is_replicated, OFFSETS),
        (answers_before_loading_is_done, OFFSETS + GENERATIONS),
        (goes_on_after_it_resigned, OFFSETS + GENERATIONS),
        (keeps_what_it_knew_in_a_new_epoch, OFFSETS + GENERATIONS),
        (loads_no_offsets, OFFSETS),
        (loads_no_groups, GENERATIONS),
        (loads_only_the_beginning, OFFSETS + GENERATIONS),
        (loads_up_to_the_high_watermark, OFFSETS + GENERATIONS),
        (loads_the_first_of_each_key, OFFSETS + GENERATIONS),
        (loads_generations_as_new, GENERATIONS),
        (expires_offsets_of_groups_that_rebalance, OFFSETS),
        (counts_retention_in_seconds, OFFSETS),
        (forgets_all_topics_with_one, OFFSETS),
        (takes_syncs_of_old_generations, GENERATIONS),
        (assigns_before_the_generation_is_stored, GENERATIONS),
        (keeps_assignments_of_members_not_named, GENERATIONS),
        (forgets_the_leader_epoch, OFFSETS),
        (lets_consumers_of_followers_read_to_the_end, ("uncommitted follower read",)),
        (finds_the_batch_of_a_timestamp_only, LOOKUPS),
        (looks_for_timestamps_in_the_newest_segment, LOOKUPS),
        (passes_over_equal_timestamps, LOOKUPS),
    )
)
