"""A controller that does not know that another one rules writes nothing, and nobody obeys it.

Method: three brokers over an ensemble, under load. The controller is frozen, or deaf to what
ZooKeeper says, while another one is elected; then it gets work to do and goes on. Topics' znodes
are read before it does and at the end: what changed was written under the new epoch. ZooKeeper's
own logs tell the same of every single write, and show what was refused.
"""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.base.errors import Error
from ottla.testing import cluster_facts
from ottla.wire.frames import decode_response
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

from .. import raw
from ..clients import eventually
from ..conftest import new_replicated_topic, revived
from ..fault_load import Load
from .ensemble import BROKERS, Census, Ensemble
from .transactions import Reign

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.drawn(1)]

PARTITIONS = 3
CREATE_VERSION = 7


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Brokers whose sessions are Kafka's 18 s: nothing expires but what a test lets expire."""
    quick = {"offsets.topic.num.partitions": "4"}
    with Ensemble(tmp_path_factory.mktemp("zombies"), quick) as made:
        yield made


@contextmanager
def under_load(ensemble: Ensemble) -> Iterator[Load]:
    """Write and read all the time; afterwards all is well, and nobody wrote but who ruled."""
    ensemble.heal()
    cluster = revived(ensemble.cluster)
    topic = new_replicated_topic(cluster, "zombies", PARTITIONS)
    with Load(cluster, topic, PARTITIONS) as load:
        yield load
        load.wait_progress()
    load.check()
    ensemble.check_topics_can_be_created(f"{topic}-after")
    ensemble.check_leaders_can_be_elected(topic)
    ensemble.check_only_rulers_wrote()


class Asked:
    """A request to create a topic, sent to one broker whether that is awake or not."""

    def __init__(
        self, ensemble: Ensemble, node: int, topic: str, replicas: tuple[int, ...]
    ) -> None:
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        wanted = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=(assignment,),
            configs=(),
        )
        request = CreateTopicsRequest(topics=(wanted,), timeout_ms=20_000)
        self._socket: socket.socket = raw.connect(ensemble.cluster, node)
        self._frame = raw.encoded(request, CREATE_VERSION)
        self._socket.sendall(self._frame)

    def error(self) -> Error:
        """Wait for the answer."""
        with self._socket:
            frame = raw.answered(self._socket, b"")
        assert frame is not None, "the broker closed the connection"
        _, answer = decode_response(CreateTopicsResponse, memoryview(frame), CREATE_VERSION)
        return Error(answer.topics[0].error_code)


def check_written_by(epoch: int, before: Census, after: Census) -> int:
    """Check that what changed was written under an epoch, which is the last; return how much."""
    assert int(after["/controller_epoch"][0]) == epoch
    changed = [
        path
        for path, (_, stat) in after.items()
        if path not in before or stat.mzxid != before[path][1].mzxid
    ]
    states = [path for path in changed if path.endswith("/state")]
    for path in states:
        assert json.loads(after[path][0])["controller_epoch"] == epoch, f"{path}: {after[path]}"
    assert before.keys() <= after.keys()
    return len(states)


def reign_of(ensemble: Ensemble, epoch: int) -> Reign:
    """Return an election, once most servers have written it down."""
    return eventually(
        lambda: [each for each in ensemble.reigns() if each.epoch == epoch], what="the election"
    )[0]


def others(controller: int) -> list[int]:
    """Return the brokers that are not the controller."""
    return [each for each in BROKERS if each != controller]


