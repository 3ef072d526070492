"""Checkers for consumer groups and readers. Each returns the witnesses of one anomaly.

- committed offset lost: a commit was acknowledged, or fetched; a later OffsetFetch, or a replica of
  __consumer_offsets in the end, has an older one or none, or one that no client committed.
- stale commit taken: a commit of a previous generation, or of a replaced static member, was stored,
  or one that the coordinator had rejected.
- partition owned twice: two members own one partition in one generation, or a member's assignment
  is not what its group leader sent.
- generation went back: a member joined, or got an assignment of, a generation older than a stored
  one.
- commit beyond the end: a committed offset is greater than the end of its partition.
- offsets logs differ: replicas of __consumer_offsets hold different records, or replay to
  different offsets and generations.
- timestamp lookup wrong: ListOffsets for a timestamp skipped a record that was acknowledged before,
  or returned one that is older.
- uncommitted follower read: a follower returned records to a consumer that no leader had committed
  yet, or that lie above its own high watermark (KIP-392).

`checkers.no_progress` checks that groups work again after healing.

A request may be delivered a second time, later (`sim.net`): a commit counts as final only that long
after its acknowledgement, or when its generation is over.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH
from ottla.testing.checkers.records import Witness, name_of
from ottla.testing.history.groups import (
    NO_COMMIT,
    AssignmentReceived,
    AssignmentSent,
    MemberJoined,
    NamedPartition,
    OffsetCommit,
    OffsetFetch,
    OffsetsLogSeen,
)
from ottla.testing.history.history import History, PartitionSeen, Write
from ottla.testing.history.topics import Outcome, TopicPartition

TWICE_MS = 2_100
"""How long after its first delivery a request may be delivered again (`NetFaults.slow_us_max`)."""

REJECTED = frozenset(
    {
        Error.FENCED_INSTANCE_ID.name,
        Error.GROUP_ID_NOT_FOUND.name,
        Error.ILLEGAL_GENERATION.name,
        Error.REBALANCE_IN_PROGRESS.name,
        Error.UNKNOWN_MEMBER_ID.name,
    }
)
"""Errors with which a coordinator rejects a commit before it writes anything."""

NEVER = 1 << 60
Place = tuple[str, TopicPartition]
"""A group and a partition that it commits offsets of."""


class _Coordinators:
    """Which node was the coordinator when: by the metadata, and as each node knew."""

    def __init__(self, history: History) -> None:
        self._groups = history.groups
        self._states: defaultdict[TopicPartition, list[PartitionSeen]] = defaultdict(list)
        kept = set(self._groups.offsets_partitions.values())
        for seen in history.partitions:
            if seen.partition in kept:
                self._states[seen.partition].append(seen)

    def is_outdated(self, group: str, node: int, at_ms: int) -> bool:
        """Tell whether a node still took itself for the coordinator after it was replaced.

        Such a node still answers requests that need no write, as Kafka's coordinators do.
        """
        partition = self._groups.offsets_partitions.get(group)
        if partition is None:
            return False
        epochs = self._groups.epochs_led.get((node, partition), [])
        place = bisect_right(epochs, (at_ms, NEVER))
        epoch = epochs[place - 1][1] if place else NO_EPOCH
        return NO_EPOCH < epoch < _leader_at(self._states[partition], at_ms)[1]


# -- committed offsets -------------------------------------------------------------------------


class _Known(NamedTuple):
    """A commit, and since when it is known to be stored."""

    commit: OffsetCommit
    since_ms: int


def committed_offsets_lost(history: History) -> list[Witness]:
    """Return the fetched offsets that are older than an offset known to be stored before."""
    found: list[Witness] = []
    commits: defaultdict[Place, dict[str, OffsetCommit]] = defaultdict(dict)
    for commit in history.groups.commits:
        commits[commit.group, commit.partition][commit.token] = commit
    fetches: defaultdict[Place, list[OffsetFetch]] = defaultdict(list)
    coordinators = _Coordinators(history)
    answered = [
        each
        for each in history.groups.fetches
        if not coordinators.is_outdated(each.group, each.node, each.sent_ms)
    ]
    for fetch in [*answered, *_fetched_from_logs(history, commits)]:
        fetches[fetch.group, fetch.partition].append(fetch)
    for place, of_place in fetches.items():
        if place[1][0] not in history.deleted:
            found += _lost(place, commits[place], of_place)
    return found


def _fetched_from_logs(history: History, commits: Iterable[Place]) -> Iterator[OffsetFetch]:
    """Yield what replicas hold in the end, as OffsetFetch results."""
    held: dict[tuple[int, int], set[str]] = {}
    for log in history.groups.logs:
        for (group, partition), (offset, token, epoch) in log.offsets.items():
            yield OffsetFetch(
                f"the log of node {log.node}",
                group,
                partition,
                offset,
                token,
                log.node,
                history.ended_ms,
                history.ended_ms,
                epoch,
            )
        held[log.node, log.partition] = {group for group, _ in log.offsets}
    for log in history.groups.logs:
        # A group's records are all in one partition; where another replica has some, all do.
        groups = set().union(*(held[key] for key in held if key[1] == log.partition))
        for group, partition in commits:
            if group in groups and (group, partition) not in log.offsets:
                yield OffsetFetch(
                    f"the log of node {log.node}",
                    group,
                    partition,
                    -1,
                    NO_COMMIT,
                    log.node,
                    history.ended_ms,
                    history.ended_ms,
                )


def _lost(
    place: Place, commits: dict[str, OffsetCommit], fetches: list[OffsetFetch]
) -> Iterator[Witness]:
    first_seen: dict[str, int] = {}
    for fetch in sorted(fetches, key=lambda each: each.at_ms):
        first_seen.setdefault(fetch.token, fetch.at_ms)
    known = [
        _Known(commit, since_ms)
        for commit in commits.values()
        if (since_ms := min(_acknowledged_ms(commit), first_seen.get(commit.token, NEVER))) < NEVER
    ]
    where = f"{place[0]} in {name_of(place[1])}"
    for fetch in fetches:
        commit = commits.get(fetch.token)
        text = f"{fetch.client} fetched offset {fetch.offset} for {where} at {fetch.at_ms} ms"
        if fetch.token == NO_COMMIT:
            later = [each for each in known if each.since_ms < fetch.sent_ms]
        elif commit is None or not _is_of_commit(fetch, commit):
            yield Witness(
                f"{text} of epoch {fetch.epoch} ({fetch.token!r}), which no client had committed",
                fetch.at_ms,
            )
            continue
        else:
            later = [
                each
                for each in known
                if each.since_ms < fetch.sent_ms and _is_before(commit, each.commit)
            ]
        if later:
            last = max(later, key=lambda each: each.since_ms)
            yield Witness(
                f"{text} ({fetch.token or 'no commit'}), after {last.commit.offset} "
                f"({last.commit.token}, generation {last.commit.generation}) was stored at "
                f"{last.since_ms} ms",
                fetch.at_ms,
            )


def _is_of_commit(fetch: OffsetFetch, commit: OffsetCommit) -> bool:
    return (fetch.offset, fetch.epoch) == (commit.offset, commit.epoch) and (
        commit.sent_ms <= fetch.at_ms
    )


def _acknowledged_ms(commit: OffsetCommit) -> int:
    return commit.ended_ms if commit.outcome is Outcome.ACKNOWLEDGED else NEVER


def _is_before(commit: OffsetCommit, other: OffsetCommit) -> bool:
    """Tell whether a commit cannot have been stored after another one that was stored."""
    if commit.generation < other.generation:
        return True  # Its generation was over when the other one was taken.
    return _acknowledged_ms(commit) + TWICE_MS < other.sent_ms


def commits_beyond_the_end(history: History) -> list[Witness]:
    """Return the stored offsets that are greater than the end of their partition."""
    ends: dict[TopicPartition, int] = {}
    for log in history.logs:
        end = max(max(log.values, default=-1) + 1, log.start, log.high_watermark)
        ends[log.partition] = max(end, ends.get(log.partition, 0))
    return [
        Witness(
            f"{fetch.group} has committed {fetch.offset} in {name_of(fetch.partition)}, which ends "
            f"at {ends[fetch.partition]}",
            fetch.at_ms,
        )
        for fetch in history.groups.fetches
        if fetch.partition in ends and fetch.offset > ends[fetch.partition]
    ]


# -- generations -------------------------------------------------------------------------------


def stale_commits_taken(history: History) -> list[Witness]:
    """Return the commits that were acknowledged, or stored, although their sender was replaced."""
    found = _rejected_and_stored(history)
    stored = _first_received(history)
    replaced = _replaced(history)
    seen = {(fetch.group, fetch.partition, fetch.token) for fetch in history.groups.fetches}
    for commit in history.groups.commits:
        is_stored = (commit.group, commit.partition, commit.token) in seen
        if commit.outcome is not Outcome.ACKNOWLEDGED and not is_stored:
            continue
        how = "acknowledged" if commit.outcome is Outcome.ACKNOWLEDGED else "stored"
        text = (
            f"{commit.offset} of {commit.group} in {name_of(commit.partition)} was {how} for "
            f"{commit.member} of generation {commit.generation}, sent at {commit.sent_ms} ms"
        )
        newer = [
            (at_ms, generation)
            for generation, at_ms in stored[commit.group].items()
            if generation > commit.generation and at_ms < commit.sent_ms
        ]
        if newer:
            at_ms, generation = min(newer)
            since = f"; generation {generation} was stored before {at_ms} ms"
            found.append(Witness(text + since, commit.ended_ms))
            continue
        at_ms = replaced.get((commit.group, commit.generation, commit.member), NEVER)
        if at_ms < commit.sent_ms:
            since = f"; another member took its place before {at_ms} ms"
            found.append(Witness(text + since, commit.ended_ms))
    return found


def _rejected_and_stored(history: History) -> list[Witness]:
    """Return the commits that were rejected, and fetched or found in a log nevertheless.

    The second copy of a request may be accepted after the first one was rejected.
    """
    if history.requests_repeated:
        return []
    stored = {
        (fetch.group, fetch.partition, fetch.token): f"{fetch.client} fetched it"
        for fetch in history.groups.fetches
    }
    for log in history.groups.logs:
        for place, (_, token, _) in log.offsets.items():
            stored[*place, token] = f"node {log.node} has it in its log"
    return [
        Witness(
            f"{commit.offset} of {commit.group} in {name_of(commit.partition)} was rejected for "
            f"{commit.member} of generation {commit.generation} with {commit.error}; "
            f"{stored[commit.group, commit.partition, commit.token]}",
            commit.ended_ms,
        )
        for commit in history.groups.commits
        if commit.outcome is Outcome.FAILED and commit.error in REJECTED
        if (commit.group, commit.partition, commit.token) in stored
    ]


def _lasting(history: History) -> list[AssignmentReceived]:
    """Return the assignments received since the group had a committed offset.

    An empty group without one is deleted by the retention check: the next group of its name starts
    with generation 1 again.
    """
    begun: dict[str, int] = {}
    for commit in history.groups.commits:
        if commit.partition[0] not in history.deleted:
            since_ms = min(_acknowledged_ms(commit), begun.get(commit.group, NEVER))
            begun[commit.group] = since_ms
    received = history.groups.received
    return [each for each in received if each.at_ms >= begun.get(each.group, NEVER)]


def _first_received(history: History) -> defaultdict[str, dict[int, int]]:
    """Return when each generation of each group was first known to be stored."""
    stored: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for each in _lasting(history):
        of_group = stored[each.group]
        of_group[each.generation] = min(each.at_ms, of_group.get(each.generation, NEVER))
    return stored


def _replaced(history: History) -> dict[tuple[str, int, str], int]:
    """Return when members were replaced within a generation by others of their instance id.

    The replacement is stored before the new member gets its response, if the group was stable.
    """
    members: dict[tuple[str, int, str], list[tuple[int, str]]] = defaultdict(list)
    for each in _lasting(history):
        if each.instance is not None:
            members[each.group, each.generation, each.instance].append((each.at_ms, each.member))
    found: dict[tuple[str, int, str], int] = {}
    for (group, generation, _), known in members.items():
        ordered = sorted(known)
        for (_, before), (at_ms, after) in pairwise(ordered):
            if before != after:
                found.setdefault((group, generation, before), at_ms)
    return found


def generations_that_went_back(history: History) -> list[Witness]:
    """Return the responses of a generation older than one that was stored before."""
    stored, coordinators = _first_received(history), _Coordinators(history)
    found = []
    answers: list[tuple[str, MemberJoined | AssignmentReceived]] = [
        *(("joined", join) for join in history.groups.joins),
        *(("was given its assignment in", one) for one in history.groups.received),
    ]
    for did, each in answers:
        newer = [
            (generation, at_ms)
            for generation, at_ms in stored[each.group].items()
            if generation > each.generation and at_ms < each.sent_ms
        ]
        if newer and not coordinators.is_outdated(each.group, each.node, each.sent_ms):
            generation, at_ms = max(newer)
            text = (
                f"{each.client} {did} generation {each.generation} of {each.group} at node "
                f"{each.node}, after generation {generation} was stored before {at_ms} ms"
            )
            found.append(Witness(text, each.at_ms))
    return found


def partitions_owned_twice(history: History) -> list[Witness]:
    """Return the assignments that overlap, or are not what the generation's leader sent."""
    found: list[Witness] = []
    received: defaultdict[tuple[str, int], list[AssignmentReceived]] = defaultdict(list)
    for each in _lasting(history):
        received[each.group, each.generation].append(each)
    sent: defaultdict[tuple[str, int], list[AssignmentSent]] = defaultdict(list)
    for one in history.groups.sent:
        sent[one.group, one.generation].append(one)
    instances = {
        member: instance
        for join in history.groups.joins
        for member, instance in [(join.member, join.instance), *join.members]
        if instance is not None
    }
    for key, of_generation in received.items():
        found += _overlaps(of_generation, instances)
        if not any(_is_of(one, of_generation, instances) for one in sent[key]):
            last = max(of_generation, key=lambda each: each.at_ms)
            text = (
                f"generation {key[1]} of {key[0]} has assignments that no leader sent: "
                + "; ".join(f"{each.client} {_names(each.partitions)}" for each in of_generation)
            )
            found.append(Witness(text, last.at_ms))
    return found


