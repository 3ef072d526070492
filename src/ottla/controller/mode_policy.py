"""What differs between KRaft and ZooKeeper mode for deciders and handlers: values, no questions.

A decider is the same in both modes; what it must know of the mode comes with its context.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.controller.topics.assignment import (
    KRAFT_ASSIGNMENTS,
    ZOOKEEPER_ASSIGNMENTS,
    AssignmentPolicy,
)
from ottla.metadata.features import OTTLA_VERSION, ledger_enabled, registered_level
from ottla.metadata.image import ClusterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePolicy:
    """The rules of one mode.

    Fields: `assignments`: which brokers a manual assignment may name.
            `deletions_are_queued`: a deleted topic is queued, and stays until nothing of it is
            left; else its name is free at once.
            `ledger_needs_feature`: deletions are in the ledger from a level of `ottla.version` on;
            else always.
            `levels_are_finalized`: a level of `ottla.version` is that of the feature; else it is
            the smallest that a registered broker supports.
            `requests_may_be_delayed`: see `ottla.controller.elections.partition_change`.
    """

    assignments: AssignmentPolicy
    deletions_are_queued: bool
    ledger_needs_feature: bool
    levels_are_finalized: bool
    requests_may_be_delayed: bool

    def has_ledger(self, features: Mapping[str, int]) -> bool:
        """Tell whether a cluster with these features keeps a deletion ledger."""
        return not self.ledger_needs_feature or ledger_enabled(features)

    def ottla_level(self, image: ClusterImage) -> int:
        """Return the cluster's level of `ottla.version`."""
        if self.levels_are_finalized:
            return image.features.get(OTTLA_VERSION, 0)
        return registered_level(image.brokers.values())


KRAFT_MODE = ModePolicy(
    assignments=KRAFT_ASSIGNMENTS,
    deletions_are_queued=False,
    ledger_needs_feature=True,
    levels_are_finalized=True,
    requests_may_be_delayed=False,
)
ZOOKEEPER_MODE = ModePolicy(
    assignments=ZOOKEEPER_ASSIGNMENTS,
    deletions_are_queued=True,
    ledger_needs_feature=False,
    levels_are_finalized=False,
    requests_may_be_delayed=True,
)
