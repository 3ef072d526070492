"""One face for the three clients that the tests drive: confluent-kafka, kafka-python, aiokafka.

Each test body runs unchanged for all of them, so the face holds what the tests need and hides
only how a client says it. A client's own refusal comes out as `Refused` with the broker's error
code. Where a client lacks something its `lacks` says so, with the reason, and tests choose their
clients by it: nothing is skipped silently.
"""

import importlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeVar

NAMES = ("confluent", "kafka_python", "aiokafka")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_SECONDS = 60.0

TopicPartition = tuple[str, int]
Headers = tuple[tuple[str, bytes | None], ...]
T = TypeVar("T")


class Refused(Exception):
    """The broker refused: `code` is its error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"error {code}: {text}")
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is produced. Without a timestamp, the client's clock gives one."""

    topic: str
    partition: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is consumed. `timestamp_type`: 0 = the producer's clock, 1 = the broker's."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: int


class Producer(Protocol):
    """A producer with acks=all."""

    def send(self, messages: Iterable[Message], *, timeout: float = TIMEOUT_SECONDS) -> list[int]:
        """Send all and wait; return their offsets. Raises Refused at the first refused one."""
        ...

    def close(self) -> None: ...


class Consumer(Protocol):
    """A consumer that commits only when told to."""

    def subscribe(self, topics: Sequence[str]) -> None: ...

    def assign(self, partitions: Sequence[TopicPartition]) -> None: ...

    def assignment(self) -> set[TopicPartition]: ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def poll(self, seconds: float) -> list[Record]:
        """Return what is there, waiting up to `seconds` for the first record."""
        ...

    def commit(self) -> None:
        """Commit the positions, and wait until the broker has them. Raises Refused."""
        ...

    def commit_offset(self, partition: TopicPartition, offset: int) -> None:
        """Commit one offset, whatever the position is. Raises Refused."""
        ...

    def committed(self, partition: TopicPartition) -> int | None: ...

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the log start and the high watermark, as the broker says them now."""
        ...

    def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None: ...

    def close(self) -> None:
        """Leave the group, if any, and close."""
        ...


class Admin(Protocol):
    """Administration. Every call raises Refused where the broker refuses."""

    lacks: Mapping[str, str]
    """Calls that the client does not offer, and why they are missing here."""

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    def grow_topic(self, name: str, partitions: int) -> None: ...

    def partitions(self, name: str) -> list[int]: ...

    def topics(self) -> set[str]: ...

    def topic_config(self, name: str) -> dict[str, str | None]: ...

    def broker_config(self, node: int) -> dict[str, str | None]: ...

    def set_topic_config(self, name: str, key: str, value: str) -> None: ...

    def groups(self) -> set[str]: ...

    def describe_group(self, group: str) -> tuple[str, int]:
        """Return its state, as Kafka names it, and the number of its members."""
        ...

    def delete_group(self, group: str) -> None: ...

    def group_offsets(self, group: str) -> dict[TopicPartition, int]: ...

    def set_group_offset(self, group: str, partition: TopicPartition, offset: int) -> None: ...

    def delete_group_offset(self, group: str, partition: TopicPartition) -> None: ...

    def delete_records(self, partition: TopicPartition, before: int) -> int:
        """Return the new log start."""
        ...

    def brokers(self) -> set[int]: ...

    def cluster_id(self) -> str: ...

    def log_dirs(self, node: int) -> dict[TopicPartition, int]:
        """Return the bytes of each partition that a broker hosts."""
        ...

    def close(self) -> None: ...


class Client(Protocol):
    """One library. Each of the three modules is one of these."""

    NAME: str

    def producer(
        self,
        bootstrap: str,
        *,
        compression: str = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
        linger_ms: int = 0,
    ) -> Producer: ...

    def consumer(
        self,
        bootstrap: str,
        *,
        group: str | None = None,
        instance: str | None = None,
        reset: str = "earliest",
        session_timeout_ms: int = 10_000,
        max_bytes: int = 1_000_000,
        cooperative: bool = False,
    ) -> Consumer: ...

    def admin(self, bootstrap: str) -> Admin: ...


def client_of(name: str) -> Client:
    """Return a client; only then its library is imported."""
    module: Any = importlib.import_module(f".{name}_client", __package__)
    return module  # type: ignore[no-any-return]


class Closing:
    """`with` for producers, consumers and admins."""

    def __init__(self, *things: Any) -> None:
        self._things = things

    def __enter__(self) -> Any:
        return self._things if len(self._things) > 1 else self._things[0]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for thing in self._things:
            thing.close()


def eventually(
    ask: Callable[[], T],
    holds: Callable[[T], bool] = bool,
    *,
    within: float = TIMEOUT_SECONDS,
    what: str = "the condition",
) -> T:
    """Ask again and again until the answer holds; return it. Fails with the last answer.

    In long waits four times as long passes between two questions as one takes: a command takes
    much of a core.
    """
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        answer = ask()
        if holds(answer):
            return answer
        now = time.monotonic()
        assert now - began < within, f"{what} within {within:g} s; last: {answer!r}"
        time.sleep(max(0.05, min(4 * (now - asked), (now - began) / 20, 1.0)))


def read(consumer: Consumer, count: int, *, within: float = TIMEOUT_SECONDS) -> list[Record]:
    """Poll until `count` records came; fails where more or fewer come."""
    deadline = time.monotonic() + within
    records: list[Record] = []
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records in {within:g} s"
        records += consumer.poll(0.5)
    assert len(records) == count
    return records


def read_partition(
    client: Client,
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    max_bytes: int = 1_000_000,
) -> list[Record]:
    """Return the `count` records of one partition, read from its start by a new consumer."""
    with Closing(client.consumer(bootstrap, max_bytes=max_bytes)) as consumer:
        consumer.assign([(topic, partition)])
        return read(consumer, count)


def produce(
    client: Client, bootstrap: str, messages: Iterable[Message], **options: Any
) -> list[int]:
    """Send messages with a new producer; return their offsets."""
    with Closing(client.producer(bootstrap, **options)) as producer:
        offsets: list[int] = producer.send(messages)
        return offsets
