"""The part of a `History` about remote storage; input of `checkers.tiers`.

What `__remote_log_metadata` says is replayed apart from the product, record by record as they are
committed (`ottla.testing.sim.watch.tier_watch`). The store is the simulator's model, which keeps
every object and knows when it was written, replaced and deleted.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.base.ids import Uuid
from ottla.testing.history.log import BatchSeen
from ottla.testing.history.topics import TopicPartition


class SpecialOffsets(NamedTuple):
    """What a leader answered to ListOffsets, asked in this order in one leader epoch; -1 = none."""

    client: str
    partition: TopicPartition
    earliest: int
    earliest_local: int
    pending_upload: int
    latest_tiered: int
    latest: int
    max_timestamp: int = -1
    node: int = -1
    epoch: int = -1
    at_ms: int = 0


class RemoteSegmentSeen(NamedTuple):
    """A segment that is not deleted at the end of a history, by the committed metadata.

    Fields: `end`: inclusive. `state`: its name. `missing`: objects that it must have and the store
            lacks, or that have another size. `batches`: of its .log object; `damage`: why reading
            it ended early, None = it did not.
    """

    partition: TopicPartition
    segment_id: Uuid
    start: int
    end: int
    state: str
    missing: tuple[str, ...] = ()
    batches: tuple[BatchSeen, ...] = ()
    damage: str | None = None

    @property
    def is_readable(self) -> bool:
        """Whether readers may read it."""
        return self.state == "COPY_FINISHED"


class ReplicaTiers(NamedTuple):
    """One replica of a tiered partition at the end: `start`: of the log over both tiers,
    `local_start`: of its local files. `epochs`: (epoch, start offset)."""

    partition: TopicPartition
    node: int
    start: int
    local_start: int
    high_watermark: int
    epochs: tuple[tuple[int, int], ...]
    at_ms: int = 0

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of an offset; -1 = unknown."""
        return next((epoch for epoch, start in reversed(self.epochs) if start <= offset), -1)


class ManifestSeen(NamedTuple):
    """What a reader of the store alone finds at the end: the segments, and where chains break."""

    partition: TopicPartition
    listed: tuple[Uuid, ...]
    holes: tuple[int, ...] = ()
    """Numbers that are missing before the last one, of those that brokers keep."""
    damaged: tuple[str, ...] = ()


class SegmentsImage(NamedTuple):
    """What a broker takes for the remote segments of a partition at the end: (id, state)."""

    partition: TopicPartition
    node: int
    segments: tuple[tuple[Uuid, str], ...]
    expected: tuple[tuple[Uuid, str], ...]
    """As the committed records say."""


class Unreadable(NamedTuple):
    """A replica has offsets, from `first` to before `next`, that are neither local nor remote.

    `cause`: what happened at that moment.
    """

    partition: TopicPartition
    node: int
    first: int
    next: int
    cause: str
    at_ms: int = 0


class LocalStartMoved(NamedTuple):
    """A replica moved its local log start past `copied`, the first offset that is not copied."""

    partition: TopicPartition
    node: int
    before: int
    start: int
    copied: int
    at_ms: int = 0


class ObjectReplaced(NamedTuple):
    """An object of the store was written again with other content."""

    name: str
    at_ms: int = 0


class ListedAndGone(NamedTuple):
    """Readers are sent to the object `name`, which does not exist, or need not exist."""

    partition: TopicPartition
    name: str
    cause: str
    at_ms: int = 0


class ImageUnlike(NamedTuple):
    """A broker took for the remote segments what the committed records never said."""

    partition: TopicPartition
    node: int
    segments: tuple[tuple[Uuid, str], ...]
    expected: tuple[tuple[Uuid, str], ...]
    """As of now."""
    at_ms: int = 0


class TieringSeen(NamedTuple):
    """A topic's tiering state, as it is in the committed metadata from `at_ms` on.

    Fields: `state`, `policy`: their names. `epoch`, `floor`: tiered epochs.
    """

    topic_id: Uuid
    state: str
    policy: str
    epoch: int
    floor: int = 0
    purge_pending: bool = False
    at_ms: int = 0


class DisabledEarly(NamedTuple):
    """A topic is DISABLED, and a partition is not: `cause`."""

    partition: TopicPartition
    cause: str
    at_ms: int = 0


class StartWentBack(NamedTuple):
    """A leader's log starts before `disabled`, where the partition began when the remote segments
    before that were given up and the topic was DISABLED."""

    partition: TopicPartition
    node: int
    disabled: int
    start: int
    at_ms: int = 0


TierEvent = (
    ImageUnlike
    | Unreadable
    | LocalStartMoved
    | ObjectReplaced
    | ListedAndGone
    | DisabledEarly
    | StartWentBack
)


@dataclass(slots=True)
class TierHistory:
    """Fields: `objects`: names in the store at the end, with the segment, None = a manifest.
    `given_up`: by partition, up to where records may be gone because tiered storage was disabled
    with delete. `tiering`: the states of topics, in order. `disablements_left`: what of them is
    not over at the end, in words."""

    offsets: list[SpecialOffsets] = field(default_factory=list)
    events: list[TierEvent] = field(default_factory=list)
    segments: list[RemoteSegmentSeen] = field(default_factory=list)
    replicas: list[ReplicaTiers] = field(default_factory=list)
    manifests: list[ManifestSeen] = field(default_factory=list)
    images: list[SegmentsImage] = field(default_factory=list)
    objects: list[tuple[str, TopicPartition, Uuid | None]] = field(default_factory=list)
    given_up: dict[TopicPartition, int] = field(default_factory=dict)
    tiering: list[TieringSeen] = field(default_factory=list)
    disablements_left: list[str] = field(default_factory=list)
