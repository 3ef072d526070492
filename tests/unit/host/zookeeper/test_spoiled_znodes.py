"""One znode that holds what nobody could have written must not end the control of a cluster.

Method: controllers over a simulated ZooKeeper; the znode is there before, or comes while one rules.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.metadata.deletions import DeletionImage, Policy
from ottla.metadata.deletions_json import encode_deletion
from ottla.metadata.znodes import paths

from .controller_world import ControllerWorld

ID = Uuid(b"spoiledspoiled12")
NESTED = b"[" * 100_000
ENTRY = DeletionImage(topic_id=ID, name="t", policy=Policy.CLASSIC, asked_ms=1_700)
ENDLESS = encode_deletion(ENTRY).replace(b"1700", b"1e400")

SPOILED = [
    (paths.topic("junk"), NESTED),
    (paths.broker(9), NESTED),
    (paths.config((2, "junk")), NESTED),
    (paths.deletion(ID), NESTED),
    (paths.deletion(ID), ENDLESS),
    (paths.FEATURE, NESTED),
]


@pytest.mark.parametrize(("path", "data"), SPOILED)
def test_a_controller_begins_beside_it(path: str, data: bytes) -> None:
    sim = ControllerWorld()
    sim.put(path, data)
    sim.start(1, 2)
    assert sorted(sim.image.brokers) == [1, 2]


@pytest.mark.parametrize(("path", "data"), SPOILED)
def test_a_controller_that_rules_goes_on_beside_it_and_so_does_the_next(
    path: str, data: bytes
) -> None:
    sim = ControllerWorld()
    sim.start(1, 2, 3)
    sim.create("t", (2, 3))
    sim.put(path, data)
    sim.nodes[2].kill()
    sim.until(lambda: sim.partition("t").leader == 3)
    sim.nodes[1].kill()
    sim.until(lambda: [node.id for node in sim.ruling()] == [3])
    sim.until(lambda: sorted(sim.image.brokers) == [3])
