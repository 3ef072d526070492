"""What must hold for the metadata in any history: each anomaly is a function to its witnesses.

- metadata lost or reordered: nodes disagree about a committed offset, or one went back.
- acknowledged topic lost: a topic that was created is gone, or one that was deleted is there.
- images that differ: two nodes made different things of the same metadata.
- znodes changed by others: a deposed controller, or nobody's, wrote a topic's znodes (KAFKA-6082).
- partition rules broken: a leader from outside the in-sync replicas, a partition without anybody
  that surely has every record, an epoch that went back (KIP-966, KAFKA-708).
"""

from ottla.base.ids import uuid_text
from ottla.testing.checkers import Witness, name_of
from ottla.testing.history import History, PartitionSeen, TopicPartition
from ottla.testing.promises import Promises


def metadata_lost_or_reordered(history: History) -> list[Witness]:
    """Return the committed offsets that nodes disagree about, and lives that went back."""
    found = []
    first: dict[int, tuple[tuple[int, str], int]] = {}
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for entry in history.metadata:
        content, node = first.setdefault(entry.offset, ((entry.epoch, entry.record), entry.node))
        if content != (entry.epoch, entry.record):
            text = (
                f"metadata offset {entry.offset} is {content[1]} of epoch {content[0]} to node "
                f"{node}, {entry.record} of epoch {entry.epoch} to node {entry.node}"
            )
            found.append(Witness(text, entry.at_ms))
        incarnation = (entry.node, entry.incarnation)
        offset, epoch = last.get(incarnation, (-1, -1))
        if entry.offset <= offset or entry.epoch < epoch:
            text = (
                f"node {entry.node} took metadata offset {entry.offset} of epoch {entry.epoch} "
                f"after {offset} of epoch {epoch}"
            )
            found.append(Witness(text, entry.at_ms))
        last[incarnation] = (entry.offset, entry.epoch)
    return found


def acknowledged_topics_lost(history: History) -> list[Witness]:
    """Return the creations and deletions that clients were told of and the end knows nothing of."""
    if history.topics is None:
        return []
    found = []
    for told in history.topics_acknowledged:
        is_there = told.topic_id in history.topics
        name = f"{told.name} ({uuid_text(told.topic_id)})"
        if told.is_deletion and is_there:
            found.append(Witness(f"topic {name} was deleted and is there", told.at_ms))
        elif not told.is_deletion and not is_there and told.topic_id not in history.deleted:
            found.append(Witness(f"topic {name} was created and is gone", told.at_ms))
    return found


def images_that_differ(history: History) -> list[Witness]:
    """Return the offsets at which two nodes' images differ."""
    found = []
    first: dict[int, tuple[str, int]] = {}
    for seen in history.images:
        fingerprint, node = first.setdefault(seen.offset, (seen.fingerprint, seen.node))
        if fingerprint != seen.fingerprint:
            text = f"at metadata offset {seen.offset} nodes {node} and {seen.node} have two images"
            found.append(Witness(text, seen.at_ms))
    return found


def znodes_changed_by_others(history: History) -> list[Witness]:
    """Return the changes of topics' znodes that were not the ruling controller's."""
    return [Witness(text, at_ms) for at_ms, text in history.unfenced]


def partition_rules_broken(history: History) -> list[Witness]:
    """Return the committed changes of partitions that no decider may make."""
    found = []
    promises = Promises(history)
    last: dict[TopicPartition, PartitionSeen] = {}
    for seen in history.partitions:
        before = last.get(seen.partition)
        last[seen.partition] = seen
        reasons = _broken_alone(seen)
        if before is not None:
            unclean = seen.unclean or promises.of(seen.partition[0]).unclean
            reasons += _broken_after(before, seen, unclean=unclean)
        found += [
            Witness(
                f"metadata offset {seen.offset} makes {name_of(seen.partition)} {reason}",
                seen.at_ms,
            )
            for reason in reasons
        ]
    return found


def _broken_alone(seen: PartitionSeen) -> list[str]:
    reasons = []
    if not (seen.isr or seen.elr or seen.last_known):
        reasons.append("a partition that nobody surely has")
    if seen.leader >= 0 and seen.leader not in seen.isr:
        reasons.append(f"led by {seen.leader}, outside its in-sync replicas {seen.isr}")
    if not {*seen.isr, *seen.elr} <= set(seen.replicas):
        reasons.append(f"in sync at {seen.isr + seen.elr}, with replicas {seen.replicas}")
    return reasons


def _broken_after(before: PartitionSeen, seen: PartitionSeen, *, unclean: bool) -> list[str]:
    reasons = []
    if seen.partition_epoch <= before.partition_epoch or seen.leader_epoch < before.leader_epoch:
        reasons.append(
            f"go back from epochs {before.leader_epoch} and {before.partition_epoch} to "
            f"{seen.leader_epoch} and {seen.partition_epoch}"
        )
    if seen.leader in (before.leader, -1):
        return reasons
    if seen.leader_epoch <= before.leader_epoch:
        reasons.append(f"led by {seen.leader} in an epoch that another one led")
    eligible = {*before.isr, *before.elr}
    if not before.isr and not {*before.elr} & {*seen.elr}:
        # Those that were eligible have come back without all that they had: in one record they
        # are left out and the last known leader is taken (KIP-966).
        eligible |= {*before.last_known}
    # A leader may name the new replica in sync and leave with the same change: one that ends a
    # reassignment, after which it is not a replica any more.
    left = before.leader >= 0 and before.leader not in seen.replicas
    if seen.leader not in eligible and not left and not unclean:
        reasons.append(
            f"led by {seen.leader}, which was not in sync: {before.isr}, eligible {before.elr}"
        )
    return reasons
