"""The marks of committed partition changes, and of error codes.

Method: partitions before and after, as images; a cluster whose brokers refuse something.
"""

from dataclasses import replace
from typing import Any

import pytest

from ottla.metadata.image import PartitionImage
from ottla.testing.sim import Sim
from ottla.testing.sim.watch.marks import marks_of_change
from ottla.wire.messages import produce as produce_wire

BEFORE = PartitionImage(
    replicas=(1, 2, 3),
    directories=(),
    isr=(1, 2),
    elr=(3,),
    leader=1,
    leader_epoch=4,
    partition_epoch=9,
)


@pytest.mark.parametrize(
    ("change", "marks"),
    [
        ({}, []),
        ({"isr": (1,)}, ["isr-shrunk"]),
        ({"isr": (1, 2, 3), "elr": ()}, ["isr-expanded"]),
        ({"leader": 2}, ["leader-changed"]),
        ({"leader": -1}, ["leader-lost"]),
        ({"leader": 3, "isr": (3,), "elr": ()}, ["isr-shrunk", "elected-from-elr"]),
        ({"leader": 4, "isr": (4, 1)}, ["leader-changed"]),
        ({"leader": 4, "isr": (4, 1), "leader_recovery_state": 1}, ["elected-uncleanly"]),
        ({"adding_replicas": (5,)}, ["reassignment-step"]),
    ],
)
def test_a_change_has_its_name(change: dict[str, Any], marks: list[str]) -> None:
    assert marks_of_change(BEFORE, replace(BEFORE, **change)) == marks


def test_the_end_of_a_move_and_the_last_leader_known() -> None:
    moving = replace(BEFORE, removing_replicas=(2,))
    assert marks_of_change(moving, BEFORE) == ["reassignment-done"]
    dark = replace(BEFORE, leader=-1, isr=(), elr=(), last_known_elr=(2,))
    lit = replace(dark, leader=2, isr=(2,), last_known_elr=(), leader_recovery_state=1)
    assert marks_of_change(dark, lit) == ["isr-expanded", "elected-last-known"]
    assert marks_of_change(replace(BEFORE, elr=()), BEFORE) == ["elr-begun"]


def test_an_error_code_of_a_response_is_marked_once() -> None:
    sim = Sim(1, brokers=1, controllers=1)
    sim.run(ms=2_000)
    before = +sim.marks
    request = produce_wire.ProduceRequest(
        acks=5,
        timeout_ms=100,
        topic_data=(
            produce_wire.TopicProduceData(
                name="t",
                partition_data=(produce_wire.PartitionProduceData(index=0, records=b"x" * 99),),
            ),
        ),
    )
    sim.client_port("c").send(1, request, 9, 500)
    sim.run(ms=100)
    fresh = sim.marks - before
    assert fresh == {"error-invalid-required-acks": 1}
    sim.run(ms=100)
    assert sim.marks - before == fresh
