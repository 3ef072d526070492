"""A ZooKeeper cluster whose brokers are fakes and whose controllers are real, in virtual time.

Every `Node` is a broker with a real controller: a session, a registration, an election, a term. As
a broker it records the requests that it receives, and answers as the test sets.
"""

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

from immutables import Map

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.zookeeper import Create, Delete, Session, ZkCode, ZkError
from ottla.host.node_ports import NodePorts
from ottla.host.zookeeper.controller_node import ZooKeeperController
from ottla.metadata.brokers import Endpoint
from ottla.metadata.features import OTTLA_VERSION, OTTLA_VERSION_LEVEL
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.topics import PartitionImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import MARKER
from ottla.metadata.znodes.broker import BrokerZnode, encode_broker
from ottla.testing.sim.scheduler import SimDice
from ottla.wire.messages import disable_remote_topic as disable
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import stop_replica as stop
from ottla.wire.messages import update_metadata as update

from .harness import Client, ZooKeeperHarness
from .leader_epochs import LeaderEpochs

LATENCY_US = 1_000
PORT = 9_000


class Net:
    """Links between nodes, by port. `cut`: nodes without connections."""

    def __init__(self, sim: "ControllerHarness") -> None:
        self.sim = sim
        self.cut: set[int] = set()

    def connector(self, node: "Node") -> Callable[..., "FakeLink"]:
        return lambda choose, **how: FakeLink(self, node, choose)


class FakeLink:
    """A way to one broker; see `ottla.host.node_ports.Link`."""

    def __init__(self, net: Net, source: "Node", choose: Callable[[], Any]) -> None:
        self.connected = True
        self._net = net
        self._source = source
        self._choose = choose
        self._is_closed = False

    def send(self, request: Any, version: int, *, timeout_ms: int) -> Pending[Any]:
        answer: Pending[Any] = Pending()
        harness, source = self._net.sim.scheduler, self._source
        address = self._choose()
        node = None if address is None else self._net.sim.nodes.get(address[1] - PORT)

        def give(response: Any) -> None:
            if not self._is_closed:
                answer.complete(response)

        def serve() -> None:
            is_cut = bool({source.id, -1 if node is None else node.id} & self._net.cut)
            if node is None or not node.alive or is_cut:
                failed = ApiError(Error.NETWORK_EXCEPTION)
                harness.after(LATENCY_US, lambda: give(failed), source.client.process)
                return

            def answered() -> None:
                if node.alive:
                    response = node.receive(request)
                    harness.after(LATENCY_US, lambda: give(response), source.client.process)

            harness.after(0, answered, node.client.process)

        harness.after(LATENCY_US, serve)
        return answer

    def retarget(self) -> None:
        """Links here are to one process only."""

    def close(self) -> None:
        self._is_closed = True


