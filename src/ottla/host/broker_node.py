"""The broker role of a node, in both modes: start, metadata changes, controlled shutdown.

What the mode provides is behind `BrokerMode`: the metadata, a registration, the controller. Their
order differs: in KRaft mode a broker is registered before its logs are loaded, in ZooKeeper mode
afterwards. `ottla.host.node_core` has the steps of a whole start.
"""

from collections.abc import Callable
from functools import partial

from ottla.broker.core import Broker
from ottla.host.broker_links import BrokerLinks
from ottla.host.log_dirs.cleaner import Cleaner
from ottla.host.log_dirs.node_dirs import NodeDirs, StartError
from ottla.host.node_mode import BrokerMode
from ottla.host.node_ports import NodePorts
from ottla.host.remote_storage import opened_store, resize_pools
from ottla.host.steps import Steps
from ottla.metadata.delta import ClusterDelta, delta_between
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig

ALL_DIRS_FAILED = "all log directories have failed"


class BrokerNode:
    """One broker with its connections to others. `broker`: None until its logs are loaded."""

    def __init__(
        self,
        config: NodeConfig,
        mode: BrokerMode,
        *,
        node_dirs: NodeDirs,
        ports: NodePorts,
        on_failure: Callable[[str], None],
    ) -> None:
        self.mode = mode
        self.broker: Broker | None = None
        self._config = config
        self._node_dirs = node_dirs
        self._ports = ports
        self._on_failure = on_failure
        self._peers = BrokerLinks(ports.connect, config, lambda: self.image)
        self._cleaner = Cleaner(
            ports.cleanings, node_dirs.log_dirs, ports.dice, lambda: config.dynamic(self.image)
        )
        self._store = opened_store(config, ports)
        mode.on_change = self._changed

    @property
    def image(self) -> ClusterImage:
        """Return the newest metadata that this broker has."""
        return self.mode.image

    def load(self) -> Steps[None]:
        """Read the metadata, then load the logs. Raises: StartError."""
        mode, log_dirs = self.mode, self._node_dirs.log_dirs
        image = yield from mode.read_metadata()
        yield from self._node_dirs.load_logs(image, self._config)
        image = yield from mode.logs_loaded(image)
        # Not every mode passes on the image that it begins with as a change.
        resize_pools(self._store, self._config.dynamic(self.image))
        broker = self._make_broker()
        broker.apply(delta_between(EMPTY, image))
        if self.image is not image:
            # Changes that were committed while the logs were loading.
            broker.apply(delta_between(image, self.image))
        self.broker = broker
        if not log_dirs.online_dirs:
            raise StartError(ALL_DIRS_FAILED)
        mode.broker_loaded(broker)

    def _make_broker(self) -> Broker:
        mode, ports = self.mode, self._ports
        broker = Broker(
            config=self._config,
            cluster_id=self._node_dirs.cluster_id,
            clock=ports.clock,
            dice=ports.dice,
            workers=ports.workers,
            timers=ports.timers,
            log_dirs=self._node_dirs.log_dirs,
            forwarder=mode.forwarder,
            peers=self._peers,
            store=self._store,
        )
        broker.epoch = mode.epoch
        broker.zk_metadata = mode.zk_metadata
        broker.replicas.on_log_dir_failed = mode.log_dir_failed
        broker.replicas.on_all_log_dirs_failed = partial(self._on_failure, ALL_DIRS_FAILED)
        return broker

    def serve(self) -> Steps[None]:
        """Start periodic work; return once the cluster knows that this broker is live."""
        assert self.broker is not None
        self.broker.start_serving()
        self._cleaner.start()
        yield from self.mode.serve()

    def _changed(self, delta: ClusterDelta) -> None:
        if delta.changed_brokers:
            self._peers.brokers_changed()
        if delta.changed_configs:
            resize_pools(self._store, self._config.dynamic(delta.image))
        if self.broker is not None:
            self.broker.apply(delta)

    def controlled_shutdown(self) -> Steps[None]:
        """Have the controller move leadership away.

        With controlled.shutdown.enable=false the broker stops as if the process had died.
        """
        if self._config["controlled.shutdown.enable"]:
            yield from self.mode.controlled_shutdown()

    def close(self) -> Steps[None]:
        """Flush and close the logs, close the connections."""
        self._cleaner.close()
        self.mode.close()
        stopped = None if self.broker is None else self.broker.shutdown()
        self._peers.close()
        if stopped is not None:
            yield stopped
        if self._store is not None:
            self._store.close()
