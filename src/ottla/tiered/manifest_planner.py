"""Plans the manifests of one partition; the leader writes them.

    planner = ManifestPlanner()
    planner.load(manifests that were read)              # at election, and after EXISTS
    manifest = planner.plan(...)                        # after a copy, before a deletion
    ... put_if_absent: succeeded -> planner.applied(manifest); EXISTS -> read that one and apply it

After an unknown result the same plan is tried again: if the write did happen, that is EXISTS, and
the manifest which is read says all that was to be said.
"""

from collections.abc import Iterable, Mapping

from ottla.base.ids import Uuid
from ottla.tiered.manifest import BASE_EVERY, Manifest, ManifestState, advance, follow
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import Epochs, SegmentState


class ManifestPlanner:
    """What is known of a partition's manifests, and what to write next.

    `state`: what the chain says. `highest`: the highest sequence that exists; -1 = none.
    """

    __slots__ = ("highest", "state")

    def __init__(self) -> None:
        self.state: ManifestState | None = None
        self.highest = -1

    def load(self, manifests: Iterable[Manifest], *, highest: int = -1) -> None:
        """Take what was read, in place of what was known.

        `highest`: of all manifests that exist, also of those that could not be read.
        """
        read = list(manifests)
        self.state = follow(read)
        self.highest = max((highest, *(each.sequence for each in read)))

    def applied(self, manifest: Manifest) -> None:
        """Take the manifest that now has the next sequence, whoever wrote it."""
        assert manifest.sequence == self.highest + 1
        if self.state is not None and self.state.sequence == self.highest:
            self.state = advance(self.state, manifest)
        else:
            self.state = follow((manifest,)) or self.state
        self.highest = manifest.sequence

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

        `leader_epoch`, `tiered_epoch`: ours. `epochs`: the entries of our leader epoch cache.
        """
        fence = remote.fence
        if self.is_superseded(leader_epoch=leader_epoch, tiered_epoch=tiered_epoch) or (
            fence is not None
            and (fence.leader_epoch > leader_epoch or fence.tiered_epoch > tiered_epoch)
        ):
            return None
        finished = {
            each.segment_id: each
            for each in remote.segments()
            if each.state is SegmentState.COPY_FINISHED
        }
        highest_offset = max((each.end_offset for each in finished.values()), default=-1)
        covered = tuple(each for each in epochs if each[1] <= highest_offset)
        state = self.state
        known = state.segments if state is not None else {}
        added = [each for key, each in finished.items() if known.get(key) != each]
        removed = [key for key in known if key not in finished]
        if state is None:
            if not finished and self.highest < 0:
                return None
        elif not (added or removed) and (
            state.floor == remote.floor
            and state.tiered_epoch == tiered_epoch
            and state.log_start_offset == log_start_offset
            and state.epochs == covered
        ):
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
            floor=remote.floor,
            log_start_offset=log_start_offset,
            epochs=covered,
            is_base=is_base,
            added=tuple(finished.values() if is_base else added),
            removed=() if is_base else tuple(removed),
            partition_count=partition_count if is_base else None,
            configs=configs if is_base else None,
        )
