"""The deletion ledger becomes znodes, one a topic id; and the marker that Kafka's tools know.

A deletion under the classic policy gets its marker with its first entry, and loses it when the
topic is removed or the deletion is cancelled. Removing the marker before the deletion begins
cancels it, too, so the marker is not written again.
"""

from ottla.base.ids import Uuid
from ottla.base.zookeeper import ANY_VERSION, Check, Create, Delete, SetData
from ottla.metadata.deletions import (
    DeletionImage,
    DeletionRecord,
    DeletionReplicasRecord,
    ForgetDeletionRecord,
    Policy,
    deletion_of,
    status_of,
)
from ottla.metadata.deletions_json import encode_deletion
from ottla.metadata.image import ClusterImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import MARKER
from ottla.metadata.znodes.multis import Multis, Need

LedgerRecord = DeletionRecord | DeletionReplicasRecord | ForgetDeletionRecord

_PATH_BYTES_MAX = 100
_MARKER_BYTES_MAX = 400
_TIME_BYTES_MAX = 20
"""By how much an entry grows when it becomes a receipt."""


class LedgerWriter:
    """The entries that one step changes; each is written once a multi."""

    def __init__(self, multis: Multis, before: ClusterImage) -> None:
        self._multis = multis
        self._before = before
        self._entries: dict[Uuid, DeletionImage | None] = {}
        self._pending: dict[Uuid, int] = {}
        """What this multi is to write, and the bytes that are reserved for it."""
        multis.on_flush.append(self._write_pending)

    def take(self, records: tuple[LedgerRecord, ...]) -> None:
        """Plan a step's changes of one topic's entry, which are written together."""
        topic_id = records[0].topic_id
        before = after = self._entry(topic_id)
        for record in records:
            assert record.topic_id == topic_id, "one entry at a time"
            after = _changed(after, record)
        size = _bytes_of(after)

        def need() -> Need:
            reserved = self._pending.get(topic_id)
            return Need(int(reserved is None), max(size - (reserved or 0), 0))

        def need_with_marker() -> Need:
            return Need(need().operations + 2, need().data_bytes + 2 * _MARKER_BYTES_MAX)

        self._multis.make_room(paths.deletion(topic_id), need_with_marker)
        self._multis.reserve(need())
        self._pending[topic_id] = max(size, self._pending.get(topic_id, 0))
        self._entries[topic_id] = after
        self._mark(before, after)
        for record in records:
            self._multis.record(record)

    def need_of(self, topic_id: Uuid) -> Need:
        """Return what the end of a deletion takes: its marker, and its entry as the receipt."""
        entry = self._entry(topic_id)
        if entry is None:
            return Need(0, 0)
        return Need(2, _bytes_of(entry) + _TIME_BYTES_MAX + _MARKER_BYTES_MAX)

    def _entry(self, topic_id: Uuid) -> DeletionImage | None:
        if topic_id in self._entries:
            return self._entries[topic_id]
        return self._before.deletions.of(topic_id)

    def _mark(self, before: DeletionImage | None, after: DeletionImage | None) -> None:
        entry = after or before
        if entry is None or entry.policy is not Policy.CLASSIC:
            return
        named = self._before.topics.id_of(entry.name)
        is_marked = entry.name in self._multis.known.marked
        if after is not None and not after.is_finished:
            is_first = before is None or before.is_finished
            if is_first and named == entry.topic_id:
                # If the znode is another topic's by now, the marker would be for that one.
                known = self._multis.known.topics[entry.name]
                self._multis.add(Check(paths.topic(entry.name), known.version), is_fact=False)
                if not is_marked:
                    self._multis.add(Create(paths.marker(entry.name), MARKER))
            elif is_marked and entry.has_begun and not (before is None or before.has_begun):
                # If the marker is removed before this is written, the deletion is cancelled.
                self._multis.add(Check(paths.marker(entry.name), ANY_VERSION), is_fact=False)
        elif is_marked and named in (None, entry.topic_id):
            # Beside another topic of the name it may be for that one: `mark_topics` decides.
            self._multis.add(Delete(paths.marker(entry.name)))

    def _write_pending(self) -> None:
        for topic_id in self._pending:
            path, known = paths.deletion(topic_id), self._multis.known.deletions.get(topic_id)
            entry = self._entries[topic_id]
            if entry is not None:
                data = encode_deletion(entry)
                self._multis.add_reserved(
                    Create(path, data) if known is None else SetData(path, data, known.version)
                )
            elif known is not None:
                self._multis.add_reserved(Delete(path, known.version))
        self._pending = {}


def _changed(before: DeletionImage | None, record: LedgerRecord) -> DeletionImage | None:
    """Return an entry as it is after a record."""
    if isinstance(record, DeletionRecord):
        return deletion_of(record, before)
    if isinstance(record, DeletionReplicasRecord):
        assert before is not None, "replicas of a deletion that is not in the ledger"
        return before.with_status(record.broker_id, status_of(record), record.partitions)
    return None


def _bytes_of(entry: DeletionImage | None) -> int:
    """Return what an entry takes, with its path; the path alone where it is deleted."""
    return _PATH_BYTES_MAX + (0 if entry is None else len(encode_deletion(entry)))