def _overlaps(
    received: Iterable[AssignmentReceived], instances: Mapping[str, str]
) -> Iterator[Witness]:
    owners: dict[NamedPartition, AssignmentReceived] = {}
    for each in sorted(received, key=lambda one: one.at_ms):
        for partition in each.partitions:
            other = owners.setdefault(partition, each)
            if _who(other.member, instances) != _who(each.member, instances):
                yield Witness(
                    f"{partition[0]}-{partition[1]} is {other.client}'s and {each.client}'s in "
                    f"generation {each.generation} of {each.group}",
                    each.at_ms,
                )


def _is_of(
    sent: AssignmentSent, received: Iterable[AssignmentReceived], instances: Mapping[str, str]
) -> bool:
    """Tell whether all members got what one leader sent; those that it did not name, nothing."""
    assigned = {
        _who(member, instances): set(partitions) for member, partitions in sent.assignments.items()
    }
    return all(
        assigned.get(_who(each.member, instances), set()) == set(each.partitions)
        for each in received
    )


def _who(member: str, instances: Mapping[str, str]) -> str:
    """Return the group.instance.id of a static member, else the member id."""
    return instances.get(member) or member


def _names(partitions: Iterable[NamedPartition]) -> str:
    return " ".join(f"{topic}-{number}" for topic, number in partitions) or "nothing"


