"""Checkers for deleted topics. Each takes a history and returns the witnesses of one anomaly.

- deleted topic came back: a topic that had been removed from the metadata is in it again, or in the
  image of a node at an offset after its removal, or again in an image that had dropped it.
- deletion not finished: all faults have ended, and a deletion is not finished, or has left
  partition directories, or has no receipt.
- receipt untrue: the ledger lists a replica as deleted whose broker has a directory of it, then or
  later. Nothing is promised of a replica that the ledger lists as abandoned.
- living replica deleted: a node took a replica out of service that the cluster relies on: one that
  is in sync, whatever the node's image says, or one that lags while the node's image assigns it to
  this node. A replica that was moved away may be deleted, and the node's image may lag behind the
  change that moves it back.

Topics are identified by their ids: a new topic of an old name is another topic.
"""

from ottla.base.ids import Uuid, uuid_text
from ottla.testing.checkers.records import Witness, name_of
from ottla.testing.history.history import History
from ottla.testing.history.topics import TopicPartition

METADATA = -1
"""Stands for the cluster's metadata in place of a node id."""


def deleted_topics_came_back(history: History) -> list[Witness]:
    """Return where a deleted topic exists again."""
    found = []
    gone_at: dict[Uuid, int] = {}
    """By offset of the metadata."""
    forgotten: dict[tuple[Uuid, int, int], int] = {}
    for seen in history.topics_seen:
        is_metadata = seen.node == METADATA
        who = "the metadata" if is_metadata else f"node {seen.node}"
        key = (seen.topic_id, seen.node, seen.incarnation)
        if not seen.is_there:
            forgotten[key] = seen.at_ms
            if is_metadata:
                gone_at[seen.topic_id] = seen.offset
            continue
        text = f"{who} has topic {uuid_text(seen.topic_id)}"
        if key in forgotten:
            found.append(Witness(f"{text}, gone at {forgotten[key]} ms, again", seen.at_ms))
        elif not is_metadata and 0 <= gone_at.get(seen.topic_id, seen.offset + 1) <= seen.offset:
            gone = gone_at[seen.topic_id]
            text += f" at metadata offset {seen.offset}, though it is gone since {gone}"
            found.append(Witness(text, seen.at_ms))
    return found


def deletions_unfinished(history: History) -> list[Witness]:
    """Return the deletions that did not finish although all brokers are up."""
    if history.healed_ms is None or history.receipts is None:
        return []
    ended_ms = history.ended_ms
    found = [
        Witness(text, ended_ms) for text in history.deletions_left + history.partition_dirs_left
    ]
    found += [
        Witness(
            f"the deletion of {each.name} ({uuid_text(each.topic_id)}) has no receipt", ended_ms
        )
        for each in history.topics_acknowledged
        if each.is_deletion and each.topic_id not in history.receipts
    ]
    return found


def receipts_untrue(history: History) -> list[Witness]:
    """Return the replicas that the ledger lists as deleted and a disk holds, then or later."""
    found = []
    since: dict[tuple[int, TopicPartition], int] = {}
    for each in history.confirmed:
        since[each.node, each.partition] = each.at_ms
        if each.left:
            text = (
                f"{name_of(each.partition)} is listed as deleted on node {each.node}, which has "
                f"{', '.join(each.left)}"
            )
            found.append(Witness(text, each.at_ms))
    for seen in history.partition_dirs:
        at_ms = since.get((seen.node, seen.partition))
        if at_ms is not None and seen.at_ms >= at_ms:
            text = (
                f"node {seen.node} has {seen.name} of {name_of(seen.partition)}, which is listed "
                f"as deleted there since {at_ms} ms"
            )
            found.append(Witness(text, seen.at_ms))
    return found


def living_replicas_deleted(history: History) -> list[Witness]:
    """Return the replicas that nodes took out of service although the cluster relies on them."""
    found = []
    for each in history.set_aside:
        if each.in_sync or each.assigned:
            why = "which was in sync" if each.in_sync else "which its image assigns to it"
            text = f"node {each.node} removed its replica of {name_of(each.partition)}, {why}"
            found.append(Witness(text, each.at_ms))
    return found
