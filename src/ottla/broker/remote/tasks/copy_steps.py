"""What the copies that a leader makes and those that it grants have in common."""

import logging
from typing import TYPE_CHECKING

from ottla.base.ids import NO_UUID, Uuid
from ottla.base.object_store import Failure, StoreError
from ottla.base.ports import Dice
from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.store_calls import StoreCalls
from ottla.broker.remote.tasks.leader_term import LeaderTerm
from ottla.broker.remote.tasks.manifest_writer import ManifestWriter
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.log.segment_files import LocalSegment, SegmentFiles
    from ottla.tiered.remote_log import RemoteLog

logger = logging.getLogger(__name__)


def copy_text(segment: SegmentMetadata) -> str:
    """Return what log messages call a copy."""
    return f"copy of segment {segment.start_offset}-{segment.end_offset}"


def announced(term: LeaderTerm, files: "SegmentFiles") -> SegmentMetadata:
    """Return the record with which the copy of a segment begins; its id is a new one."""
    log, environment = term.log, term.environment
    return SegmentMetadata(
        topic=log.topic,
        topic_id=log.topic_id,
        partition=log.partition,
        segment_id=_new_id(environment.dice),
        start_offset=files.base_offset,
        end_offset=files.end_offset - 1,
        max_timestamp_ms=files.max_timestamp_ms,
        broker_id=environment.node_id,
        event_timestamp_ms=environment.clock.now_ms(),
        size_bytes=files.log.size_bytes,
        epochs=tuple((entry.epoch, entry.start_offset) for entry in files.epochs),
        state=SegmentState.COPY_STARTED,
        leader_epoch=term.leader_epoch,
        tiered_epoch=term.tiering.tiered_epoch,
        txn_index_empty=files.transaction_index is None,
    )


def _new_id(dice: Dice) -> Uuid:
    while (made := Uuid(dice.random_bytes(16))) == NO_UUID:
        pass
    return made


def look_at_objects(
    calls: StoreCalls,
    segment: SegmentMetadata,
    sizes: "Iterable[tuple[ObjectKind, int]]",
    until_ms: int,
) -> Dialogue[StoreError | None]:
    """Return why a segment's objects are not all in the store in their sizes; None = they are.

    A store may report a success that was none.
    """
    for kind, size_bytes in sizes:
        name = object_name(segment, kind)
        found = yield from calls.head(name, until_ms=until_ms)
        if isinstance(found, StoreError):
            return found
        if found.size_bytes != size_bytes:
            text = f"{name} has {found.size_bytes} bytes of {size_bytes}"
            return StoreError(Failure.NOT_FOUND, text)
    return None


def finish_copy(
    term: LeaderTerm, segment: SegmentMetadata, how: str
) -> Dialogue["RemoteLog | None"]:
    """Append COPY_FINISHED; return None once it is replayed, or the remote log that refused it.

    `how`: the end of the log message.
    """
    remote = yield from term.change_states([segment], SegmentState.COPY_FINISHED)
    found = remote.get(segment.segment_id)
    if found is None or found.state is not SegmentState.COPY_FINISHED:
        return remote
    term.succeeded("copy")
    term.log.remote_copied_to(segment.end_offset)
    term.metrics.copied_bytes += segment.size_bytes
    logger.info(
        "%s: copied segment %d-%d of %d bytes %s",
        term.name,
        segment.start_offset,
        segment.end_offset,
        segment.size_bytes,
        how,
    )
    return None


def update_manifest(term: LeaderTerm, manifests: ManifestWriter) -> Dialogue[None]:
    """Write the manifest after a copy. Where that fails the expiration task repeats it; meanwhile
    other segments are copied."""
    failure = yield from manifests.update()
    if failure is None:
        term.succeeded("manifest")
        yield from manifests.remove_needless()
    else:
        term.failed("manifest", "write of a manifest", failure, term.pause_ms(1))


def note_lag(
    term: LeaderTerm, local: "Iterable[LocalSegment]", copied: int
) -> "list[LocalSegment]":
    """Set the gauges of what is not copied; return these segments.

    `copied`: the last offset that is.
    """
    begin = max(copied + 1, term.log.log_start_offset)
    sealed = [each for each in local if not each.is_active and each.end_offset > begin]
    term.gauges.copy_lag_segments = len(sealed)
    term.gauges.copy_lag_bytes = sum(each.size_bytes for each in sealed)
    return sealed


def note_refused(term: LeaderTerm, segment: SegmentMetadata, remote: "RemoteLog") -> None:
    """Note a record that has had no effect: another leader's fence came before it."""
    term.metrics.copy_errors += 1
    fence = remote.fence
    logger.warning(
        "%s: copy of segment %d-%d in leader epoch %d and tiered epoch %d was fenced by %s",
        term.name,
        segment.start_offset,
        segment.end_offset,
        term.leader_epoch,
        term.tiering.tiered_epoch,
        "a deletion" if fence is None else f"epochs {fence.leader_epoch}, {fence.tiered_epoch}",
    )
