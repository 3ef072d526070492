"""Plans the manifests of one partition; the leader writes them.

    planner = ManifestPlanner()
    planner.load(manifests that were read)        # once the leader's fence is replayed
    manifest = planner.plan(...)                  # after a copy, and before objects are deleted
    put_if_absent: done   -> planner.applied(manifest)
                   EXISTS -> read the manifest of that number, planner.applied(that one), plan again
                   other  -> plan again

After an unknown result the same plan is tried again: if the write did happen, that is EXISTS, and
the manifest which is read says all that was to be said.

The objects of a segment that is DELETE_STARTED may be deleted once `plan` has nothing more to write
and `is_superseded` is false: the chain does not list it any more, and never will again. Two stories
that would break this, and what keeps them from happening:

1. Broker 1 leads, and has copied segment S. Broker 2 is elected, writes its fence, and reads the
   manifests: none has S. Broker 1 does not know yet, and writes manifest 8 with S. Broker 2 marks
   S with DELETE_STARTED; as far as it knows, there is nothing to remove. So before a deletion there
   is always a manifest of the leader's own epochs. Here it is number 8, which broker 2 loses; it
   then knows of S. And once it is written, later ones of broker 1 count for nothing.
2. Broker 1 leads, and marks S. Broker 2 was elected meanwhile; its fence is in front of the mark,
   which it has not read yet. Broker 1 writes manifest 8 without S, and deletes its objects. Broker
   2 loses number 8, reads it, and plans again: in its view S is COPY_FINISHED. So what a manifest
   has removed is not added again.
"""

from collections.abc import Iterable, Mapping

from ottla.base.ids import NO_OFFSET, Uuid
from ottla.tiered.manifest import BASE_EVERY, Manifest, ManifestState, advance, follow
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import Epochs, SegmentMetadata, SegmentState

NO_SEQUENCE = -1


class ManifestPlanner:
    """What is known of a partition's manifests, and what to write next.

    `state`: what the chain says. `highest`: the highest sequence that exists; -1 = none.
    """

    __slots__ = ("_removed", "highest", "state")

    def __init__(self) -> None:
        self.state: ManifestState | None = None
        self.highest = NO_SEQUENCE
        self._removed: set[Uuid] = set()

    def load(self, manifests: Iterable[Manifest], *, highest: int = NO_SEQUENCE) -> None:
        """Take what was read, in place of what was known.

        `highest`: of all manifests that exist, also of those that could not be read.
        """
        read = list(manifests)
        self.state = follow(read)
        self.highest = max((highest, *(each.sequence for each in read)))
        self._removed.update(*(each.removed for each in read))

    def applied(self, manifest: Manifest) -> None:
        """Take the manifest that now has the next sequence, whoever wrote it."""
        assert manifest.sequence == self.highest + 1
        if self.state is not None and self.state.sequence == self.highest:
            self.state = advance(self.state, manifest)
        else:
            self.state = follow((manifest,)) or self.state
        self.highest = manifest.sequence
        self._removed.update(manifest.removed)

    def is_superseded(self, *, leader_epoch: int, tiered_epoch: int) -> bool:
        """Return whether a leader of newer epochs writes the manifests."""
        state = self.state
        return state is not None and (
            state.leader_epoch > leader_epoch or state.tiered_epoch > tiered_epoch
        )

    def plan(
        self,
        remote: RemoteLog,
        *,
        topic: str,
        topic_id: Uuid,
        partition: int,
        leader_epoch: int,
        tiered_epoch: int,
        log_start_offset: int,
        epochs: Epochs,
        partition_count: int,
        configs: Mapping[str, str],
    ) -> Manifest | None:
        """Return the next manifest to write; None = there is nothing to write, or not for us.

        `leader_epoch`, `tiered_epoch`: ours, whose fence must be the last one that was replayed:
        only then everything that earlier leaders had finished is known. `epochs`: the entries of
        our leader epoch cache.
        """
        fence = remote.fence
        if fence is None or (fence.leader_epoch, fence.tiered_epoch) != (
            leader_epoch,
            tiered_epoch,
        ):
            return None
        if self.is_superseded(leader_epoch=leader_epoch, tiered_epoch=tiered_epoch):
            return None
        state, floor = self.state, remote.floor
        listed = self._to_list(remote)
        known = state.segments if state is not None else {}
        added = tuple(each for key, each in listed.items() if known.get(key) != each)
        removed = tuple(key for key in known if key not in listed)
        end = max((each.end_offset for each in listed.values()), default=NO_OFFSET)
        covered = tuple(each for each in epochs if each[1] <= end)
        if state is None:
            is_changed = bool(listed) or self.highest != NO_SEQUENCE
        else:
            is_changed = bool(added or removed) or (
                (floor, tiered_epoch, log_start_offset, covered)
                != (state.floor, state.tiered_epoch, state.log_start_offset, state.epochs)
            )
        is_ours = state is not None and state.leader_epoch == leader_epoch
        if not is_changed and (is_ours or not _has_deletions(remote)):
            return None
        sequence = self.highest + 1
        is_base = state is None or state.sequence != self.highest or sequence % BASE_EVERY == 0
        return Manifest(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            sequence=sequence,
            leader_epoch=leader_epoch,
            tiered_epoch=tiered_epoch,
            floor=floor,
            log_start_offset=log_start_offset,
            epochs=covered,
            is_base=is_base,
            added=tuple(listed.values()) if is_base else added,
            removed=() if is_base else removed,
            partition_count=partition_count if is_base else None,
            configs=configs if is_base else None,
        )

    def _to_list(self, remote: RemoteLog) -> dict[Uuid, SegmentMetadata]:
        """Return what a manifest lists: what is COPY_FINISHED, and not removed by another one."""
        finished = {
            each.segment_id: each
            for each in remote.segments()
            if each.state is SegmentState.COPY_FINISHED
        }
        self._removed.intersection_update(finished)
        for segment_id in self._removed:
            del finished[segment_id]
        return finished


def _has_deletions(remote: RemoteLog) -> bool:
    return any(each.state is SegmentState.DELETE_STARTED for each in remote.segments())
