"""aiokafka behind the tests' face for clients: an event loop in a thread of its own each."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as LibraryPartition
from aiokafka import errors as library_errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from .clients import TIMEOUT_SECONDS, Message, Record, Refused, TopicPartition

NAME = "aiokafka"

WAIT_SECONDS = TIMEOUT_SECONDS + 30


class _Loop:
    """Runs coroutines for callers that wait."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(WAIT_SECONDS)
        except library_errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async def called() -> Any:
            return function(*arguments)

        return self.run(called())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class _Facade:
    """A library object that lives on a loop: made, started and stopped there."""

    def __init__(self, kind: Any, config: Mapping[str, Any]) -> None:
        self._loop = _Loop()
        self._library: Any = self._loop.call(lambda: kind(**config))
        self._run(self._start())

    async def _start(self) -> None:
        try:
            await self._library.start()
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        stop = getattr(self._library, "stop", None) or self._library.close
        await stop()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run(coroutine)

    def close(self) -> None:
        try:
            self._run(self._stop())
        finally:
            self._loop.close()


class Producer(_Facade):
    def send(self, messages: Iterable[Message], *, timeout: float = TIMEOUT_SECONDS) -> list[int]:
        found: list[int] = self._run(asyncio.wait_for(self._send(messages), timeout))
        return found

    async def _send(self, messages: Iterable[Message]) -> list[int]:
        futures = [
            await self._library.send(
                message.topic,
                value=message.value,
                key=message.key,
                partition=message.partition,
                timestamp_ms=message.timestamp_ms,
                headers=list(message.headers),
            )
            for message in messages
        ]
        results = await asyncio.gather(*futures, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result.offset for result in results]  # type: ignore[union-attr]


class Consumer(_Facade):
    def subscribe(self, topics: Sequence[str]) -> None:
        self._loop.call(self._library.subscribe, list(topics))

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._loop.call(self._library.assign, [LibraryPartition(*each) for each in partitions])

    def assignment(self) -> set[TopicPartition]:
        return {(each.topic, each.partition) for each in self._library.assignment()}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._loop.call(self._library.seek, LibraryPartition(*partition), offset)

    def poll(self, seconds: float) -> list[Record]:
        found = self._run(self._library.getmany(timeout_ms=int(seconds * 1000)))
        return [_record(each) for records in found.values() for each in records]

    def commit(self) -> None:
        try:
            self._run(self._library.commit())
        except library_errors.CommitFailedError as error:
            raise Refused(library_errors.IllegalGenerationError.errno, str(error)) from None

    def commit_offset(self, partition: TopicPartition, offset: int) -> None:
        self._run(self._library.commit({LibraryPartition(*partition): offset}))

    def committed(self, partition: TopicPartition) -> int | None:
        found: int | None = self._run(self._library.committed(LibraryPartition(*partition)))
        return found

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        asked = LibraryPartition(*partition)
        low = self._run(self._library.beginning_offsets([asked]))[asked]
        return low, self._run(self._library.end_offsets([asked]))[asked]

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        asked = LibraryPartition(*partition)
        found = self._run(self._library.offsets_for_times({asked: timestamp_ms}))[asked]
        return None if found is None else int(found.offset)


def _record(record: Any) -> Record:
    return Record(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type=record.timestamp_type,
    )


