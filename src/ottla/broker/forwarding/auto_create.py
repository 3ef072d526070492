"""Automatic topic creation: auto.create.topics.enable.

The Metadata response does not wait for the creation: the client retries Metadata until the topic
exists, as with Kafka. A topic whose creation is in flight is not requested again. At most
AUTO_CREATED_IN_FLIGHT_MAX topics are in flight; a client that needs more retries anyway.
The internal topics are created here too, with the settings that their coordinators need.

Source: Kafka's AutoTopicCreationManager.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.base.limits import AUTO_CREATED_IN_FLIGHT_MAX
from ottla.broker.ports import Forwarder
from ottla.metadata.topic_names import fault_of
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

logger = logging.getLogger(__name__)


NAMES_LOGGED_MAX = 10


def _listed(names: list[str]) -> str:
    more = len(names) - NAMES_LOGGED_MAX
    first = ", ".join(names[:NAMES_LOGGED_MAX])
    return f"{first} and {more} others" if more > 0 else first


class AutoCreate:
    """Sends CreateTopics for missing topics, one request for each call of `create`."""

    def __init__(self, config: Any, forwarder: Forwarder) -> None:
        self._config = config
        self._forwarder = forwarder
        self._in_flight: set[str] = set()

    def create(self, names: Iterable[str]) -> Mapping[str, Error]:
        """Start the creation of topics; return the error of each for the Metadata response."""
        answers: dict[str, Error] = {}
        wanted: list[str] = []
        for name in dict.fromkeys(names):
            if fault_of(name) is not None:
                answers[name] = Error.INVALID_TOPIC_EXCEPTION
                continue
            answers[name] = Error.UNKNOWN_TOPIC_OR_PARTITION
            in_flight = len(self._in_flight) + len(wanted)
            if name not in self._in_flight and in_flight < AUTO_CREATED_IN_FLIGHT_MAX:
                wanted.append(name)
        if wanted:
            self._send(wanted)
        return answers

    def _send(self, names: list[str]) -> None:
        self._in_flight.update(names)
        timeout_ms = self._config["request.timeout.ms"]
        request = CreateTopicsRequest(
            topics=tuple(self._topic(name) for name in names), timeout_ms=timeout_ms
        )
        answer = self._forwarder.call(request, timeout_ms=timeout_ms)
        answer.then(lambda response: self._metadata_created(names, response))

    def _metadata_created(
        self, names: list[str], response: CreateTopicsResponse | ApiError
    ) -> None:
        self._in_flight.difference_update(names)
        if isinstance(response, ApiError):
            logger.warning("auto-creation of topics %s failed: %s", _listed(names), response)
            return
        failed: dict[str, list[str]] = {}
        for topic in response.topics:
            if topic.error_code not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                reason = topic.error_message or Error(topic.error_code).message
                failed.setdefault(reason, []).append(topic.name)
        for reason, topics in failed.items():
            logger.warning("auto-creation of topics %s failed: %s", _listed(topics), reason)

    def _topic(self, name: str) -> CreatableTopic:
        config = self._config
        partitions, replicas = config["num.partitions"], config["default.replication.factor"]
        settings: dict[str, str] = {}
        if name == OFFSETS_TOPIC:
            partitions = config["offsets.topic.num.partitions"]
            replicas = config["offsets.topic.replication.factor"]
            settings = {
                "cleanup.policy": "compact",
                "segment.bytes": str(config["offsets.topic.segment.bytes"]),
                # The coordinator chooses the compression of each batch.
                "compression.type": "producer",
            }
        elif name == TRANSACTIONS_TOPIC:
            partitions = config["transaction.state.log.num.partitions"]
            replicas = config["transaction.state.log.replication.factor"]
            settings = {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
                "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
                "unclean.leader.election.enable": "false",
            }
        return CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=(),
            configs=tuple(
                CreatableTopicConfig(name=key, value=value) for key, value in settings.items()
            ),
        )
