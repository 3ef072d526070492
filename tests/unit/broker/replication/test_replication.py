"""Brokers replicate a partition; whatever happens to them, nothing acknowledged is lost.

Method: three whole brokers and the controller's deciders in one process (`replicas_harness`). The
stories are told one by one; then hypothesis makes up others, and what must hold is checked after
every step.
"""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.metadata.records import PartitionChangeRecord
from tests.drawn import examples
from tests.unit.broker.harness import TOPIC_ID
from tests.unit.broker.replicas_harness import ReplicasHarness, Written, contents


@pytest.fixture
def harness() -> ReplicasHarness:
    return ReplicasHarness()


def values(harness: ReplicasHarness, node_id: int) -> list[str]:
    return [value for _, value in contents(harness.nodes[node_id].log).values()]


def acknowledge(harness: ReplicasHarness, value: str) -> Written:
    written = harness.produce(value)
    harness.run(10)
    assert written.answer is not None
    assert written.answer[0] == Error.NONE
    return written


def lose(harness: ReplicasHarness, node_id: int) -> None:
    """Kill a broker, and let its session end."""
    harness.nodes[node_id].kill()
    harness.fence(node_id)
    harness.run(10)


class TestReplicating:
    """Three replicas in sync."""

    def test_what_is_acknowledged_is_everywhere(self, harness: ReplicasHarness) -> None:
        written = harness.produce("a")
        assert written.answer is None
        harness.run(5)
        assert written.answer == (Error.NONE, 0)
        assert [values(harness, node) for node in (1, 2, 3)] == [["a"]] * 3

    def test_followers_get_the_high_watermark_soon(self, harness: ReplicasHarness) -> None:
        acknowledge(harness, "a")
        harness.run(10)
        assert [harness.nodes[node].log.high_watermark for node in (1, 2, 3)] == [1, 1, 1]
        harness.check_agreement()

    def test_one_that_cannot_fetch_holds_the_answer_back(self, harness: ReplicasHarness) -> None:
        harness.cut.add(frozenset({1, 3}))
        written = harness.produce("a")
        harness.run(999)
        assert written.answer is None
        harness.run(1)
        assert written.answer == (Error.REQUEST_TIMED_OUT, -1)
        harness.heal()
        harness.check_agreement()

    def test_one_that_lags_too_long_leaves_and_comes_back(self) -> None:
        harness = ReplicasHarness(replica_lag_time_max_ms="2000")
        harness.cut.add(frozenset({1, 3}))
        harness.produce("a")
        harness.run(3_100)
        assert sorted(harness.state.isr) == [1, 2]
        acknowledge(harness, "b")
        assert values(harness, 3) == []
        harness.cut.clear()
        harness.run(1_500)
        assert sorted(harness.state.isr) == [1, 2, 3]
        harness.check_agreement()
        isr = harness.nodes[1].broker.isr
        assert (isr.shrinks, isr.expands, isr.failures) == (1, 1, 0)

    def test_one_with_nothing_new_to_fetch_stays_in_sync(self) -> None:
        harness = ReplicasHarness(replica_lag_time_max_ms="2000")
        acknowledge(harness, "a")
        harness.cut.add(frozenset({1, 3}))
        harness.run(10_000)
        assert sorted(harness.state.isr) == [1, 2, 3]

    def test_below_min_isr_nothing_is_taken_and_nothing_committed(self) -> None:
        harness = ReplicasHarness(replica_lag_time_max_ms="1000")
        harness.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        harness.produce("a")
        harness.run(3_000)
        assert harness.state.isr == (1,)
        refused = harness.produce("b")
        assert refused.answer == (Error.NOT_ENOUGH_REPLICAS, -1)
        harness.produce("c", acks=1)
        harness.run(100)
        assert harness.nodes[1].log.high_watermark == 0
        harness.heal()
        harness.check_agreement()
        assert values(harness, 2) == ["a", "c"]


