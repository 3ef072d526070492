"""A generation that was read from the log is told to its members once the log's end is replicated.

Method: two members form a group; another coordinator loads the log, whose end is above the high
watermark, as after a change of the leader.
"""

from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.coordinator import groups
from ottla.coordinator.values import JoinResponse

from .harness import World


def loaded() -> tuple[World, list[JoinResponse], Pending[Error]]:
    """Return a coordinator that has loaded a group, its members, and the end of replication."""
    first = World()
    told = first.stable_group(2)
    world = first.replayed()
    committed: Pending[Error] = Pending()
    world.shard.wait_for_loaded(committed)
    groups.start(world.shard)
    return world, told, committed


def test_an_assignment_waits_until_the_log_is_replicated() -> None:
    world, told, committed = loaded()
    answer = world.sync(told[1])
    assert not answer.done
    committed.complete(Error.NONE)
    assert answer.value.assignment == told[1].member_id.encode()
    assert world.sync(told[0]).done


def test_a_follower_that_joins_again_waits_until_the_log_is_replicated() -> None:
    world, told, committed = loaded()
    answer = world.join(told[1].member_id)
    assert not answer.done
    committed.complete(Error.NONE)
    assert (answer.value.error, answer.value.generation) == (Error.NONE, told[1].generation)


def test_members_look_for_another_coordinator_where_replication_takes_too_long() -> None:
    world, told, _ = loaded()
    joining, syncing = world.join(told[1].member_id), world.sync(told[1])
    world.advance(world.shard.config.commit_ms)
    assert joining.value.error is Error.COORDINATOR_NOT_AVAILABLE
    assert joining.value.member_id == told[1].member_id
    assert syncing.value.error is Error.COORDINATOR_NOT_AVAILABLE


def test_members_are_sent_away_where_the_leadership_ends_before() -> None:
    world, told, committed = loaded()
    joining, syncing = world.join(told[1].member_id), world.sync(told[1])
    committed.complete(Error.NOT_LEADER_OR_FOLLOWER)
    assert joining.value.error is Error.NOT_COORDINATOR
    assert syncing.value.error is Error.NOT_COORDINATOR


def test_what_was_committed_with_too_few_in_sync_is_told() -> None:
    world, told, committed = loaded()
    answer = world.sync(told[1])
    committed.complete(Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert answer.value.error is Error.NONE
