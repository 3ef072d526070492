"""Options that make no sense must fail by name, wherever they are misspelt.

Method: tables of names and values with a piece of the message that each must give.
"""

import pytest

from ottla.spark.errors import OptionError
from ottla.spark.raw_options import RawOptions, as_integer


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("subcribe", "t", "did you mean subscribe"),
        ("startingoffset", "earliest", "did you mean startingOffsets"),
        ("zzz", "1", "option zzz is not known"),
        ("path", "t", "expected the topic in the option subscribe"),
        ("kafka.auto.offset.reset", "latest", "use startingOffsets"),
        ("kafka.enable.auto.commit", "true", "offsets are not committed"),
        ("kafka.key.deserializer", "x", "binary"),
        ("kafka.value.serializer", "x", "cast"),
        ("kafka.interceptor.classes", "x", "not supported"),
        ("kafka.partitioner.class", "x", "partition column"),
        ("kafka.transactional.id", "x", "at-least-once"),
        ("kafka.security.protocol", "SASL_SSL", "expected PLAINTEXT"),
        ("kafka.sasl.mechanism", "PLAIN", "PLAINTEXT only"),
        ("kafka.ssl.truststore.location", "x", "PLAINTEXT only"),
    ],
)
def test_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        RawOptions.of({name: value})


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("kafka.group.id", "no consumer group"),
        ("kafka.linger.ms", "has no effect"),
        ("kafka.bootstrap.server", "did you mean kafka.bootstrap.servers"),
    ],
)
def test_accepted_with_a_warning(name: str, warning: str) -> None:
    (found,) = RawOptions.of({name: "1"}).warnings()
    assert warning in found


def test_options_of_streams() -> None:
    raw = RawOptions.of({"commitgroup": "g", "subscribe": "t"})
    assert raw.warnings() == []
    assert raw.batch_warnings() == ["option commitGroup has no effect in a batch query"]


def test_nothing_to_warn_of() -> None:
    raw = RawOptions.of(
        {"SUBSCRIBE": "t", "kafka.Bootstrap.servers": "h:1", "kafka.security.protocol": "plaintext"}
    )
    assert raw.warnings() == []
    assert raw.text("subscribe") == "t"


def test_values() -> None:
    raw = RawOptions.of({"minPartitions": " 7 ", "failOnDataLoss": "TRUE", "isolation": "a"})
    assert raw.number("minPartitions", None, 1) == 7
    assert raw.number("maxRecordsPerPartition", None, 1) is None
    assert raw.count("fetchOffset.numRetries", 3, 0) == 3
    assert raw.flag("failOnDataLoss", False)
    assert raw.flag("verifyCrc", True)
    with pytest.raises(OptionError, match="isolation=a: expected b or c"):
        raw.choice("isolation", "b", ("b", "c"))
    with pytest.raises(OptionError, match="minPartitions=7: expected an integer from 8"):
        raw.number("minPartitions", None, 8)
    with pytest.raises(OptionError, match="expected true or false"):
        RawOptions.of({"verifyCrc": "yes"}).flag("verifyCrc", True)
    with pytest.raises(OptionError, match="option isolation is only for reading"):
        raw.refuse(["isolation"], "reading")


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-2", -2), ("", None), ("1.5", None), ("1_0", None), ("٣", None), ("--1", None)],
)
def test_integers(text: str, number: int | None) -> None:
    assert as_integer(text) == number
