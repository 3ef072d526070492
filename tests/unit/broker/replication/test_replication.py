"""Brokers replicate a partition; whatever happens to them, nothing acknowledged is lost.

Method: three whole brokers and the controller's deciders in one process (`replicas_world`). The
stories are told one by one; then hypothesis makes up others, and what must hold is checked after
every step.
"""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.metadata.records import PartitionChangeRecord
from tests.unit.broker.replicas_world import ReplicasWorld, Written, contents
from tests.unit.broker.world import TOPIC_ID


@pytest.fixture
def world() -> ReplicasWorld:
    return ReplicasWorld()


def values(world: ReplicasWorld, node_id: int) -> list[str]:
    return [value for _, value in contents(world.nodes[node_id].log).values()]


def acknowledge(world: ReplicasWorld, value: str) -> Written:
    written = world.produce(value)
    world.run(10)
    assert written.answer is not None
    assert written.answer[0] == Error.NONE
    return written


def lose(world: ReplicasWorld, node_id: int) -> None:
    """Kill a broker, and let its session end."""
    world.nodes[node_id].kill()
    world.fence(node_id)
    world.run(10)


class TestReplicating:
    """Three replicas in sync."""

    def test_what_is_acknowledged_is_everywhere(self, world: ReplicasWorld) -> None:
        written = world.produce("a")
        assert written.answer is None
        world.run(5)
        assert written.answer == (Error.NONE, 0)
        assert [values(world, node) for node in (1, 2, 3)] == [["a"]] * 3

    def test_followers_get_the_high_watermark_soon(self, world: ReplicasWorld) -> None:
        acknowledge(world, "a")
        world.run(10)
        assert [world.nodes[node].log.high_watermark for node in (1, 2, 3)] == [1, 1, 1]
        world.check_agreement()

    def test_one_that_cannot_fetch_holds_the_answer_back(self, world: ReplicasWorld) -> None:
        world.cut.add(frozenset({1, 3}))
        written = world.produce("a")
        world.run(999)
        assert written.answer is None
        world.run(1)
        assert written.answer == (Error.REQUEST_TIMED_OUT, -1)
        world.heal()
        world.check_agreement()

    def test_one_that_lags_too_long_leaves_and_comes_back(self) -> None:
        world = ReplicasWorld(replica_lag_time_max_ms="2000")
        world.cut.add(frozenset({1, 3}))
        world.produce("a")
        world.run(3_100)
        assert sorted(world.state.isr) == [1, 2]
        acknowledge(world, "b")
        assert values(world, 3) == []
        world.cut.clear()
        world.run(1_500)
        assert sorted(world.state.isr) == [1, 2, 3]
        world.check_agreement()
        isr = world.nodes[1].broker.isr
        assert (isr.shrinks, isr.expands, isr.failures) == (1, 1, 0)

    def test_one_with_nothing_new_to_fetch_stays_in_sync(self) -> None:
        world = ReplicasWorld(replica_lag_time_max_ms="2000")
        acknowledge(world, "a")
        world.cut.add(frozenset({1, 3}))
        world.run(10_000)
        assert sorted(world.state.isr) == [1, 2, 3]

    def test_below_min_isr_nothing_is_taken_and_nothing_committed(self) -> None:
        world = ReplicasWorld(replica_lag_time_max_ms="1000")
        world.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        world.produce("a")
        world.run(3_000)
        assert world.state.isr == (1,)
        refused = world.produce("b")
        assert refused.answer == (Error.NOT_ENOUGH_REPLICAS, -1)
        world.produce("c", acks=1)
        world.run(100)
        assert world.nodes[1].log.high_watermark == 0
        world.heal()
        world.check_agreement()
        assert values(world, 2) == ["a", "c"]


