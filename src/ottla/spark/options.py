"""What a query reads: the options of Spark's Kafka source, parsed and checked.

What only streams have is in `streaming.options`.

Source: Spark's KafkaSourceProvider, KafkaOffsetRangeLimit and ConsumerStrategy.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from ottla.base.ids import Uuid, parse_uuid
from ottla.client.cluster import ClientConfig
from ottla.client.offsets import EARLIEST, LATEST
from ottla.client.partitions import TopicPartition
from ottla.spark.cluster_options import client_config
from ottla.spark.errors import OptionError
from ottla.spark.raw_options import (
    END_NAMES,
    REMOTE_STORAGE,
    WRITE_NAMES,
    RawOptions,
    as_integer,
)
from ottla.stores.uri import StoreUriError, parse_store_uri

ByPartition = Mapping[TopicPartition, int]

FETCH_BYTES: Final = 8 * 1024 * 1024
FETCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""Below the largest response that a connection accepts, with room for one oversized batch."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """All partitions of the topics whose whole name matches, without internal topics."""

    regex: str


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions."""

    partitions: tuple[TopicPartition, ...]


class Edge(Enum):
    """The ends of each partition's log."""

    EARLIEST = "earliest"
    LATEST = "latest"


_SPECIAL: Final = {Edge.EARLIEST: EARLIEST, Edge.LATEST: LATEST}
"""Offsets in JSON that are not offsets."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each partition; -2 = earliest, -1 = latest."""

    by_partition: ByPartition


@dataclass(frozen=True, slots=True)
class Since:
    """The first record of each partition that has this timestamp (ms) or a later one."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SinceEach:
    """As `Since`, with a timestamp for each partition."""

    by_partition: ByPartition


Subscription = Subscribe | Pattern | Assign
Limit = Edge | Offsets | Since | SinceEach


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a query reads; a stream has no end, so `ending` is then LATEST.

    Fields: `latest_where_none_since`: start at the latest offset where no record is that new,
            instead of an error.
            `poll_timeout_ms`: how long a task may make no progress.
            `fetch_bytes`: the approximate size of one fetch, and of one read of an object.
            `cluster`: None = no brokers: what the object store holds is read, by its manifests.
            `remote_storage`: the URI of the object store; None = brokers read it.
            `store_timeout_ms`: for one operation on the object store with all its retries.
            `topic_ids`: where the object store holds several topics of a name, these.
    """

    cluster: ClientConfig | None
    subscription: Subscription
    starting: Limit
    ending: Limit
    latest_where_none_since: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    poll_timeout_ms: int
    offset_retries: int
    offset_retry_ms: int
    read_committed: bool
    verify_crc: bool
    fetch_bytes: int
    remote_storage: str | None = None
    store_timeout_ms: int = 60_000
    topic_ids: frozenset[Uuid] = frozenset()

    @property
    def brokers(self) -> ClientConfig:
        """How to reach the brokers, for what only they have."""
        assert self.cluster is not None
        return self.cluster

    @staticmethod
    def of(options: Mapping[str, str], *, streaming: bool = False) -> "ReadOptions":
        """Parse the options; raise OptionError where one is missing or wrong."""
        raw = RawOptions.of(options)
        if streaming:
            raw.refuse(END_NAMES, "batch queries: a stream has no end")
        raw.refuse(WRITE_NAMES, "writing; to read a topic, use subscribe")
        subscription = _subscription(raw)
        remote_storage = _remote_storage(raw)
        strategy = raw.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
        return ReadOptions(
            cluster=_cluster(raw, remote_storage),
            subscription=subscription,
            starting=_limit(
                raw,
                "starting",
                Edge.LATEST if streaming else Edge.EARLIEST,
                (Edge.EARLIEST, Edge.LATEST) if streaming else (Edge.EARLIEST,),
            ),
            ending=_limit(raw, "ending", Edge.LATEST, (Edge.LATEST,)),
            latest_where_none_since=strategy == "latest",
            include_headers=raw.flag("includeHeaders", False),
            min_partitions=raw.number("minPartitions", None, 1),
            max_records_per_partition=raw.number("maxRecordsPerPartition", None, 1),
            fail_on_data_loss=raw.flag("failOnDataLoss", True),
            poll_timeout_ms=raw.count("kafkaConsumer.pollTimeoutMs", 120_000, 1),
            offset_retries=raw.count("fetchOffset.numRetries", 3, 0),
            offset_retry_ms=raw.count("fetchOffset.retryIntervalMs", 10, 0),
            read_committed=_isolation(raw) == "read_committed",
            verify_crc=raw.flag("verifyCrc", raw.flag("kafka.check.crcs", True)),
            fetch_bytes=_fetch_bytes(raw),
            remote_storage=remote_storage,
            store_timeout_ms=raw.count("kafka.default.api.timeout.ms", 60_000, 1),
            topic_ids=_topic_ids(raw),
        )


