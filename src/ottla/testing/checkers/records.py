"""Checkers for records. Each takes a history and returns the witnesses of one anomaly.

- acknowledged write lost: a batch was acknowledged, and the log of a replica lacks it.
- read lost: a consumer read a record that no log holds in the end, or skipped some.
- two values at one offset: clients, leaders or logs have different values for an offset.
- watermark fell: the end of a partition went back for one client (KIP-207).
- two leaders in one epoch: two nodes acknowledged, or became leader, in one leader epoch, or one
  acknowledged in that of another.
- idempotent write twice: a retry was appended beside the first attempt (KIP-98).
- producer reordered: an idempotent producer's batches are not in the order they were sent in.
- no progress: something that must work did not, after all faults had ended.
- assertion failed: an assertion of a node failed.

The checkers for the metadata log are in `checkers_metadata`; `checkers_verdict` turns witnesses
into a verdict. Offsets are those of records; a batch of n values takes n offsets.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.base.ids import NO_EPOCH, uuid_text
from ottla.testing.checkers.promises import Promises
from ottla.testing.history.history import History, LogSeen, Skipped, Write
from ottla.testing.history.topics import TopicPartition


class Witness(NamedTuple):
    """One violation, seen at `at_ms`."""

    text: str
    at_ms: int = 0


ANSWER_MS = 3_000
"""How long a response may be in flight: readers time out after that."""

Checker = Callable[[History], list[Witness]]


def name_of(partition: TopicPartition | None) -> str:
    """Return the name of a partition in witness texts."""
    if partition is None:
        return "the quorum"
    return f"{uuid_text(partition[0])}-{partition[1]}"


# -- kept is kept ------------------------------------------------------------------------------


def acknowledged_writes_lost(history: History) -> list[Witness]:
    """Return the acknowledged values that a replica's log lacks although it reaches so far."""
    logs, promises, epochs = _logs(history), Promises(history), _epochs_of(history)
    return [
        Witness(
            f"{value!r} of {write.client} was acknowledged at {write.ended_ms} ms at "
            f"{name_of(write.partition)}:{offset}, where node {log.node} has "
            f"{log.values.get(offset)!r} (log {log.start} to {_end(log)})",
            write.ended_ms,
        )
        for write in history.acknowledged()
        if promises.stands(
            write.partition,
            write.sent_ms,
            epoch=epochs.get((write.node, write.partition, write.offset), NO_EPOCH),
        )
        for offset, value in _placed(write)
        for log in logs[write.partition]
        if not promises.keeps(log, offset, value)
    ] + _lost_somewhere(history, logs, promises)


def _lost_somewhere(
    history: History, logs: Mapping[TopicPartition, list[LogSeen]], promises: Promises
) -> list[Witness]:
    """Return the values acknowledged without an offset that a log lacks."""
    unplaced = [write for write in history.acknowledged() if write.offset < 0]
    if not unplaced:
        return []
    held = {each: [set(log.values.values()) for log in kept] for each, kept in logs.items()}
    return [
        Witness(f"{value!r} of {write.client} was acknowledged; a log lacks it", write.ended_ms)
        for write in unplaced
        if promises.stands(write.partition, write.sent_ms)
        and not promises.of(write.partition[0]).compacted
        and not promises.of(write.partition[0]).trimmed
        and write.partition not in history.tiers.given_up
        for value in write.values
        for values in held.get(write.partition, ())
        if value not in values
    ]


def reads_lost(history: History) -> list[Witness]:
    """Return the records that consumers read and a log lacks, and the offsets that they skipped."""
    logs, promises = _logs(history), Promises(history)
    found = [
        Witness(
            f"{read.client} read {read.value!r} at {name_of(read.partition)}:{read.offset} from "
            f"node {read.node}; in the end node {log.node} has {log.values.get(read.offset)!r}",
            read.at_ms,
        )
        for read in history.reads
        if promises.stands(read.partition, read.at_ms - ANSWER_MS, epoch=read.epoch)
        for log in logs[read.partition]
        if not promises.keeps(log, read.offset, read.value)
    ]
    found += [
        Witness(
            f"{gap.client} skipped {name_of(gap.partition)}:{gap.first} to {gap.next}",
            gap.at_ms,
        )
        for gap in history.skipped
        if gap.partition[0] not in history.deleted and not _may_skip(gap, promises, history)
    ]
    return found