class Node:
    """One process of a broker.

    Fields: `requests`: all requests, in order. `storage_errors`, `deletion_errors`,
            `disabling_errors`: partitions that it answers an error for. `controller_epoch`: the
            largest that it received.
    """

    def __init__(
        self, sim: "ControllerHarness", broker_id: int, properties: dict[str, str]
    ) -> None:
        self.sim = sim
        self.id = broker_id
        self.alive = True
        self.client = Client(sim, f"node {broker_id}")
        self.epoch = -1
        self.controller_epoch = -1
        self.requests: list[Any] = []
        self.storage_errors: set[tuple[str, int]] = set()
        self.deletion_errors: dict[tuple[str, int], Error] = {}
        self.disabling_errors: dict[tuple[str, int], Error] = {}
        self.failures: list[str] = []
        self._features = Map({OTTLA_VERSION: (1, sim.levels[broker_id])})
        self.controller = ZooKeeperController(
            a_config(broker_id, properties),
            cluster_id="zk-cluster",
            keeper=self.client.keeper,
            ports=self._ports(),
            on_failure=self.failures.append,
        )

    def _ports(self) -> NodePorts:
        nothing: Any = None
        return NodePorts(
            clock=self.client.clock,
            dice=SimDice(Random(self.id)),
            disk=nothing,
            timers=self.client.timers,
            workers=nothing,
            connect=self.sim.net.connector(self),
            cleanings=nothing,
            ticks_ns=lambda: 0,
        )

    # -- process -------------------------------------------------------------------------------

    def start(self) -> "Node":
        """Connect, register, stand for election."""
        self.client.start()
        session = self.client.keeper.session
        assert session is not None
        self._register(session)
        self.client.keeper.on_new(self._register)
        self.controller.start()
        return self

    def _register(self, session: Session) -> None:
        endpoint = Endpoint("PLAINTEXT", "localhost", PORT + self.id)
        znode = BrokerZnode(endpoints=(endpoint,), timestamp_ms=1, features=self._features)
        data = encode_broker(znode)

        def answered(outcome: Any) -> None:
            if isinstance(outcome, ZkError) and outcome.code is ZkCode.CONNECTION_LOSS:
                self._register(session)
            node = self.sim.model.tree.nodes.get(paths.broker(self.id))
            if node is not None:
                self.epoch = node.czxid

        session.multi((Create(paths.broker(self.id), data, ephemeral=True),)).then(answered)

    def kill(self) -> None:
        """Die at once; ZooKeeper finds out when the session is over."""
        self.alive = self.client.process.alive = False

    def expire(self) -> None:
        """Have ZooKeeper take the session for over."""
        session = self.client.keeper.session
        assert session is not None
        self.sim.model.expire(session.id)

    def bounce(self) -> None:
        """Register again in one multi, as a quick restart does."""
        session = self.client.keeper.session
        assert session is not None
        path = paths.broker(self.id)
        data = self.sim.data(path)
        assert data is not None
        session.multi((Delete(path), Create(path, data, ephemeral=True)))

    # -- the broker ----------------------------------------------------------------------------

    def receive(self, request: Any) -> Any:
        """Check, record and answer a controller's request."""
        error = Error.NONE
        if -1 != request.broker_epoch < self.epoch:
            error = Error.STALE_BROKER_EPOCH
        elif request.controller_epoch < self.controller_epoch:
            error = Error.STALE_CONTROLLER_EPOCH
        else:
            self.controller_epoch = request.controller_epoch
            self.requests.append(request)
            self.sim.leader_epochs.received(self.id, request)
        if isinstance(request, lai.LeaderAndIsrRequest):
            topics = () if error else tuple(map(self._led, request.topic_states))
            return lai.LeaderAndIsrResponse(error_code=error, topics=topics)
        if isinstance(request, update.UpdateMetadataRequest):
            return update.UpdateMetadataResponse(error_code=error)
        if isinstance(request, disable.DisableRemoteTopicRequest):
            topics = () if error else tuple(map(self._disabled, request.topics))
            return disable.DisableRemoteTopicResponse(error_code=error, topics=topics)
        assert isinstance(request, stop.StopReplicaRequest)
        errors = () if error else tuple(self._stopped(request))
        return stop.StopReplicaResponse(error_code=error, partition_errors=errors)

    def _led(self, requests: lai.LeaderAndIsrTopicState) -> lai.LeaderAndIsrTopicError:
        return lai.LeaderAndIsrTopicError(
            topic_id=requests.topic_id,
            partition_errors=tuple(
                lai.LeaderAndIsrPartitionError(
                    partition_index=each.partition_index,
                    error_code=Error.KAFKA_STORAGE_ERROR
                    if (requests.topic_name, each.partition_index) in self.storage_errors
                    else Error.NONE,
                )
                for each in requests.partition_states
            ),
        )

    def _disabled(
        self, asked: disable.DisableRemoteTopicTopic
    ) -> disable.DisableRemoteTopicTopicResult:
        """Comply where this broker knows the tiered epoch, and as what it knows to be."""
        name, epoch = self.tiered(asked.topic_id)
        rows = []
        for number in asked.partitions:
            led = self.led(name, number)
            error = self.disabling_errors.get((name, number), Error.NONE)
            if error is Error.NONE and (led is None or epoch < asked.tiered_epoch):
                error = Error.OPERATION_NOT_ATTEMPTED
            is_leader = led is not None and led.leader == self.id
            rows.append(
                disable.DisableRemoteTopicPartitionResult(
                    partition_index=number,
                    error_code=error,
                    role=disable.LEADER if is_leader else disable.FOLLOWER,
                    leader_epoch=-1 if led is None else led.leader_epoch,
                )
            )
        return disable.DisableRemoteTopicTopicResult(
            topic_id=asked.topic_id, tiered_epoch=asked.tiered_epoch, partitions=tuple(rows)
        )

    def _stopped(self, request: stop.StopReplicaRequest) -> Any:
        for topic in request.topic_states:
            for each in topic.partition_states:
                key = (topic.topic_name, each.partition_index)
                yield stop.StopReplicaPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=each.partition_index,
                    error_code=self.deletion_errors.get(key, Error.NONE),
                )

    # -- received requests ---------------------------------------------------------------------

    def led(self, topic: str, number: int = 0) -> Any:
        """Return the last state by LeaderAndIsr, or None."""
        return self._last(lai.LeaderAndIsrRequest, topic, number)

    def knows(self, topic: str, number: int = 0) -> Any:
        """Return the last state by UpdateMetadata, or None."""
        return self._last(update.UpdateMetadataRequest, topic, number)

    def tiered(self, topic_id: Uuid) -> tuple[str, int]:
        """Return a topic's name and the last tiered epoch that this broker received."""
        found = [
            (states.topic_name, states.tiering.tiered_epoch)
            for request in self.requests
            if isinstance(request, lai.LeaderAndIsrRequest | update.UpdateMetadataRequest)
            for states in request.topic_states
            if states.topic_id == topic_id and states.tiering is not None
        ]
        return max(found, key=lambda each: each[1], default=("", 0))

    def stopped(self, topic: str, number: int = 0) -> Any:
        """Return the last StopReplica, or None."""
        return self._last(stop.StopReplicaRequest, topic, number)

    def _last(self, kind: type, topic: str, number: int) -> Any:
        last = None
        for request in self.requests:
            for states in request.topic_states if isinstance(request, kind) else ():
                for each in states.partition_states:
                    if (states.topic_name, each.partition_index) == (topic, number):
                        last = each
        return last

    def knows_brokers(self) -> list[int]:
        """Return the live brokers of the last UpdateMetadata."""
        requests = [
            each for each in self.requests if isinstance(each, update.UpdateMetadataRequest)
        ]
        return [each.id for each in requests[-1].live_brokers] if requests else []


