"""A broker that starts handles controllers' requests once it knows its own registration.

Method: a simulated cluster over ZooKeeper. One broker restarts with empty log directories, so that
it does not know its previous session, whose end it must await; a client sends it controllers'
requests, meanwhile and afterwards.
"""

from collections.abc import Callable

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.host.zookeeper.broker_mode import ZooKeeperBroker
from ottla.testing.sim import Sim
from ottla.testing.sim.watch.deletion_steps import controller_of
from ottla.wire.messages import api_versions
from ottla.wire.messages import disable_remote_topic as disable
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import stop_replica as stop
from ottla.wire.messages import update_metadata as meta

SESSION_MS = 4_000
ANSWERS = (
    lai.LeaderAndIsrResponse
    | stop.StopReplicaResponse
    | meta.UpdateMetadataResponse
    | disable.DisableRemoteTopicResponse
)
NEWEST = 1_000_000
"""A broker's epoch that is newer than any."""


class Cluster:
    """Two brokers, of which `node`, not the controller, waits for its previous session's end."""

    def __init__(self) -> None:
        config = {"zookeeper.session.timeout.ms": str(SESSION_MS)}
        self.sim = sim = Sim(1, brokers=2, zookeeper=True, config=config)
        nodes = sim.nodes.values()
        self.until(lambda: all(node.serves for node in nodes) and len(sim.image.brokers) == 2)
        self.ruler = controller_of(sim).id
        [self.node] = [node for node in nodes if node.id != self.ruler]
        self.previous_epoch = sim.image.brokers[self.node.id].epoch
        self.node.crash(lose_unflushed=False)
        for path in self.node.config.log_dirs:
            self.node.disk.rmtree(path)
            self.node.disk.mkdir(path)
        self.node.restart()
        self.until(lambda: self.node.broker is not None)
        assert self.parts.epoch == -1

    @property
    def parts(self) -> ZooKeeperBroker:
        core = self.node.core
        assert core is not None
        assert core.broker is not None
        assert isinstance(core.broker.mode, ZooKeeperBroker)
        return core.broker.mode

    def until(self, holds: Callable[[], bool]) -> None:
        self.sim.run_until(holds, limit_ms=30_000)

    def until_registered(self) -> None:
        self.until(lambda: self.parts.epoch != -1)
        assert self.parts.epoch > self.previous_epoch

    def say(
        self, request: object, version: int, *, who: str = "somebody", timeout_ms: int = 20_000
    ) -> Pending[object]:
        response = self.sim.client_port(who).send(self.node.id, request, version, timeout_ms)
        self.sim.run(100)
        return response

    def lead(self, broker_epoch: int, topic: str = "t") -> lai.LeaderAndIsrRequest:
        """Return a LeaderAndIsr by which the broker leads a partition of `topic`."""
        state = lai.LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=1,
            leader=self.node.id,
            leader_epoch=0,
            isr=(self.node.id,),
            partition_epoch=0,
            replicas=(self.node.id,),
            is_new=True,
        )
        named = lai.LeaderAndIsrTopicState(
            topic_name=topic, topic_id=Uuid(topic.encode() * 16), partition_states=(state,)
        )
        return lai.LeaderAndIsrRequest(
            controller_id=self.ruler,
            controller_epoch=1,
            broker_epoch=broker_epoch,
            topic_states=(named,),
            live_leaders=(),
        )

    def leads(self, topic: str = "t") -> bool:
        broker = self.node.broker
        assert broker is not None
        known = broker.image.topics.by_name(topic)
        return known is not None and known.partitions[0].leader == self.node.id


def error_of(response: Pending[object]) -> int:
    assert isinstance(response.value, ANSWERS)
    return response.value.error_code


