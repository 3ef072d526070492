"""Options as Spark passes them: text values, names in any case.

Sources: Spark's KafkaSourceProvider for the names and rules of its Kafka connector, Kafka's
ConsumerConfig and ProducerConfig for what follows `kafka.`.
"""

import difflib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.client.transport import SecurityProtocolError, transport_of
from ottla.spark.errors import OptionError

log = logging.getLogger("ottla.spark")

KAFKA: Final = "kafka."
REMOTE_STORAGE: Final = "ottla.remote.storage.uri"

READ_NAMES: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "isolation",
    "verifyCrc",
    REMOTE_STORAGE,
    "ottla.topic.ids",
)
END_NAMES: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
WRITE_NAMES: Final = ("topic",)
BOTH_NAMES: Final = ("includeHeaders",)
CHECKPOINT: Final = "checkpointLocation"
STREAM_NAMES: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "commitGroup",
    "onRecreate",
    CHECKPOINT,
)
"""Without effect in a batch query; Spark's connector logs a warning."""

_REFUSED: Final = {
    "kafka.auto.offset.reset": "use startingOffsets instead",
    "kafka.key.deserializer": "keys are always read as binary; cast the column instead",
    "kafka.value.deserializer": "values are always read as binary; cast the column instead",
    "kafka.key.serializer": "keys are written as they are; cast the column instead",
    "kafka.value.serializer": "values are written as they are; cast the column instead",
    "kafka.enable.auto.commit": "offsets are not committed to the cluster",
    "kafka.interceptor.classes": "Java classes cannot be loaded here",
    "kafka.partitioner.class": "write a partition column instead",
    "kafka.transactional.id": "writing is at-least-once and does not use transactions",
}
_SECURITY: Final = ("kafka.sasl.", "kafka.ssl.")

_HONOURED: Final = frozenset(
    (
        "kafka.acks",
        "kafka.batch.size",
        "kafka.bootstrap.servers",
        "kafka.check.crcs",
        "kafka.client.id",
        "kafka.compression.gzip.level",
        "kafka.compression.lz4.level",
        "kafka.compression.type",
        "kafka.compression.zstd.level",
        "kafka.default.api.timeout.ms",
        "kafka.delivery.timeout.ms",
        "kafka.enable.idempotence",
        "kafka.fetch.max.bytes",
        "kafka.isolation.level",
        "kafka.max.partition.fetch.bytes",
        "kafka.max.request.size",
        "kafka.request.timeout.ms",
        "kafka.retry.backoff.ms",
        "kafka.security.protocol",
    )
)
_KNOWN: Final = READ_NAMES + WRITE_NAMES + BOTH_NAMES + STREAM_NAMES


@dataclass(frozen=True, slots=True)
class RawOptions:
    """The options of one query, by lower-case name."""

    options: Mapping[str, str]

    @staticmethod
    def of(options: Mapping[str, str]) -> "RawOptions":
        """Take the options; raise OptionError for those that no query supports."""
        raw = RawOptions({name.lower(): value for name, value in options.items()})
        for name in sorted(raw.options):
            raw._check_name(name)
        return raw

    def _check_name(self, name: str) -> None:
        if name.startswith(KAFKA):
            self._check_kafka_name(name)
        elif name == "path":
            raise OptionError(
                f"a path was given ({self.options[name]!r}): expected the topic in the option "
                "subscribe to read, in the option topic to write"
            )
        elif name not in map(str.lower, _KNOWN):
            raise OptionError(f"option {name} is not known{_suggestion(name, _KNOWN)}")

    def _check_kafka_name(self, name: str) -> None:
        if name in _REFUSED:
            raise OptionError(f"option {name} is not supported: {_REFUSED[name]}")
        if name == "kafka.security.protocol":
            try:
                transport_of(self.options[name])
            except SecurityProtocolError as error:
                raise OptionError(f"option {KAFKA}{error}") from None
        if name.startswith(_SECURITY):
            raise OptionError(f"option {name} is not supported: connections are PLAINTEXT only")

    def warnings(self) -> list[str]:
        """Return a warning for each option that is accepted without effect."""
        found = []
        for name in sorted(self.options):
            if name == "kafka.group.id":
                found.append(f"option {name} has no effect: no consumer group is joined")
            elif name.startswith(KAFKA) and name not in _HONOURED:
                found.append(f"option {name} has no effect{_suggestion(name, _HONOURED, 0.9)}")
        return found

    def batch_warnings(self) -> list[str]:
        """Return a warning for each option that has an effect in streams only."""
        return [
            f"option {name} has no effect in a batch query"
            for name in STREAM_NAMES
            if self.has(name)
        ]

    def refuse(self, names: Iterable[str], purpose: str) -> None:
        """Raise OptionError for options that are for the other direction only."""
        for name in names:
            if name.lower() in self.options:
                raise OptionError(f"option {name} is only for {purpose}")

    def has(self, name: str) -> bool:
        """Tell whether the option was given."""
        return name.lower() in self.options

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return the option without surrounding blanks."""
        value = self.options.get(name.lower())
        return default if value is None else value.strip()

    def number(self, name: str, default: int | None, least: int) -> int | None:
        """Return the option as an integer of `least` or more."""
        text = self.text(name)
        if text is None:
            return default
        value = as_integer(text)
        if value is None or value < least:
            raise OptionError(f"option {name}={text}: expected an integer from {least}")
        return value

    def count(self, name: str, default: int, least: int) -> int:
        """Return the option as an integer of `least` or more, which has a default."""
        value = self.number(name, default, least)
        assert value is not None
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return the option as a boolean."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(f"option {name}={text}: expected true or false")
        return text.lower() == "true"

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """Return the option as one of some words, in lower case."""
        text = self.text(name, default)
        assert text is not None
        if text.lower() not in choices:
            raise OptionError(f"option {name}={text}: expected {' or '.join(choices)}")
        return text.lower()


def as_integer(text: str) -> int | None:
    """Return the integer of plain decimal digits, else None."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() else None


def _suggestion(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    names = {each.lower(): each for each in sorted(known)}
    close = difflib.get_close_matches(name, names, n=1, cutoff=likeness)
    return f"; did you mean {names[close[0]]}?" if close else ""
