"""Idle partitions in followers' fetch sessions, and how they become active again.

A partition becomes idle when a fetch has nothing to return for it: the follower is in sync, has all
records, knows the high watermark and the log start, and fetched it last in this session. From then
on its fetches would repeat the same, so they skip the partition. Any change of the partition makes
it active again; the skipped fetches are then counted for the follower's caught-up time.

A fetch of the follower outside that session makes it active, too. A late one may have an older
offset, which the session's fetches correct only if they do not skip the partition.
"""

from typing import TYPE_CHECKING

from ottla.broker.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.fetch.fetch_sessions import FetchPartition, FetchSession


def watch(partition: Partition, session: "FetchSession", requested: "FetchPartition") -> None:
    """Register a session's partition, to be activated by changes."""
    kept = tuple(each for each in partition.watchers if each[0].holds(each[1]))
    partition.watchers = (*kept, (session, requested))
    requested.watched = partition


def activate(partition: Partition, *, node: int | None = None) -> "list[FetchSession]":
    """Make a partition active in all sessions where it is idle; return the sessions it is in.

    `node`: only in the sessions of this follower.
    """
    sessions: list[FetchSession] = []
    for session, requested in partition.watchers:
        active = session.active
        if active is None or not session.holds(requested):
            continue
        if node is not None and session.replica[0] != node:
            continue
        sessions.append(session)
        if requested.key not in active:
            active[requested.key] = requested
            _note_skipped_fetches(partition, session, requested)
    return sessions


def _note_skipped_fetches(
    partition: Partition, session: "FetchSession", requested: "FetchPartition"
) -> None:
    """Note that a follower was caught up at its session's last fetch, unless its state is new, or
    the session is of a former registration."""
    node, broker_epoch = session.replica
    follower = partition.followers.get(node)
    if follower is None or node not in partition.isr or follower.has_newer_epoch(broker_epoch):
        return
    if follower.log_end_offset == requested.fetch_offset:
        follower.last_fetch_ms = max(follower.last_fetch_ms, session.fetched_ms)
        follower.last_caught_up_ms = max(follower.last_caught_up_ms, session.fetched_ms)
