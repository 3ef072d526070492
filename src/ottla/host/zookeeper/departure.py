"""How a broker leaves a ZooKeeper cluster: it asks the controller for it (ControlledShutdown).

The controller moves what it leads to others, and names what it could not move. It is asked again
after a pause, a few times; then the broker goes all the same, and the others find out.

Source: KafkaServer.controlledShutdown, Kafka 3.9.
"""

import logging
from typing import Any, Protocol

from ottla.base.errors import ApiError
from ottla.base.pending import Pending
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.host.steps import Steps, wait
from ottla.metadata.node_config import NodeConfig
from ottla.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

log = logging.getLogger(__name__)

ASKING_MS = 10_000
"""How long the controller is looked for, and may take, at each attempt. Kafka's waits for
request.timeout.ms; but who stops a whole cluster takes the controllers away, too."""


class Caller(Protocol):
    """What is needed of a `Forwarder`."""

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Ask the controller."""
        ...


def depart(
    config: NodeConfig, controller: Caller, broker_epoch: int, *, clock: Clock, timers: Timers
) -> Steps[bool]:
    """Ask to be let go; return whether the controller did so."""
    request = ControlledShutdownRequest(broker_id=config.node_id, broker_epoch=broker_epoch)
    left = max(1, config["controlled.shutdown.max.retries"])
    while True:
        answer = yield from wait(controller.call(request, timeout_ms=ASKING_MS))
        reason = _refusal(answer)
        if reason is None:
            return True
        left -= 1
        if left == 0:
            log.warning("this broker leaves without the controller's word: %s", reason)
            return False
        log.info("this broker may not leave yet: %s", reason)
        pause: Pending[None] = Pending()
        due_ms = clock.monotonic_ms() + config["controlled.shutdown.retry.backoff.ms"]
        timers.at(due_ms, lambda over=pause: over.complete(None))  # type: ignore[misc]
        yield pause


def _refusal(answer: ControlledShutdownResponse | ApiError) -> str | None:
    if isinstance(answer, ApiError):
        return f"the controller cannot be asked ({answer})"
    if answer.error_code:
        return f"the controller refuses with error {answer.error_code}"
    remaining = answer.remaining_partitions
    if not remaining:
        return None
    named = ", ".join(f"{each.topic_name}-{each.partition_index}" for each in remaining[:3])
    return f"{len(remaining)} partitions have no other leader, among them {named}"