def test_a_controller_that_slept_through_its_session_writes_nothing(ensemble: Ensemble) -> None:
    """It is asked to create topics while it sleeps, and believes itself elected when it wakes."""
    with under_load(ensemble) as load:
        zombie, epoch = ensemble.controller(), ensemble.epoch()
        ensemble.cluster.pause(zombie)
        # Not on its own broker, which is nobody's until it is registered again.
        replicas = tuple(others(zombie))
        asked = [Asked(ensemble, zombie, f"asleep-{n}", replicas) for n in range(5)]
        session = ensemble.expire(zombie)
        ensemble.wait_elected(after=epoch, besides=zombie)
        before = ensemble.census()
        ensemble.cluster.resume(zombie)
        errors = [each.error() for each in asked]
        # Who has heard of its end by then passes requests on to who rules.
        assert set(errors) <= {Error.NONE, Error.NOT_CONTROLLER}
        ensemble.wait(lambda: ensemble.session(zombie))
        load.wait_progress()
        ensemble.check_topics_can_be_created("asleep-after")
        assert check_written_by(epoch + 1, before, ensemble.census())
        reign = reign_of(ensemble, epoch + 1)
        late = [
            each
            for each in ensemble.transactions()
            if each.session == session and each.zxid > reign.zxid
        ]
        assert late == []


def test_a_deposed_controller_whose_session_lives_is_refused_by_zookeeper(
    ensemble: Ensemble,
) -> None:
    """It hears nothing from ZooKeeper, and ZooKeeper all from it (KAFKA-1096, KAFKA-6082)."""
    with under_load(ensemble) as load:
        zombie, epoch = ensemble.controller(), ensemble.epoch()
        session = ensemble.session(zombie)
        ensemble.deafen(zombie)
        ensemble.depose()
        ensemble.wait_elected(after=epoch, besides=zombie)
        before = ensemble.census()
        asked = Asked(ensemble, zombie, "deaf", BROKERS)
        reign = reign_of(ensemble, epoch + 1)
        ensemble.wait(lambda: is_refused(ensemble, session, reign))
        ensemble.heal()
        assert asked.error() is Error.NOT_CONTROLLER
        assert ensemble.client.exists("/brokers/topics/deaf") is None
        load.wait_progress()
        ensemble.check_topics_can_be_created("deaf-after")
        assert check_written_by(epoch + 1, before, ensemble.census())
        assert f"controller epoch {epoch} is fenced" in ensemble.cluster.logs(zombie)


def is_refused(ensemble: Ensemble, session: int, reign: Reign) -> bool:
    """Tell whether a session tried to write under somebody else's reign, and could not."""
    tried = [
        each
        for each in ensemble.transactions()
        if each.session == session and each.zxid > reign.zxid
    ]
    assert not any(each.writes for each in tried)
    return any(each.is_refused for each in tried)


def test_a_deposed_controller_is_not_obeyed_by_brokers(ensemble: Ensemble) -> None:
    """It has still something to tell a broker that was frozen: what it decided while it ruled."""
    with under_load(ensemble) as load:
        zombie, epoch = ensemble.controller(), ensemble.epoch()
        frozen, third = others(zombie)
        ensemble.cluster.pause(frozen)
        for number in range(3):
            asked = Asked(ensemble, zombie, f"told-{number}", (zombie, third))
            assert asked.error() is Error.NONE
        ensemble.cluster.pause(zombie)
        ensemble.deafen(zombie)
        ensemble.depose()
        assert ensemble.wait_elected(after=epoch, besides=zombie) == third
        before = ensemble.census()
        ensemble.cluster.resume(frozen)
        plan = next(plan for plan in ensemble.cluster.brokers if plan.id == frozen)

        def heard_of() -> int:
            notified = cluster_facts.ask_cluster(plan)
            return -1 if notified is None else notified.controller_id

        eventually(heard_of, lambda found: found == third, what="the new controller to be heard")
        ensemble.cluster.resume(zombie)
        # Whichever answers first: what it asked the third one last may be unanswered, too.
        said = re.compile("broker [0-9]+ has a newer controller epoch")
        eventually(lambda: said.search(ensemble.cluster.logs(zombie)), what="a broker's refusal")
        assert heard_of() == third
        ensemble.heal()
        load.wait_progress()
        ensemble.check_topics_can_be_created("told-after")
        assert check_written_by(epoch + 1, before, ensemble.census())
