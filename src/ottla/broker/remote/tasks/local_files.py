"""What is uploaded of a segment: its files, and what a follower needs to begin its log behind it.

The producers' state behind its end, and the leader epochs from the log's beginning to its end. The
producer snapshot is rebuilt where its file is gone.

Source: LogSegmentData; RemoteLogManager.copyLogSegment; KIP-405.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.object_store import FileSource, Source
from ottla.base.pending import Pending
from ottla.base.ports import Workers
from ottla.broker.remote.dialogue import Dialogue, wait
from ottla.tiered.object_names import ObjectKind

if TYPE_CHECKING:
    from ottla.log.segment_files import SegmentFiles


@dataclass(frozen=True, slots=True)
class SegmentObject:
    """One object of a segment, to be uploaded."""

    kind: ObjectKind
    source: Source

    @property
    def size_bytes(self) -> int:
        """Its length."""
        source = self.source
        return source.size_bytes if isinstance(source, FileSource) else len(source)


def segment_objects(files: "SegmentFiles", workers: Workers) -> Dialogue[tuple[SegmentObject, ...]]:
    """Return a segment's objects in the order of their upload.

    The largest one is last, so that a store that refuses is found out with little.
    Raises: OSError.
    """
    snapshot: Source | None = files.producer_snapshot
    if snapshot is None:
        snapshot = yield from _rebuilt_snapshot(files, workers)
    objects = [
        SegmentObject(ObjectKind.LEADER_EPOCHS, files.leader_epochs),
        SegmentObject(ObjectKind.PRODUCER_SNAPSHOT, snapshot),
        SegmentObject(ObjectKind.OFFSET_INDEX, files.offset_index),
        SegmentObject(ObjectKind.TIME_INDEX, files.time_index),
    ]
    if files.transaction_index is not None:
        objects.append(SegmentObject(ObjectKind.TXN_INDEX, files.transaction_index))
    objects.append(SegmentObject(ObjectKind.LOG, files.log))
    return tuple(objects)


def _rebuilt_snapshot(files: "SegmentFiles", workers: Workers) -> Dialogue[bytes]:
    done: Pending[bytes | BaseException] = Pending()

    def rebuilt(result: bytes | BaseException) -> None:
        done.complete(result)

    workers.submit(files.rebuild_snapshot, rebuilt)
    result = yield from wait(done)
    if isinstance(result, BaseException):
        raise result
    return result
