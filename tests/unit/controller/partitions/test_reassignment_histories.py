"""Random histories of one partition that moves: what must hold whatever happened.

Method: targets, cancellations, the leader's AlterPartition, deaths and returns, in any
order, with and without eligible leader replicas; after each step the partition is checked.
"""

from collections.abc import Iterable
from random import Random

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_LEADER
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.metadata.features import ELR_VERSION
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import FeatureLevelRecord
from ottla.metadata.topics import topic_records

from ..builders import advance, after
from ..moves import CONTEXT, SIX, Ids, alive, configured, dead, moved_topic, of, reassign, synced


def check(partition: PartitionImage, original: set[int]) -> None:
    """Check what must hold of a partition whatever happened."""
    replicas = set(partition.replicas)
    assert len(replicas) == len(partition.replicas) == len(partition.directories) > 0
    assert set(partition.isr) <= replicas
    assert set(partition.elr) <= replicas
    assert set(partition.adding_replicas) | set(partition.removing_replicas) <= replicas
    assert partition.leader in (NO_LEADER, *partition.isr)
    if partition.is_reassigning:
        target = replicas - set(partition.removing_replicas)
        assert target
        assert not target <= set(partition.isr), "it should have ended"
        assert replicas - set(partition.adding_replicas) == original


def any_replicas(dice: Random) -> Ids:
    return tuple(dice.sample(range(1, 7), dice.randint(1, 4)))


def any_isr(dice: Random, image: ClusterImage) -> Iterable[int]:
    partition = of(image)
    live = [each for each in partition.replicas if image.is_active(each)]
    kept = {each for each in live if dice.random() < 0.7} | {partition.leader}
    return [each for each in partition.replicas if each in kept]


@pytest.mark.parametrize("seed", range(60))
def test_histories(seed: int) -> None:
    dice = Random(seed)
    level = dice.randint(0, 1)
    image = advance(SIX, [FeatureLevelRecord(name=ELR_VERSION, feature_level=level)])
    original = set(any_replicas(dice))
    image = advance(image, topic_records(moved_topic(tuple(original))))
    image = configured(image, "min.insync.replicas", str(dice.randint(1, 3)))
    for _ in range(120):
        before = of(image)
        act = dice.randrange(5)
        if act == 0:
            image = reassign(image, any_replicas(dice))
        elif act == 1 and before.is_reassigning:
            decided = alter_reassignments(
                image, [Target("t", 0, None)], may_change_factor=True, context=CONTEXT
            )
            safe = bool(set(before.isr) - set(before.adding_replicas))
            [answer] = decided.reply
            assert (answer.error is Error.NONE) == safe
            image = after(image, decided)
            assert not safe or set(of(image).replicas) == original
        elif act == 2 and before.leader != NO_LEADER:
            image = synced(image, *any_isr(dice, image))
        elif act == 3:
            image = dead(image, dice.randint(1, 6))
        elif act == 4:
            image = alive(image, dice.randint(1, 6))
        if not of(image).is_reassigning:
            original = set(of(image).replicas)
        check(of(image), original)
        assert of(image).leader_epoch >= before.leader_epoch
        if not set(before.replicas) <= set(of(image).replicas):
            assert of(image).leader_epoch > before.leader_epoch