# -- the logs of replicas ----------------------------------------------------------------------


def offsets_logs_that_differ(history: History) -> list[Witness]:
    """Return where replicas of __consumer_offsets hold different records or replay differently.

    Each replica is compacted at its own time: an offset may be missing in one, but not hold
    another record, and the newest record of each key is the same.
    """
    found: list[Witness] = []
    first: dict[int, OffsetsLogSeen] = {}
    for log in history.groups.logs:
        other = first.setdefault(log.partition, log)
        where = f"__consumer_offsets-{log.partition} of nodes {other.node} and {log.node}"
        if other.end != log.end:
            text = f"{where} end at {other.end} and {log.end}"
            found.append(Witness(text, history.ended_ms))
            continue
        apart = [
            offset
            for offset in log.records.keys() & other.records.keys()
            if log.records[offset] != other.records[offset]
        ]
        if apart:
            text = f"{where} hold different records at {min(apart)}"
            found.append(Witness(text, history.ended_ms))
        elif (log.offsets, log.generations) != (other.offsets, other.generations):
            differing = [
                f"{group} in {name_of(partition)}"
                for group, partition in sorted(log.offsets.keys() | other.offsets.keys())
                if log.offsets.get((group, partition)) != other.offsets.get((group, partition))
            ]
            text = f"{where} replay to different offsets and generations: {differing}"
            found.append(Witness(text, history.ended_ms))
    return found


