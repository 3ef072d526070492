"""Plans the manifests of one partition in one term: that of a leader epoch and a tiered epoch.

    planner = ManifestPlanner(leader_epoch=…, tiered_epoch=…)
    planner.found(highest number that is listed)
    while planner.must_fence: append the term's fence, replay it, planner.fenced()
    manifest = planner.plan(…)                   # after a copy, and before objects are deleted
    put_if_absent: done   -> planner.applied(number, manifest)
                   EXISTS -> planner.applied(number, the manifest that has it), fence if it must
                   other  -> plan again

After an unknown result, or where the writer was cancelled, the same number is written again, also
if nothing is to be said any more. If the first write did happen, that is EXISTS; the manifest that
is read is followed by one with what has changed since. Otherwise a segment that the first write
lists, and that was marked meanwhile, would be deleted.

A term's first manifest is a base, and its fence is replayed after the last look at what others have
written. The objects of a segment that is DELETE_STARTED may be deleted once `plan` has nothing more
to write and `is_superseded` is false: no chain lists it any more, and none ever will. Stories that
would break this, and what keeps them from happening:

1. Broker 1 leads, and has copied segment S. Broker 2 is elected. Broker 1 does not know yet, and
   writes manifest 8 with S. Broker 2 marks S with DELETE_STARTED; in the manifests that it knows
   there is nothing to remove. But it has written a base, number 8 or a later one, and what broker 1
   writes behind a base of a newer epoch counts for nothing.
2. Broker 1 leads, marks S, writes manifest 8 without it, and deletes its objects. Broker 2 was
   elected meanwhile; it has not read the mark, and lists S in number 9. But it reads its fence
   first. Had broker 1 read that fence it would have stopped; so the mark is before the fence.
3. Broker 2 has written its base, number 99. Broker 1, which has not read broker 2's fence, begins
   its term late: it finds that there are 99 and writes number 100, a base, where readers begin.
   But it fences after it has listed them, and reads broker 2's fence.
4. Broker 1 writes manifest 8 again, which broker 2 has removed as needless (`first_to_keep`). It
   believes that it still writes the manifests, and deletes what it has marked. As in 2, these marks
   are before broker 2's fence; no manifest of broker 2 lists the segments.
5. Broker 1 has nothing more to write, and waits for something before it deletes. Meanwhile another
   segment is marked that the last manifest lists: by broker 2 behind its fence, by that fence's
   floor, or by an earlier leader, whose mark is late. But broker 1 deletes only what was marked in
   the turn in which `plan` had nothing more to write.
"""

from collections.abc import Mapping

from ottla.base.ids import Uuid
from ottla.tiered.manifest import BASE_EVERY, Manifest
from ottla.tiered.remote_log import RemoteLog, by_offset
from ottla.tiered.segment_metadata import Epochs, SegmentMetadata, SegmentState

NO_SEQUENCE = -1


