"""The options of one write: those of Spark's Kafka sink and of Kafka's producer.

Source: Spark's KafkaSourceProvider; Kafka's ProducerConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.client.cluster import ClientConfig
from ottla.records.columnar.encoder import BATCH_BYTES
from ottla.records.compression import Codec
from ottla.spark.cluster_options import client_config
from ottla.spark.errors import OptionError
from ottla.spark.raw_options import READ_NAMES, RawOptions

_CODECS: Final = {codec.name.lower(): codec for codec in Codec}
_LEVELS: Final = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (1, 22)}
ALL: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """One write.

    Fields: `topic`: of all rows; None = the column `topic` of each row.
            `acks`: -1 = all in-sync replicas, 1 = the leader.
            `idempotent`: a retry within a task never writes a row twice.
            `batch_bytes`: bytes of a record batch before compression, at most.
            `delivery_timeout_ms`: how long a batch is retried.
    """

    cluster: ClientConfig
    topic: str | None
    codec: Codec
    level: int | None
    acks: int
    idempotent: bool
    batch_bytes: int
    delivery_timeout_ms: int

    @staticmethod
    def of(options: Mapping[str, str]) -> "WriteOptions":
        """Parse the options; raise OptionError where one is missing or wrong."""
        raw = RawOptions.of(options)
        raw.refuse(READ_NAMES, "reading; to write to a topic, use topic")
        topic = raw.text("topic")
        if topic == "":
            raise OptionError("option topic is empty: expected a topic's name")
        codec = _CODECS[raw.choice("kafka.compression.type", "none", tuple(_CODECS))]
        acks = _acks(raw)
        idempotent = raw.flag("kafka.enable.idempotence", acks == ALL)
        if idempotent and acks != ALL:
            raise OptionError("option kafka.acks=1: expected all with kafka.enable.idempotence")
        return WriteOptions(
            cluster=client_config(raw),
            topic=topic,
            codec=codec,
            level=_level(raw, codec),
            acks=acks,
            idempotent=idempotent,
            batch_bytes=min(
                raw.count("kafka.batch.size", BATCH_BYTES, 1),
                raw.count("kafka.max.request.size", BATCH_BYTES, 1),
            ),
            delivery_timeout_ms=raw.count("kafka.delivery.timeout.ms", 120_000, 1),
        )


def _acks(raw: RawOptions) -> int:
    text = raw.text("kafka.acks", "all")
    if text in ("all", "-1"):
        return ALL
    if text == "1":
        return 1
    raise OptionError(
        f"option kafka.acks={text}: expected all, -1 or 1; a task must know that its rows arrived"
    )


def _level(raw: RawOptions, codec: Codec) -> int | None:
    if codec not in _LEVELS:
        return None
    least, most = _LEVELS[codec]
    name = f"kafka.compression.{codec.name.lower()}.level"
    level = raw.number(name, None, least)
    if level is not None and level > most:
        raise OptionError(f"option {name}={level}: expected {least} to {most}")
    return level
