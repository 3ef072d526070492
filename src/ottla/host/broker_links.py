"""A broker's connections to the other brokers, over which it fetches their partitions.

One connection for each broker and fetcher or other user (a lane), made when it is first needed. The
address is that of the inter-broker listener in the committed metadata, looked up at each connect.
"""

from collections.abc import Callable

from ottla.host.node_ports import Address, Connect, Link
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig


class BrokerLinks:
    """See the module, and `ottla.broker.ports.Peers`."""

    def __init__(
        self, connect: Connect, config: NodeConfig, image: Callable[[], ClusterImage]
    ) -> None:
        self._connect = connect
        self._config = config
        self._image = image
        self._links: dict[tuple[int, int], Link] = {}

    def to(self, broker_id: int, lane: int = 0) -> Link:
        """Return the connection to a broker."""
        key = broker_id, lane
        if key not in self._links:
            config = self._config
            self._links[key] = self._connect(
                lambda: self._address_of(broker_id),
                client_id=f"broker-{config.node_id}-{_user_of(lane)}",
                backoff_max_ms=config["replica.fetch.backoff.ms"],
                connect_timeout_ms=config["socket.connection.setup.timeout.ms"],
                connect_timeout_max_ms=config["socket.connection.setup.timeout.max.ms"],
            )
        return self._links[key]

    def brokers_changed(self) -> None:
        """Reconnect to brokers that registered again: the old endpoint may be another node's."""
        for link in self._links.values():
            link.retarget()

    def close(self) -> None:
        """End all connections."""
        for link in self._links.values():
            link.close()

    def _address_of(self, broker_id: int) -> Address | None:
        broker = self._image().brokers.get(broker_id)
        endpoint = (
            None if broker is None else broker.endpoint(self._config.inter_broker_listener_name)
        )
        return None if endpoint is None else (endpoint.host, endpoint.port)


def _user_of(lane: int) -> str:
    """Return what a lane is for, for its client id."""
    return f"fetcher-{lane}" if lane >= 0 else f"remote-log-metadata-{-lane}"
