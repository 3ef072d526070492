"""kafka-python behind the tests' face for clients.

Its own bindings for snappy and zstd (python-snappy, zstandard) are not among the dependencies;
cramjam stands in for both, so that every compression is tried with this client too. Only the
codec's bytes come from there: framing, as snappy's blocks, stays kafka-python's.
"""

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import cramjam
import kafka.codec
from kafka.admin import ConfigResource
from kafka.structs import OffsetAndMetadata

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as LibraryPartition
from kafka import errors as library_errors

from .clients import TIMEOUT_SECONDS, Message, Record, Refused, TopicPartition

NAME = "kafka_python"


class _ZstdCompressor:
    def compress(self, data: bytes) -> bytes:
        return bytes(cramjam.zstd.compress(bytes(data)))


class _ZstdDecompressor:
    def stream_reader(self, stream: io.BytesIO, read_across_frames: bool = True) -> io.BytesIO:
        return io.BytesIO(bytes(cramjam.zstd.decompress(stream.read())))


if not kafka.codec.has_snappy():
    kafka.codec.snappy = SimpleNamespace(
        compress=lambda data: bytes(cramjam.snappy.compress_raw(bytes(data))),
        decompress=lambda data: bytes(cramjam.snappy.decompress_raw(bytes(data))),
    )
if not kafka.codec.has_zstd():
    kafka.codec.zstd = SimpleNamespace(
        ZstdCompressor=_ZstdCompressor, ZstdDecompressor=_ZstdDecompressor
    )


def _common(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "reconnect_backoff_ms": 20,
        "reconnect_backoff_max_ms": 200,
    }


