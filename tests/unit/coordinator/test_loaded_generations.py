"""A loaded generation is returned to its members once the log's end is replicated.

Method: two members form a group; another coordinator loads the log, whose end is above the high
watermark, as after a change of the leader.
"""

from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.coordinator import groups
from ottla.coordinator.values import JoinResponse

from .harness import Harness


def loaded() -> tuple[Harness, list[JoinResponse], Pending[Error]]:
    """Return a coordinator that has loaded a group, its members, and the end of replication."""
    first = Harness()
    response = first.stable_group(2)
    harness = first.replayed()
    committed: Pending[Error] = Pending()
    harness.shard.wait_for_loaded(committed)
    groups.start(harness.shard)
    return harness, response, committed


def test_an_assignment_waits_until_the_log_is_replicated() -> None:
    harness, response, committed = loaded()
    answer = harness.sync(response[1])
    assert not answer.done
    committed.complete(Error.NONE)
    assert answer.value.assignment == response[1].member_id.encode()
    assert harness.sync(response[0]).done


def test_a_follower_that_joins_again_waits_until_the_log_is_replicated() -> None:
    harness, response, committed = loaded()
    answer = harness.join(response[1].member_id)
    assert not answer.done
    committed.complete(Error.NONE)
    assert (answer.value.error, answer.value.generation) == (Error.NONE, response[1].generation)


def test_members_look_for_another_coordinator_where_replication_takes_too_long() -> None:
    harness, response, _ = loaded()
    joining, syncing = harness.join(response[1].member_id), harness.sync(response[1])
    harness.advance(harness.shard.config.commit_ms)
    assert joining.value.error is Error.COORDINATOR_NOT_AVAILABLE
    assert joining.value.member_id == response[1].member_id
    assert syncing.value.error is Error.COORDINATOR_NOT_AVAILABLE


def test_members_are_sent_away_where_the_leadership_ends_before() -> None:
    harness, response, committed = loaded()
    joining, syncing = harness.join(response[1].member_id), harness.sync(response[1])
    committed.complete(Error.NOT_LEADER_OR_FOLLOWER)
    assert joining.value.error is Error.NOT_COORDINATOR
    assert syncing.value.error is Error.NOT_COORDINATOR


def test_offsets_committed_with_too_few_in_sync_are_returned() -> None:
    harness, response, committed = loaded()
    answer = harness.sync(response[1])
    committed.complete(Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert answer.value.error is Error.NONE