def a_config(broker_id: int, properties: dict[str, str]) -> NodeConfig:
    """Return a node's configuration."""
    return NodeConfig.parse(
        {
            "broker.id": str(broker_id),
            "zookeeper.connect": "localhost:2181",
            "listeners": "PLAINTEXT://localhost:9092",
            "log.dirs": "/data",
            **properties,
        }
    )


class ControllerHarness(ZooKeeperHarness):
    """The cluster.

    Fields: `nodes`: the newest process of each broker. `levels`: of `ottla.version` that a broker
            supports from its next start on, if not the newest.
    """

    def __init__(self, seed: int = 0, **properties: str) -> None:
        super().__init__(seed)
        self.levels: dict[int, int] = defaultdict(lambda: OTTLA_VERSION_LEVEL)
        self.nodes: dict[int, Node] = {}
        self.net = Net(self)
        self.leader_epochs = LeaderEpochs()
        self.model.observe(self.leader_epochs.written)
        self._properties = {key.replace("_", "."): value for key, value in properties.items()}
        self.make_cluster()

    def start(self, *broker_ids: int) -> None:
        """Start brokers one after another, so that the first one is the first controller."""
        for broker_id in broker_ids:
            self.revive(broker_id)
            self.until(lambda: bool(self.active_controllers()))
        self.settle()

    def revive(self, broker_id: int) -> None:
        """Start or restart a broker; it can connect to ZooKeeper."""
        self.model.heal(f"node {broker_id}")
        self.nodes[broker_id] = Node(self, broker_id, self._properties).start()

    def active_controllers(self) -> list[Node]:
        """Return the nodes that are active controllers in their own view."""
        return [each for each in self.nodes.values() if each.alive and each.controller.is_active]

    @property
    def controller(self) -> Node:
        """Return the node that is the controller."""
        (node,) = self.active_controllers()
        return node

    @property
    def image(self) -> ClusterImage:
        return self.controller.controller.image

    def partition(self, topic: str, number: int = 0) -> PartitionImage:
        found = self.image.topics.by_name(topic)
        assert found is not None, f"no topic {topic}"
        return found.partitions[number]

    def has_topic(self, topic: str) -> bool:
        return topic in self.image.topics

    def run_on(self, node: Node, decide: Callable[[ClusterImage], Any]) -> Any:
        """Decide on a node's controller; return the answer."""
        return self.wait(node.controller.run(decide))

    def write_marker(self, name: str) -> None:
        """Have a tool mark a topic for deletion."""
        self.put(paths.marker(name), MARKER)

    def create(self, name: str, *replicas: tuple[int, ...]) -> None:
        """Have a tool write a topic's assignment; wait until it is led."""
        self.put_topic(name, replicas)
        self.until(
            lambda: (
                self.has_topic(name)
                and all(self.partition(name, each).leader >= 0 for each in range(len(replicas)))
            )
        )
        self.settle()
