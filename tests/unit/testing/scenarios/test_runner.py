"""A scenario is played, healed and checked; its own errors are raised.

Method: the smallest clusters, for a few virtual seconds.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import Error
from ottla.host.zookeeper.config_follower import ConfigFollower
from ottla.testing.checkers.verdict import Verdict
from ottla.testing.history.history import Progress
from ottla.testing.scenarios import Dialogue, Scenario, ScenarioFailed, Story, TopicSpec
from ottla.testing.scenarios.runner import PlayOptions, Run, play_all, play_scenario
from ottla.testing.scenarios.settling import unsettled
from ottla.testing.scenarios.standard import draw_scenario
from ottla.testing.scenarios.storage import draw_storage
from ottla.testing.scenarios.workload import Workload
from ottla.testing.sim import Faults, Sim
from ottla.testing.sim_clients import Admin
from tests.drawn import examples

METADATA = 3
LINES = TopicSpec(name="lines", partitions=2, replication_factor=1)


def write_and_read(story: Story) -> Dialogue[None]:
    yield from story.create(LINES)
    story.produce(LINES, interval_ms=100)
    story.consume(LINES, interval_ms=200)


SMALL = Scenario(
    name="small", story=write_and_read, brokers=1, controllers=1, combined=True, seconds=5
)


def test_a_healthy_cluster_keeps_its_promises() -> None:
    report = play_scenario(1, SMALL)
    assert report.judgement.verdict is Verdict.TRUE, report.lines(full=True)
    assert report.acknowledged > 20
    assert report.reads >= report.acknowledged
    assert report.rough_ms == 5_000 < report.virtual_ms
    assert report.faultless
    assert play_scenario(1, SMALL).digest == report.digest


def test_a_story_with_a_rejected_topic_fails() -> None:
    def story(story: Story) -> Dialogue[None]:
        yield from story.create(TopicSpec(name="no/name", replication_factor=1))

    wrong = replace(SMALL, name="wrong", story=story)
    with pytest.raises(ScenarioFailed, match="topic no/name is refused: INVALID_TOPIC") as caught:
        play_scenario(3, wrong)
    assert any("seed 3, at" in note for note in caught.value.__notes__)


def test_healing_restarts_a_node_that_the_story_crashed() -> None:
    def story(story: Story) -> Dialogue[None]:
        yield from write_and_read(story)
        yield 1_000
        story.sim.nodes[1].crash(lose_unflushed=False)

    report = play_scenario(1, replace(SMALL, name="down", story=story))
    assert report.judgement.verdict is Verdict.TRUE, report.lines(full=True)
    assert report.marks["crashed"] == 1


def test_writers_stop_once_all_are_served_and_others_have_more_time() -> None:
    """What readers and groups must reach does not move on meanwhile."""
    late_ms = 8_000

    def story(story: Story) -> Dialogue[None]:
        story.expect(["a slow reader"])
        yield from write_and_read(story)
        while (healed_ms := story.history.healed_ms) is None:
            yield 100
        yield healed_ms + late_ms - story.now_ms
        story.history.progress.append(Progress("a slow reader", story.now_ms))

    run = Run(1, replace(SMALL, name="slow", story=story))
    run.rough()
    run.calm()
    healed_ms = run.history.healed_ms
    assert healed_ms is not None
    assert run.report().judgement.verdict is Verdict.TRUE
    written = {each.partition for each in run.history.writes if each.sent_ms >= healed_ms}
    assert len(written) == LINES.partitions
    assert max(each.sent_ms for each in run.history.writes) < healed_ms + 2_000
    assert run.history.ended_ms >= healed_ms + late_ms


def test_clients_that_are_not_served_are_waited_for_as_long_as_the_scenario_says() -> None:
    def story(story: Story) -> Dialogue[None]:
        story.expect(["a reader that never comes"])
        yield from write_and_read(story)

    run = Run(1, replace(SMALL, name="never", story=story, settle_seconds=6))
    run.rough()
    began_ms = run.history.healed_ms = run.story.now_ms
    run._serve(6_000)
    assert run.story.now_ms == began_ms + 6_000
    assert run._missing() == {"a reader that never comes"}


@settings(max_examples=examples(30))
@given(
    st.lists(st.lists(st.builds(Progress, st.sampled_from("abc"), st.integers(0, 3)))),
    st.integers(0, 3),
)
def test_what_is_missing_is_found_in_new_progress_as_in_all_of_it(
    looks: list[list[Progress]], healed_ms: int
) -> None:
    run = Run(1, SMALL)
    run.history.healed_ms = healed_ms
    run.story.expect("abc")
    for fresh in looks:
        run.history.progress += fresh
        alive = {each.what for each in run.history.progress if each.at_ms >= healed_ms}
        assert run._missing() == set(run.story.expected()) - alive


def test_reports_come_in_the_order_of_the_seeds_from_several_processes(tmp_path: Path) -> None:
    file = tmp_path / "small.py"
    file.write_text(
        "from tests.unit.testing.scenarios.test_runner import SMALL as SCENARIO\n",
        encoding="utf-8",
    )
    order = PlayOptions(file=str(file), seconds=3)
    reports = list(play_all((5, 3), order, workers=2))
    assert [report.seed for report in reports] == [5, 3]
    assert reports[0].replay == f"ottla sim --seed 5 --seconds 3 --scenario {file}"


def test_what_has_not_settled_is_described() -> None:
    sim = Sim(1, brokers=1, controllers=1, combined=True)
    assert unsettled(sim) == ["node 1 is down"]
    sim.run(3_000)
    assert unsettled(sim) == []


@pytest.mark.parametrize("notices", [True, False])
def test_a_broker_that_misses_a_configuration_over_zookeeper_has_not_settled(
    notices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not notices:
        monkeypatch.setattr(ConfigFollower, "_read_changes", lambda self, session: iter(()))

    def story(story: Story) -> Dialogue[None]:
        yield from write_and_read(story)
        yield 1_000
        assert (
            yield from story.admin.configure("lines", {"retention.ms": "9000000"})
        ) is Error.NONE

    changed = replace(SMALL, story=story, zookeeper=True, combined=False, settle_seconds=8)
    report = play_scenario(1, changed)
    found = [each.text for finding in report.judgement.violations for each in finding.witnesses]
    texts = " ".join(found)
    assert ("node 1 has {} for lines, set to {'retention.ms': '9000000'}" in texts) is not notices
    assert report.is_kept is notices


QUICK_DELETIONS = {"log.segment.delete.delay.ms": "100"}
TRIMMED = 300
"""A seed whose topics both get DeleteRecords."""


@pytest.mark.forms(1)
@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
@pytest.mark.parametrize("seed", [6, 7, 10, 12])
def test_clients_change_nothing_once_the_logs_are_read(seed: int, zookeeper: bool) -> None:
    """Each sleeps across the end at another point of its dialogue."""
    busy = Workload(change_ms=1_000, storage=replace(draw_storage(TRIMMED), change_ms=300))
    scenario = Scenario(
        name="busy",
        story=busy.story,
        combined=True,
        zookeeper=zookeeper,
        config=QUICK_DELETIONS,
        seconds=8,
    )
    run = Run(seed, scenario)
    run.rough()
    run.calm()
    requested: set[int] = set()

    def requests(what: str, source: int, target: int, frame: bytes) -> None:
        if what == "request" and source < 0:
            requested.add(int.from_bytes(frame[4:6], "big"))

    run.sim.net.observe(requests)
    run.sim.run(ms=10_000)
    assert requested <= {METADATA}


MOVED = TopicSpec(name="moved", partitions=1, replication_factor=2)
DOOMED = TopicSpec(name="doomed", partitions=1, replication_factor=1)


def moves_at_the_end(story: Story) -> Dialogue[None]:
    """Deletions delay the reading of the logs; meanwhile another tool begins a reassignment."""
    yield from story.create(MOVED)
    yield from story.create(DOOMED)
    story.produce(MOVED, interval_ms=50)
    while story.history.healed_ms is None:
        yield 100
    yield story.admin.client.refresh()
    yield from story.admin.delete(DOOMED.name)
    while not story.is_over:
        yield 100
    topic = story.sim.image.topics.by_name(MOVED.name)
    assert topic is not None
    state = topic.partitions[0]
    (joins,) = {*story.broker_ids} - {*state.replicas}
    story.sim.net.cut.add((joins, state.leader))
    tool = Admin(story.client("tool"))
    tool.client.nodes = (state.leader,)
    yield from tool.reassign(MOVED.name, 0, (state.leader, joins))
    yield 5_000
    story.sim.net.cut.clear()


@pytest.mark.parametrize("zookeeper", [False, True], ids=["kraft", "zookeeper"])
def test_logs_are_read_only_while_all_replicas_are_in_sync(zookeeper: bool) -> None:
    """A replica that is being added has nothing yet; no record is lost by that.

    As in seed 913215, where the reassignment began 19 ms before the logs were read.
    """
    scenario = replace(
        SMALL,
        name="moves at the end",
        story=moves_at_the_end,
        brokers=3,
        combined=False,
        zookeeper=zookeeper,
        config={"log.segment.delete.delay.ms": "3000"},
    )
    report = play_scenario(1, scenario)
    assert report.judgement.verdict is Verdict.TRUE, report.lines(full=True)
    assert report.marks["reassignment-done"] == 1
    assert report.marks["deletion-finished"] == 1


def test_a_seed_draws_the_same_scenario_and_one_in_twenty_has_no_faults() -> None:
    drawn = [draw_scenario(seed) for seed in range(1, 201)]
    assert sum(each.faults == Faults.NONE for each in drawn) == 10
    shapes = {(each.brokers, each.controllers, each.combined) for each in drawn}
    assert len(shapes) == 4
    again = [draw_scenario(seed) for seed in range(1, 201)]
    assert [replace(each, story=write_and_read) for each in drawn] == [
        replace(each, story=write_and_read) for each in again
    ]
