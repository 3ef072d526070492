"""A broker's connections to the broker that is the controller, by `/controller`.

Forwarded requests of clients and the broker's own requests (AlterPartition, producer ids,
controlled shutdown) have a connection each, over the inter-broker listener; also where the
controller is this broker itself, so that there is one path for all.

Source: NodeToControllerChannelManager, MetadataCacheControllerNodeProvider, Kafka 3.9.
"""

from collections.abc import Callable

from ottla.base.errors import ApiError
from ottla.base.ids import NO_LEADER
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.broker.forwarding.controller_limits import default_limit_ms
from ottla.broker.ports import Forwarded, Message, RequestContext
from ottla.host.forwarder import ControllerForwarder
from ottla.host.node_ports import Address, Connect
from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig


class ControllerBrokerLinks:
    """See the module, and `ottla.broker.api.base.Forwarder`."""

    def __init__(
        self,
        connect: Connect,
        config: NodeConfig,
        image: Callable[[], ClusterImage],
        own_address: Callable[[], Address | None],
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._config = config
        self._image = image
        self._own_address = own_address
        self._controller_id = NO_LEADER
        self._links = [
            connect(
                self._choose,
                client_id=f"broker-{config.node_id}-{purpose}",
                connect_timeout_ms=config["socket.connection.setup.timeout.ms"],
                connect_timeout_max_ms=config["socket.connection.setup.timeout.max.ms"],
            )
            for purpose in ("forwarding", "to-controller")
        ]
        self._forwarder, self._own = (
            ControllerForwarder(
                link,
                clock=clock,
                timers=timers,
                forward_timeout_ms=default_limit_ms(config),
                on_not_controller=link.retarget,
            )
            for link in self._links
        )

    def forward(self, ctx: RequestContext, frame: bytes) -> Pending[Forwarded]:
        """Forward a client's request; see `ottla.broker.api.base.Forwarder`."""
        return self._forwarder.forward(ctx, frame)

    def call(self, request: Message, *, timeout_ms: int) -> Pending[Message | ApiError]:
        """Send a request of the broker itself to the controller.

        Over another connection than clients' requests: a delayed topic deletion would delay
        AlterPartition requests behind it.
        """
        return self._own.call(request, timeout_ms=timeout_ms)

    def controller_changed(self, controller_id: int, _epoch: int) -> None:
        """Connect to the new controller at once: the old one may hang and never answer."""
        self._controller_id = controller_id
        if controller_id != NO_LEADER:
            self.brokers_changed()

    def brokers_changed(self) -> None:
        """Reconnect if the controller's address has changed with the brokers."""
        for link in self._links:
            link.retarget()

    def close(self) -> None:
        """End all connections."""
        self._forwarder.close()
        self._own.close()
        for link in self._links:
            link.close()

    def _choose(self) -> Address | None:
        if self._controller_id == self._config.node_id:
            return self._own_address()
        broker = self._image().brokers.get(self._controller_id)
        listener = self._config.inter_broker_listener_name
        endpoint = None if broker is None else broker.endpoint(listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)
