"""What must hold for deleted topics in any history: each anomaly is a function to its witnesses.

- deleted topic came back: a topic that was gone from the metadata is there again, or a node knows
  it from metadata in which it is gone, or again after it had forgotten it.
- deletion not finished: everything works again, and a deletion has not come to its end, or has
  left folders, or has no receipt.
- receipt untrue: the ledger calls a replica deleted whose broker has a folder of it, then or ever
  after. A replica that the ledger calls abandoned promises nothing.
- living replica deleted: a node took out of service what the cluster counts on: a replica that is
  in sync, whatever the node knew, or one that lags, as long as the node knew it to be its own. One
  that was moved away may go, and the node may be the last to hear that it was moved back.

Topics are told apart by their ids: a new one of an old name is another one.
"""

from ottla.base.ids import Uuid, uuid_text
from ottla.testing.checkers import Witness, name_of
from ottla.testing.history import History, TopicPartition

METADATA = -1
"""The node whose word is the metadata itself."""


def deleted_topics_came_back(history: History) -> list[Witness]:
    """Return where a topic that was gone is there again."""
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
    """Return the deletions that did not come to their end, though all brokers are up."""
    if history.healed_ms is None or history.receipts is None:
        return []
    ended_ms = history.ended_ms
    found = [
        Witness(text, ended_ms) for text in history.deletions_left + history.partition_dirs_left
    ]
    found += [
        Witness(
            f"the deletion of {told.name} ({uuid_text(told.topic_id)}) has no receipt", ended_ms
        )
        for told in history.topics_acknowledged
        if told.is_deletion and told.topic_id not in history.receipts
    ]
    return found


def receipts_untrue(history: History) -> list[Witness]:
    """Return the replicas that the ledger calls deleted, and that a disk holds then or later."""
    found = []
    since: dict[tuple[int, TopicPartition], int] = {}
    for told in history.confirmed:
        since[told.node, told.partition] = told.at_ms
        if told.left:
            text = (
                f"{name_of(told.partition)} is called deleted on node {told.node}, which has "
                f"{', '.join(told.left)}"
            )
            found.append(Witness(text, told.at_ms))
    for folder in history.partition_dirs:
        at_ms = since.get((folder.node, folder.partition))
        if at_ms is not None and folder.at_ms >= at_ms:
            text = (
                f"node {folder.node} has {folder.name} of {name_of(folder.partition)}, which is "
                f"called deleted there since {at_ms} ms"
            )
            found.append(Witness(text, folder.at_ms))
    return found


def living_replicas_deleted(history: History) -> list[Witness]:
    """Return the replicas of living topics that their nodes took out of service for nothing."""
    found = []
    for deed in history.set_aside:
        if deed.in_sync or deed.assigned:
            why = "which was in sync" if deed.in_sync else "which it knew to be its own"
            text = f"node {deed.node} gave up its replica of {name_of(deed.partition)}, {why}"
            found.append(Witness(text, deed.at_ms))
    return found