def _may_skip(gap: Skipped, promises: Promises, history: History) -> bool:
    """Tell whether the promise of the topic allows the skip."""
    promise = promises.of(gap.partition[0])
    if not gap.was_reset:
        return promise.compacted
    if not promises.stood(gap.partition, gap.at_ms):
        return True
    # Each replica expires segments by its own clock: the next leader's log may start earlier.
    may_begin_later = promise.trimmed or gap.next <= history.tiers.given_up.get(gap.partition, -1)
    return may_begin_later and gap.first <= max(gap.next, gap.end)


def two_values_at_one_offset(history: History) -> list[Witness]:
    """Return the offsets for which clients and committed parts of logs have different values."""
    claims: dict[tuple[TopicPartition, int], tuple[bytes, str]] = {}
    found = []
    promises = Promises(history)
    for partition, offset, value, who, at_ms in _claims(history):
        if not promises.stood(partition, history.ended_ms):
            continue
        first, by = claims.setdefault((partition, offset), (value, who))
        if first != value:
            text = f"{name_of(partition)}:{offset} is {first!r} to {by}, {value!r} to {who}"
            found.append(Witness(text, at_ms))
    crcs: dict[tuple[TopicPartition, int, int], tuple[int, int]] = {}
    for each in history.acknowledgements:
        key = (each.partition, each.epoch, each.offset)
        crc, node = crcs.setdefault(key, (each.crc, each.node))
        if crc != each.crc:
            text = (
                f"{name_of(each.partition)}:{each.offset} of epoch {each.epoch} was acknowledged "
                f"with two contents, by nodes {node} and {each.node}"
            )
            found.append(Witness(text, each.at_ms))
    return found


def _claims(history: History) -> Iterator[tuple[TopicPartition, int, bytes, str, int]]:
    for write in history.acknowledged():
        for offset, value in _placed(write):
            yield write.partition, offset, value, write.client, write.ended_ms
    for read in history.reads:
        yield read.partition, read.offset, read.value, read.client, read.at_ms
    for log in history.logs:
        for offset, value in log.values.items():
            if offset < log.high_watermark:
                yield log.partition, offset, value, f"node {log.node}", history.ended_ms


# -- watermarks --------------------------------------------------------------------------------


def watermarks_that_fell(history: History) -> list[Witness]:
    """Return where a partition's end, or its start, went back for one client.

    The end that ListOffsets returns may never go back. A fetch is compared with fetches from the
    same leader in the same epoch only: a new leader learns the committed offset from its followers,
    and Kafka guarantees the end for ListOffsets alone. ListOffsets names the topic: once the topic
    is deleted, the response may be about the next topic of its name.
    """
    found = []
    promises = Promises(history)
    last: dict[tuple[object, ...], int] = {}
    gone = {
        each.topic_id: each.at_ms
        for each in history.topics_seen
        if each.node < 0 and not each.is_there
    }
    for seen in history.watermarks:
        is_by_name = seen.api == "list_offsets"
        if is_by_name and seen.at_ms >= gone.get(seen.partition[0], seen.at_ms + 1):
            continue
        if not promises.stood(seen.partition, seen.at_ms):
            continue
        within = () if is_by_name else (seen.node, seen.epoch)
        key = (seen.client, seen.partition, seen.api, *within)
        before = last.get(key, -1)
        if seen.offset < before:
            text = (
                f"{seen.api} of node {seen.node} for {seen.client}: the end of "
                f"{name_of(seen.partition)} is {seen.offset}, after {before}"
            )
            found.append(Witness(text, seen.at_ms))
        last[key] = max(before, seen.offset)
        start_key = (seen.client, seen.partition, "start", seen.node, seen.epoch)
        before = last.get(start_key, -1)
        if -1 < seen.log_start < before:
            text = (
                f"fetch of node {seen.node} for {seen.client}: the start of "
                f"{name_of(seen.partition)} is {seen.log_start}, after {before}"
            )
            found.append(Witness(text, seen.at_ms))
        last[start_key] = max(before, seen.log_start)
    return found


# -- one leader --------------------------------------------------------------------------------


