"""What the standard mix of the simulator is to find, with nothing tuned for it.

`python -m tests.sim.detection` prints how many seeds it takes to find each of these rules broken.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from ottla.testing.scenarios.report import Report
from ottla.testing.scenarios.runner import PlayOptions, play

from .backfill_variants import BACKFILL_VARIANTS
from .fault_variants import FAULT_VARIANTS
from .group_variants import GROUP_VARIANTS
from .log_variants import LOG_VARIANTS
from .mutants import MUTANTS
from .rule import Rule, has_remote_storage, variant
from .tier_variants import TIER_VARIANTS
from .tiering_off_variants import OFF_VARIANTS

SEEDS_MAX = 200
"""A seed from 1 to this is to show a broken rule."""


def rules() -> Iterator[Rule]:
    """Yield all rules, each once."""
    for mutant in MUTANTS:
        yield Rule(name=mutant.name, breaks=mutant.applied, zookeeper=mutant.zookeeper)
    yield from FAULT_VARIANTS
    yield from LOG_VARIANTS
    yield from GROUP_VARIANTS
    # Rules of remote storage are also broken in stories of their own, some in two of them.
    remote = dict.fromkeys(each.breaks for each in (*TIER_VARIANTS, *BACKFILL_VARIANTS))
    # Some of turning it off are broken over ZooKeeper alone.
    modes = dict.fromkeys(remote, False) | {each.breaks: each.zookeeper for each in OFF_VARIANTS}
    yield from (
        variant(breaks, zookeeper=zookeeper, suits=has_remote_storage)
        for breaks, zookeeper in modes.items()
    )


def play_standard(rule: Rule, seed: int) -> Report:
    """Play a seed in the mode in which the rule shows."""
    return play(seed, PlayOptions(zookeeper=rule.zookeeper))


def likeliest_first(rule: Rule) -> Iterable[int]:
    """Return the seeds to try, from the one on that showed the rule broken before."""
    known = SHOWN_BY.get(rule.name)
    seeds = filter(rule.suits, range(1, SEEDS_MAX + 1))
    return seeds if known is None else chain([known], (each for each in seeds if each != known))


SHOWN_BY: dict[str, int] = {
    "votes_by_length": 10,
    "commits_former_epochs": 1,
    "counts_unflushed": 1,
    "fetches_unflushed": 1,
    "takes_fenced_into_isr": 25,
    "ignores_broker_epochs_in_isr": 4,
    "accepts_old_partition_epochs": 4,
    "keeps_unclean_eligible": 1,
    "unclean_leaves_only_isr": 5,
    "finishes_moves_early": 45,
    "removes_without_epoch": 1,
    "any_epoch_is_clean": 82,
    "eligible_below_one_less": 4,
    "shrinks_before_the_answer": 1,
    "expands_after_the_answer": 2,
    "acknowledges_one_early": 2,
    "forgets_min_isr_after_append": 2,
    "begins_epochs_with_records": 1,
    "reads_past_the_watermark": 1,
    "cuts_by_its_own_epoch_end": 2,
    "truncates_to_the_watermark": 2,
    "remembers_one_batch": 2,
    "follows_older_leader_epochs": 23,
    "compares_partition_epochs_only": 18,
    "leads_on_after_a_start": 8,
    "stores_its_vote_without_a_sync": 1,
    "fetches_metadata_before_it_is_flushed": 11,
    "commits_metadata_that_its_leader_has_not_flushed": 2,
    "leaves_configurations_out_of_snapshots": 1,
    "forgets_deadlines": 1,
    "leaves_retired_files_open": 1,
    "counts_one_record_too_many": 1,
    "unfences_who_has_not_asked": 1,
    "names_snapshots_without_a_sync": 19,
    "lowers_its_recovery_point_late": 2,
    "counts_flushes_as_done": 2,
    "commits_by_the_smaller_set": 6,
    "takes_in_whoever_reaches_the_high_watermark": 5,
    "follows_without_waiting_for_its_flush": 36,
    "writes_whoever_was_elected_since": 18,
    "indexes_the_offset_behind_a_batch": 1,
    "keeps_times_of_what_it_cut_off": 2,
    "seals_segments_without_their_largest_timestamp": 1,
    "begins_epochs_one_late": 1,
    "recovers_epochs_one_late": 1,
    "forgets_to_store_epochs_that_are_cut_off": 25,
    "keeps_producers_of_what_it_cut_off": 4,
    "notes_batches_one_early": 1,
    "recovers_no_producers": 19,
    "cuts_one_record_more": 2,
    "keeps_the_first_record_that_differs": 4,
    "follows_high_watermarks_back": 1,
    "flushes_one_record_late": 10,
    "expires_a_segment_too_many_by_size": 16,
    "expires_segments_by_their_first_record": 5,
    "keeps_a_segment_more_than_retention_bytes": 16,
    "keeps_the_last_segment_that_has_expired": 5,
    "answers_deletions_before_the_followers": 5,
    "removes_tombstones_at_once": 15,
    "removes_the_newest_record_of_a_tombstoned_key": 1,
    "acknowledges_commits_before_they_are_replicated": 4,
    "forgets_the_generation_of_commits": 2,
    "lets_anybody_commit": 9,
    "knows_static_members_by_their_instance_id_alone": 9,
    "reads_offsets_before_they_are_replicated": 4,
    "loads_no_offsets": 1,
    "loads_no_groups": 1,
    "loads_only_the_beginning": 1,
    "loads_up_to_the_high_watermark": 3,
    "loads_the_first_of_each_key": 1,
    "loads_generations_as_new": 1,
    "expires_offsets_of_groups_that_rebalance": 3,
    "forgets_all_topics_with_one": 1,
    "takes_syncs_of_old_generations": 2,
    "assigns_before_the_generation_is_stored": 2,
    "keeps_assignments_of_members_not_named": 16,
    "forgets_the_leader_epoch": 1,
    "lets_consumers_of_followers_read_to_the_end": 1,
    "finds_the_batch_of_a_timestamp_only": 1,
    "looks_for_timestamps_in_the_newest_segment": 1,
    "passes_over_equal_timestamps": 1,
    "begins_at_the_local_log_after_a_restart": 2,
    "copies_from_the_wrong_end": 15,
    "overwrites_manifests": 2,
    "lists_what_is_being_copied": 2,
    "reads_the_next_local_record": 2,
    "follows_older_metadata": 14,
    "takes_an_answer_for_lost": 4,
    "takes_old_partition_epochs": 4,
    "writes_states_over_newer_ones": 13,
    "hears_former_controllers": 4,
    "joins_below_epoch_start": 12,
    "hears_orders_to_previous_broker_epochs": 1,
    "hears_heartbeats_of_the_dead": 5,
    "deletes_before_the_log_start_is_published": 11,
    "expires_one_segment_too_many": 2,
    "trusts_the_store": 108,
    "asks_one_segment_for_aborted_transactions": 108,
    "finishes_copies_that_do_not_abut": 104,
    "judges_by_the_current_epoch": 2,
    "counts_acknowledgements_of_former_leader_epochs": 18,
    "reads_the_policy_at_the_end": 18,
    "deletes_before_the_log_start_moves": 11,
    "deletes_local_files_of_copies_that_have_begun": 11,
    "accepts_copies_of_former_leaders": 44,
    "forgets_failed_copies_at_once": 2,
    "takes_commits_without_a_look": 104,
    "acknowledges_without_a_fence": 2,
    "purges_before_the_log_start_moves": 46,
    "cancels_the_purge_with_the_expiration": 2,
    "ignores_broker_epochs_of_fetches": 1,
    "answers_before_loading_is_done": 3,
    "goes_on_after_it_resigned": 3,
    "keeps_what_it_knew_in_a_new_epoch": 19,
    "writes_the_state_without_its_znode": 2,
    "deletes_segments_before_the_log_start_is_durable": 5,
    "swaps_segments_without_syncs": 1,
    "compares_ends_of_epochs_only": 59,
    "takes_in_followers_that_are_one_short": 1,
    "cuts_to_another_epochs_end": 27,
    "confirms_before_the_rename_is_durable": 1,
    "commits_before_its_flush": 30,
    "cleans_what_is_not_committed": 1,
    "trusts_what_was_sealed_after_its_flush": 2,
    "counts_previous_broker_epochs": 1,
    "deletes_objects_before_the_manifest": 2,
    "compares_only_ends": 8,
    "keeps_diverging_epoch": 4,
    "reads_what_it_loaded_before_that_is_replicated": 19,
    "trusts_what_followers_said_in_other_epochs": 1,
}
"""A seed that showed the rule broken when that was last measured. It shifts with every change of
what nodes do. A rule that is missing here was not shown by any that was tried, or not tried yet."""
