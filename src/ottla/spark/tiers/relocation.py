"""Where the records of a remote split are, once the store does not have its object any more."""

import time
from dataclasses import replace
from typing import Final

from ottla.base.ids import NO_UUID, Uuid
from ottla.client.cluster import ClusterClient
from ottla.spark import lookup
from ottla.spark.losses import deleted, expired, report_losses
from ottla.spark.options import ReadOptions
from ottla.spark.splits import Split
from ottla.spark.tiers import tier_lookup
from ottla.spark.tiers.store_session import ObjectMissingError, StoreSession
from ottla.spark.tiers.stored_logs import list_topics, read_topic, stored_log
from ottla.spark.tiers.tier_planning import Aborted, AbortedSearch, places_of, split_of, whole_piece
from ottla.spark.tiers.tiered_planner import unexpectedly_missing
from ottla.tiered.object_names import partition_prefix

PAUSES_SECONDS: Final = (0.0, 0.5, 2.0)
"""A new leader may read of a deletion a little later than its objects are deleted."""


def is_same(split: Split, topic_id: Uuid | None) -> bool:
    """Tell whether a topic that is there now is the one that a split was planned for."""
    return topic_id is not None and (
        split.topic_id == topic_id or NO_UUID in (split.topic_id, topic_id)
    )


def relocate(
    split: Split, options: ReadOptions, session: StoreSession, missing: ObjectMissingError
) -> list[Split]:
    """Return the splits that have the records of a split whose object is missing.

    Raises: DataLossError where the topic was deleted, or the records have expired, unless
            `failOnDataLoss` is false; RemoteStorageError where the store cannot be read, or lacks
            what is listed; ClusterError.
    """
    # A directory that is not mounted lacks all objects.
    session.check(partition_prefix(split.topic, split.topic_id, split.partition))
    if options.cluster is None:
        return _in_store(split, options, session, missing)
    key = (split.topic, split.partition)
    with ClusterClient(options.brokers) as client:
        if not is_same(split, lookup.ids_of(client, [split.topic]).get(split.topic)):
            report_losses([deleted(split, split.start)], fail=options.fail_on_data_loss)
            return []
        for pause_s in PAUSES_SECONDS:
            time.sleep(pause_s)
            tiers = tier_lookup.describe(client, {key: split.topic_id}).get(key)
            if tiers is None or not _has(split, [each.segment_id for each in tiers.segments]):
                # Brokers find it in either tier, or say that it has expired.
                return [replace(split, remote=None)]
    raise unexpectedly_missing(missing, session) from missing


def _has(split: Split, segment_ids: list[Uuid]) -> bool:
    assert split.remote is not None
    return split.remote.segment_id in segment_ids


def _in_store(
    split: Split, options: ReadOptions, session: StoreSession, missing: ObjectMissingError
) -> list[Split]:
    topics = [each for each in list_topics(session, split.topic) if each.topic_id == split.topic_id]
    stored = read_topic(session, topics[0]) if topics else []
    found = [each for each in stored if each.partition == split.partition]
    if not found or found[0].state is None or found[0].is_deleted:
        report_losses([deleted(split, split.start)], fail=options.fail_on_data_loss)
        return []
    log = stored_log(session, found[0], options)
    if _has(split, [each.segment_id for each in log.tiers.segments]):
        raise unexpectedly_missing(missing, session) from missing
    start = min(max(split.start, log.facts.earliest), split.end)
    losses = [expired(split, split.start, start)] if split.start < start else []
    places = places_of(start, split.end, log.tiers)
    search = AbortedSearch(start, split.end, log.tiers)
    if options.read_committed:
        tier_lookup.search_aborted(session, search)
    aborted = Aborted(entries=search.entries)
    losses += (expired(split, each.start, each.end) for each in places if each.segment is None)
    report_losses(losses, fail=options.fail_on_data_loss)
    return [
        split_of(whole_piece(each), log.facts, aborted)
        for each in places
        if each.segment is not None
    ]
