"""A controller is lost while it deletes many topics, and its answer with it.

Method: a simulated cluster over KRaft without other faults; one client deletes more topics than go
in one part. What is promised is in docs/deletion.md: all topics are deleted, and answered so, also
those that the next controller does not know any more; the ledger has them all.
"""

import pytest

from ottla.base.errors import Error
from ottla.controller.deletion import delete_topics as deletion
from ottla.testing.sim import Sim
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire

NAMES = tuple(f"t{number}" for number in range(20))
ASKED = 1
"""The broker that the client talks to: it is no controller."""


@pytest.mark.parametrize("loss", ["crash", "pause"])
def test_what_the_lost_controller_deleted_is_answered_as_deleted(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "DELETIONS_PER_STEP_MAX", 2)
    sim = Sim(1)
    port = sim.client_port("somebody")
    nodes = sim.nodes.values()
    sim.run_until(
        lambda: len(sim.image.brokers) == 3 and all(node.serves for node in nodes), limit_ms=30_000
    )
    topics = tuple(
        create_wire.CreatableTopic(
            name=name, num_partitions=1, replication_factor=3, assignments=(), configs=()
        )
        for name in NAMES
    )
    create = create_wire.CreateTopicsRequest(topics=topics, timeout_ms=3_000)
    created = port.send(ASKED, create, 5, 8_000)
    sim.run_until(lambda: created.done, limit_ms=20_000)

    delete = delete_wire.DeleteTopicsRequest(topic_names=NAMES, timeout_ms=30_000)
    answer = port.send(ASKED, delete, 5, 60_000)
    sim.run_until(lambda: len(sim.image.topics) < len(NAMES), limit_ms=5_000)
    left = set(sim.image.topics.names())
    assert 0 < len(left) < len(NAMES), "no part of it is left to another controller"
    getattr(controller_of(sim), loss)()
    sim.run_until(lambda: answer.done, limit_ms=60_000)

    error_codes = {each.name: Error(each.error_code) for each in answer.value.responses}
    assert error_codes == dict.fromkeys(NAMES, Error.NONE)
    assert len(sim.image.topics) == 0
    assert {each.name for each in sim.image.deletions} == set(NAMES)
