"""confluent-kafka (librdkafka) behind the tests' face for clients."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    TIMESTAMP_LOG_APPEND_TIME,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import Producer as LibraryProducer
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from ottla.cli.console.closing import is_closed

from .clients import TIMEOUT_SECONDS, Message, Record, Refused, TopicPartition

NAME = "confluent"
POLLED_MAX = 1000
BEGINS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


def _refused(error: KafkaError) -> Refused:
    return Refused(error.code(), error.str())


def _silent(*_: Any) -> None:
    """Take librdkafka's log and error callbacks, which repeat what calls raise."""


def _common(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "error_cb": _silent,
        "log_level": 0,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "topic.metadata.refresh.sparse": False,
    }


class Producer:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._library = LibraryProducer(dict(config))

    def send(self, messages: Iterable[Message], *, timeout: float = TIMEOUT_SECONDS) -> list[int]:
        offsets: dict[int, int] = {}
        errors: list[KafkaError] = []
        count = 0
        for count, message in enumerate(messages, 1):
            self._send_one(message, count - 1, offsets, errors)
        left = self._library.flush(timeout)
        if errors:
            raise _refused(errors[0])
        assert left == 0, f"{left} messages are not delivered after {timeout:g} s"
        return [offsets[index] for index in range(count)]

    def _send_one(
        self, message: Message, index: int, offsets: dict[int, int], errors: list[KafkaError]
    ) -> None:
        def delivered(error: KafkaError | None, sent: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets[index] = sent.offset()

        while True:
            try:
                self._library.produce(
                    message.topic,
                    partition=message.partition,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    timestamp=message.timestamp_ms or 0,
                    on_delivery=delivered,
                )
            except BufferError:
                self._library.poll(0.1)
            except KafkaException as error:
                raise _refused(error.args[0]) from None
            else:
                self._library.poll(0)
                return

    def close(self) -> None:
        self._library.flush(5)


class Consumer:
    """`begin`: the offset of assigned partitions; OFFSET_INVALID = as committed."""

    def __init__(self, config: Mapping[str, Any], begin: int) -> None:
        self._library = LibraryConsumer(dict(config))
        self._begin = begin

    def subscribe(self, topics: Sequence[str]) -> None:
        self._library.subscribe(list(topics))

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._library.assign([LibraryPartition(*each, self._begin) for each in partitions])

    def assignment(self) -> set[TopicPartition]:
        return {(each.topic, each.partition) for each in self._library.assignment()}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                self._library.seek(LibraryPartition(*partition, offset))
            except KafkaException as error:
                # librdkafka seeks only once it has begun to fetch, and drops a seek that the begin
                # of the fetch, or a new leader, has overtaken.
                again = (KafkaError._STATE, KafkaError._OUTDATED)
                if error.args[0].code() not in again or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def poll(self, seconds: float) -> list[Record]:
        # `consume` would wait until it has as many as asked for.
        records: list[Record] = []
        message = self._library.poll(seconds)
        while message is not None and len(records) < POLLED_MAX:
            error = message.error()
            if error is None:
                records.append(_record(message))
            elif not error.retriable() and error.code() > 0:
                raise _refused(error)
            message = self._library.poll(0)
        if message is not None and message.error() is None:
            records.append(_record(message))
        return records

    def commit(self) -> None:
        try:
            self._library.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise _refused(error.args[0]) from None

    def commit_offset(self, partition: TopicPartition, offset: int) -> None:
        try:
            self._library.commit(offsets=[LibraryPartition(*partition, offset)], asynchronous=False)
        except KafkaException as error:
            raise _refused(error.args[0]) from None

    def committed(self, partition: TopicPartition) -> int | None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                (found,) = self._library.committed([LibraryPartition(*partition)], 30)
            except KafkaException as error:
                # It looks for the new coordinator, but leaves asking that one to its caller, where
                # the other clients ask again themselves.
                moved = error.args[0].code() == KafkaError.NOT_COORDINATOR
                if not moved or time.monotonic() >= deadline:
                    raise _refused(error.args[0]) from None
                time.sleep(0.1)
            else:
                break
        return None if found.offset == OFFSET_INVALID else int(found.offset)

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        try:
            low, high = self._library.get_watermark_offsets(LibraryPartition(*partition), 30)
        except KafkaException as error:
            raise _refused(error.args[0]) from None
        return low, high

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        (found,) = self._library.offsets_for_times([LibraryPartition(*partition, timestamp_ms)], 30)
        if found.error is not None:
            raise _refused(found.error)
        return int(found.offset) if found.offset >= 0 else None

    def close(self) -> None:
        assert is_closed(self._library, TIMEOUT_SECONDS), (
            "the consumer cannot be closed: it waits for an answer, or is locked up"
        )


def _record(message: Any) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=timestamp,
        timestamp_type=int(kind == TIMESTAMP_LOG_APPEND_TIME),
    )


