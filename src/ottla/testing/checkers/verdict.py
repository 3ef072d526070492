"""Turns witnesses into a verdict: true, false, or unknown where a history proves nothing.

Known anomalies can be tolerated, each by checker and with a reason; they are shown but do not make
a verdict false.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from ottla.testing.checkers import delete_records as checkers_promises
from ottla.testing.checkers import deletion as checkers_deletion
from ottla.testing.checkers import groups as checkers_groups
from ottla.testing.checkers import leftovers as checkers_leftovers
from ottla.testing.checkers import log as checkers_log
from ottla.testing.checkers import log_events as checkers_log_events
from ottla.testing.checkers import log_files as checkers_log_files
from ottla.testing.checkers import metadata as checkers_metadata
from ottla.testing.checkers import nodes as checkers_nodes
from ottla.testing.checkers import records as checkers
from ottla.testing.checkers import tiering as checkers_tiering
from ottla.testing.checkers import tiers as checkers_tiers
from ottla.testing.checkers import transactions as checkers_transactions
from ottla.testing.checkers.records import Checker, Witness
from ottla.testing.history.history import History

CHECKERS: Mapping[str, Checker] = MappingProxyType(
    {
        "acknowledged write lost": checkers.acknowledged_writes_lost,
        "read lost": checkers.reads_lost,
        "two values at one offset": checkers.two_values_at_one_offset,
        "watermark fell": checkers.watermarks_that_fell,
        "two leaders in one epoch": checkers.two_leaders_in_one_epoch,
        "idempotent write twice": checkers.idempotent_writes_twice,
        "producer reordered": checkers.producers_reordered,
        "log is damaged": checkers_log.damaged_logs,
        "logs differ": checkers_log.logs_that_differ,
        "index wrong": checkers_log_files.indexes_wrong,
        "log matching broken": checkers_log_events.batches_that_do_not_match,
        "committed records truncated": checkers_log_events.committed_records_truncated,
        "high watermark wrong": checkers_log_events.high_watermarks_wrong,
        "log start moved": checkers_log_events.log_starts_moved,
        "expired segment kept": checkers_log_events.expired_segments_kept,
        "records trimmed wrongly": checkers_promises.trims_that_are_wrong,
        "metadata lost or reordered": checkers_metadata.metadata_lost_or_reordered,
        "acknowledged topic lost": checkers_metadata.acknowledged_topics_lost,
        "images differ": checkers_metadata.images_that_differ,
        "znodes changed by others": checkers_metadata.znodes_changed_by_others,
        "partition rules broken": checkers_metadata.partition_rules_broken,
        "deleted topic came back": checkers_deletion.deleted_topics_came_back,
        "deletion not finished": checkers_deletion.deletions_unfinished,
        "receipt untrue": checkers_deletion.receipts_untrue,
        "living replica deleted": checkers_deletion.living_replicas_deleted,
        "image unlike the log": checkers_nodes.images_unlike_the_log,
        "member lacks committed records": checkers_nodes.members_that_lack_records,
        "node goes back to an old epoch": checkers_nodes.epochs_that_fell,
        "request unanswered": checkers_nodes.requests_unanswered,
        "broker unfenced too early": checkers_nodes.unfenced_too_early,
        "replication rules broken": checkers_nodes.replication_rules_broken,
        "order of durability broken": checkers_nodes.order_of_durability_broken,
        "stale request taken": checkers_nodes.stale_requests_taken,
        "coordinator wrong": checkers_nodes.coordinators_wrong,
        "disk refused at start": checkers_nodes.disks_refused,
        "left over after calm": checkers_leftovers.left_over_after_calm,
        "committed offset lost": checkers_groups.committed_offsets_lost,
        "stale commit taken": checkers_groups.stale_commits_taken,
        "partition owned twice": checkers_groups.partitions_owned_twice,
        "generation went back": checkers_groups.generations_that_went_back,
        "commit beyond the end": checkers_groups.commits_beyond_the_end,
        "offsets logs differ": checkers_groups.offsets_logs_that_differ,
        "timestamp lookup wrong": checkers_groups.timestamp_lookups_wrong,
        "uncommitted follower read": checkers_groups.uncommitted_follower_reads,
        "offset unreadable": checkers_tiers.offsets_unreadable,
        "tiers differ": checkers_tiers.tiers_that_differ,
        "orphan object": checkers_tiers.orphan_objects,
        "remote object missing": checkers_tiers.remote_objects_missing,
        "manifest wrong": checkers_tiers.manifests_wrong,
        "object replaced": checkers_tiers.objects_replaced,
        "local log start wrong": checkers_tiers.local_starts_wrong,
        "segment images differ": checkers_tiers.segment_images_that_differ,
        "special offsets wrong": checkers_tiers.special_offsets_wrong,
        "tiering state wrong": checkers_tiering.tiering_states_wrong,
        "disabled too early": checkers_tiering.disabled_too_early,
        "log start went back": checkers_tiering.log_starts_that_went_back,
        "disablement not finished": checkers_tiering.disablements_unfinished,
        "uncommitted record read": checkers_transactions.uncommitted_records_read,
        "committed record left out": checkers_transactions.committed_records_left_out,
        "assertion failed": checkers.assertions_that_failed,
        "no progress": checkers.no_progress,
    }
)


class Verdict(Enum):
    """Whether a history kept all promises."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"
    """No anomaly was found, but too little happened."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """An anomaly that is tolerated, and why. `covers` selects the witnesses that it applies to."""

    checker: str
    reason: str
    covers: Callable[[History, Witness], bool] = lambda history, witness: True


@dataclass(frozen=True, slots=True)
class Finding:
    """What one checker found, in the order of time. `reason`: why it is tolerated, else None."""

    checker: str
    witnesses: tuple[Witness, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its findings. `unknown_reasons`: why the history proves nothing."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    unknown_reasons: tuple[str, ...] = ()

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The findings that are not tolerated."""
        return tuple(each for each in self.findings if each.reason is None)


