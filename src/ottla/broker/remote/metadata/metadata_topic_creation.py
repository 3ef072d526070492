"""The creation of `__remote_log_metadata`, when the first tiered topic exists.

Every broker requests it from the controller until the metadata has it: one of them wins, and for
the others it exists already. While there are fewer brokers than its replication factor, the
controller refuses it, and the brokers say so and request it again: with fewer replicas, the loss of
one disk could take what others have read.

Its records are the only place where remote segments are known, so it keeps them for ever, and is
not tiered itself. They are few, and flushed before they are acknowledged: once a segment's local
files are deleted, a power loss of all brokers would lose its records with the one that names it,
also those of a topic with flush.messages=1. Kafka flushes them as it does other records.

Source: TopicBasedRemoteLogMetadataManager.newRemoteLogMetadataTopic; KIP-405, KIP-1235.
"""

import logging
from dataclasses import dataclass
from typing import Final

from ottla.base.backoff import Backoff
from ottla.base.errors import ApiError, Error, error_name
from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC
from ottla.base.ports import Clock, Dice
from ottla.base.timers import Timer, Timers
from ottla.broker.ports import Forwarder
from ottla.metadata.image import ClusterImage
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 30_000

REPLICATION_FACTOR: Final = "rlmm.config.remote.log.metadata.topic.replication.factor"

CONFIGS: Final = {
    "cleanup.policy": "delete",
    "flush.messages": "1",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "remote.storage.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTopicSettings:
    """Settings with Kafka's names and defaults.

    Fields: `partitions`: rlmm.config.remote.log.metadata.topic.num.partitions;
            `replication_factor`: rlmm.config.remote.log.metadata.topic.replication.factor;
            `min_isr`: rlmm.config.remote.log.metadata.topic.min.isr;
            `consume_wait_ms`: rlmm.config.remote.log.metadata.consume.wait.ms: how long an append
            waits until it is read back; `checkpoint_interval_ms`: how often the state of the
            readers is saved.
    """

    partitions: int = 50
    replication_factor: int = 3
    min_isr: int = 2
    consume_wait_ms: int = 120_000
    checkpoint_interval_ms: int = 60_000


class MetadataTopicCreation:
    """See the module. `update` must be called with each new image."""

    def __init__(
        self,
        settings: MetadataTopicSettings,
        *,
        forwarder: Forwarder,
        clock: Clock,
        timers: Timers,
        dice: Dice,
        backoff: Backoff | None = None,
    ) -> None:
        self._settings = settings
        self._forwarder = forwarder
        self._clock = clock
        self._timers = timers
        self._dice = dice
        self._backoff = Backoff(max_ms=10_000) if backoff is None else backoff
        self._wanted = self._exists = self._in_flight = self._closed = False
        self._failures = 0
        self._timer: Timer | None = None

    def update(self, image: ClusterImage, *, wanted: bool) -> None:
        """Note the newest metadata, and whether there are tiered topics."""
        self._wanted, self._exists = wanted, REMOTE_LOG_METADATA_TOPIC in image.topics
        if self._exists:
            self._failures = 0
        self._request()

    def close(self) -> None:
        """Stop."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _request(self) -> None:
        is_missing = self._wanted and not self._exists
        if not is_missing or self._in_flight or self._timer is not None or self._closed:
            return
        self._in_flight = True
        configs = CONFIGS | {"min.insync.replicas": str(self._settings.min_isr)}
        topic = CreatableTopic(
            name=REMOTE_LOG_METADATA_TOPIC,
            num_partitions=self._settings.partitions,
            replication_factor=self._settings.replication_factor,
            assignments=(),
            configs=tuple(
                CreatableTopicConfig(name=name, value=value) for name, value in configs.items()
            ),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS)
        self._forwarder.call(request, timeout_ms=TIMEOUT_MS).then(self._answered)

    def _answered(self, response: CreateTopicsResponse | ApiError) -> None:
        self._in_flight = False
        if self._closed:
            return
        reason = _failure(response)
        if reason is not None:
            logger.warning(
                "creation of topic %s failed: %s; retrying", REMOTE_LOG_METADATA_TOPIC, reason
            )
        # Also after a success: should the metadata not have the topic by then, something else
        # has happened to it.
        self._failures += 1
        delay_ms = self._backoff.delay_ms(self._failures, self._dice)
        self._timer = self._timers.at(self._clock.monotonic_ms() + delay_ms, self._backoff_over)

    def _backoff_over(self) -> None:
        self._timer = None
        self._request()


def _failure(response: CreateTopicsResponse | ApiError) -> str | None:
    if isinstance(response, ApiError):
        return response.message
    for topic in response.topics:
        if topic.error_code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
            continue
        reason = topic.error_message or error_name(topic.error_code)
        if topic.error_code == Error.INVALID_REPLICATION_FACTOR:
            return f"{reason.rstrip('.')} (see {REPLICATION_FACTOR})"
        return reason
    return None