# -- readers -----------------------------------------------------------------------------------


def timestamp_lookups_wrong(history: History) -> list[Witness]:
    """Return the lookups that returned too old a record, or skipped an acknowledged one.

    A leader that was replaced and does not know it yet may skip what its successor appended.
    """
    found: list[Witness] = []
    written: defaultdict[TopicPartition, list[Write]] = defaultdict(list)
    for write in history.acknowledged():
        if write.offset >= 0 and write.made_ms >= 0:
            written[write.partition].append(write)
    leaders: defaultdict[TopicPartition, list[PartitionSeen]] = defaultdict(list)
    for seen in history.partitions:
        leaders[seen.partition].append(seen)
    for each in history.groups.lookups:
        if each.partition[0] in history.deleted:
            continue
        text = (
            f"node {each.node} returned to {each.client} as first record of "
            f"{name_of(each.partition)} since {each.timestamp} offset {each.offset}"
        )
        if each.offset >= 0 and each.found_timestamp < each.timestamp:
            found.append(Witness(f"{text}, of {each.found_timestamp}", each.at_ms))
        elif each.read_timestamp >= 0 and each.read_timestamp != each.found_timestamp:
            found.append(
                Witness(
                    f"{text}, of {each.found_timestamp}; it is of {each.read_timestamp}", each.at_ms
                )
            )
        passed = next(
            (
                write
                for write in written[each.partition]
                if (each.node, each.epoch) == _leader_at(leaders[each.partition], each.sent_ms)
                and write.ended_ms < each.sent_ms
                and write.made_ms >= each.timestamp
                and (each.offset < 0 or write.offset < each.offset)
            ),
            None,
        )
        if passed is not None:
            found.append(
                Witness(
                    f"{text}; {passed.values[0]!r} of {passed.made_ms} was acknowledged at "
                    f"{passed.offset} before",
                    each.at_ms,
                )
            )
    return found


def _leader_at(states: list[PartitionSeen], at_ms: int) -> tuple[int, int]:
    """Return the leader of a partition at a moment, and its epoch."""
    place = bisect_right(states, at_ms, key=lambda seen: seen.at_ms)
    return (states[place - 1].leader, states[place - 1].leader_epoch) if place else (-1, -1)


def uncommitted_follower_reads(history: History) -> list[Witness]:
    """Return the records that followers returned before any leader had committed them."""
    found = []
    for read in history.groups.follower_reads:
        text = f"node {read.node}, a follower, returned to {read.client} {name_of(read.partition)}"
        if read.next > read.high_watermark:
            found.append(
                Witness(
                    f"{text} up to {read.next}, above its high watermark of {read.high_watermark}",
                    read.at_ms,
                )
            )
            continue
        committed = history.groups.high_watermarks.get(read.partition, [])
        place = bisect_right(committed, (read.at_ms, NEVER))
        up_to = committed[place - 1][1] if place else 0
        if read.next > up_to:
            text = f"{text} up to {read.next}, where leaders had committed up to {up_to}"
            found.append(Witness(text, read.at_ms))
    return found
