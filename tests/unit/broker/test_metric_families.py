"""The families of a broker's groups, made from those that its coordinator serves.

Method: the real coordinator over real logs. The other families are in test_metrics, beside the
counters that they show.
"""

from ottla.base.metrics import render
from ottla.broker.metric_families import broker_families
from ottla.coordinator.group_states import NAMES
from tests.exposition import Scrape

from .group_world import GroupWorld, commit_request

GROUPS = "kafka_coordinator_group_group_metadata_manager_num_groups"
OFFSETS = "kafka_coordinator_group_group_metadata_manager_num_offsets"


def by_state(found: Scrape) -> dict[str, float]:
    states = [dict(labels)["state"] for labels in found.labels(GROUPS)]
    return {state: found.value(GROUPS, state=state) for state in states}


def scrape(world: GroupWorld) -> Scrape:
    return Scrape("".join(render(broker_families(world.broker))))


def test_groups_by_state_and_their_offsets() -> None:
    world = GroupWorld()
    world.add_topic("t")
    world.add_offsets_topic()
    states = dict.fromkeys(NAMES.values(), 0.0)
    assert (by_state(scrape(world)), scrape(world).value(OFFSETS)) == (states, 0)
    world.later(commit_request({("t", 0): 5}, group_id="idle"), 8)
    states["Empty"] = 1
    assert (by_state(scrape(world)), scrape(world).value(OFFSETS)) == (states, 1)
    world.join("busy")
    states["CompletingRebalance"] = 1
    assert by_state(scrape(world)) == states
    world.stable("calm")
    states["Stable"] = 1
    assert by_state(scrape(world)) == states
