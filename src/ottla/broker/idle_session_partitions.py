"""Partitions that rest in followers' sessions, and what rouses them.

A partition rests where a fetch found nothing to tell of it: the follower is in sync, has all
that there is, and knows the high watermark and the log start. From then on each of its fetches
would say the same, and is not looked at. Whatever happens to the partition makes it active
again; what the fetches in between would have said of the follower is made up for then.
"""

from typing import TYPE_CHECKING

from ottla.broker.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.fetch_sessions import FetchPartition, FetchSession


def watch(partition: Partition, session: "FetchSession", requested: "FetchPartition") -> None:
    """Let a session hear of what happens to a partition."""
    kept = tuple(each for each in partition.watchers if each[0].holds(each[1]))
    partition.watchers = (*kept, (session, requested))
    requested.watched = partition


def activate(partition: Partition) -> "list[FetchSession]":
    """Make a partition active where it rests; return the sessions that it is in."""
    sessions: list[FetchSession] = []
    for session, requested in partition.watchers:
        active = session.active
        if active is None or not session.holds(requested):
            continue
        sessions.append(session)
        if requested.key not in active:
            active[requested.key] = requested
            _note_skipped_fetches(partition, session, requested)
    return sessions


def _note_skipped_fetches(
    partition: Partition, session: "FetchSession", requested: "FetchPartition"
) -> None:
    """Note that a follower had all when its session fetched last, unless it counts anew now."""
    node = session.replica[0]
    follower = partition.followers.get(node)
    if follower is None or node not in partition.isr:
        return
    if follower.log_end_offset == requested.fetch_offset:
        follower.last_fetch_ms = max(follower.last_fetch_ms, session.fetched_ms)
        follower.last_caught_up_ms = max(follower.last_caught_up_ms, session.fetched_ms)
