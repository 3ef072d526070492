"""Controlled shutdown of a broker in ZooKeeper mode, with ControlledShutdown requests.

The controller moves leadership to other brokers and returns the partitions that it could not move.
The request is retried after controlled.shutdown.retry.backoff.ms, up to
controlled.shutdown.max.retries times; then the broker shuts down anyway. Whatever these properties
are, it does so after SHUTDOWN_MS_MAX, and after UNANSWERED_MS_MAX without a response from any
controller: a clean shutdown must end before a service manager kills the process.

Source: KafkaServer.controlledShutdown, Kafka 3.9, without these two limits.
"""

import logging
from collections.abc import Callable
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
"""How long unanswered requests may take together. Each is retried at the next controller if one is
elected meanwhile; when a whole cluster is stopped there may be none."""

SHUTDOWN_MS_MAX = 10_500
"""How long all attempts may take: three quick responses with Kafka's backoff between them."""


class ControllerCaller(Protocol):
    """What is needed of a `Forwarder`."""

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any | ApiError]:
        """Send a request to the controller."""
        ...


def request_controlled_shutdown(
    config: NodeConfig,
    controller: ControllerCaller,
    broker_epoch: Callable[[], int],
    *,
    clock: Clock,
    timers: Timers,
) -> Steps[bool]:
    """Request a controlled shutdown; return whether the controller granted it.

    `broker_epoch`: asked for each attempt, as the broker may register again meanwhile.
    """
    attempts_left = max(1, config["controlled.shutdown.max.retries"])
    unanswered_ms = 0
    deadline_ms = clock.monotonic_ms() + SHUTDOWN_MS_MAX
    while True:
        sent_ms = clock.monotonic_ms()
        timeout_ms = min(UNANSWERED_MS_MAX - unanswered_ms, deadline_ms - sent_ms)
        request = ControlledShutdownRequest(broker_id=config.node_id, broker_epoch=broker_epoch())
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
        return f"no response from the controller: {answer}"
    if answer.error_code:
        return f"error code {answer.error_code}"
    remaining = answer.remaining_partitions
    if not remaining:
        return None
    named = ", ".join(f"{each.topic_name}-{each.partition_index}" for each in remaining[:3])
    return f"{len(remaining)} partitions have no other leader, the first are {named}"
