"""What KRaft mode provides to a node: a metadata log, and the controller role, if it has that.

A combined node starts its controller first, with listeners of its own: the broker registers there.
"""

from collections.abc import Callable, Iterator

from ottla.base.metrics import Family
from ottla.base.turns import Turns
from ottla.broker.api.base import QuorumPort
from ottla.broker.ports import Listener
from ottla.host.controller.controller_channel_metrics import channel_families
from ottla.host.kraft.broker_mode import KRaftBroker
from ottla.host.kraft.controller_node import ControllerNode
from ottla.host.kraft.controller_shutdown import others_shut_down
from ottla.host.kraft.voter_links import VoterLinks
from ottla.host.log_dirs.node_dirs import NodeDirs, open_node_dirs
from ottla.host.log_dirs.storage import read_bootstrap
from ottla.host.metric_families import ControllerFamilies, raft_families
from ottla.host.node_ports import Endpoints, NodeListeners, NodePorts
from ottla.host.steps import Steps
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig


class KRaftMode:
    """See `ottla.host.node_mode.NodeMode`. `controller`: None before it is made."""

    def __init__(
        self,
        config: NodeConfig,
        ports: NodePorts,
        turns: Turns,
        *,
        on_failure: Callable[[str], None],
    ) -> None:
        self._config = config
        self._ports = ports
        self._turns = turns
        self._on_failure = on_failure
        self._node_dirs: NodeDirs | None = None
        self._peers: VoterLinks | None = None
        self._broker: KRaftBroker | None = None
        self.controller: ControllerNode | None = None
        self._families: ControllerFamilies | None = None

    @property
    def image(self) -> ClusterImage:
        """Return what the controller has committed."""
        return EMPTY if self.controller is None else self.controller.runtime.committed_image

    def open_dirs(self) -> NodeDirs:
        self._node_dirs = open_node_dirs(self._config, self._ports)
        return self._node_dirs

    def join(self, listeners: NodeListeners) -> Steps[None]:
        """Start the controller. Raises: StartError, MetadataDamaged."""
        config, ports = self._config, self._ports
        if not config.is_controller:
            return
        assert self._node_dirs is not None
        cluster_id = self._node_dirs.cluster_id
        endpoints = yield listeners.bind(
            config.controller_listeners, config.advertised_controller_listeners, Listener.CONTROLLER
        )
        voters = {voter.id: (voter.host, voter.port) for voter in config.quorum_voters}
        if len(voters) > 1:
            self._peers = VoterLinks(
                ports.connect, voters, config, cluster_id, ports.clock, ports.timers
            )
        controller = ControllerNode(
            config,
            cluster_id=cluster_id,
            listeners=endpoints,
            storage=self._node_dirs.quorum,
            bootstrap=read_bootstrap(ports.disk, config.metadata_log_dir),
            ports=ports,
            on_failure=self._on_failure,
            peers=None if self._peers is None else self._peers.peers,
        )
        self.controller = controller
        self._families = ControllerFamilies(controller.log, controller.runtime)
        controller.log.start()
        yield listeners.accept()

    def make_broker(self, endpoints: Endpoints) -> KRaftBroker:
        assert self._node_dirs is not None
        self._broker = KRaftBroker(
            self._config,
            endpoints=endpoints,
            node_dirs=self._node_dirs,
            controller=self.controller,
            ports=self._ports,
            turns=self._turns,
            on_failure=self._on_failure,
        )
        return self._broker

    def register(self, listeners: NodeListeners) -> Steps[None]:
        """Do nothing: without a registration it would not know which logs are its own.

        No connections yet: before the broker is unfenced a client would get metadata without
        brokers, which librdkafka caches for a minute.
        """
        yield from ()

    def resign(self) -> Steps[None]:
        """Stop the controller before files are closed: another voter takes over meanwhile."""
        if self.controller is not None:
            runtime, ports = self.controller.runtime, self._ports
            yield others_shut_down(
                lambda: runtime.committed_image, self._config.node_id, ports.clock, ports.timers
            )
            self.controller.stop()
        if self._peers is not None:
            yield self._peers.close()

    def close(self) -> Steps[None]:
        """Do nothing: `NodeDirs` has the metadata log."""
        yield from ()

    def controller_on(self, listener: Listener) -> tuple[ControllerNode | None, QuorumPort | None]:
        """Return the controller on its own listeners only."""
        if self.controller is None or listener is not Listener.CONTROLLER:
            return None, None
        return self.controller, self.controller.log.quorum

    def families(self) -> Iterator[Family]:
        """Yield the metrics of the controller, or else of the broker as an observer."""
        controller = self.controller
        if controller is not None and self._families is not None:
            yield from raft_families(controller.log.raft)
            yield from self._families.collect(controller.timed_out_heartbeats)
            yield from channel_families(controller.deletions.channels)
        elif self._broker is not None:
            yield from raft_families(self._broker.raft)
