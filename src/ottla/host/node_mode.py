"""What KRaft or ZooKeeper mode provides to a node; the rest of a node is the same in both.

`ottla.host.kraft.node_mode` and `ottla.host.zookeeper.node_mode` implement `NodeMode`, the
`broker_mode` beside each implements `BrokerMode`. `ottla.host.node_core` calls the first one, in
the order of the methods, and `ottla.host.broker_node` the second one.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from ottla.base.metrics import Family
from ottla.base.pending import Pending
from ottla.broker.api.base import QuorumPort
from ottla.broker.core import Broker
from ottla.broker.ports import ControllerPort, Forwarder, Listener
from ottla.host.kraft.broker_lifecycle import BrokerState
from ottla.host.log_dirs.node_dirs import NodeDirs
from ottla.host.metadata_publication import MetadataErrors
from ottla.host.node_ports import Endpoints, NodeListeners
from ottla.host.steps import Steps
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.image import ClusterImage

if TYPE_CHECKING:
    from ottla.broker.zookeeper.zk_metadata import ZkMetadataPort


class BrokerMode(Protocol):
    """The metadata, the registration and the controller of one broker.

    Fields: `forwarder`: to the controller. `zk_metadata`: the metadata from controllers' requests;
            None = they come from a log. `on_change`: called with each metadata change, in order.
            `image`: the newest metadata. `epoch`: of the registration; -1 = not registered yet.
            `metadata_errors`: how often metadata could not be applied, or loaded.
            `registered`, `serving`: kept once controllers' and clients' requests are handled; what
            arrives earlier waits for them.
    """

    on_change: Callable[[ClusterDelta], None]
    registered: Pending[None]
    serving: Pending[None]

    @property
    def forwarder(self) -> Forwarder: ...
    @property
    def zk_metadata(self) -> "ZkMetadataPort | None": ...
    @property
    def image(self) -> ClusterImage: ...
    @property
    def epoch(self) -> int: ...
    @property
    def state(self) -> BrokerState: ...
    @property
    def metadata_errors(self) -> MetadataErrors: ...
    def read_metadata(self) -> Steps[ClusterImage]:
        """Return the image by which the logs are loaded. Raises: StartError."""
        ...

    def logs_loaded(self, image: ClusterImage) -> Steps[ClusterImage]:
        """Compare the logs with the image; return the one that the broker begins with."""
        ...

    def broker_loaded(self, broker: Broker) -> None:
        """Take the broker, which has the metadata and its logs."""
        ...

    def serve(self) -> Steps[None]:
        """Return once the cluster knows that the broker is live, and the broker knows it too."""
        ...

    def log_dir_failed(self) -> None:
        """Report failed log directories to the controller."""
        ...

    def controlled_shutdown(self) -> Steps[None]:
        """Have the controller move leadership away, as far as it can be reached."""
        ...

    def close(self) -> None:
        """Follow the metadata no more, close the connections to the controller."""
        ...


class NodeMode(Protocol):
    """What differs between nodes of the two modes."""

    def open_dirs(self) -> NodeDirs:
        """Lock and check the log directories. Blocks. Raises: StartError, MetadataDamaged."""
        ...

    def join(self, listeners: NodeListeners) -> Steps[None]:
        """Join the cluster; where there is a controller role beside the broker's, start it."""
        ...

    def make_broker(self, endpoints: Endpoints) -> BrokerMode:
        """Return the mode of the broker, whose listeners are bound."""
        ...

    def register(self, listeners: NodeListeners) -> Steps[None]:
        """Register the broker, whose logs are loaded, unless it is. Raises: StartError."""
        ...

    def resign(self) -> Steps[None]:
        """Stop the controller, after the broker's controlled shutdown."""
        ...

    def close(self) -> Steps[None]:
        """Leave the cluster; the logs are closed."""
        ...

    @property
    def image(self) -> ClusterImage:
        """Return the newest committed metadata of a node without a broker."""
        ...

    def controller_on(self, listener: Listener) -> tuple[ControllerPort | None, QuorumPort | None]:
        """Return the controller, and its quorum, for the requests of a listener."""
        ...

    def families(self) -> Iterator[Family]:
        """Yield the metrics of the controller, or of what connects the node with it."""
        ...