class Admin(_Facade):
    lacks: Mapping[str, str] = {
        "delete_group": "aiokafka's admin client has no DeleteGroups",
        "set_group_offset": "aiokafka's admin client has no OffsetCommit",
        "delete_group_offset": "aiokafka's admin client has no OffsetDelete",
        "log_dirs": "aiokafka's admin client has no DescribeLogDirs",
    }

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, topic_configs=dict(config or {}))
        _check(self._run(self._library.create_topics([topic])).topic_errors[0][1:])

    def delete_topic(self, name: str) -> None:
        answer = self._run(self._library.delete_topics([name]))
        _check(answer.topic_error_codes[0][1:])

    def grow_topic(self, name: str, partitions: int) -> None:
        self._run(self._library.create_partitions({name: NewPartitions(partitions)}))

    def partitions(self, name: str) -> list[int]:
        (topic,) = self._run(self._library.describe_topics([name]))
        _check((topic["error_code"], ""))
        return sorted(each["partition"] for each in topic["partitions"])

    def topics(self) -> set[str]:
        return set(self._run(self._library.list_topics()))

    def topic_config(self, name: str) -> dict[str, str | None]:
        return self._config(ConfigResourceType.TOPIC, name)

    def broker_config(self, node: int) -> dict[str, str | None]:
        return self._config(ConfigResourceType.BROKER, str(node))

    def _config(self, kind: Any, name: str) -> dict[str, str | None]:
        (answer,) = self._run(self._library.describe_configs([ConfigResource(kind, name)]))
        (found,) = answer.resources
        _check(found[:2])
        return {entry[0]: entry[1] for entry in found[4]}

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        change = ConfigResource(ConfigResourceType.TOPIC, name, configs={key: value})
        (answer,) = self._run(self._library.alter_configs([change]))
        _check(answer.resources[0][:2])

    def groups(self) -> set[str]:
        return {each[0] for each in self._run(self._library.list_consumer_groups())}

    def describe_group(self, group: str) -> tuple[str, int]:
        (answer,) = self._run(self._library.describe_consumer_groups([group]))
        (found,) = answer.groups
        _check((found[0], ""))
        return found[2], len(found[5])

    def delete_group(self, group: str) -> None:
        raise AssertionError(self.lacks["delete_group"])

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        found = self._run(self._library.list_consumer_group_offsets(group))
        return {(each.topic, each.partition): value.offset for each, value in found.items()}

    def set_group_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        raise AssertionError(self.lacks["set_group_offset"])

    def delete_group_offset(self, group: str, partition: TopicPartition) -> None:
        raise AssertionError(self.lacks["delete_group_offset"])

    def delete_records(self, partition: TopicPartition, before: int) -> int:
        asked = {LibraryPartition(*partition): RecordsToDelete(before)}
        (low,) = self._run(self._library.delete_records(asked)).values()
        return int(low)

    def brokers(self) -> set[int]:
        return {each["node_id"] for each in self._run(self._library.describe_cluster())["brokers"]}

    def cluster_id(self) -> str:
        return str(self._run(self._library.describe_cluster())["cluster_id"])

    def log_dirs(self, node: int) -> dict[TopicPartition, int]:
        raise AssertionError(self.lacks["log_dirs"])


def _check(result: Sequence[Any]) -> None:
    if result[0] != 0:
        raise Refused(result[0], str(result[1] if len(result) > 1 else ""))


def producer(
    bootstrap: str,
    *,
    compression: str = "none",
    idempotent: bool = False,
    max_bytes: int = 1_000_000,
    linger_ms: int = 0,
) -> Producer:
    return Producer(
        AIOKafkaProducer,
        {
            "bootstrap_servers": bootstrap,
            "acks": "all",
            "compression_type": None if compression == "none" else compression,
            "enable_idempotence": idempotent,
            "max_request_size": max_bytes,
            "linger_ms": linger_ms,
        },
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
    assert not cooperative, "aiokafka has no cooperative assignor"
    return Consumer(
        AIOKafkaConsumer,
        {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "group_instance_id": instance,
            "auto_offset_reset": reset,
            "enable_auto_commit": False,
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": session_timeout_ms // 10,
            "max_partition_fetch_bytes": max_bytes,
            "fetch_max_wait_ms": 100,
            "metadata_max_age_ms": 1000,
        },
    )


def admin(bootstrap: str) -> Admin:
    return Admin(AIOKafkaAdminClient, {"bootstrap_servers": bootstrap})
