"""Checkers for remote storage. Each takes a history and returns the witnesses of one anomaly.

- offset unreadable: a replica has an offset within its log, in both tiers, that neither has.
- tiers differ: a remote copy has another batch at an offset of an epoch than a log, or than what
  was acknowledged.
- orphan object: the store has an object of a segment that no metadata names, or of a topic whose
  deletion has a receipt.
- remote object missing: a COPY_FINISHED segment lacks an object, or is damaged.
- manifest wrong: it lists what is not COPY_FINISHED, or was deleted; a number is missing.
- object replaced: an object was written again with other content.
- local log start wrong: local records were given up before they were copied.
- segment images differ: a broker takes other segments for the remote ones than the metadata says.
- special offsets wrong: the answers of one leader to ListOffsets contradict each other.

An unclean election may take records that were copied; what the logs have after it must be in the
tiers as well.
"""

from collections.abc import Iterator

from ottla.base.ids import uuid_text
from ottla.testing.checkers.promises import Promises
from ottla.testing.checkers.records import Witness, name_of
from ottla.testing.history.history import History
from ottla.testing.history.tiers import (
    ImageUnlike,
    ListedAndGone,
    LocalStartMoved,
    ObjectReplaced,
    RemoteSegmentSeen,
    ReplicaTiers,
    SegmentsImage,
    Unreadable,
)
from ottla.testing.history.topics import TopicPartition

Gap = tuple[int, int]


def segment_name(segment: RemoteSegmentSeen) -> str:
    """Return the name of a segment in witness texts."""
    extent = f"{segment.start}-{segment.end}"
    return f"segment {extent} ({uuid_text(segment.segment_id)}) of {name_of(segment.partition)}"


# -- readable is what is within retention ------------------------------------------------------


def offsets_unreadable(history: History) -> list[Witness]:
    """Return the offsets of a replica's log that are in neither tier."""
    promises = Promises(history)
    found = [
        Witness(
            f"node {each.node} lacks {name_of(each.partition)}:{each.first} to {each.next} in both "
            f"tiers: {each.cause}",
            each.at_ms,
        )
        for each in history.tiers.events
        if isinstance(each, Unreadable)
        if each.partition[0] not in history.deleted
        if promises.kept_own(each.partition, each.at_ms)
    ]
    for replica in history.tiers.replicas:
        gap = _gap(replica, _segments(history, replica.partition))
        if gap is not None and promises.kept_own(replica.partition, history.ended_ms):
            text = (
                f"node {replica.node} has {name_of(replica.partition)} from {replica.start}, "
                f"locally from {replica.local_start}; {gap[0]} to {gap[1]} are nowhere"
            )
            found.append(Witness(text, replica.at_ms))
    return found


def _segments(history: History, partition: TopicPartition) -> list[RemoteSegmentSeen]:
    return [
        each for each in history.tiers.segments if each.partition == partition and each.is_readable
    ]


def _gap(replica: ReplicaTiers, segments: list[RemoteSegmentSeen]) -> Gap | None:
    """Return the first offsets below the local log that no batch of its lineage has."""
    held = sorted(
        (batch.base_offset, batch.last_offset + 1)
        for segment in segments
        for batch in segment.batches
        if replica.epoch_of(max(batch.base_offset, replica.start)) == batch.epoch
    )
    at = replica.start
    for first, until in held:
        if first > at:
            break
        at = max(at, until)
    if at >= replica.local_start:
        return None
    later = [first for first, _ in held if first > at]
    return at, min([*later, replica.local_start])


def local_starts_wrong(history: History) -> list[Witness]:
    """Return the local log starts that moved beyond what is copied."""
    promises = Promises(history)
    return [
        Witness(
            f"node {each.node} moved the local log start of {name_of(each.partition)} from "
            f"{each.before} to {each.start}; {each.copied} is not copied",
            each.at_ms,
        )
        for each in history.tiers.events
        if isinstance(each, LocalStartMoved)
        if promises.kept_own(each.partition, each.at_ms)
    ]


# -- one value at one offset -------------------------------------------------------------------


def tiers_that_differ(history: History) -> list[Witness]:
    """Return the remote batches that differ from those of logs, or from what was acknowledged."""
    known: dict[tuple[TopicPartition, int, int], tuple[int, str]] = {}
    tiered = {each.partition for each in history.tiers.segments}
    for log in history.replica_logs:
        if log.partition in tiered:
            for batch in log.batches():
                key = (log.partition, batch.base_offset, batch.epoch)
                known.setdefault(key, (batch.crc, f"the log of node {log.node}"))
    for each in history.acknowledgements:
        if each.partition in tiered:
            key = (each.partition, each.offset, each.epoch)
            known.setdefault(key, (each.crc, f"what node {each.node} acknowledged"))
    found = []
    for segment in history.tiers.segments:
        for batch in segment.batches if segment.is_readable else ():
            key = (segment.partition, batch.base_offset, batch.epoch)
            crc, by = known.setdefault(key, (batch.crc, segment_name(segment)))
            if crc != batch.crc:
                text = f"{segment_name(segment)} differs at {batch.base_offset} from {by}"
                found.append(Witness(text, history.ended_ms))
    return found


