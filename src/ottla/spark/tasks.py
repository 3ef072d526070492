"""One task: every offset of its splits exactly once, each from its place."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from ottla.client.cluster import ClusterClient
from ottla.client.offsets import LATEST
from ottla.spark import lookup
from ottla.spark.losses import deleted, report_losses, shorter
from ottla.spark.options import ReadOptions
from ottla.spark.planner import Task
from ottla.spark.reading import read_split
from ottla.spark.splits import Split
from ottla.spark.tiers.relocation import is_same, relocate
from ottla.spark.tiers.remote_reading import RemoteSplitReader
from ottla.spark.tiers.store_session import ObjectMissingError, StoreSession, open_session
from ottla.spark.tiers.tiered_planner import unexpectedly_missing

RELOCATIONS_MAX: Final = 20
"""How often a split's records may be found elsewhere while it is read."""


def read_task(task: Task, options: ReadOptions, columns: tuple[str, ...]) -> Iterator[Any]:
    """Yield the records of a task's splits; of open ones up to the latest readable offset.

    Raises: DataLossError where records are gone, unless `failOnDataLoss` is false; ClusterError;
            RemoteStorageError; CorruptBatch.
    """
    splits = _ended(task.splits, options)
    with contextlib.ExitStack() as stack:
        session: StoreSession | None = None
        for split in splits:
            if split.start == split.end:
                continue
            if split.remote is None:
                yield from read_split(split, options, columns)
                continue
            if session is None:
                session = stack.enter_context(open_session(options))
            yield from read_remote(split, session, options, columns)


def read_remote(
    split: Split, session: StoreSession, options: ReadOptions, columns: tuple[str, ...]
) -> Iterator[Any]:
    """Yield the records of a split in the object store, or of where they are now."""
    waiting = [split]
    relocations = 0
    while waiting:
        current = waiting.pop(0)
        if current.remote is None:
            yield from read_split(current, options, columns)
            continue
        reader = RemoteSplitReader(current, session, options, columns)
        try:
            yield from reader.batches()
        except ObjectMissingError as error:
            relocations += 1
            if relocations > RELOCATIONS_MAX:
                raise unexpectedly_missing(error, session) from error
            waiting[:0] = relocate(replace(current, start=reader.offset), options, session, error)


def _ended(splits: tuple[Split, ...], options: ReadOptions) -> list[Split]:
    """Return the splits with the ends that open ones have now.

    Raises: DataLossError where a log was deleted, or is shorter than when the query was planned,
            unless `failOnDataLoss` is false; ClusterError.
    """
    names = {each.topic for each in splits if each.is_open}
    if not names:
        return list(splits)
    ended: list[Split] = []
    losses: list[str] = []
    with ClusterClient(options.brokers) as client:
        ids = lookup.ids_of(client, names)
        there = [each for each in splits if each.is_open and is_same(each, ids.get(each.topic))]
        latest = lookup.offsets_at(
            client,
            {(each.topic, each.partition): LATEST for each in there},
            read_committed=options.read_committed,
            attempts_min=1 + options.offset_retries,
            backoff_ms=options.offset_retry_ms,
        )
    for split in splits:
        key = split.topic, split.partition
        if split in there:
            end = latest[key] or 0
            if end < split.end:
                losses.append(shorter(split, end))
            ended.append(replace(split, end=end))
        elif split.is_open and split.start == split.end:
            losses.append(deleted(split, split.start))
        else:  # Has an end already, or was deleted: then reading it fails.
            ended.append(split)
    report_losses(losses, fail=options.fail_on_data_loss)
    return ended
