"""A partition's manifests: what is in the remote tier, for readers that ask no broker.

Manifests are immutable objects, numbered without a hole. Each names what was added and removed
since its predecessor; the first of each term, and every hundredth, is a base with everything. They
are written with put-if-absent: of several writers of one number one wins, and the others read its
manifest and plan again. A manifest lags behind `__remote_log_metadata`, but lists only segments
that are COPY_FINISHED there, and a segment's objects are deleted after a manifest has removed it.
Those before the last base but one are removed.

Readers follow the highest unbroken chain from a base. A manifest of smaller leader epoch or tiered
epoch than one before it is of a writer that was replaced: it counts for nothing. Segments of the
floor and below are never read, where any manifest names the floor, even one behind a hole.

Their bytes: `manifest_codec.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.base.ids import NO_EPOCH, NO_OFFSET, Uuid
from ottla.tiered.lineage import Lineage
from ottla.tiered.segment_index import SegmentIndex
from ottla.tiered.segment_metadata import (
    NO_FLOOR,
    Epochs,
    SegmentMetadata,
)

BASE_EVERY: Final = 100

LISTINGS_MAX: Final = 5
"""How often manifests that come and go are listed before a reader gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One manifest.

    Fields: `predecessor`: the sequence before; -1 = it is the first.
            `leader_epoch`, `tiered_epoch`: of its writer. `floor`: see `Fence`.
            `log_start_offset`: records below are not the partition's any more.
            `epochs`: the lineage as far as remote segments reach.
            `added` is everything in a base, and `removed` is nothing.
            `partition_count`, `configs`: the topic's, for a restore; in bases only.
    """

    topic: str
    topic_id: Uuid
    partition: int
    sequence: int
    leader_epoch: int
    tiered_epoch: int
    floor: int
    log_start_offset: int
    epochs: Epochs
    is_base: bool
    added: tuple[SegmentMetadata, ...] = ()
    removed: tuple[Uuid, ...] = ()
    partition_count: int | None = None
    configs: Mapping[str, str] | None = None

    @property
    def predecessor(self) -> int:
        """The sequence of the manifest before."""
        return self.sequence - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestState:
    """What a chain of manifests says, up to `sequence`. A source for `read_plan`.

    `base_sequence`: of the last base, which `partition_count` and `configs` are from.
    """

    topic: str
    topic_id: Uuid
    partition: int
    sequence: int
    leader_epoch: int
    tiered_epoch: int
    floor: int
    log_start_offset: int
    epochs: Epochs
    segments: Mapping[Uuid, SegmentMetadata]
    partition_count: int | None
    configs: Mapping[str, str] | None
    base_sequence: int = NO_OFFSET
    _index: list[SegmentIndex] = field(default_factory=list, compare=False, repr=False)

    def segment_for(self, epoch: int, offset: int) -> SegmentMetadata | None:
        """Return the segment that has an offset in a leader epoch, or None."""
        if not self._index:
            self._index.append(SegmentIndex(self.segments.values()))
        found = self._index[0].find(epoch, offset)
        return None if found is None else self.segments[found]

    def lineage(self) -> Lineage:
        """Return the lineage; its end is that of the last segment."""
        ends = (segment.end_offset for segment in self.segments.values())
        return Lineage(self.epochs, max(ends, default=NO_OFFSET) + 1)

    @property
    def end_offset(self) -> int:
        """The offset behind all that were used, as far as is known: also where nothing is left of
        them, as retention has deleted all segments."""
        return max(self.log_start_offset, self.lineage().log_end_offset)


# Following a chain


class _Chain:
    """Applies manifests in the order of their sequences."""

    def __init__(self, *, leader_epoch: int = NO_EPOCH, tiered_epoch: int = NO_EPOCH) -> None:
        self._leader_epoch = leader_epoch
        self._tiered_epoch = tiered_epoch
        self._floor = NO_FLOOR
        self._header: Manifest | ManifestState | None = None
        self._segments: dict[Uuid, SegmentMetadata] = {}
        self._partition_count: int | None = None
        self._configs: Mapping[str, str] | None = None
        self._base_sequence = NO_OFFSET

    @classmethod
    def continued(cls, state: ManifestState) -> "_Chain":
        chain = cls(leader_epoch=state.leader_epoch, tiered_epoch=state.tiered_epoch)
        chain._floor = state.floor
        chain._header = state
        chain._segments = dict(state.segments)
        chain._partition_count = state.partition_count
        chain._configs = state.configs
        chain._base_sequence = state.base_sequence
        return chain

    def apply(self, manifest: Manifest) -> None:
        self._floor = max(self._floor, manifest.floor)
        is_stale = (
            manifest.leader_epoch < self._leader_epoch or manifest.tiered_epoch < self._tiered_epoch
        )
        if is_stale:
            return
        self._leader_epoch = manifest.leader_epoch
        self._tiered_epoch = manifest.tiered_epoch
        if self._header is None and not manifest.is_base:
            return
        if manifest.is_base:
            self._segments.clear()
            self._partition_count = manifest.partition_count
            self._configs = manifest.configs
            self._base_sequence = manifest.sequence
        self._remove(manifest)
        self._segments.update((each.segment_id, each) for each in manifest.added)
        self._header = manifest

    def apply_behind_hole(self, manifest: Manifest) -> None:
        """Apply only what makes segments unreadable."""
        self._floor = max(self._floor, manifest.floor)
        self._remove(manifest)

    def _remove(self, manifest: Manifest) -> None:
        for segment_id in manifest.removed:
            self._segments.pop(segment_id, None)

    def state(self, sequence: int) -> ManifestState | None:
        header = self._header
        if header is None:
            return None
        return ManifestState(
            topic=header.topic,
            topic_id=header.topic_id,
            partition=header.partition,
            sequence=sequence,
            leader_epoch=self._leader_epoch,
            tiered_epoch=self._tiered_epoch,
            floor=self._floor,
            log_start_offset=header.log_start_offset,
            epochs=header.epochs,
            segments={
                each.segment_id: each
                for each in self._segments.values()
                if self._floor == NO_FLOOR or each.tiered_epoch > self._floor
            },
            partition_count=self._partition_count,
            configs=self._configs,
            base_sequence=self._base_sequence,
        )


def first_to_read(highest: int) -> int:
    """Return from which sequence on to read manifests: that of the last base.

    Where `follow` finds no chain in those, the hundred before are to be read, too.
    """
    return highest - highest % BASE_EVERY


def first_to_keep(base: int) -> int:
    """Return which manifests may be removed once there is a base of this sequence: those before.

    That keeps the base before, and all since: a reader that listed manifests a moment ago finds
    those it wants to read, and one that finds a damaged base still has the chain before it. A
    reader that finds one missing lists them again.
    """
    return first_to_read(base - 1) if base else 0


def first_kept(manifests: Mapping[int, object]) -> int:
    """Return from which sequence on brokers keep manifests, by the bases that are there.

    `manifests`: by sequence; what could not be decoded is not a `Manifest`.
    """
    bases = (
        sequence
        for sequence, each in manifests.items()
        if isinstance(each, Manifest) and each.is_base
    )
    return first_to_keep(max(bases, default=0))


def follow(manifests: Iterable[Manifest]) -> ManifestState | None:
    """Return what the highest unbroken chain says; None = no base has one.

    `manifests`: those of one partition that could be read, in any order.
    """
    by_sequence = {each.sequence: each for each in manifests}
    chains = _unbroken(sorted(by_sequence))
    for number in reversed(range(len(chains))):
        before = [by_sequence[each] for chain in chains[:number] for each in chain]
        behind = [by_sequence[each] for chain in chains[number + 1 :] for each in chain]
        chain = _Chain(
            leader_epoch=max((each.leader_epoch for each in before), default=NO_EPOCH),
            tiered_epoch=max((each.tiered_epoch for each in before), default=NO_EPOCH),
        )
        for each in before:
            chain.apply_behind_hole(each)
        for sequence in chains[number]:
            chain.apply(by_sequence[sequence])
        for each in behind:
            chain.apply_behind_hole(each)
        state = chain.state(chains[number][-1])
        if state is not None:
            return state
    return None


def advance(state: ManifestState, manifest: Manifest) -> ManifestState:
    """Return the state after the next manifest of the chain."""
    assert manifest.sequence == state.sequence + 1
    chain = _Chain.continued(state)
    chain.apply(manifest)
    after = chain.state(manifest.sequence)
    assert after is not None
    return after


def _unbroken(sequences: list[int]) -> list[list[int]]:
    """Return the runs of consecutive numbers, in ascending order."""
    runs: list[list[int]] = []
    for sequence in sequences:
        if runs and runs[-1][-1] == sequence - 1:
            runs[-1].append(sequence)
        else:
            runs.append([sequence])
    return runs
