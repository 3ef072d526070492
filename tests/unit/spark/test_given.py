"""Options that make no sense must fail by name, wherever they are misspelt.

Method: tables of names and values with a piece of the message that each must give.
"""

import pytest

from ottla.spark.errors import OptionError
from ottla.spark.given import Given, as_integer


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("subcribe", "t", "did you mean subscribe"),
        ("startingoffset", "earliest", "did you mean startingOffsets"),
        ("zzz", "1", "option zzz is not known"),
        ("path", "t", "expected the topic in the option subscribe"),
        ("kafka.auto.offset.reset", "latest", "use startingOffsets"),
        ("kafka.enable.auto.commit", "true", "nothing is ever committed"),
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
        Given.of({name: value})


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("maxOffsetsPerTrigger", "maxOffsetsPerTrigger has no effect in a batch query"),
        ("kafka.group.id", "no consumer group"),
        ("kafka.linger.ms", "has no effect"),
        ("kafka.bootstrap.server", "did you mean kafka.bootstrap.servers"),
    ],
)
def test_accepted_with_a_warning(name: str, warning: str) -> None:
    (found,) = Given.of({name: "1"}).warnings()
    assert warning in found


def test_nothing_to_warn_of() -> None:
    given = Given.of(
        {"SUBSCRIBE": "t", "kafka.Bootstrap.servers": "h:1", "kafka.security.protocol": "plaintext"}
    )
    assert given.warnings() == []
    assert given.text("subscribe") == "t"


def test_values() -> None:
    given = Given.of({"minPartitions": " 7 ", "failOnDataLoss": "TRUE", "isolation": "a"})
    assert given.number("minPartitions", None, 1) == 7
    assert given.number("maxRecordsPerPartition", None, 1) is None
    assert given.count("fetchOffset.numRetries", 3, 0) == 3
    assert given.flag("failOnDataLoss", False)
    assert given.flag("verifyCrc", True)
    with pytest.raises(OptionError, match="isolation=a: expected b or c"):
        given.choice("isolation", "b", ("b", "c"))
    with pytest.raises(OptionError, match="minPartitions=7: expected an integer from 8"):
        given.number("minPartitions", None, 8)
    with pytest.raises(OptionError, match="expected true or false"):
        Given.of({"verifyCrc": "yes"}).flag("verifyCrc", True)
    with pytest.raises(OptionError, match="option isolation is only for reading"):
        given.refuse(["isolation"], "reading")


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-2", -2), ("", None), ("1.5", None), ("1_0", None), ("٣", None), ("--1", None)],
)
def test_integers(text: str, number: int | None) -> None:
    assert as_integer(text) == number