class TestFailover:
    """Leaders and followers die, and come back with what their disks have."""

    def test_another_leads_and_has_all(self, harness: ReplicasHarness) -> None:
        acknowledge(harness, "a")
        lose(harness, 1)
        assert harness.state.leader != 1
        acknowledge(harness, "b")
        harness.check()
        harness.heal()
        harness.check_agreement()
        assert values(harness, 1) == ["a", "b"]

    def test_a_fenced_leaders_longer_log_is_truncated(self, harness: ReplicasHarness) -> None:
        acknowledge(harness, "a")
        harness.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        lonely = harness.produce("lost", to=1, acks=1)
        assert lonely.answer == (Error.NONE, 1)
        lose(harness, 1)
        acknowledge(harness, "b")
        harness.heal()
        harness.check_agreement()
        assert values(harness, 1) == ["a", "b"]

    def test_a_leader_that_does_not_know_of_its_fall_acknowledges_nothing(
        self, harness: ReplicasHarness
    ) -> None:
        acknowledge(harness, "a")
        harness.nodes[1].deaf = True
        harness.out_of_reach.add(1)
        harness.fence(1)
        harness.run(10)
        zombie = harness.produce("zombie", to=1)
        acknowledge(harness, "b")
        harness.run(2_000)
        assert zombie.answer == (Error.REQUEST_TIMED_OUT, -1)
        assert harness.nodes[1].log.high_watermark == 1
        harness.heal()
        harness.check_agreement()
        assert values(harness, 1) == ["a", "b"]

    def test_a_deposed_leader_answers_what_waits(self, harness: ReplicasHarness) -> None:
        harness.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        waiting = harness.produce("a")
        harness.prefer(2)
        harness.run(5)
        assert waiting.answer == (Error.NOT_LEADER_OR_FOLLOWER, -1)

    def test_kafka_9198_delayed_requests_end_when_the_leadership_moves(
        self, harness: ReplicasHarness
    ) -> None:
        """KAFKA-9198: delayed requests of a broker hung when its replica was removed."""
        harness.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        waiting = harness.produce("a")
        consumer, followed = harness.begin_fetch(1), harness.begin_fetch(1, replica=2)
        harness.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=TOPIC_ID, replicas=(2, 3), isr=(2, 3), leader=2
            )
        )
        harness.run(2)
        assert waiting.answer == (Error.NOT_LEADER_OR_FOLLOWER, -1)
        assert consumer.done
        assert followed.done

    def test_two_elections_in_quick_succession(self, harness: ReplicasHarness) -> None:
        """What followers have of an epoch that the new leader never saw goes (KIP-101, 279)."""
        acknowledge(harness, "a")
        harness.cut.add(frozenset({1, 3}))
        harness.produce("b", acks=1)
        harness.run(5)
        assert (values(harness, 2), values(harness, 3)) == (["a", "b"], ["a"])
        harness.cut |= {frozenset({1, 2}), frozenset({2, 3})}
        harness.prefer(2)
        harness.run(2)
        harness.produce("c", acks=1)
        harness.prefer(3)
        harness.run(2)
        harness.produce("d", acks=1)
        harness.heal()
        harness.check_agreement()
        assert values(harness, 1) == ["a", "d"]

    def test_the_last_in_sync_replica_is_waited_for(self, harness: ReplicasHarness) -> None:
        lose(harness, 3)
        lose(harness, 2)
        acknowledge_error = harness.produce("a")
        assert acknowledge_error.answer == (Error.NOT_ENOUGH_REPLICAS, -1)
        lose(harness, 1)
        assert harness.state.leader == NO_LEADER
        harness.heal()
        harness.check_agreement()

    def test_a_follower_that_truncated_its_log_gets_the_high_watermark(
        self, harness: ReplicasHarness
    ) -> None:
        """The response with the diverging epoch has a high watermark, too, which is not applied."""
        harness.produce("a", acks=1)
        harness.run(1)
        harness.nodes[1].deaf = True
        harness.prefer(2)
        harness.run(1)
        harness.prefer(1)
        harness.run(1)
        harness.heal()
        harness.check_agreement()

    def test_a_leader_that_dies_and_leads_again_is_followed_again(
        self, harness: ReplicasHarness
    ) -> None:
        """A delayed fetch of its previous process must not be waited for."""
        harness.prefer(3)
        harness.run(100)
        harness.nodes[2].kill()
        harness.nodes[3].kill()
        harness.heal()
        harness.check_agreement()

    def test_no_high_watermark_goes_back_below_what_was_committed(
        self, harness: ReplicasHarness
    ) -> None:
        """A new leader may have a lower one, and returns no offsets until it has caught up."""
        written = harness.produce("a")
        harness.run(3)
        assert written.answer == (Error.NONE, 0)
        assert harness.nodes[2].log.high_watermark == 0
        harness.prefer(2)
        harness.run(1)
        partition = harness.nodes[2].partition
        assert partition.epoch_start_offset > harness.nodes[2].log.high_watermark
        harness.run(600)
        harness.check_agreement()


class TestDeletedRecords:
    """The leader has deleted what it had where a follower has other records."""

    @pytest.mark.parametrize("more", [0, 1])
    @pytest.mark.parametrize("alone", [1, 2, 3])
    def test_a_former_leader_keeps_none_of_its_own(
        self, harness: ReplicasHarness, alone: int, more: int
    ) -> None:
        """Its log ends before the log start of its successor, there, or above.

        As the next leader it would take a retry for a duplicate, and acknowledge what no log has.
        """
        acknowledge(harness, "a")
        harness.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        lonely = [harness.produce(f"lonely {each}", to=1, acks=1) for each in range(alone)]
        lose(harness, 1)
        acknowledge(harness, "b")
        acknowledge(harness, "c")
        harness.delete_records()
        for each in range(more):
            acknowledge(harness, f"more {each}")
        harness.heal()
        harness.check_agreement()
        harness.prefer(1)
        harness.run(5)
        for each in lonely:
            harness.send(each)
            harness.run(10)
            assert each.answer is not None
            assert each.answer[0] == Error.NONE
            harness.check()
        assert values(harness, 1)[more:] == [each.value for each in lonely]

    @pytest.mark.parametrize("more", [0, 1])
    def test_a_former_leader_does_not_serve_its_own_after_a_restart(
        self, harness: ReplicasHarness, more: int
    ) -> None:
        """The log start that it had from its successor was in no checkpoint yet."""
        acknowledge(harness, "a")
        harness.cut |= {frozenset({1, 2}), frozenset({1, 3})}
        harness.produce("lonely", to=1, acks=1)
        lose(harness, 1)
        acknowledge(harness, "b")
        harness.delete_records()
        for each in range(more):
            acknowledge(harness, f"more {each}")
        harness.heal()
        harness.nodes[1].kill()
        harness.heal()
        harness.prefer(1)
        harness.run(5)
        acknowledge(harness, "c")
        harness.check()
        assert "lonely" not in values(harness, 1)

    def test_a_follower_that_has_it_all_keeps_its_producers(self, harness: ReplicasHarness) -> None:
        """Nothing shows it but the high watermark: the leader has none of the records."""
        written = acknowledge(harness, "a")
        harness.run(600)
        harness.delete_records()
        harness.run(600)
        harness.prefer(2)
        harness.run(600)
        harness.prefer(3)
        harness.run(600)
        harness.send(written)
        harness.run(10)
        assert written.answer == (Error.NONE, 0)
        assert values(harness, 3) == []


