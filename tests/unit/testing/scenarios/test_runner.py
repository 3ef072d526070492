"""A scenario is played, healed and checked; its own errors are raised.

Method: the smallest clusters, for a few virtual seconds.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from ottla.testing.checkers.verdict import Verdict
from ottla.testing.scenarios import Dialogue, Scenario, ScenarioFailed, Story, TopicSpec
from ottla.testing.scenarios.runner import PlayOptions, play_all, play_scenario
from ottla.testing.scenarios.settling import unsettled
from ottla.testing.scenarios.standard import draw_scenario
from ottla.testing.sim import Faults, Sim

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


def test_a_seed_draws_the_same_scenario_and_one_in_twenty_has_no_faults() -> None:
    drawn = [draw_scenario(seed) for seed in range(1, 201)]
    assert sum(each.faults == Faults.NONE for each in drawn) == 10
    shapes = {(each.brokers, each.controllers, each.combined) for each in drawn}
    assert len(shapes) == 4
    again = [draw_scenario(seed) for seed in range(1, 201)]
    assert [replace(each, story=write_and_read) for each in drawn] == [
        replace(each, story=write_and_read) for each in again
    ]
