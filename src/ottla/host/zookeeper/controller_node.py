"""The controller of a broker in ZooKeeper mode: every broker has one, one of them is elected.

The elected one has a `ControllerTerm`. All decisions, requests and timers belong to the term, so
that none can outlive its end: an expired session, a newer controller, or the stop of this node,
which deletes `/controller` at once.

Source: KafkaController, Kafka 3.9.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.controller.brokers.liveness import BrokerLiveness
from ottla.controller.context import DecisionContext
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.controller.step import Decision
from ottla.host.controller.controller_channel import (
    ChannelEvent,
    ControllerChannels,
    links_of_image,
)
from ottla.host.controller.controller_runtime import DecisionMetrics
from ottla.host.controller.disabling import DisablingDriver
from ottla.host.node_ports import NodePorts
from ottla.host.zookeeper.controller_term import ControllerTerm, TermEnvironment
from ottla.host.zookeeper.election import ControllerElection, SessionHolder, Term
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig

log = logging.getLogger(__name__)

R = TypeVar("R")


class ZooKeeperController:
    """See `ottla.broker.api.base.ControllerPort`.

    Fields: `election`: the controller election. `channels`: to brokers, while it is the
            controller. `metrics`: of all its terms. `leaders_seen`: elections that it saw.
    Hooks:  `on_failure`: the node must stop: it was elected, and may not read the metadata.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        cluster_id: str,
        keeper: SessionHolder,
        ports: NodePorts,
        on_failure: Callable[[str], None],
    ) -> None:
        self.context = DecisionContext(
            config=config,
            cluster_id=cluster_id,
            dice=ports.dice,
            # There are no heartbeats in this mode: registered brokers are alive.
            liveness=BrokerLiveness(config["zookeeper.session.timeout.ms"]),
            mode=ZOOKEEPER_MODE,
        )
        self.metrics = DecisionMetrics()
        self.leaders_seen = 0
        self._keeper = keeper
        self._term: ControllerTerm | None = None
        self.election = ControllerElection(
            keeper,
            config.node_id,
            clock=ports.clock,
            timers=ports.timers,
            on_elected=self._elected,
            on_resigned=self._resigned,
        )
        self.channels = ControllerChannels(
            links_of_image(
                ports.connect,
                lambda: self.image,
                listener_name=config.inter_broker_listener_name,
                client_id=f"controller-{config.node_id}",
            ),
            clock=ports.clock,
            timers=ports.timers,
            on_event=self._answered,
        )
        self.disabling = DisablingDriver(
            config,
            self.context.acknowledgements,
            connect=ports.connect,
            clock=ports.clock,
            timers=ports.timers,
        )
        self._environment = TermEnvironment(
            context=self.context,
            disabling=self.disabling,
            clock=ports.clock,
            timers=ports.timers,
            channels=self.channels,
            metrics=self.metrics,
            on_controller_moved=self.election.fenced,
            on_failure=on_failure,
        )

    # -- lifecycle -----------------------------------------------------------------------------

    def start(self) -> None:
        """Take part in elections."""
        self.election.start()
        self.election.on_controller(self._on_controller_change)

    def stop(self) -> Pending[None]:
        """Take part no more; the promise is kept once another broker can be elected."""
        return self.election.close()

    # -- deciding ------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """Return the image of the next decision; empty where this is not the controller."""
        return EMPTY if self._term is None else self._term.image

    @property
    def is_active(self) -> bool:
        """Tell whether it is the active controller."""
        return self._term is not None and self._term.is_active

    @property
    def is_elected(self) -> bool:
        """Tell whether this broker is elected, as far as it knows; it may still be loading."""
        return self._term is not None

    @property
    def is_taking_over(self) -> bool:
        """Tell whether it is elected and has not sent brokers the complete state yet."""
        return self._term is not None and self._term.is_taking_over

    @property
    def queue_size(self) -> int:
        """Return how many decisions are queued."""
        if self._term is None or self._term.runtime is None:
            return 0
        return self._term.runtime.queue_size

    def run(
        self, decide: Callable[[ClusterImage], Decision[R]], *, deadline_ms: int | None = None
    ) -> Pending[R | ApiError]:
        """Decide in turn, if active; answer once it is committed."""
        if self._term is None or self._term.runtime is None:
            return completed(ApiError(Error.NOT_CONTROLLER))
        return self._term.runtime.run(decide, deadline_ms=deadline_ms)

    # -- terms ---------------------------------------------------------------------------------

    def _on_controller_change(self, controller_id: int, _epoch: int) -> None:
        if controller_id >= 0:
            self.leaders_seen += 1

    def _elected(self, epoch: int, epoch_version: int) -> None:
        session = self._keeper.session
        assert session is not None, "there is no election without a session"
        assert self._term is None, "a term ends before the next one begins"
        self._term = ControllerTerm(session, Term(epoch, epoch_version), self._environment)
        self._term.begin()

    def _resigned(self) -> None:
        term, self._term = self._term, None
        if term is not None:
            term.end()

    def _answered(self, event: ChannelEvent) -> None:
        if self._term is not None:
            self._term.answered(event)
