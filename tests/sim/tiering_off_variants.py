"""Turning tiered storage off, with one rule broken: see `tiering_off_stories`, which show each."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ottla.broker.remote import remote_log_manager
from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.remote_log_manager import RemoteLogManager
from ottla.broker.remote.tasks.expiration_task import ExpirationTask
from ottla.broker.remote.tasks.leader_opening import LeaderOpening
from ottla.controller.disabling import disabling_manager
from ottla.controller.disabling.acknowledgements import Missing, Reason
from ottla.log import earlier_segments
from ottla.metadata.configs import ResourceType
from ottla.metadata.image import ClusterImage
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering
from ottla.metadata.tiering_config import TieringConfig, tiering_config
from ottla.metadata.znodes.write_tiering import TieringWriter
from ottla.tiered.remote_log import RemoteLog
from ottla.tiered.segment_metadata import Fence, SegmentState

from .replaced import replaced
from .tier_variants import (
    asks_one_segment_for_aborted_transactions,
    remembers_the_highest_copied_offset,
)

# -- fences ------------------------------------------------------------------------------------


@contextmanager
def acknowledges_without_a_fence() -> Iterator[None]:
    """A leader says that it is done as soon as it has the new state."""

    def at_once(self: LeaderOpening) -> Dialogue[None]:
        self.done.complete(None)
        return
        yield

    with replaced(LeaderOpening, "run", at_once):
        yield


@contextmanager
def judges_by_the_current_epoch() -> Iterator[None]:
    """What was copied in an earlier tiered epoch than the last fence's does not count any more."""
    apply = RemoteLog._apply_fence

    def current(self: RemoteLog, fence: Fence) -> bool:
        is_valid = apply(self, fence)
        for each in self.finished() if is_valid else ():
            if each.tiered_epoch < fence.tiered_epoch:
                self._set(replace(each, state=SegmentState.DELETE_STARTED))
        return is_valid

    with replaced(RemoteLog, "_apply_fence", current):
        yield


# -- deletions ---------------------------------------------------------------------------------


@contextmanager
def purges_before_the_log_start_moves() -> Iterator[None]:
    """The log starts where it did while its remote segments are given up, and says so."""
    with (
        replaced(remote_log_manager, "_give_up_remote_prefix", lambda log: None),
        replaced(RemoteLogManager, "knows_log_start", lambda self, topic_id, partition: True),
    ):
        yield


@contextmanager
def resumes_at_the_historical_maximum() -> Iterator[None]:
    """What was copied once counts as copied, also when it was deleted since."""
    with remembers_the_highest_copied_offset():
        yield


@contextmanager
def cancels_the_purge_with_the_expiration() -> Iterator[None]:
    """Nothing is deleted in remote storage once it is turned off."""
    round_ = ExpirationTask._round

    def only_enabled(self: ExpirationTask) -> Any:
        if not self._term.tiering.copies:
            return None
        return (yield from round_(self))

    with replaced(ExpirationTask, "_round", only_enabled):
        yield


@contextmanager
def copies_earlier_records_without_their_aborted_transactions() -> Iterator[None]:
    """A follower copies its leader's earlier records without an index of what is aborted."""
    with replaced(earlier_segments, "replay_batch", lambda producers, header, data, position: None):
        yield


# -- the controller ----------------------------------------------------------------------------


@contextmanager
def counts_acknowledgements_of_former_leader_epochs() -> Iterator[None]:
    """A broker that has acknowledged has done so for good, whoever leads now."""
    plain = disabling_manager.missing

    def loose(
        image: Any, tiering: Any, given: Any, errors: Any = None, partitions: Any = None
    ) -> Iterator[Missing]:
        for each in plain(image, tiering, given, errors, partitions):
            key = each.partition, each.broker_id
            if each.reason is Reason.NO_LEADER or key not in given:
                yield each

    with (
        replaced(disabling_manager, "missing", loose),
        replaced(
            disabling_manager.Acknowledgements,
            "missing",
            lambda self, image, tiering, partitions: loose(
                image, tiering, self._of(tiering).given, self._of(tiering).errors, partitions
            ),
        ),
    ):
        yield


@contextmanager
def reads_the_policy_at_the_end() -> Iterator[None]:
    """The policy is the configuration's when the last broker acknowledges; it may be edited."""
    plain = disabling_manager.disabling_state

    def configured(image: ClusterImage, topic_id: Any) -> TopicTiering | None:
        tiering, topic = plain(image, topic_id), image.topics.by_id(topic_id)
        if tiering is None or topic is None:
            return tiering
        overrides = image.configs.of(ResourceType.TOPIC, topic.name)
        policy = DisablePolicy[tiering_config(overrides).policy.upper()]
        return replace(tiering, policy=policy)

    def means(self: TieringConfig, other: TieringConfig) -> bool:
        return self.enable == other.enable

    with (
        replaced(disabling_manager, "disabling_state", configured),
        replaced(TieringConfig, "means", means),
    ):
        yield


@contextmanager
def writes_the_state_without_its_znode() -> Iterator[None]:
    """Only the configuration is written when the state changes; a new topic has its state."""
    plan = TieringWriter._plan

    def only_the_first(self: TieringWriter, tiering: TopicTiering) -> None:
        if tiering.state is TieringState.ENABLED:
            plan(self, tiering)

    with replaced(TieringWriter, "_plan", only_the_first):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class OffVariant:
    """A broken rule. `story`: shows it, with one of its first seeds, to the checker `by`."""

    breaks: Callable[[], AbstractContextManager[None]]
    story: str
    by: str
    zookeeper: bool = False


OFF_VARIANTS = (
    OffVariant(breaks=acknowledges_without_a_fence, story="retained", by="disabled too early"),
    OffVariant(breaks=judges_by_the_current_epoch, story="retained", by="segment images differ"),
    OffVariant(breaks=purges_before_the_log_start_moves, story="deleted", by="offset unreadable"),
    OffVariant(
        breaks=resumes_at_the_historical_maximum, story="deleted", by="local log start wrong"
    ),
    OffVariant(
        breaks=cancels_the_purge_with_the_expiration,
        story="unfenced",
        by="disablement not finished",
    ),
    OffVariant(
        breaks=counts_acknowledgements_of_former_leader_epochs,
        story="unfenced",
        by="disabled too early",
    ),
    OffVariant(
        breaks=copies_earlier_records_without_their_aborted_transactions,
        story="transactions_deleted",
        by="uncommitted record read",
    ),
    OffVariant(
        breaks=asks_one_segment_for_aborted_transactions,
        story="transactions_retained",
        by="uncommitted record read",
    ),
    OffVariant(breaks=reads_the_policy_at_the_end, story="edited", by="tiering state wrong"),
    OffVariant(
        breaks=writes_the_state_without_its_znode,
        story="reelected",
        by="disablement not finished",
        zookeeper=True,
    ),
)