# -- every object is referenced, every reference has its object --------------------------------


def orphan_objects(history: History) -> list[Witness]:
    """Return the objects of segments that no metadata names, and those of topics that are gone.

    The objects of a deleted topic may be there until its deletion has a receipt.
    """
    known = {(each.partition, each.segment_id) for each in history.tiers.segments}
    topics, receipts = history.topics or set(), history.receipts or set()
    found = []
    for name, partition, segment_id in history.tiers.objects:
        if partition[0] in receipts:
            found.append(Witness(f"{name} is of a topic whose deletion has a receipt"))
            continue
        is_known = segment_id is None or (partition, segment_id) in known
        if partition[0] in topics and not is_known:
            found.append(Witness(f"{name} is of no known segment"))
    return [each._replace(at_ms=history.ended_ms) for each in found]


def remote_objects_missing(history: History) -> list[Witness]:
    """Return the readable segments that lack an object, or are damaged."""
    found = []
    for segment in history.tiers.segments:
        if not segment.is_readable:
            continue
        found += [
            Witness(f"{segment_name(segment)} is COPY_FINISHED, {text}", history.ended_ms)
            for text in _damages(segment)
        ]
    return found


def _damages(segment: RemoteSegmentSeen) -> Iterator[str]:
    for each in segment.missing:
        yield f"without its {each}"
    if segment.damage is not None:
        yield segment.damage
    due = segment.start
    for batch in segment.batches:
        if batch.base_offset > due:
            yield f"without {due} to {batch.base_offset}"
        due = max(due, batch.last_offset + 1)
    if not segment.missing and segment.damage is None and due != segment.end + 1:
        yield f"its batches end at {due}"


def objects_replaced(history: History) -> list[Witness]:
    """Return the objects that were written again with other content."""
    return [
        Witness(f"{each.name} was written again with other content", each.at_ms)
        for each in history.tiers.events
        if isinstance(each, ObjectReplaced)
    ]


def manifests_wrong(history: History) -> list[Witness]:
    """Return the manifests that list what need not exist, and breaks in their chain.

    A purge deletes the manifests of a deleted topic first, but a late listing may not show some.
    """
    found = [
        Witness(f"{each.name}: {each.cause}", each.at_ms)
        for each in history.tiers.events
        if isinstance(each, ListedAndGone) and each.partition[0] not in history.deleted
    ]
    for seen in history.tiers.manifests:
        name = f"the manifests of {name_of(seen.partition)}"
        readable = {each.segment_id for each in _segments(history, seen.partition)}
        found += [
            Witness(f"{name} list {uuid_text(each)}, not COPY_FINISHED", history.ended_ms)
            for each in seen.listed
            if each not in readable
        ]
        found += [Witness(f"{name} lack number {each}", history.ended_ms) for each in seen.holes]
        found += [Witness(f"{name}: {each} is damaged", history.ended_ms) for each in seen.damaged]
    return found


# -- what brokers take for it ------------------------------------------------------------------


def segment_images_that_differ(history: History) -> list[Witness]:
    """Return the brokers that take other segments for the remote ones than the metadata says.

    At the end; before that, what the metadata never said.
    """
    seen: list[tuple[SegmentsImage | ImageUnlike, int]] = [
        (each, history.ended_ms)
        for each in history.tiers.images
        if set(each.segments) != set(each.expected)
    ]
    seen += [(each, each.at_ms) for each in history.tiers.events if isinstance(each, ImageUnlike)]
    found = []
    for image, at_ms in seen:
        wrong = sorted(set(image.segments) ^ set(image.expected))
        some = ", ".join(f"{uuid_text(each)} {state}" for each, state in wrong[:3])
        text = f"node {image.node} differs in remote segments of {name_of(image.partition)}"
        found.append(Witness(f"{text}: {some}", at_ms))
    return found


def special_offsets_wrong(history: History) -> list[Witness]:
    """Return the answers to ListOffsets that contradict each other."""
    found = []
    promises = Promises(history)
    for each in history.tiers.offsets:
        tiered = each.latest_tiered
        is_wrong = (
            not each.earliest <= each.earliest_local <= each.latest
            or each.max_timestamp > each.latest
            or tiered >= each.latest
            or (each.pending_upload >= 0 and not each.earliest <= each.pending_upload)
            or each.pending_upload > each.latest
            or (
                each.earliest < each.earliest_local
                and 0 <= tiered < each.earliest_local - 1
                # Else the log start has moved since it was asked for, up to there at least.
                and each.pending_upload <= tiered + 1
            )
        )
        if is_wrong and promises.stood(each.partition, each.at_ms):
            text = (
                f"node {each.node} in epoch {each.epoch} says of {name_of(each.partition)}: "
                f"earliest {each.earliest}, local from {each.earliest_local}, pending upload "
                f"{each.pending_upload}, tiered to {tiered}, latest {each.latest}, max timestamp "
                f"{each.max_timestamp}"
            )
            found.append(Witness(text, each.at_ms))
    return found
