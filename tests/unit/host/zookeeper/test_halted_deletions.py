"""A deletion waits for a preferred election of its topic that was requested before.

Method: a real controller on a simulated ZooKeeper, which has so much to write that it reads the
election while the deletion is being written. It writes one decision after another, so the ledger is
checked write by write: in real processes such a halt is visible for one write at most.
"""

from functools import partial
from typing import Any

from ottla.base.errors import Error
from ottla.base.pending import Pending
from ottla.base.zookeeper import Create, SetData
from ottla.controller.deletion.delete_topics import TopicReference, delete_topics
from ottla.controller.step import Decision, Step
from ottla.metadata.configs import ResourceType
from ottla.metadata.deletions import DeletionImage, HaltReason
from ottla.metadata.deletions_json import decode_deletion
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import encode_preferred_election, encode_reassignment
from ottla.metadata.znodes.partition_state import decode_state
from ottla.testing.sim.zookeeper.zookeeper import Written

from .controller_harness import ControllerHarness

WRITES_BEFORE = 20


class Watched(ControllerHarness):
    """Topics that are not led by their preferred replicas. `history`: what was written, in order:
    who leads which of them, and the ledger's entries."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.history: list[str] = []
        self.start(1, 2, 3)
        for name in ("t", "beside"):
            self.create(name, (1, 2))
            self.put(paths.REASSIGN_PARTITIONS, encode_reassignment({(name, 0): (2, 1)}))
            self.until(lambda name=name: self.partition(name).replicas == (2, 1))  # type: ignore[misc]
            self.until(lambda: self.data(paths.REASSIGN_PARTITIONS) is None)
        self.model.observe(self._written)

    def _written(self, written: Written) -> None:
        for operation in written.operations:
            if not isinstance(operation, Create | SetData):
                continue
            place = paths.parse_path(operation.path)
            if place.kind is paths.Kind.STATE:
                leader = decode_state(place.name, place.id, operation.data).leader
                self.history.append(f"{place.name} is led by {leader}")
            elif place.kind is paths.Kind.DELETION:
                entry = decode_deletion(operation.data)
                self.history.append(f"{entry.name} is {words_of(entry)}")

    def keep_busy(self) -> None:
        """Give the controller something to write."""
        for number in range(WRITES_BEFORE):
            record = ConfigRecord(
                resource_type=ResourceType.TOPIC,
                resource_name="beside",
                name="retention.ms",
                value=str(1_000 + number),
            )
            self.controller.controller.run(partial(_write, Step((record,), atomic=False)))

    def ask(self, name: str) -> Pending[Any]:
        """Ask for a deletion, as DeleteTopics does; return the promise of an answer."""
        controller = self.controller.controller
        topic_id = controller.image.topics.id_of(name)
        assert topic_id is not None
        wanted = [TopicReference(topic_id=topic_id)]
        return controller.run(
            lambda image: delete_topics(
                image, wanted, context=controller.context, wall_ms=5, queue=True
            )
        )


def _write(step: Step, _image: ClusterImage) -> Decision[None]:
    return Decision(step, None)


def words_of(entry: DeletionImage) -> str:
    if entry.is_finished:
        return "finished"
    if entry.halted is not HaltReason.NONE:
        return f"halted: {entry.halted.name}"
    states = sorted({standing.state.name for _, standing, _ in entry.rows()})
    return " and ".join(states) or "noted"


def test_a_preferred_election_halts_a_deletion_until_it_is_over() -> None:
    """The ledger names the reason. The topic goes once all that was asked for with its election is
    a fact, and without anybody asking again; it gets no new leader any more."""
    sim = Watched()
    sim.keep_busy()
    answer = sim.ask("t")
    sim.put(paths.PREFERRED_ELECTION, encode_preferred_election([("t", 0), ("beside", 0)]))
    assert sim.wait(answer)[0].error is Error.NONE
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    sim.settle()
    assert sim.history == [
        "t is noted",
        "beside is led by 2",
        "t is halted: PREFERRED_ELECTION",
        "t is STARTED",
        "t is STARTED and SUCCESSFUL",
        "t is finished",
    ]
    assert sim.data(paths.PREFERRED_ELECTION) is None
    assert sim.data(paths.marker("t")) is None


def test_a_preferred_election_of_another_topic_halts_nothing() -> None:
    sim = Watched()
    sim.keep_busy()
    sim.ask("t")
    sim.put(paths.PREFERRED_ELECTION, encode_preferred_election([("beside", 0)]))
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    sim.settle()
    assert sim.history == [
        "t is noted",
        "beside is led by 2",
        "t is STARTED",
        "t is STARTED and SUCCESSFUL",
        "t is finished",
    ]


def test_both_are_requested_in_one_write() -> None:
    """Whichever the controller sees first: no replica is ordered away before the election is
    over."""
    orders = set()
    for seed in range(8):
        sim = Watched(seed)
        election = encode_preferred_election([("t", 0)])
        sim.write(Create(paths.PREFERRED_ELECTION, election), Create(paths.marker("t"), b""))
        sim.until(lambda sim=sim: sim.data(paths.topic("t")) is None)  # type: ignore[misc]
        sim.settle()
        *before, started, _, finished = sim.history
        assert (started, finished) == ("t is STARTED", "t is finished")
        orders.add(tuple(before))
    assert orders == {
        ("t is led by 2", "t is noted"),
        ("t is noted", "t is halted: PREFERRED_ELECTION"),
    }
