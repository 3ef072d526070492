"""The deletion ledger becomes znodes, one a topic id; and the marker that Kafka's tools know.

A deletion under the classic policy gets its marker with its first entry, and loses it when the
topic is gone or the deletion is called off. Who takes the marker away calls it off, too, so it is
not put back.
"""

from ottla.base.ids import Uuid
from ottla.base.zookeeper import Create, Delete, SetData
from ottla.metadata.deletions import (
    DeletionImage,
    DeletionRecord,
    DeletionReplicasRecord,
    ForgetDeletionRecord,
    Policy,
    deletion_of,
    standing_of,
)
from ottla.metadata.deletions_json import encode_deletion
from ottla.metadata.image import ClusterImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import MARKER
from ottla.metadata.znodes.multis import Multis, Need

LedgerRecord = DeletionRecord | DeletionReplicasRecord | ForgetDeletionRecord


class LedgerWriter:
    """The entries that one step changes; each is written once a multi."""

    def __init__(self, multis: Multis, before: ClusterImage) -> None:
        self._multis = multis
        self._before = before
        self._entries: dict[Uuid, DeletionImage | None] = {}
        self._noted: dict[Uuid, None] = {}
        multis.on_flush.append(self._write_noted)

    def take(self, record: LedgerRecord) -> None:
        """Plan what the ledger says of one topic."""
        topic_id = record.topic_id
        before = self._entries.get(topic_id, self._before.deletions.of(topic_id))
        after: DeletionImage | None = None
        if isinstance(record, DeletionRecord):
            after = deletion_of(record, before)
        elif isinstance(record, DeletionReplicasRecord):
            assert before is not None, "replicas of a deletion that is not in the ledger"
            after = before.with_standing(record.broker_id, standing_of(record), record.partitions)
        size = 100 if after is None else len(encode_deletion(after)) + 100
        self._multis.make_room(paths.deletion(topic_id), lambda: Need(2, size + 600))
        self._multis.reserve(Need(int(topic_id not in self._noted), size))
        self._noted[topic_id] = None
        self._entries[topic_id] = after
        self._mark(before, after)
        self._multis.record(record)

    def _mark(self, before: DeletionImage | None, after: DeletionImage | None) -> None:
        entry = after or before
        if entry is None or entry.policy is not Policy.CLASSIC:
            return
        named = self._before.topics.id_of(entry.name)
        is_marked = entry.name in self._multis.known.marked
        if after is not None and not after.is_finished:
            is_first = before is None or before.is_finished
            if is_first and not is_marked and named == entry.topic_id:
                self._multis.add(Create(paths.marker(entry.name), MARKER))
        elif is_marked and named in (None, entry.topic_id):
            # A marker beside another topic of the name is for that one.
            self._multis.add(Delete(paths.marker(entry.name)))

    def _write_noted(self) -> None:
        for topic_id in self._noted:
            path, known = paths.deletion(topic_id), self._multis.known.deletions.get(topic_id)
            entry = self._entries[topic_id]
            if entry is not None:
                data = encode_deletion(entry)
                self._multis.add_reserved(
                    Create(path, data) if known is None else SetData(path, data, known.version)
                )
            elif known is not None:
                self._multis.add_reserved(Delete(path, known.version))
        self._noted = {}
