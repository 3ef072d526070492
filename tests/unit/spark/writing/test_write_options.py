"""The options of Spark's Kafka sink and of Kafka's producer. Method: tables."""

import pytest

from ottla.records.compression import Codec
from ottla.spark.errors import OptionError
from ottla.spark.writing.write_options import ALL, WriteOptions

BASE = {"kafka.bootstrap.servers": "localhost:9092"}


def test_defaults() -> None:
    options = WriteOptions.of(BASE)
    assert options.topic is None
    assert options.codec is Codec.NONE
    assert options.acks == ALL
    assert options.idempotent
    assert options.batch_bytes < 1_000_000 + 12 + 48_576


def test_values() -> None:
    options = WriteOptions.of(
        BASE
        | {
            "topic": " t ",
            "kafka.compression.type": "ZSTD",
            "kafka.compression.zstd.level": "19",
            "kafka.batch.size": "16384",
            "includeHeaders": "true",
        }
    )
    assert options.topic == "t"
    assert (options.codec, options.level) == (Codec.ZSTD, 19)
    assert options.batch_bytes == 16384
    assert not WriteOptions.of(BASE | {"kafka.acks": "1"}).idempotent
    assert WriteOptions.of(BASE | {"kafka.acks": "-1"}).idempotent
    assert WriteOptions.of(BASE | {"kafka.compression.gzip.level": "3"}).level is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": " "}, "topic is empty"),
        ({"subscribe": "t"}, "only for reading; to write to a topic, use topic"),
        ({"kafka.acks": "0"}, "must know that its rows arrived"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "expected all"),
        ({"kafka.compression.type": "brotli"}, "none or gzip or snappy or lz4 or zstd"),
        ({"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "10"}, "1 to 9"),
        ({"kafka.batch.size": "0"}, "from 1"),
    ],
)
def test_wrong_values(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        WriteOptions.of(BASE | options)