def _cluster(raw: RawOptions, remote_storage: str | None) -> ClientConfig | None:
    """Return how to reach the brokers; None where only the object store is to be read."""
    if remote_storage is not None and not raw.has("kafka.bootstrap.servers"):
        return None
    return client_config(raw)


def _remote_storage(raw: RawOptions) -> str | None:
    text = raw.text(REMOTE_STORAGE)
    if text is None:
        return None
    try:
        parse_store_uri(text)
    except StoreUriError as error:
        raise OptionError(f"option {REMOTE_STORAGE}={error}") from None
    return text


def _topic_ids(raw: RawOptions) -> frozenset[Uuid]:
    text = raw.text("ottla.topic.ids", "") or ""
    try:
        return frozenset(parse_uuid(each.strip()) for each in text.split(",") if each.strip())
    except ValueError:
        raise OptionError(
            f"option ottla.topic.ids={text}: expected ids of 22 characters, separated by commas"
        ) from None


def _isolation(raw: RawOptions) -> str:
    choices = ("read_uncommitted", "read_committed")
    kafka = raw.choice("kafka.isolation.level", "read_uncommitted", choices)
    return raw.choice("isolation", kafka, choices)


def _fetch_bytes(raw: RawOptions) -> int:
    partition = raw.count("kafka.max.partition.fetch.bytes", FETCH_BYTES, 1)
    return min(partition, raw.count("kafka.fetch.max.bytes", FETCH_BYTES_MAX, 1), FETCH_BYTES_MAX)


def _subscription(raw: RawOptions) -> Subscription:
    names = [name for name in ("assign", "subscribe", "subscribePattern") if raw.has(name)]
    if len(names) != 1:
        found = "none" if not names else " and ".join(names)
        raise OptionError(
            f"options say {found} of what to read: expected exactly one of subscribe, "
            "subscribePattern and assign"
        )
    name = names[0]
    text = raw.text(name) or ""
    if name == "assign":
        return Assign(_assigned(text))
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(
                f"option {name}={text}: expected a regular expression ({error})"
            ) from None
        if not text:
            raise OptionError(f"option {name} is empty: expected a regular expression")
        return Pattern(text)
    topics = sorted({topic.strip() for topic in text.split(",") if topic.strip()})
    if not topics:
        raise OptionError(f"option {name}={text}: expected topics, separated by commas")
    return Subscribe(tuple(topics))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    shape = 'JSON such as {"topic":[0,1]}'
    document = _json("assign", text, shape)
    partitions: set[TopicPartition] = set()
    for topic, numbers in document.items():
        if not isinstance(numbers, list) or not all(_is_number(each, 0) for each in numbers):
            raise OptionError(f"option assign={text}: expected {shape}")
        partitions |= {(topic, number) for number in numbers}
    if not partitions:
        raise OptionError(f"option assign={text}: expected at least one partition")
    return tuple(sorted(partitions))


def _limit(raw: RawOptions, side: str, default: Edge, allowed: tuple[Edge, ...]) -> Limit:
    """Return the start or end of a query: the most specific option wins, as in Spark's own."""
    name = f"{side}Timestamp"
    if raw.has(name):
        return Since(raw.count(name, 0, 0))
    name = f"{side}OffsetsByTimestamp"
    if raw.has(name):
        return SinceEach(
            _by_partition(name, raw.text(name) or "", 0, 'JSON such as {"topic":{"0":1000}}')
        )
    name = f"{side}Offsets"
    text = raw.text(name)
    if text is None:
        return default
    words = {each.value: each for each in Edge}
    shape = f"{', '.join(each.value for each in allowed)} or JSON"
    where = "start" if side == "starting" else "end"
    if text.lower() in words:
        if words[text.lower()] in allowed:
            return words[text.lower()]
        raise OptionError(
            f"option {name}={text}: a batch query cannot {where} there; expected {shape}"
        )
    offsets = _by_partition(name, text, EARLIEST, f'{shape} such as {{"topic":{{"0":23}}}}')
    banned = {_SPECIAL[each]: each for each in Edge if each not in allowed}
    for (topic, partition), offset in sorted(offsets.items()):
        if offset in banned:
            raise OptionError(
                f"option {name} says {offset} ({banned[offset].value}) for {topic}-{partition}: a "
                f"batch query cannot {where} there"
            )
    return Offsets(offsets)


def _by_partition(name: str, text: str, least: int, shape: str) -> ByPartition:
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _json(name, text, shape).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"option {name}={text}: expected {shape}")
        for partition, number in partitions.items():
            index = as_integer(partition)
            if index is None or index < 0 or not _is_number(number, least):
                raise OptionError(
                    f"option {name} says {partition}: {number} for {topic}: expected {shape}"
                )
            numbers[topic, index] = number
    if not numbers:
        raise OptionError(f"option {name}={text}: expected {shape}")
    return numbers


def _json(name: str, text: str, shape: str) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise OptionError(f"option {name}={text}: expected {shape} ({error})") from None
    if not isinstance(document, dict):
        raise OptionError(f"option {name}={text}: expected {shape}")
    return document


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
