"""Timeouts of requests to the controller, for all of its APIs in one place.

A request's limit is its own `timeout_ms`. One without a positive `timeout_ms` (the client wants the
change but no wait) has the default: nine tenths of `request.timeout.ms`. The dispatcher gives each
handler a controller that enforces the limit: a decision that has not started by then is dropped;
one that is decided but not yet written may still be committed. Both get REQUEST_TIMED_OUT. So a
controller that cannot write (ZooKeeper does not answer, the quorum has no majority, the disk hangs)
blocks no client. Brokers that forward requests use the same limit (`ottla.host.forwarder`).

Source: ControllerRequestContext.deadlineNs, ForwardingManager.onTimeout, Kafka 4.0.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.api.base import Context
from ottla.broker.ports import ControllerPort, Message

if TYPE_CHECKING:
    from ottla.controller.context import DecisionContext
    from ottla.controller.step import Decision
    from ottla.metadata.image import ClusterImage
    from ottla.metadata.node_config import NodeConfig

R = TypeVar("R")

MESSAGE = (
    "The controller did not commit this request within its timeout. Whether it has been or will be"
    " committed is not known."
)


def own_limit_ms(request: Message) -> int | None:
    """Return a request's own timeout; None = it has none."""
    timeout_ms: int = getattr(request, "timeout_ms", 0)
    return timeout_ms if timeout_ms > 0 else None


def default_limit_ms(config: "NodeConfig") -> int:
    """Return the limit of requests without a timeout: nine tenths of request.timeout.ms.

    Clients wait for their own request.timeout.ms, which has the same default: so they receive an
    error before they give up, also through another broker.
    """
    timeout_ms: int = config["request.timeout.ms"]
    return timeout_ms - timeout_ms // 10


def within_limit(ctx: Context, request: Message, timers: Timers) -> Context:
    """Return the context of a request with a controller that answers within the limit."""
    controller = LimitedController(ctx.controller, request, timers, since_ms=ctx.monotonic_ms)
    # A deadline in the past: the timer runs in the next turn of the loop.
    return replace(
        ctx,
        controller_or_none=controller,
        call_later=lambda call: timers.at(ctx.monotonic_ms, call),
    )


class LimitedController:
    """The controller as one request sees it. See `ottla.broker.api.base.ControllerPort`.

    `since_ms`: when the request's time began (monotonic); all of its decisions share the limit.
    """

    def __init__(
        self, controller: ControllerPort, request: Message, timers: Timers, *, since_ms: int
    ) -> None:
        self._controller = controller
        self._request = request
        self._timers = timers
        self._since_ms = since_ms

    @property
    def context(self) -> "DecisionContext":
        """Return the deciders' context besides the image."""
        return self._controller.context

    @property
    def image(self) -> "ClusterImage":
        """Return the image that the next decision uses."""
        return self._controller.image

    @property
    def is_active(self) -> bool:
        """Tell whether it may decide."""
        return self._controller.is_active

    def run(
        self, decide: "Callable[[ClusterImage], Decision[R]]", *, deadline_ms: int | None = None
    ) -> Pending[R | ApiError]:
        """Decide; answer by the limit, or by `deadline_ms` where that is earlier."""
        limit_ms = own_limit_ms(self._request) or default_limit_ms(self.context.config)
        due_ms = self._since_ms + limit_ms
        if deadline_ms is not None:
            due_ms = min(due_ms, deadline_ms)
        answer = self._controller.run(decide, deadline_ms=due_ms)
        if answer.done:
            return answer

        def expire() -> None:
            # The controller's own promise: a decision that has not started leaves its queue.
            answer.complete(ApiError(Error.REQUEST_TIMED_OUT, MESSAGE))

        timer = self._timers.at(due_ms, expire)
        answer.then(lambda _: timer.cancel())
        return answer