def replace_leader(harness: ReplicasHarness, random: Random) -> None:
    """Let a leader write alone and be replaced; then its successor's log start may move."""
    leader = harness.state.leader
    others = sorted(set(harness.nodes) - {leader})
    harness.cut |= {frozenset({leader, each}) for each in others}
    for _ in range(random.randint(0, 4)):
        harness.produce(f"{len(harness.written)} alone", to=leader, acks=1)
    if random.random() < 0.3:
        harness.nodes[leader].kill()
    else:
        harness.nodes[leader].deaf = True
        harness.out_of_reach.add(leader)
    harness.fence(leader)
    harness.run(5)
    for _ in range(random.randint(0, 5)):
        harness.produce(f"{len(harness.written)}")
        harness.run(random.choice([0, 1, 5]))
    harness.run(5)
    if random.random() < 0.7:
        harness.delete_records()
    if random.random() < 0.5:
        harness.produce(f"{len(harness.written)}")
    harness.run(random.choice([0, 5]))


@pytest.mark.forms(10)
@pytest.mark.parametrize("seed", range(40))
def test_former_leaders_keep_nothing_of_their_own(seed: int) -> None:
    """Directed: leaders with a tail of their own, log starts that pass it, retries."""
    random, harness = Random(seed), ReplicasHarness(replica_lag_time_max_ms="1000")
    for _ in range(5):
        if harness.leader is not None:
            replace_leader(harness, random)
        harness.check()
        other = harness.nodes[random.randint(1, 3)]
        if other.up and random.random() < 0.2:
            other.kill()
        harness.heal()
        harness.check()
        harness.prefer(random.randint(1, 3))
        harness.run(random.choice([1, 5, 20]))
        for written in random.sample(harness.written, min(3, len(harness.written))):
            harness.send(written)
            harness.run(random.choice([1, 5]))
            harness.check()
    harness.heal()
    harness.run(3_000)
    harness.check_agreement()


Do = Callable[[ReplicasHarness], None]


def do(name: str, *numbers: int) -> Do:
    """Return a step of a story, if it makes sense where the story has got to."""
    one = numbers[0] if numbers else 0
    other = numbers[1] if len(numbers) > 1 else 0

    def step(harness: ReplicasHarness) -> None:
        node = harness.nodes.get(one)
        match name:
            case "run":
                harness.run(one)
            case "produce":
                harness.produce(f"{len(harness.written)}", acks=-1 if one else 1)
            case "produce anywhere":
                harness.produce(f"{len(harness.written)}", to=one)
            case "cut" if one != other:
                harness.cut.add(frozenset({one, other}))
            case "join":
                harness.cut.discard(frozenset({one, other}))
            case "retry" if harness.written:
                harness.send(harness.written[-1 - one % len(harness.written)])
            case "delete":
                harness.delete_records()
            case "fence":
                harness.fence(one)
            case "unfence" if node is not None and node.up:
                harness.unfence(one)
            case "prefer":
                harness.prefer(one)
            case "kill" if node is not None and node.up:
                node.kill()
            case "start" if node is not None and not node.up:
                node.start()
            case "deafen" if node is not None:
                node.deaf = True
                harness.out_of_reach.add(one)
            case "hear" if node is not None:
                node.deaf = False
                harness.out_of_reach.discard(one)
                node.hear()

    step.__qualname__ = f"{name} {numbers}"
    return step


NODES = st.integers(1, 3)
STEPS = st.one_of(
    st.builds(do, st.sampled_from(["produce", "retry"]), st.integers(0, 1)),
    st.builds(do, st.just("delete")),
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
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_story(story: list[Do]) -> None:
    harness = ReplicasHarness(replica_lag_time_max_ms="1000")
    for step in story:
        step(harness)
        harness.run(1)
        harness.check()
    harness.heal()
    harness.run(3_000)
    harness.check_agreement()
