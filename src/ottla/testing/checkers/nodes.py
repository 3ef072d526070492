"""Checkers for nodes. Each takes a history and returns the witnesses of one anomaly.

- request unanswered: a running node answered a request after its time limit, or never.
- image unlike the log: a node's metadata differs from a replay of the committed log.
- member lacks committed records: a replica that is in sync, or eligible to lead, has a log that
  ends below the high watermark, or holds other records below it (KIP-497, KIP-966).
- node goes back to an old epoch: a leader epoch or partition epoch fell within one incarnation.
- broker unfenced too early: a registration was unfenced before a heartbeat had asked for it and
  said that the broker knew of it.
- replication rules broken: a leader takes a follower for further than it is, or its log does not
  know the leader's epoch; a replica joined the in-sync ones below the start of the leader's epoch,
  from where on what was committed before is behind it (KIP-101, KIP-497).
- order of durability broken: the metadata log was committed before a majority had it on disk, a
  recovery point was beyond what was on disk, an append was below it, or a file got its name before
  its content was on disk.
- stale request taken: a change rests on a request of an older partition epoch, registration or
  controller.
- coordinator wrong: a coordinator's response is not what its log has, or it does not lead.
- disk refused at start: a node refuses to start because of what its own disk holds.
"""

from ottla.testing.checkers.promises import Promises
from ottla.testing.checkers.records import Witness, name_of
from ottla.testing.history.history import History
from ottla.testing.history.nodes import (
    COORDINATION,
    DURABILITY,
    FENCING,
    REPLICATION,
    MemberSeen,
)
from ottla.testing.history.topics import TopicPartition

HELD_GRACE_MS = 800
"""How much longer than its limit a request may take: the time to process the response, a slow disk
included."""


def requests_unanswered(history: History) -> list[Witness]:
    """Return the requests that were held too long, or never answered."""
    return [
        Witness(
            f"node {held.node} {'answered' if held.answered else 'did not answer'} a {held.api} of "
            f"client {-held.client} after {held.held_ms} ms; its limit is {held.limit_ms} ms",
            held.at_ms,
        )
        for held in history.requests_held
        if held.held_ms > held.limit_ms + HELD_GRACE_MS
    ]


def images_unlike_the_log(history: History) -> list[Witness]:
    """Return where a node's metadata differs from a replay of the committed log."""
    return [
        Witness(
            f"node {seen.node}, incarnation {seen.incarnation}: {seen.source} at metadata offset "
            f"{seen.offset} differs from a replay of the committed log in "
            f"{', '.join(seen.different)}",
            seen.at_ms,
        )
        for seen in history.replays
        if seen.different
    ]


def members_that_lack_records(history: History) -> list[Witness]:
    """Return the in-sync or eligible replicas that lack committed records."""
    found: dict[tuple[TopicPartition, int, int], Witness] = {}
    promises = Promises(history)
    for seen in history.members:
        reason = _lack(seen)
        if reason is not None and not promises.stood(seen.partition, seen.at_ms):
            continue
        key = (seen.partition, seen.node, seen.incarnation)
        if reason is not None and key not in found:
            who = "eligible to lead" if seen.is_eligible else "in sync"
            text = f"node {seen.node} is {who} for {name_of(seen.partition)} and {reason}"
            found[key] = Witness(text, seen.at_ms)
    return list(found.values())


def _lack(seen: MemberSeen) -> str | None:
    if seen.end < seen.committed:
        return f"its log ends at {seen.end}, below the high watermark {seen.committed}"
    if -1 not in (seen.epoch, seen.leader_epoch) and seen.epoch != seen.leader_epoch:
        return (
            f"has offset {seen.committed - 1} in epoch {seen.epoch}, "
            f"its leader in epoch {seen.leader_epoch}"
        )
    return None


def epochs_that_fell(history: History) -> list[Witness]:
    """Return the incarnations of nodes in which an epoch of a partition went back."""
    found = []
    last: dict[tuple[TopicPartition, int, int], tuple[int, int]] = {}
    for seen in history.epochs_seen:
        key = (seen.partition, seen.node, seen.incarnation)
        before, now = last.get(key, (-1, -1)), (seen.leader_epoch, seen.partition_epoch)
        last[key] = now
        if now[0] < before[0] or now[1] < before[1]:
            found.append(
                Witness(
                    f"node {seen.node}, incarnation {seen.incarnation}, went back from epochs "
                    f"{before[0]} and {before[1]} of {name_of(seen.partition)} to {now[0]} and "
                    f"{now[1]}",
                    seen.at_ms,
                )
            )
    return found


def unfenced_too_early(history: History) -> list[Witness]:
    """Return the registrations that were unfenced before their brokers were ready for it."""
    return [
        Witness(f"broker {each.node} was unfenced in epoch {each.epoch} too early", each.at_ms)
        for each in history.unfenced_brokers
        if not each.requested
    ]


def replication_rules_broken(history: History) -> list[Witness]:
    """Return the replicas that are not what their leaders count on."""
    return _broken(history, REPLICATION)


def order_of_durability_broken(history: History) -> list[Witness]:
    """Return what depended on something that was not on disk yet."""
    return _broken(history, DURABILITY)


def stale_requests_taken(history: History) -> list[Witness]:
    """Return the decisions and changes that rest on a request of an older epoch."""
    return _broken(history, FENCING)


def coordinators_wrong(history: History) -> list[Witness]:
    """Return the responses of coordinators that their log, or its leader, does not bear out."""
    return _broken(history, COORDINATION)


def _broken(history: History, about: str) -> list[Witness]:
    """Return the rules that were broken, each once for each node, partition and reason."""
    found: dict[tuple[TopicPartition | None, int, str], Witness] = {}
    for each in history.rules_broken:
        if each.about == about:
            where = "" if each.partition is None else f" of {name_of(each.partition)}"
            witness = Witness(f"node {each.node}{where} {each.reason}", each.at_ms)
            found.setdefault((each.partition, each.node, each.reason), witness)
    return list(found.values())


def disks_refused(history: History) -> list[Witness]:
    """Return the starts that ended because of what the node's own disk held."""
    return [
        Witness(f"node {each.node}, incarnation {each.incarnation}: {each.reason}", each.at_ms)
        for each in history.starts_refused
    ]
