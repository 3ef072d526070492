"""A topic's tiering state: whether its segments are copied to remote storage, and which of them
are alive there.

It is one fact, changed together with the topic's configuration. The tiered epoch grows with each
transition into ENABLED and into DISABLING, so that of two states the newer one is known
(`TopicTiering.age`). A topic that never had remote storage has no such state.
Source: KIP-950, whose draft has the states and the epoch.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ottla.base.ids import Uuid
from ottla.metadata.records import TopicTieringRecord


class TieringState(IntEnum):
    """Whether a topic's segments are copied; wire values."""

    ENABLED = 1
    DISABLING = 2
    DISABLED = 3


class DisablePolicy(IntEnum):
    """What becomes of the remote segments when tiering is disabled; wire values."""

    NONE = 0
    RETAIN = 1
    DELETE = 2


FIRST_EPOCH: Final = 1
NO_FLOOR: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTiering:
    """The tiering state of one topic.

    Fields: `tiered_epoch`: from 1 up. `policy`: of the last disablement, NONE while ENABLED.
            `remote_floor_epoch`: remote segments of this tiered epoch and below are dead; 0 = none
            are. `purge_pending`: dead segments may still be in the object store.
    """

    topic_id: Uuid
    state: TieringState = TieringState.ENABLED
    tiered_epoch: int = FIRST_EPOCH
    policy: DisablePolicy = DisablePolicy.NONE
    remote_floor_epoch: int = NO_FLOOR
    purge_pending: bool = False

    @property
    def copies(self) -> bool:
        """Whether leaders copy segments."""
        return self.state is TieringState.ENABLED

    @property
    def has_remote_log(self) -> bool:
        """Whether remote segments may be read: also those that a disablement has retained."""
        return self.policy is not DisablePolicy.DELETE

    @property
    def age(self) -> tuple[int, int, bool]:
        """Return what grows with each change of a topic's state."""
        return self.tiered_epoch, int(self.state), not self.purge_pending


def tiering_of(record: TopicTieringRecord) -> TopicTiering:
    """Return the state that a record describes."""
    return TopicTiering(
        topic_id=record.topic_id,
        state=TieringState(record.state),
        tiered_epoch=record.tiered_epoch,
        policy=DisablePolicy(record.policy),
        remote_floor_epoch=record.remote_floor_epoch,
        purge_pending=record.purge_pending,
    )


def tiering_record(tiering: TopicTiering) -> TopicTieringRecord:
    """Return the record that leads to a state."""
    return TopicTieringRecord(
        topic_id=tiering.topic_id,
        state=int(tiering.state),
        tiered_epoch=tiering.tiered_epoch,
        policy=int(tiering.policy),
        remote_floor_epoch=tiering.remote_floor_epoch,
        purge_pending=tiering.purge_pending,
    )
