"""How a broker leaves a ZooKeeper cluster: it asks the controller for it (ControlledShutdown).

The controller moves what it leads to others, and names what it could not move. It is asked again
after controlled.shutdown.retry.backoff.ms, controlled.shutdown.max.retries times in all; then the
broker goes all the same, and the others find out. Whatever these properties say, it goes after
SHUTDOWN_MS_MAX, and after SILENCE_MS_MAX without an answer from any controller: a stop in order
must end before whoever asked for it loses patience and kills the process.

Source: KafkaServer.controlledShutdown, Kafka 3.9, which waits for as long as the properties say.
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

UNANSWERED_MS_MAX = 5_000
"""How long unanswered requests may take together. Each is sent on to the next controller where one
is elected meanwhile; who stops a whole cluster takes the controllers away, too."""

SHUTDOWN_MS_MAX = 10_500
"""How long all of it may take: what three quick answers with Kafka's pauses between them do."""


class ControllerCaller(Protocol):
    """What is needed of a `Forwarder`."""

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Ask the controller."""
        ...


def request_controlled_shutdown(
    config: NodeConfig,
    controller: ControllerCaller,
    broker_epoch: int,
    *,
    clock: Clock,
    timers: Timers,
) -> Steps[bool]:
    """Ask to be let go; return whether the controller did so."""
    request = ControlledShutdownRequest(broker_id=config.node_id, broker_epoch=broker_epoch)
    attempts_left = max(1, config["controlled.shutdown.max.retries"])
    unanswered_ms = 0
    deadline_ms = clock.monotonic_ms() + SHUTDOWN_MS_MAX
    while True:
        sent_ms = clock.monotonic_ms()
        timeout_ms = min(UNANSWERED_MS_MAX - unanswered_ms, deadline_ms - sent_ms)
        answer = yield from wait(controller.call(request, timeout_ms=timeout_ms))
        reason = _failure(answer)
        if reason is None:
            return True
        now_ms = clock.monotonic_ms()
        if isinstance(answer, ApiError):
            unanswered_ms += now_ms - sent_ms
        attempts_left -= 1
        due_ms = now_ms + config["controlled.shutdown.retry.backoff.ms"]
        if attempts_left == 0 or unanswered_ms >= UNANSWERED_MS_MAX or due_ms >= deadline_ms:
            log.warning("controlled shutdown failed (%s); shutting down anyway", reason)
            return False
        log.info("controlled shutdown failed (%s); retrying", reason)
        pause: Pending[None] = Pending()
        timers.at(due_ms, lambda pause=pause: pause.complete(None))  # type: ignore[misc]
        yield pause


def _failure(answer: ControlledShutdownResponse | ApiError) -> str | None:
    if isinstance(answer, ApiError):
        return f"the controller cannot be asked ({answer})"
    if answer.error_code:
        return f"the controller refuses with error {answer.error_code}"
    remaining = answer.remaining_partitions
    if not remaining:
        return None
    named = ", ".join(f"{each.topic_name}-{each.partition_index}" for each in remaining[:3])
    return f"{len(remaining)} partitions have no other leader, among them {named}"
