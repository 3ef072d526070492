"""What differs between KRaft and ZooKeeper mode for deciders and handlers: values, no questions.

A decider is the same in both modes; what it must know of the mode comes with its context.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.controller.assignment import (
    KRAFT_ASSIGNMENTS,
    ZOOKEEPER_ASSIGNMENTS,
    AssignmentPolicy,
)
from ottla.metadata.features import ledger_enabled


@dataclass(frozen=True, slots=True, kw_only=True)
class ModePolicy:
    """The rules of one mode.

    Fields: `assignments`: which brokers a manual assignment may name.
            `deletions_are_queued`: a deleted topic is queued, and stays until nothing of it is
            left; else its name is free at once.
            `ledger_needs_feature`: deletions are in the ledger from a level of `ottla.version` on;
            else always.
            `requests_may_be_delayed`: see `ottla.controller.elections.partition_change`.
    """

    assignments: AssignmentPolicy
    deletions_are_queued: bool
    ledger_needs_feature: bool
    requests_may_be_delayed: bool

    def has_ledger(self, features: Mapping[str, int]) -> bool:
        """Tell whether a cluster with these features keeps a deletion ledger."""
        return not self.ledger_needs_feature or ledger_enabled(features)


KRAFT_MODE = ModePolicy(
    assignments=KRAFT_ASSIGNMENTS,
    deletions_are_queued=False,
    ledger_needs_feature=True,
    requests_may_be_delayed=False,
)
ZOOKEEPER_MODE = ModePolicy(
    assignments=ZOOKEEPER_ASSIGNMENTS,
    deletions_are_queued=True,
    ledger_needs_feature=False,
    requests_may_be_delayed=True,
)