class TestFailover:
    """Leaders and followers die, and come back with what their disks have."""

    def test_another_leads_and_has_all(self, world: ReplicasWorld) -> None:
        acknowledge(world, "a")
        lose(world, 1)
        assert world.state.leader != 1
        acknowledge(world, "b")
        world.check()
        world.heal()
        world.check_agreement()
        assert values(world, 1) == ["a", "b"]

    def test_a_fenced_leaders_longer_log_is_truncated(self, world: ReplicasWorld) -> None:
        acknowledge(world, "a")
        world.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        lonely = world.produce("lost", to=1, acks=1)
        assert lonely.answer == (Error.NONE, 1)
        lose(world, 1)
        acknowledge(world, "b")
        world.heal()
        world.check_agreement()
        assert values(world, 1) == ["a", "b"]

    def test_a_leader_that_does_not_know_of_its_fall_acknowledges_nothing(
        self, world: ReplicasWorld
    ) -> None:
        acknowledge(world, "a")
        world.nodes[1].deaf = True
        world.out_of_reach.add(1)
        world.fence(1)
        world.run(10)
        zombie = world.produce("zombie", to=1)
        acknowledge(world, "b")
        world.run(2_000)
        assert zombie.answer == (Error.REQUEST_TIMED_OUT, -1)
        assert world.nodes[1].log.high_watermark == 1
        world.heal()
        world.check_agreement()
        assert values(world, 1) == ["a", "b"]

    def test_a_deposed_leader_answers_what_waits(self, world: ReplicasWorld) -> None:
        world.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        waiting = world.produce("a")
        world.prefer(2)
        world.run(5)
        assert waiting.answer == (Error.NOT_LEADER_OR_FOLLOWER, -1)

    def test_kafka_9198_delayed_requests_end_when_the_leadership_moves(
        self, world: ReplicasWorld
    ) -> None:
        """KAFKA-9198: delayed requests of a broker hung when its replica was removed."""
        world.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        waiting = world.produce("a")
        consumer, followed = world.begin_fetch(1), world.begin_fetch(1, replica=2)
        world.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=TOPIC_ID, replicas=(2, 3), isr=(2, 3), leader=2
            )
        )
        world.run(2)
        assert waiting.answer == (Error.NOT_LEADER_OR_FOLLOWER, -1)
        assert consumer.done
        assert followed.done

    def test_two_elections_in_quick_succession(self, world: ReplicasWorld) -> None:
        """What followers have of an epoch that the new leader never saw goes (KIP-101, 279)."""
        acknowledge(world, "a")
        world.cut.add(frozenset({1, 3}))
        world.produce("b", acks=1)
        world.run(5)
        assert (values(world, 2), values(world, 3)) == (["a", "b"], ["a"])
        world.cut |= {frozenset({1, 2}), frozenset({2, 3})}
        world.prefer(2)
        world.run(2)
        world.produce("c", acks=1)
        world.prefer(3)
        world.run(2)
        world.produce("d", acks=1)
        world.heal()
        world.check_agreement()
        assert values(world, 1) == ["a", "d"]

    def test_the_last_in_sync_replica_is_waited_for(self, world: ReplicasWorld) -> None:
        lose(world, 3)
        lose(world, 2)
        acknowledge_error = world.produce("a")
        assert acknowledge_error.answer == (Error.NOT_ENOUGH_REPLICAS, -1)
        lose(world, 1)
        assert world.state.leader == NO_LEADER
        world.heal()
        world.check_agreement()

    def test_a_follower_that_truncated_its_log_gets_the_high_watermark(
        self, world: ReplicasWorld
    ) -> None:
        """The response with the diverging epoch has a high watermark, too, which is not applied."""
        world.produce("a", acks=1)
        world.run(1)
        world.nodes[1].deaf = True
        world.prefer(2)
        world.run(1)
        world.prefer(1)
        world.run(1)
        world.heal()
        world.check_agreement()

    def test_a_leader_that_dies_and_leads_again_is_followed_again(
        self, world: ReplicasWorld
    ) -> None:
        """A delayed fetch of its previous process must not be waited for."""
        world.prefer(3)
        world.run(100)
        world.nodes[2].kill()
        world.nodes[3].kill()
        world.heal()
        world.check_agreement()

    def test_no_high_watermark_goes_back_below_what_was_committed(
        self, world: ReplicasWorld
    ) -> None:
        """A new leader may have a lower one, and returns no offsets until it has caught up."""
        written = world.produce("a")
        world.run(3)
        assert written.answer == (Error.NONE, 0)
        assert world.nodes[2].log.high_watermark == 0
        world.prefer(2)
        world.run(1)
        partition = world.nodes[2].partition
        assert partition.epoch_start_offset > world.nodes[2].log.high_watermark
        world.run(600)
        world.check_agreement()


Do = Callable[[ReplicasWorld], None]


def do(name: str, *numbers: int) -> Do:
    """Return a step of a story, if it makes sense where the story has got to."""
    one = numbers[0] if numbers else 0
    other = numbers[1] if len(numbers) > 1 else 0

    def step(world: ReplicasWorld) -> None:
        node = world.nodes.get(one)
        match name:
            case "run":
                world.run(one)
            case "produce":
                world.produce(f"{len(world.written)}", acks=-1 if one else 1)
            case "produce anywhere":
                world.produce(f"{len(world.written)}", to=one)
            case "cut" if one != other:
                world.cut.add(frozenset({one, other}))
            case "join":
                world.cut.discard(frozenset({one, other}))
            case "fence":
                world.fence(one)
            case "unfence" if node is not None and node.up:
                world.unfence(one)
            case "prefer":
                world.prefer(one)
            case "kill" if node is not None and node.up:
                node.kill()
            case "start" if node is not None and not node.up:
                node.start()
            case "deafen" if node is not None:
                node.deaf = True
                world.out_of_reach.add(one)
            case "hear" if node is not None:
                node.deaf = False
                world.out_of_reach.discard(one)
                node.hear()

    step.__qualname__ = f"{name} {numbers}"
    return step


NODES = st.integers(1, 3)
STEPS = st.one_of(
    st.builds(do, st.just("produce"), st.integers(0, 1)),
    st.builds(do, st.just("run"), st.sampled_from([1, 2, 3, 5, 20, 700])),
    st.builds(do, st.sampled_from(["cut", "join"]), NODES, NODES),
    st.builds(
        do,
        st.sampled_from(
            [
                *("fence", "unfence", "prefer", "kill", "start", "deafen", "hear"),
                "produce anywhere",
            ]
        ),
        NODES,
    ),
)


@given(story=st.lists(STEPS, max_size=40))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_story(story: list[Do]) -> None:
    world = ReplicasWorld(replica_lag_time_max_ms="1000")
    for step in story:
        step(world)
        world.run(1)
        world.check()
    world.heal()
    world.run(3_000)
    world.check_agreement()