def two_leaders_in_one_epoch(history: History) -> list[Witness]:
    """Return the epochs in which two nodes acknowledged, or became leader, or one each."""
    found = []
    leaders: dict[tuple[TopicPartition | None, int], tuple[int, str]] = {}
    acts = [("became leader", *each) for each in history.leader_terms]
    acts += [
        ("acknowledged", each.node, each.partition, each.epoch, each.at_ms)
        for each in history.acknowledgements
    ]
    for act, node, partition, epoch, at_ms in acts:
        first, did = leaders.setdefault((partition, epoch), (node, act))
        if first != node:
            who = f"nodes {first} and {node} both {act}"
            if did != act:
                who = f"node {first} {did} and node {node} {act}"
            found.append(Witness(f"{who} in epoch {epoch} of {name_of(partition)}", at_ms))
    return found


# -- producers ---------------------------------------------------------------------------------


def idempotent_writes_twice(history: History) -> list[Witness]:
    """Return the values of idempotent producers that a log holds more than once."""
    owners = {value: write for write in history.writes if write.producer for value in write.values}
    found = []
    promises = Promises(history)
    for log in history.logs:
        if not promises.stood(log.partition, history.ended_ms):
            continue
        places: dict[bytes, int] = {}
        for offset, value in sorted(log.values.items()):
            first = places.setdefault(value, offset)
            if first != offset and value in owners:
                write = owners[value]
                text = (
                    f"{write.client} sent {value!r} {write.tries} times, and node {log.node} has "
                    f"it at {name_of(log.partition)}:{first} and :{offset}"
                )
                found.append(Witness(text, write.ended_ms))
    return found


def producers_reordered(history: History) -> list[Witness]:
    """Return the idempotent batches that a log holds after ones that were sent later."""
    orders = {
        value: (write.client, write.producer, write.number, index)
        for write in history.writes
        if write.producer
        for index, value in enumerate(write.values)
    }
    found = []
    promises = Promises(history)
    for log in history.logs:
        if not promises.stood(log.partition, history.ended_ms):
            continue
        last: dict[object, tuple[tuple[int, int], bytes]] = {}
        for offset, value in sorted(log.values.items()):
            if value not in orders:
                continue
            client, producer, number, index = orders[value]
            before = last.get((client, producer))
            if before is not None and before[0] > (number, index):
                text = (
                    f"node {log.node} has {value!r} of {client} at {name_of(log.partition)}:"
                    f"{offset}, behind {before[1]!r}, which was sent later"
                )
                found.append(Witness(text, history.ended_ms))
            last[client, producer] = ((number, index), value)
    return found


# -- progress ----------------------------------------------------------------------------------


def no_progress(history: History) -> list[Witness]:
    """Return what was expected to work after healing and did not."""
    if history.healed_ms is None:
        return []
    working = {each.what for each in history.progress if each.at_ms >= history.healed_ms}
    waited_ms = history.ended_ms - history.healed_ms
    return [
        Witness(f"nothing of {what} in {waited_ms} ms after healing", history.ended_ms)
        for what in history.expected
        if what not in working
    ]


def assertions_that_failed(history: History) -> list[Witness]:
    """Return the assertions of nodes that failed."""
    return [Witness(text, at_ms) for at_ms, text in history.errors]


# -- the parts of a history --------------------------------------------------------------------


def _logs(history: History) -> defaultdict[TopicPartition, list[LogSeen]]:
    logs: defaultdict[TopicPartition, list[LogSeen]] = defaultdict(list)
    for log in history.logs:
        logs[log.partition].append(log)
    return logs


def _epochs_of(history: History) -> dict[tuple[int, TopicPartition, int], int]:
    """Return the leader epoch in which each node has acknowledged an offset of each partition.

    The lowest one: after an unclean election another batch may be acknowledged at the same offset.
    """
    epochs: dict[tuple[int, TopicPartition, int], int] = {}
    for each in history.acknowledgements:
        place = each.node, each.partition, each.offset
        epochs[place] = min(each.epoch, epochs.get(place, each.epoch))
    return epochs


def _placed(write: Write) -> Iterable[tuple[int, bytes]]:
    return enumerate(write.values, write.offset) if write.offset >= 0 else ()


def _end(log: LogSeen) -> int:
    return max(log.values, default=log.start - 1) + 1