@pytest.mark.parametrize("key", [4, 5, 6, 1001])
def test_a_request_to_the_previous_registration_waits_and_is_stale(key: int) -> None:
    cluster = Cluster()
    sender = {
        "controller_id": cluster.ruler,
        "controller_epoch": 1,
        "broker_epoch": cluster.previous_epoch,
    }
    requests = {
        4: (cluster.lead(cluster.previous_epoch), 7),
        5: (stop.StopReplicaRequest(**sender, topic_states=()), 4),
        6: (meta.UpdateMetadataRequest(**sender, topic_states=(), live_brokers=()), 8),
        1001: (disable.DisableRemoteTopicRequest(**sender, topics=()), 0),
    }
    response = cluster.say(*requests[key])
    assert not response.done
    assert cluster.parts.image.broker_ids() == [cluster.ruler], "as it was read at the start"
    cluster.until_registered()
    cluster.until(lambda: response.done)
    assert error_of(response) == Error.STALE_BROKER_EPOCH
    assert not cluster.leads()
    assert cluster.sim.problems == []


def test_a_request_to_the_new_registration_waits_and_is_handled() -> None:
    """The controller may see the new registration first, and says nothing twice."""
    cluster = Cluster()
    response = cluster.say(cluster.lead(NEWEST), 7)
    assert not response.done
    assert not cluster.leads()
    cluster.until_registered()
    cluster.until(lambda: response.done)
    assert error_of(response) == Error.NONE
    assert cluster.leads()


def test_delayed_requests_are_handled_in_order() -> None:
    cluster = Cluster()
    response = [
        cluster.say(cluster.lead(cluster.previous_epoch, "a"), 7),
        cluster.say(cluster.lead(NEWEST, "b"), 7),
        cluster.say(cluster.lead(cluster.previous_epoch, "c"), 7, who="another"),
    ]
    assert not any(each.done for each in response)
    cluster.until(lambda: all(each.done for each in response))
    stale = Error.STALE_BROKER_EPOCH
    assert [error_of(each) for each in response] == [stale, Error.NONE, stale]
    assert [cluster.leads(each) for each in "abc"] == [False, True, False]


def test_requests_of_a_closed_connection_are_dropped() -> None:
    """Who gave up says it again on another one."""
    cluster = Cluster()
    response = cluster.say(cluster.lead(NEWEST), 7, timeout_ms=50)
    assert isinstance(response.value, ApiError)
    cluster.until_registered()
    cluster.until(lambda: cluster.node.serves)
    assert not cluster.leads()


def test_a_node_that_stops_before_it_is_registered_handles_no_request() -> None:
    cluster = Cluster()
    response = cluster.say(cluster.lead(NEWEST), 7)
    parts = cluster.parts
    cluster.node.stop()
    cluster.until(lambda: not cluster.node.alive)
    cluster.sim.run(2 * SESSION_MS)
    assert isinstance(response.value, ApiError)
    assert parts.epoch == -1
    assert "t" not in parts.image.topics
    assert cluster.sim.problems == []


def test_a_request_that_waits_for_zookeeper_is_dropped_by_a_stop() -> None:
    """Its logs are closed, and the locks of its log directories released."""
    cluster = Cluster()
    cluster.until(lambda: cluster.node.serves)
    parts, node = cluster.parts, cluster.node
    assert cluster.sim.zookeeper is not None
    cluster.sim.zookeeper.model.cut(node.id)
    response = cluster.say(cluster.lead(NEWEST), 7)
    assert not response.done, "it waits for the topic's configuration"
    node.stop()
    cluster.until(lambda: not node.alive)
    assert isinstance(response.value, ApiError)
    assert "t" not in parts.image.topics
    assert not any(node.disk.exists(f"{path}/t-0") for path in node.config.log_dirs)
    assert cluster.sim.problems == []


def test_api_versions_is_answered_meanwhile() -> None:
    cluster = Cluster()
    response = cluster.say(api_versions.ApiVersionsRequest(), 3)
    assert response.done
    assert cluster.parts.epoch == -1


def test_a_broker_that_registers_again_still_handles_requests() -> None:
    """It is the same process, with the metadata that it received."""
    cluster = Cluster()
    cluster.until(lambda: cluster.node.serves)
    epoch = cluster.parts.epoch
    sim, node = cluster.sim, cluster.node
    node.pause()
    cluster.until(lambda: node.id not in sim.image.brokers)
    node.resume()
    cluster.until(lambda: cluster.parts.epoch > epoch)
    response = cluster.say(cluster.lead(cluster.parts.epoch), 7)
    assert error_of(response) == Error.NONE
    assert error_of(cluster.say(cluster.lead(epoch), 7)) == Error.STALE_BROKER_EPOCH
    assert sim.problems == []
