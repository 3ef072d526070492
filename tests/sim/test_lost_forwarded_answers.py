"""A broker's connection to the controller breaks while it waits there for a client.

Method: a simulated cluster over KRaft without other faults. A client asks through one broker; as
soon as the metadata show that its request is done the way to the controller is cut, so that the
answer is lost. Before it is mended another client changes what has the name, through another
broker. What the first request then does to that is in the metadata.
"""

from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.testing.sim import Sim
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.wire.messages import create_partitions as growth_wire
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire

ENVELOPE = (58).to_bytes(2, "big")
TIMEOUT_MS = 30_000


class Story:
    """A cluster, the broker that is cut off, and two clients."""

    def __init__(self) -> None:
        self.sim = sim = Sim(1)
        nodes = sim.nodes.values()
        sim.run_until(
            lambda: len(sim.image.brokers) == 3 and all(node.serves for node in nodes),
            limit_ms=30_000,
        )
        self.controller = controller_of(sim).id
        brokers = [each for each in sorted(sim.image.brokers) if each != self.controller]
        self.cut_off, self.other = brokers[:2]
        self._clients = sim.client_port("one"), sim.client_port("another")

    @property
    def topic_id(self) -> Uuid | None:
        return self.sim.image.topics.id_of("t")

    def ask(self, request: Any, version: int) -> Any:
        """Ask through the broker that is not cut off; return the answer."""
        answer = self._clients[1].send(self.other, request, version, TIMEOUT_MS)
        self.sim.run_until(lambda: answer.done, limit_ms=TIMEOUT_MS)
        return answer.value

    def lose(self, request: Any, version: int) -> Any:
        """Ask through the other one; lose the answer as soon as the request is there."""
        net = self.sim.net

        def arrived(_what: str, source: int, target: int, frame: bytes) -> None:
            if (source, target) == (self.cut_off, self.controller) and frame[4:6] == ENVELOPE:
                net.cut.add((self.controller, self.cut_off))
                net.arrived = None

        net.arrived = arrived
        return self._clients[0].send(self.cut_off, request, version, 2 * TIMEOUT_MS)

    def cut(self) -> None:
        """Break the way to the controller, as a switch does that restarts."""
        net, ways = self.sim.net, self._ways
        net.cut |= ways
        for pipe in list(net.pipes.values()):
            link = pipe.link
            if link is not None and (link.place, pipe.listener.place) in ways:
                pipe.break_off()

    def mend(self, answer: Any) -> Any:
        """Let the network be well; return the lost request's answer."""
        self.sim.net.cut -= self._ways
        self.sim.run_until(lambda: answer.done, limit_ms=2 * TIMEOUT_MS)
        self.sim.run(1_000)
        return answer.value

    def hang_up(self) -> None:
        """Let the client of the lost request go away."""
        self._clients[0].close()

    @property
    def _ways(self) -> set[tuple[int, int]]:
        return {(self.cut_off, self.controller), (self.controller, self.cut_off)}


def creation(partitions: int = 1, timeout_ms: int = TIMEOUT_MS) -> create_wire.CreateTopicsRequest:
    topic = create_wire.CreatableTopic(
        name="t", num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    return create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=timeout_ms)


def deletion(timeout_ms: int = TIMEOUT_MS) -> delete_wire.DeleteTopicsRequest:
    return delete_wire.DeleteTopicsRequest(topic_names=("t",), timeout_ms=timeout_ms)


def error_of(response: Any) -> Error:
    """Return what was said of the one thing that was asked for."""
    (result,) = next(
        getattr(response, name)
        for name in ("responses", "topics", "results")
        if hasattr(response, name)
    )
    return Error(result.error_code)


def test_one_deletion_by_name_deletes_one_topic() -> None:
    """Who made the topic again would lose records that were acknowledged."""
    story = Story()
    assert error_of(story.ask(creation(), 5)) is Error.NONE
    story.sim.run(500)
    first = story.topic_id
    answer = story.lose(deletion(), 5)
    story.sim.run_until(lambda: story.topic_id is None, limit_ms=5_000)
    story.cut()
    assert error_of(story.ask(creation(), 5)) is Error.NONE
    second = story.topic_id
    assert second not in (None, first)
    assert not answer.done, "nothing was left to be sent again"
    assert error_of(story.mend(answer)) is Error.REQUEST_TIMED_OUT
    assert story.topic_id == second
    assert [each.topic_id for each in story.sim.image.deletions] == [first]


def test_a_deletion_whose_response_was_lost_is_answered_as_done() -> None:
    story = Story()
    story.ask(creation(), 5)
    story.sim.run(500)
    answer = story.lose(deletion(), 5)
    story.sim.run_until(lambda: story.topic_id is None, limit_ms=5_000)
    story.cut()
    story.sim.run(300)
    assert not answer.done, "nothing was left to be sent again"
    assert error_of(story.mend(answer)) is Error.NONE


def test_a_creation_does_not_bring_back_what_was_deleted() -> None:
    """A deletion was acknowledged, and no creation was requested after that."""
    story = Story()
    answer = story.lose(creation(), 5)
    story.sim.run_until(lambda: story.topic_id is not None, limit_ms=5_000)
    story.cut()
    story.sim.run(300)
    assert error_of(story.ask(deletion(), 5)) is Error.NONE
    assert story.topic_id is None
    assert error_of(story.mend(answer)) is Error.REQUEST_TIMED_OUT
    assert story.topic_id is None


def test_a_growth_does_not_change_the_next_topic_of_its_name() -> None:
    story = Story()
    story.ask(creation(), 5)
    story.sim.run(500)
    growth = growth_wire.CreatePartitionsRequest(
        topics=(growth_wire.CreatePartitionsTopic(name="t", count=4, assignments=None),),
        timeout_ms=TIMEOUT_MS,
        validate_only=False,
    )
    answer = story.lose(growth, 1)
    sim = story.sim

    def partitions() -> int:
        topic = sim.image.topics.by_name("t")
        return 0 if topic is None else len(topic.partitions)

    sim.run_until(lambda: partitions() == 4, limit_ms=5_000)
    story.cut()
    assert error_of(story.ask(deletion(), 5)) is Error.NONE
    assert error_of(story.ask(creation(2), 5)) is Error.NONE
    assert error_of(story.mend(answer)) is Error.REQUEST_TIMED_OUT
    assert partitions() == 2


def test_nothing_is_deleted_after_the_requests_own_time() -> None:
    """Its client got REQUEST_TIMED_OUT, and may have decided to keep the topic."""
    story = Story()
    story.ask(creation(), 5)
    story.sim.run(500)
    story.cut()
    client, broker = story._clients[0], story.cut_off
    answer = client.send(broker, deletion(timeout_ms=1_000), 5, 5_000)
    story.sim.run_until(lambda: answer.done, limit_ms=2_000)
    assert error_of(answer.value) is Error.REQUEST_TIMED_OUT
    story.mend(answer)
    story.sim.run(TIMEOUT_MS)
    assert story.topic_id is not None


def test_nothing_is_deleted_for_a_client_that_has_gone() -> None:
    story = Story()
    story.ask(creation(), 5)
    story.sim.run(500)
    story.cut()
    story.lose(deletion(), 5)
    story.sim.run(300)
    story.hang_up()
    story.sim.run(300)
    story.sim.net.cut.clear()
    story.sim.run(2 * TIMEOUT_MS)
    assert story.topic_id is not None
