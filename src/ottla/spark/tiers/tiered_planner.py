"""From ranges of tiered partitions to the splits of tasks: reads indexes; see `tier_planning`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ottla.client.partitions import TopicPartition
from ottla.spark.errors import RemoteStorageError
from ottla.spark.losses import report_losses
from ottla.spark.options import ReadOptions
from ottla.spark.planning import Range, cut_range, shares
from ottla.spark.splits import Split
from ottla.spark.tiers.store_session import ObjectMissingError, StoreSession
from ottla.spark.tiers.stored_logs import StoredLog
from ottla.spark.tiers.tier_lookup import read_positions, search_aborted
from ottla.spark.tiers.tier_planning import (
    Aborted,
    AbortedSearch,
    Cutting,
    Limits,
    Pairs,
    Piece,
    Place,
    Tiers,
    cut_place,
    cuttings,
    limits_of,
    offsets_to_ask,
    packed,
    places_of,
    split_of,
)

AbortedAt = Callable[[TopicPartition, int], Pairs]
"""Returns the aborted transactions that brokers name at an offset of a partition."""


def plan_tiers(
    ranges: Sequence[Range],
    tiers: Mapping[TopicPartition, Tiers],
    options: ReadOptions,
    session: StoreSession,
    aborted_at: AbortedAt,
) -> list[list[Split]]:
    """Return the splits of each task. Raises: ObjectMissingError, RemoteStorageError, ClusterError.

    A partition without remote segments is read through brokers.
    """
    planned: list[list[Split]] = []
    for each, share in zip(ranges, shares(ranges, options.min_partitions), strict=True):
        found = tiers.get(each.facts.key)
        if found is None or not found.segments:
            pieces = cut_range(each, share, max_records=options.max_records_per_partition)
            planned += ([split_of_range(piece)] for piece in pieces)
            continue
        places = places_of(each.start, each.end, found)
        aborted = Aborted()
        if options.read_committed:
            aborted = _aborted(each, places, found, session, aborted_at)
        tasks = _cut(each, places, share, options, session, aborted)
        planned += _with_open_end(each, tasks)
    return planned


def plan_stored(
    session: StoreSession,
    ranges: Sequence[Range],
    logs: Sequence[StoredLog],
    options: ReadOptions,
) -> list[list[Split]]:
    """Return the splits of each task where there are no brokers. Raises: as `plan_tiers`.

    What no segment has is lost.
    """
    tiers = {each.facts.key: each.tiers for each in logs}
    planned: list[list[Split]] = []
    for each, share in zip(ranges, shares(ranges, options.min_partitions), strict=True):
        found = tiers[each.facts.key]
        places = places_of(each.start, each.end, found)
        losses = [
            f"{each.facts.topic}-{each.facts.partition}: no remote segment has the offsets "
            f"{place.start} to {place.end - 1}"
            for place in places
            if place.segment is None
        ]
        report_losses(losses, fail=options.fail_on_data_loss)
        places = [place for place in places if place.segment is not None]
        aborted = Aborted()
        if options.read_committed:
            aborted = _aborted(each, places, found, session, None)
        planned += _cut(each, places, share, options, session, aborted)
    return planned


def split_of_range(piece: Range) -> Split:
    """Return a range that brokers read."""
    facts = piece.facts
    return Split(
        facts.topic,
        facts.topic_id,
        facts.partition,
        piece.start,
        piece.end,
        facts.contiguous,
        piece.is_open,
        size_bytes=piece.size_bytes,
    )


def unexpectedly_missing(error: ObjectMissingError, session: StoreSession) -> RemoteStorageError:
    """Return the error for an object that is listed, yet is not there.

    Raises: RemoteStorageError where the store as a whole cannot be read.
    """
    session.check("")
    return RemoteStorageError(
        f"{error}, which is listed as readable: expected the brokers' own object store in the "
        f"option ottla.remote.storage.uri (found {session.uri})"
    )


def _aborted(
    whole: Range,
    places: Sequence[Place],
    tiers: Tiers,
    session: StoreSession,
    aborted_at: AbortedAt | None,
) -> Aborted:
    search = AbortedSearch(whole.start, whole.end, tiers)
    search_aborted(session, search)
    latest = whole.facts.latest
    offsets = [] if aborted_at is None else offsets_to_ask(places, tiers, latest)
    return Aborted(
        entries=search.entries,
        open_at=tuple(
            # At the last stable offset brokers name none: they have nothing to return there.
            (offset, aborted_at(whole.facts.key, min(offset, latest - 1)))
            for offset in offsets
            if aborted_at is not None
        ),
    )


def _cut(
    whole: Range,
    places: Sequence[Place],
    share: int,
    options: ReadOptions,
    session: StoreSession,
    aborted: Aborted,
) -> list[list[Split]]:
    limits = limits_of(places, tasks_min=share, max_records=options.max_records_per_partition)
    tasks = packed(_pieces(cuttings(places, limits), limits, session), limits)
    return [[split_of(piece, whole.facts, aborted) for piece in some] for some in tasks]


def _pieces(cut: Sequence[Cutting], limits: Limits, session: StoreSession) -> Iterator[Piece]:
    """Yield the pieces of places; of the indexes only a few are in memory."""
    positions = read_positions(
        session,
        [each.place.segment for each in cut if each.needs_index and each.place.segment is not None],
    )
    for each in cut:
        yield from cut_place(each, next(positions) if each.needs_index else None, limits)


def _with_open_end(whole: Range, tasks: list[list[Split]]) -> list[list[Split]]:
    """Have the last task read what comes behind an open range, from brokers."""
    if not whole.is_open:
        return tasks
    last = tasks[-1].pop() if tasks else None
    if last is not None and last.remote is None:
        tasks[-1].append(replace(last, is_open=True))
        return tasks
    end = replace(whole, start=whole.end, end=whole.end)
    if last is None:
        return [[split_of_range(end)]]
    tasks[-1] += [last, split_of_range(end)]
    return tasks
