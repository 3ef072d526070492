"""Stands in for the controller when none could be reached, so that clients get a proper response.

A forwarded request may have been done, or be done later; the response says that it is not known.
Source: ForwardingManager, Kafka 4.0, which answers REQUEST_TIMED_OUT for each part of a request.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.broker.api.base import Answer, Context
from ottla.controller.brokers.liveness import BrokerLiveness
from ottla.controller.context import DecisionContext
from ottla.metadata.image import ClusterImage
from ottla.wire.messages.describe_quorum import DescribeQuorumResponse

if TYPE_CHECKING:
    from ottla.broker.core import Broker

MESSAGE = (
    "No controller has answered this broker. Whether the request is done, now or later, is not"
    " known."
)
NO_SESSIONS_MS = 1
"""No broker has a session with a controller that does not exist."""


class ControllerUnavailable:
    """A controller, and a quorum, that answers every request with REQUEST_TIMED_OUT.

    See `ControllerPort`.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    @property
    def context(self) -> DecisionContext:
        """Return this broker's own properties; the rest is not used."""
        broker = self._broker
        return DecisionContext(
            config=broker.config,
            cluster_id=broker.cluster_id,
            dice=broker.dice,
            liveness=BrokerLiveness(NO_SESSIONS_MS),
        )

    @property
    def image(self) -> ClusterImage:
        """Return this broker's image."""
        return self._broker.image

    @property
    def is_active(self) -> bool:
        """Return False: it decides nothing."""
        return False

    def run(
        self, decide: Callable[[ClusterImage], Any], *, deadline_ms: int | None = None
    ) -> Pending[Any | ApiError]:
        """Decide nothing; answer REQUEST_TIMED_OUT."""
        return completed(ApiError(Error.REQUEST_TIMED_OUT, MESSAGE))

    def describe(self, ctx: Context, request: object) -> Answer:
        """Answer DescribeQuorum."""
        return DescribeQuorumResponse(
            error_code=Error.REQUEST_TIMED_OUT, error_message=MESSAGE, topics=()
        )


def is_absent(controller: object) -> bool:
    """Tell whether there is no controller, or one that answers everything at once."""
    return controller is None or isinstance(controller, ControllerUnavailable)