class Admin:
    lacks: Mapping[str, str] = {
        "delete_group_offset": "its Python face lacks librdkafka's DeleteConsumerGroupOffsets",
        "log_dirs": "librdkafka has no DescribeLogDirs",
    }

    def __init__(self, bootstrap: str) -> None:
        self._library = AdminClient(_common(bootstrap))

    def _wait(self, futures: Mapping[Any, Any]) -> Any:
        (future,) = futures.values()
        try:
            return future.result(TIMEOUT_SECONDS)
        except KafkaException as error:
            raise _refused(error.args[0]) from None

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, config=dict(config or {}))
        self._wait(self._library.create_topics([topic]))

    def delete_topic(self, name: str) -> None:
        self._wait(self._library.delete_topics([name]))

    def grow_topic(self, name: str, partitions: int) -> None:
        self._wait(self._library.create_partitions([NewPartitions(name, partitions)]))

    def partitions(self, name: str) -> list[int]:
        topic = self._library.list_topics(name, 30).topics[name]
        if topic.error is not None:
            raise _refused(topic.error)
        return sorted(topic.partitions)

    def topics(self) -> set[str]:
        return set(self._library.list_topics(timeout=30).topics)

    def topic_config(self, name: str) -> dict[str, str | None]:
        return self._config(ResourceType.TOPIC, name)

    def broker_config(self, node: int) -> dict[str, str | None]:
        return self._config(ResourceType.BROKER, str(node))

    def _config(self, kind: ResourceType, name: str) -> dict[str, str | None]:
        found = self._wait(self._library.describe_configs([ConfigResource(kind, name)]))
        return {key: entry.value for key, entry in found.items()}

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        change = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])
        self._wait(self._library.incremental_alter_configs([resource]))

    def groups(self) -> set[str]:
        found = self._library.list_consumer_groups().result(TIMEOUT_SECONDS)
        if found.errors:
            raise _refused(found.errors[0].args[0])
        return {each.group_id for each in found.valid}

    def describe_group(self, group: str) -> tuple[str, int]:
        found = self._wait(self._library.describe_consumer_groups([group]))
        return found.state.name.title().replace("_", ""), len(found.members)

    def delete_group(self, group: str) -> None:
        self._wait(self._library.delete_consumer_groups([group]))

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        asked = [ConsumerGroupTopicPartitions(group)]
        found = self._wait(self._library.list_consumer_group_offsets(asked))
        return {
            (each.topic, each.partition): each.offset
            for each in found.topic_partitions
            if each.offset >= 0
        }

    def set_group_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        wanted = [LibraryPartition(*partition, offset)]
        change = [ConsumerGroupTopicPartitions(group, wanted)]
        found = self._wait(self._library.alter_consumer_group_offsets(change))
        for each in found.topic_partitions:
            if each.error is not None:
                raise _refused(each.error)

    def delete_group_offset(self, group: str, partition: TopicPartition) -> None:
        raise AssertionError(self.lacks["delete_group_offset"])

    def delete_records(self, partition: TopicPartition, before: int) -> int:
        found = self._wait(self._library.delete_records([LibraryPartition(*partition, before)]))
        return int(found.low_watermark)

    def brokers(self) -> set[int]:
        found = self._library.describe_cluster().result(TIMEOUT_SECONDS)
        return {node.id for node in found.nodes}

    def cluster_id(self) -> str:
        return str(self._library.describe_cluster().result(TIMEOUT_SECONDS).cluster_id)

    def log_dirs(self, node: int) -> dict[TopicPartition, int]:
        raise AssertionError(self.lacks["log_dirs"])

    def close(self) -> None:
        """Nothing: the library closes it when it is collected."""


def producer(
    bootstrap: str,
    *,
    compression: str = "none",
    idempotent: bool = False,
    max_bytes: int = 1_000_000,
    linger_ms: int = 0,
) -> Producer:
    return Producer(
        {
            **_common(bootstrap),
            "acks": "all",
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "message.max.bytes": max_bytes,
            "linger.ms": linger_ms,
        }
    )


def consumer(
    bootstrap: str,
    *,
    group: str | None = None,
    instance: str | None = None,
    reset: str = "earliest",
    session_timeout_ms: int = 10_000,
    max_bytes: int = 1_000_000,
    cooperative: bool = False,
) -> Consumer:
    config = {
        **_common(bootstrap),
        # librdkafka wants a group even where none is used.
        "group.id": group or "unused",
        "auto.offset.reset": reset,
        "enable.auto.commit": False,
        "session.timeout.ms": session_timeout_ms,
        "heartbeat.interval.ms": session_timeout_ms // 10,
        "max.partition.fetch.bytes": max_bytes,
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    if instance is not None:
        config["group.instance.id"] = instance
    if cooperative:
        config["partition.assignment.strategy"] = "cooperative-sticky"
    # A consumer without a group does not ask a coordinator, which may be on its way to a broker.
    return Consumer(config, OFFSET_INVALID if group is not None else BEGINS[reset])


def admin(bootstrap: str) -> Admin:
    return Admin(bootstrap)
