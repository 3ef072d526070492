"""What a change of a partition is called: an election from outside the ISR is told from others."""

from dataclasses import replace

import pytest

from ottla.base.ids import NO_LEADER
from ottla.metadata.image import PartitionImage
from ottla.metadata.topics import DIRECTORY_UNASSIGNED, RECOVERING
from ottla.testing.sim.marks import marks_of_change

LED = PartitionImage(
    replicas=(3, 4, 1, 2),
    directories=(DIRECTORY_UNASSIGNED,) * 4,
    isr=(1, 2, 3),
    adding_replicas=(3, 4),
    removing_replicas=(1, 2),
    leader=1,
)
DEAD = replace(LED, isr=(), elr=(2,), last_known_elr=(1,), leader=NO_LEADER)


@pytest.mark.parametrize(
    ("old", "new", "mark"),
    [
        (LED, replace(LED, leader=2), "leader-changed"),
        (LED, replace(LED, leader=NO_LEADER), "leader-lost"),
        (LED, replace(LED, isr=(3, 4), leader=4), "leader-changed"),
        (DEAD, replace(DEAD, isr=(2,), elr=(), leader=2), "elected-from-elr"),
        (
            DEAD,
            replace(DEAD, isr=(1,), leader=1, leader_recovery_state=RECOVERING),
            "elected-last-known",
        ),
        (
            DEAD,
            replace(DEAD, isr=(4,), leader=4, leader_recovery_state=RECOVERING),
            "elected-uncleanly",
        ),
    ],
)
def test_elections(old: PartitionImage, new: PartitionImage, mark: str) -> None:
    assert mark in marks_of_change(old, new)


def test_the_end_of_a_reassignment() -> None:
    done = replace(LED, replicas=(3, 4), isr=(3, 4), adding_replicas=(), removing_replicas=())
    assert "reassignment-step" in marks_of_change(LED, LED)
    assert "reassignment-done" in marks_of_change(LED, done)
