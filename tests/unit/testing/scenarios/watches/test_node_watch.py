"""Images are compared part by part, and what was equal before only where it has changed since. A
leader counts on nothing from before another one led.

Method: images made of records, each replayed twice; observations made by hand.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage, PartitionImage
from ottla.metadata.records import Record, RemoveTopicRecord, TopicRecord
from ottla.testing.history.history import History
from ottla.testing.scenarios.watches.node_watch import NodeWatch, different_parts
from ottla.testing.sim import Sim
from ottla.testing.sim.watch.observations import LeadershipBegan, PartitionSet

TOPIC = Uuid(bytes(15) + b"\x09")
CREATED = TopicRecord(name="t", topic_id=TOPIC)
REMOVED = RemoveTopicRecord(topic_id=TOPIC)


def image(before: ClusterImage, *records: Record, offset: int = 9) -> ClusterImage:
    return replay(before, list(records), offset=offset, epoch=1).image


def test_the_parts_that_differ_are_named() -> None:
    assert different_parts(image(EMPTY, CREATED), image(EMPTY, CREATED)) == ()
    assert different_parts(image(EMPTY, CREATED), image(EMPTY)) == ("topics",)


def test_a_part_that_has_changed_since_is_compared_again() -> None:
    one, other = image(EMPTY, CREATED), image(EMPTY, CREATED)
    before = (one, other)
    assert different_parts(one, other, before) == ()
    # In one of them, in the other, and in both.
    removed = image(one, REMOVED)
    assert different_parts(removed, other, before) == ("topics",)
    assert different_parts(one, image(other, REMOVED), before) == ("topics",)
    assert different_parts(removed, image(other, REMOVED), before) == ()


@pytest.mark.parametrize(
    ("leaders", "former_epoch", "known", "broken"),
    [
        ((1, 2, 1), 0, (), False),
        ((1, 2, 1), 0, (2,), True),
        ((1, 1, 1), 1, (2,), False),
        ((1, 1, 1), 0, (2,), False),
        ((2, 2, 1), -1, (2,), True),
    ],
    ids=["forgets", "remembers", "the next epoch", "led all the time", "never led"],
)
def test_a_leader_counts_on_nothing_from_before_another_one_led(
    leaders: tuple[int, ...], former_epoch: int, known: tuple[int, ...], broken: bool
) -> None:
    sim, history = Sim(1, brokers=2, controllers=1), History()
    NodeWatch(sim, history)
    for epoch, leader in enumerate(leaders):
        state = PartitionImage(
            replicas=(1, 2),
            directories=(TOPIC,) * 2,
            isr=(1, 2),
            leader=leader,
            leader_epoch=epoch,
        )
        sim.notify(PartitionSet(7, 70 + epoch, "t", TOPIC, 0, None, state))
    sim.notify(LeadershipBegan(7, 1, 1, TOPIC, 0, former_epoch, len(leaders) - 1, known))
    assert bool(history.rules_broken) is broken
