"""Checkers for metadata. Each takes a history and returns the witnesses of one anomaly.

- metadata lost or reordered: nodes have different records at a committed offset, or one went back.
- acknowledged topic lost: a created topic does not exist, or a deleted one exists.
- images that differ: two nodes have different images at the same offset.
- znodes changed by others: a client that is not the active controller, such as a deposed one, wrote
  a topic's znodes (KAFKA-6082).
- partition rules broken: a leader from outside the in-sync replicas, a partition without a replica
  known to have every record, an epoch that went back (KIP-966, KAFKA-708), a broker that joined the
  in-sync replicas while it was fenced or stopping (KIP-841), a replica that was taken away without
  a new leader epoch, by which its leader knows.
"""

from ottla.base.ids import uuid_text
from ottla.testing.checkers.promises import Promises
from ottla.testing.checkers.records import Witness, name_of
from ottla.testing.history.history import History, PartitionSeen
from ottla.testing.history.topics import TopicPartition


def metadata_lost_or_reordered(history: History) -> list[Witness]:
    """Return the committed offsets at which nodes differ, and incarnations that went back."""
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
    """Return the acknowledged creations and deletions that the metadata at the end contradicts."""
    if history.topics is None:
        return []
    found = []
    for each in history.topics_acknowledged:
        exists = each.topic_id in history.topics
        name = f"{each.name} ({uuid_text(each.topic_id)})"
        if each.is_deletion and exists:
            found.append(Witness(f"topic {name} was deleted and exists", each.at_ms))
        elif not each.is_deletion and not exists and each.topic_id not in history.deleted:
            found.append(Witness(f"topic {name} was created and does not exist", each.at_ms))
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
    """Return the changes of topics' znodes that the active controller did not make."""
    return [Witness(text, at_ms) for at_ms, text in history.unfenced]


def partition_rules_broken(history: History) -> list[Witness]:
    """Return the committed changes of partitions that no controller may make."""
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
        reasons.append("a partition with no replica known to be complete")
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
    if seen.leader_epoch == before.leader_epoch and not {*before.replicas} <= {*seen.replicas}:
        gone = sorted({*before.replicas} - {*seen.replicas})
        reasons.append(f"without its replicas {gone}, in the same leader epoch")
    # Who is unfenced is elected first, in the same batch.
    if newcomers := {*seen.inactive} - {*before.isr, seen.leader}:
        reasons.append(f"in sync at {sorted(newcomers)}, who are not active (KIP-841)")
    if seen.leader in (before.leader, -1):
        return reasons
    if seen.leader_epoch <= before.leader_epoch:
        reasons.append(f"led by {seen.leader} in the epoch of another leader")
    eligible = {*before.isr, *before.elr}
    if not before.isr and not {*before.elr} & {*seen.elr}:
        # The eligible replicas came back with data lost: one record removes them from the ELR and
        # elects the last known leader (KIP-966).
        eligible |= {*before.last_known}
    # The change that ends a reassignment may add the new replica to the ISR, elect it and remove
    # the old leader from the replicas.
    left = before.leader >= 0 and before.leader not in seen.replicas
    if seen.leader not in eligible and not left and not unclean:
        reasons.append(
            f"led by {seen.leader}, which was not in sync: {before.isr}, eligible {before.elr}"
        )
    return reasons