class ManifestPlanner:
    """See the module.

    Fields: `highest`: the highest sequence that is known to exist; -1 = none is.
            `must_fence`: the fence is to be appended and replayed before the next plan.
            `is_superseded`: a manifest of newer epochs is there.
            `has_begun`: a manifest of this term is there.
    """

    __slots__ = (
        "_last",
        "_leader_epoch",
        "_listed",
        "_planned",
        "_remote",
        "_tiered_epoch",
        "_version",
        "has_begun",
        "highest",
        "is_superseded",
        "must_fence",
    )

    def __init__(self, *, leader_epoch: int, tiered_epoch: int) -> None:
        self._leader_epoch = leader_epoch
        self._tiered_epoch = tiered_epoch
        self.highest = NO_SEQUENCE
        self.must_fence = True
        self.is_superseded = False
        self.has_begun = False
        self._listed: dict[Uuid, SegmentMetadata] = {}
        self._last: Manifest | None = None
        # `_listed` is what the remote log had at `_version`; None = it is to be compared wholly.
        self._remote: RemoteLog | None = None
        self._version = 0
        self._planned: tuple[Manifest, RemoteLog, int] | None = None

    def found(self, highest: int) -> None:
        """Note which manifests a listing has; it may be a late one."""
        self.highest = max(self.highest, highest)
        self.must_fence = True

    def fenced(self) -> None:
        """Note that the term's fence was appended after all that is known here, and is replayed."""
        self.must_fence = False

    def applied(self, sequence: int, manifest: Manifest | None) -> None:
        """Take the manifest that has the next number, whoever wrote it; None = it is damaged."""
        assert sequence == self.highest + 1
        self.highest = sequence
        if manifest is None:
            # Readers end their chain before it. Whose it was is known once the fence is replayed.
            self.has_begun, self.must_fence = False, True
        elif (
            manifest.leader_epoch > self._leader_epoch or manifest.tiered_epoch > self._tiered_epoch
        ):
            self.is_superseded = True
        elif (manifest.leader_epoch, manifest.tiered_epoch) != (
            self._leader_epoch,
            self._tiered_epoch,
        ):
            # Behind a manifest of ours it counts for nothing.
            self.must_fence = self.must_fence or not self.has_begun
        elif self.has_begun or self._is_planned(manifest):
            self._take(manifest)
        else:
            self.must_fence = True  # An earlier process of this broker wrote it, in the same term.

    def _is_planned(self, manifest: Manifest) -> bool:
        return self._planned is not None and self._planned[0] == manifest

    @property
    def _is_unconfirmed(self) -> bool:
        """Tell whether a manifest was planned of which it is not known that it was not written."""
        return self._planned is not None and self._planned[0].sequence > self.highest

    def _take(self, manifest: Manifest) -> None:
        if manifest.is_base:
            self._listed.clear()
        for segment_id in manifest.removed:
            self._listed.pop(segment_id, None)
        self._listed.update((each.segment_id, each) for each in manifest.added)
        self._last = manifest
        self.has_begun = True
        self._remote = None
        if self._planned is not None and self._planned[0] is manifest:
            _, self._remote, self._version = self._planned
        self._planned = None

    def is_behind(self, remote: RemoteLog, log_start_offset: int) -> bool:
        """Tell whether other segments are readable than the last manifest of the term lists, or
        fewer of their records."""
        last = self._last
        if not self.has_begun or last is None:
            return False
        is_start_behind = bool(self._listed) and last.log_start_offset < log_start_offset
        return is_start_behind or any(self._difference(remote))

    def plan(
        self,
        remote: RemoteLog,
        *,
        topic: str,
        topic_id: Uuid,
        partition: int,
        log_start_offset: int,
        epochs: Epochs,
        partition_count: int,
        configs: Mapping[str, str],
    ) -> Manifest | None:
        """Return the next manifest to write; None = there is nothing to write, or not for us.

        `epochs`: the entries of the leader epoch cache.
        """
        fence = remote.fence
        ours = self._leader_epoch, self._tiered_epoch
        if fence is None or (fence.leader_epoch, fence.tiered_epoch) != ours:
            return None
        if self.is_superseded or self.must_fence:
            return None
        highest_offset = remote.highest_offset_of_all()
        covered = tuple(each for each in epochs if each[1] <= highest_offset)
        said = remote.floor, log_start_offset, covered
        added, removed = self._difference(remote)
        last = self._last
        if self._is_unconfirmed:
            pass  # Something is to be written, whatever there is to say.
        elif not self.has_begun or last is None:
            # Also before a first deletion: an earlier leader may be about to write its manifest.
            if remote.count == len(remote.unfinished()) and self.highest == NO_SEQUENCE:
                return None
        elif not (added or removed) and said == (last.floor, last.log_start_offset, last.epochs):
            return None
        sequence = self.highest + 1
        is_base = not self.has_begun or sequence % BASE_EVERY == 0
        manifest = Manifest(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            sequence=sequence,
            leader_epoch=self._leader_epoch,
            tiered_epoch=self._tiered_epoch,
            floor=remote.floor,
            log_start_offset=log_start_offset,
            epochs=covered,
            is_base=is_base,
            added=tuple(remote.finished() if is_base else added),
            removed=() if is_base else tuple(removed),
            partition_count=partition_count if is_base else None,
            configs=configs if is_base else None,
        )
        self._planned = manifest, remote, remote.version
        return manifest

    def _difference(self, remote: RemoteLog) -> tuple[list[SegmentMetadata], list[Uuid]]:
        """Return what is readable and not listed, and what is listed and not readable."""
        changed = remote.changes_since(self._version) if remote is self._remote else None
        if changed is None:
            finished = {each.segment_id: each for each in remote.finished()}
            changed = finished.keys() | self._listed.keys()
        added: list[SegmentMetadata] = []
        removed: list[Uuid] = []
        for segment_id in changed:
            found = remote.get(segment_id)
            if found is None or found.state is not SegmentState.COPY_FINISHED:
                if segment_id in self._listed:
                    removed.append(segment_id)
            elif found != self._listed.get(segment_id):
                added.append(found)
        added.sort(key=by_offset)
        return added, sorted(removed)