def judge(
    history: History,
    *,
    tolerated: Sequence[Tolerance] = (),
    acknowledged_min: int = 1,
    names: Sequence[str] = tuple(CHECKERS),
) -> Judgement:
    """Run the checkers of these names over a history.

    Fields: `acknowledged_min`: with fewer acknowledged writes the verdict is unknown.
    """
    findings: list[Finding] = []
    for name in names:
        left = sorted(CHECKERS[name](history), key=lambda witness: witness.at_ms)
        for tolerance in tolerated:
            if tolerance.checker != name:
                continue
            covered = tuple(each for each in left if tolerance.covers(history, each))
            left = [each for each in left if each not in covered]
            if covered:
                findings.append(Finding(name, covered, tolerance.reason))
        if left:
            findings.append(Finding(name, tuple(left)))
    unknown_reasons = tuple(_unknown_reasons(history, acknowledged_min))
    if any(each.reason is None for each in findings):
        return Judgement(Verdict.FALSE, tuple(findings), unknown_reasons)
    return Judgement(
        Verdict.UNKNOWN if unknown_reasons else Verdict.TRUE, tuple(findings), unknown_reasons
    )


def _unknown_reasons(history: History, acknowledged_min: int) -> list[str]:
    unknown_reasons = []
    acknowledged = history.acknowledged()
    if len(acknowledged) < acknowledged_min:
        unknown_reasons.append(f"{len(acknowledged)} writes were acknowledged, fewer than expected")
    logs = {log.partition for log in history.logs}
    written = {write.partition for write in acknowledged}
    unread = {each for each in written if each[0] not in history.deleted} - logs
    if unread:
        unknown_reasons.append(f"the logs of {len(unread)} written partitions could not be read")
    if history.healed_ms is None:
        unknown_reasons.append("the cluster was not healed, so nothing shows that it works again")
    return unknown_reasons