def _asked(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except library_errors.BrokerResponseError as error:
        raise Refused(error.errno, str(error)) from None


class Producer:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._library = KafkaProducer(**config)

    def send(self, messages: Iterable[Message], *, timeout: float = TIMEOUT_SECONDS) -> list[int]:
        futures = [_asked(partial(self._send_one, message)) for message in messages]
        self._library.flush(timeout)
        return [_asked(partial(future.get, timeout)).offset for future in futures]

    def _send_one(self, message: Message) -> Any:
        return self._library.send(
            message.topic,
            value=message.value,
            key=message.key,
            headers=list(message.headers),
            partition=message.partition,
            timestamp_ms=message.timestamp_ms,
        )

    def close(self) -> None:
        self._library.close(5)


class Consumer:
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._library = KafkaConsumer(**config)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._library.subscribe(list(topics))

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._library.assign([LibraryPartition(*each) for each in partitions])

    def assignment(self) -> set[TopicPartition]:
        return {(each.topic, each.partition) for each in self._library.assignment()}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._library.seek(LibraryPartition(*partition), offset)

    def poll(self, seconds: float) -> list[Record]:
        self._hold_on_to_rejoin()
        try:
            found = _asked(lambda: self._library.poll(timeout_ms=int(seconds * 1000)))
        except library_errors.KafkaConnectionError:
            return []  # It raises where the others try again by themselves.
        return [_record(each) for records in found.values() for each in records]

    def _hold_on_to_rejoin(self) -> None:
        """Make it finish a rejoin that outlasts one poll.

        kafka-python 3.0.12 looks for the answer to its JoinGroup only while it finds a reason to
        join. Where the reason was new metadata, a leader that assigns by it takes that reason away
        itself; it then neither takes its partitions nor beats, with any broker. Java's client
        keeps a mark that a rejoin is pending; so does this.
        """
        coordinator = self._library._coordinator
        if coordinator.rejoining:
            coordinator.request_rejoin()

    def commit(self) -> None:
        try:
            _asked(self._library.commit)
        except library_errors.CommitFailedError as error:
            raise Refused(library_errors.IllegalGenerationError.errno, str(error)) from None
        except library_errors.KafkaConnectionError as error:
            # As with `poll`: its coordinator has just died.
            raise Refused(library_errors.CoordinatorNotAvailableError.errno, str(error)) from None

    def commit_offset(self, partition: TopicPartition, offset: int) -> None:
        wanted = {LibraryPartition(*partition): OffsetAndMetadata(offset, "", -1)}
        _asked(lambda: self._library.commit(wanted))

    def committed(self, partition: TopicPartition) -> int | None:
        found: int | None = _asked(lambda: self._library.committed(LibraryPartition(*partition)))
        return found

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        asked = LibraryPartition(*partition)
        low = _asked(lambda: self._library.beginning_offsets([asked]))[asked]
        return low, _asked(lambda: self._library.end_offsets([asked]))[asked]

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        asked = LibraryPartition(*partition)
        found = _asked(lambda: self._library.offsets_for_times({asked: timestamp_ms}))[asked]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        self._library.close(autocommit=False)


def _record(record: Any) -> Record:
    return Record(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=_bytes(record.key),
        value=_bytes(record.value),
        headers=tuple((name, _bytes(value)) for name, value in record.headers),
        timestamp_ms=record.timestamp,
        timestamp_type=record.timestamp_type,
    )


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


class Admin:
    lacks: Mapping[str, str] = {}

    def __init__(self, bootstrap: str) -> None:
        self._library = KafkaAdminClient(**_common(bootstrap))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        topic = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": dict(config or {}),
        }
        found = _asked(lambda: self._library.create_topics({name: topic}, raise_errors=False))
        _check_topic(found["topics"][0])

    def delete_topic(self, name: str) -> None:
        found = _asked(lambda: self._library.delete_topics([name], raise_errors=False))
        _check_topic(found["topics"][0])

    def grow_topic(self, name: str, partitions: int) -> None:
        found = _asked(
            lambda: self._library.create_partitions({name: partitions}, raise_errors=False)
        )
        _check_topic(found["results"][0] if isinstance(found, dict) else found.results[0].to_dict())

    def partitions(self, name: str) -> list[int]:
        (topic,) = _asked(lambda: self._library.describe_topics([name]))
        _check_topic(topic)
        return sorted(each["partition_index"] for each in topic["partitions"])

    def topics(self) -> set[str]:
        return set(_asked(self._library.list_topics))

    def topic_config(self, name: str) -> dict[str, str | None]:
        return self._config("topic", name)

    def broker_config(self, node: int) -> dict[str, str | None]:
        return self._config("broker", str(node))

    def _config(self, kind: str, name: str) -> dict[str, str | None]:
        asked = [ConfigResource(kind, name)]
        found = _asked(lambda: self._library.describe_configs(asked, config_filter="all"))
        return {key: entry["value"] for key, entry in found[kind][name].items()}

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        change = [ConfigResource("topic", name, {key: value})]
        found = _asked(lambda: self._library.alter_configs(change, raise_on_unknown=False))
        result = found["topic"][name]
        if result != "OK":
            code = re.match(r"\[Error (\d+)\]", result)
            assert code is not None, result
            raise Refused(int(code[1]), result)

    def groups(self) -> set[str]:
        return {each["group_id"] for each in _asked(self._library.list_groups)}

    def describe_group(self, group: str) -> tuple[str, int]:
        found = _asked(lambda: self._library.describe_groups([group]))[group]
        return str(found["group_state"]), len(found["members"])

    def delete_group(self, group: str) -> None:
        result = _asked(lambda: self._library.delete_groups([group]))[group]
        if result != "OK":
            raise Refused(getattr(library_errors, result).errno, result)

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        found = _asked(lambda: self._library.list_group_offsets(group))[group]
        return {(each.topic, each.partition): value.offset for each, value in found.items()}

    def set_group_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        change = {LibraryPartition(*partition): OffsetAndMetadata(offset, "", -1)}
        self._check_one(_asked(lambda: self._library.alter_group_offsets(group, change)))

    def delete_group_offset(self, group: str, partition: TopicPartition) -> None:
        asked = [LibraryPartition(*partition)]
        self._check_one(_asked(lambda: self._library.delete_group_offsets(group, asked)))

    def _check_one(self, results: Mapping[Any, Any]) -> None:
        (error,) = results.values()
        if error.errno != 0:
            raise Refused(error.errno, error.__name__)

    def delete_records(self, partition: TopicPartition, before: int) -> int:
        asked = LibraryPartition(*partition)
        found = _asked(lambda: self._library.delete_records({asked: before}))[asked]
        return int(found["low_watermark"])

    def brokers(self) -> set[int]:
        return {each["broker_id"] for each in _asked(self._library.describe_cluster)["brokers"]}

    def cluster_id(self) -> str:
        return str(_asked(self._library.describe_cluster)["cluster_id"])

    def log_dirs(self, node: int) -> dict[TopicPartition, int]:
        (broker,) = _asked(lambda: self._library.describe_log_dirs(brokers=[node]))
        return {
            (topic["name"], each["partition_index"]): each["partition_size"]
            for directory in broker["log_dirs"]
            for topic in directory["topics"]
            for each in topic["partitions"]
        }

    def close(self) -> None:
        self._library.close()


def _check_topic(result: Mapping[str, Any]) -> None:
    if result["error_code"] != 0:
        raise Refused(result["error_code"], str(result.get("error_message")))


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
            "compression_type": None if compression == "none" else compression,
            "enable_idempotence": idempotent,
            "max_request_size": max_bytes,
            "linger_ms": linger_ms,
            "max_block_ms": 30_000,
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
    assert not cooperative, "kafka-python has no cooperative assignor"
    return Consumer(
        {
            **_common(bootstrap),
            "group_id": group,
            "group_instance_id": instance,
            "auto_offset_reset": reset,
            "enable_auto_commit": False,
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": session_timeout_ms // 10,
            "max_partition_fetch_bytes": max_bytes,
            "fetch_max_wait_ms": 100,
            "metadata_max_age_ms": 1000,
        }
    )


def admin(bootstrap: str) -> Admin:
    return Admin(bootstrap)
