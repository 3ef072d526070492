"""The options of Spark's Kafka source must mean here what they mean there.

Method: tables of options with their values or with a piece of the message they must give.
"""

from typing import Any

import pytest

from ottla.spark.errors import OptionError
from ottla.spark.options import (
    Assign,
    Edge,
    Offsets,
    Pattern,
    ReadOptions,
    Since,
    SinceEach,
    Subscribe,
)

BASE = {"kafka.bootstrap.servers": "localhost:9092"}
ONE = BASE | {"subscribe": "t"}


def read(**options: str) -> ReadOptions:
    return ReadOptions.of(ONE | options)


def test_defaults() -> None:
    options = read()
    assert options.subscription == Subscribe(("t",))
    assert options.starting is Edge.EARLIEST
    assert options.ending is Edge.LATEST
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert not options.read_committed
    assert not options.latest_where_none_since
    assert options.min_partitions is None
    assert options.max_records_per_partition is None
    assert options.offset_retries == 3
    assert options.verify_crc


@pytest.mark.parametrize(
    ("options", "subscription"),
    [
        ({"subscribe": "b, a,,a"}, Subscribe(("a", "b"))),
        ({"SubscribePattern": "a.*"}, Pattern("a.*")),
        ({"assign": '{"b":[1,0],"a":[2]}'}, Assign((("a", 2), ("b", 0), ("b", 1)))),
    ],
)
def test_subscriptions(options: dict[str, str], subscription: Any) -> None:
    assert ReadOptions.of(BASE | options).subscription == subscription


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of subscribe"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "assign and subscribe of what"),
        ({"subscribe": " , "}, "expected topics"),
        ({"subscribePattern": ""}, "empty"),
        ({"subscribePattern": "a("}, "regular expression"),
        ({"assign": "a"}, "JSON"),
        ({"assign": "[]"}, "JSON"),
        ({"assign": "{}"}, "at least one"),
        ({"assign": '{"a":[-1]}'}, "JSON"),
        ({"assign": '{"a":["0"]}'}, "JSON"),
        ({"assign": '{"a":[true]}'}, "JSON"),
        ({"assign": '{"a":{"0":1}}'}, "JSON"),
    ],
)
def test_wrong_subscriptions(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ReadOptions.of(BASE | options)


BOTH = {("t", 0): 5, ("t", 1): -2}


@pytest.mark.parametrize(
    ("options", "starting"),
    [
        ({"startingOffsets": "EARLIEST"}, Edge.EARLIEST),
        ({"startingOffsets": '{"t":{"0":5,"1":-2}}'}, Offsets(BOTH)),
        ({"startingTimestamp": "77"}, Since(77)),
        ({"startingOffsetsByTimestamp": '{"t":{"0":9}}'}, SinceEach({("t", 0): 9})),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":9}}', "startingOffsets": "earliest"},
            SinceEach({("t", 0): 9}),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":9}}', "startingTimestamp": "77"},
            Since(77),
        ),
    ],
)
def test_starts(options: dict[str, str], starting: Any) -> None:
    assert read(**options).starting == starting


def test_ends() -> None:
    assert read(endingOffsets="latest").ending is Edge.LATEST
    assert read(endingOffsets='{"t":{"0":-1}}').ending == Offsets({("t", 0): -1})
    assert read(endingTimestamp="5").ending == Since(5)
    assert read(endingOffsetsByTimestamp='{"t":{"3":5}}').ending == SinceEach({("t", 3): 5})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "cannot start there; expected earliest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, r"-1 \(latest\) for t-0"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "expected earliest or JSON"),
        ({"startingOffsets": '{"t":{"x":1}}'}, "expected earliest or JSON"),
        ({"startingOffsets": '{"t":[0]}'}, "expected earliest or JSON"),
        ({"startingOffsets": "soon"}, "expected earliest or JSON"),
        ({"startingOffsets": "{}"}, "expected earliest or JSON"),
        ({"endingOffsets": "earliest"}, "cannot end there; expected latest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, r"-2 \(earliest\) for t-0"),
        ({"startingTimestamp": "-1"}, "startingTimestamp=-1: expected an integer"),
        ({"startingTimestamp": "noon"}, "expected an integer"),
        ({"endingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "endingOffsetsByTimestamp"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"minPartitions": "0"}, "expected an integer from 1"),
        ({"maxRecordsPerPartition": "0"}, "expected an integer from 1"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"isolation": "snapshot"}, "read_uncommitted or read_committed"),
        ({"kafka.isolation.level": "x"}, "read_uncommitted or read_committed"),
        ({"topic": "t"}, "only for writing"),
    ],
)
def test_wrong_values(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read(**options)


def test_options_of_ours_win_over_kafka_ones() -> None:
    committed = {"kafka.isolation.level": "read_committed"}
    assert read(**committed).read_committed
    assert not read(isolation="read_uncommitted", **committed).read_committed
    assert not read(**{"kafka.check.crcs": "false"}).verify_crc
    assert read(verifyCrc="true", **{"kafka.check.crcs": "false"}).verify_crc


def test_fetch_sizes_are_bounded() -> None:
    assert read(**{"kafka.max.partition.fetch.bytes": "1000"}).fetch_bytes == 1000
    assert read(**{"kafka.fetch.max.bytes": "999"}).fetch_bytes == 999
    huge = read(**{"kafka.max.partition.fetch.bytes": str(1 << 31)})
    assert huge.fetch_bytes == 64 * 1024 * 1024


URI = "file:///mnt/store"


def test_the_object_store() -> None:
    assert read().remote_storage is None
    both = read(**{"ottla.remote.storage.uri": URI})
    assert (both.remote_storage, both.cluster is not None) == (URI, True)
    ids = "AAAAAAAAAAAAAAAAAAAAAQ, AAAAAAAAAAAAAAAAAAAAAg"
    alone = {"subscribe": "t", "Ottla.Remote.Storage.Uri": URI, "ottla.topic.ids": ids}
    options = ReadOptions.of(alone)
    assert options.cluster is None
    assert {each[-1] for each in options.topic_ids} == {1, 2}
    with pytest.raises(OptionError, match=r"servers is missing.*ottla.remote.storage.uri"):
        ReadOptions.of({"subscribe": "t"})


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("/mnt/store", "option ottla.remote.storage.uri=/mnt/store: expected file:///"),
        ("s3://key:secret@bucket", "credentials belong in the environment"),
        ("s3://bucket?secret_access_key=hush", "credentials .* belong in the environment"),
    ],
)
def test_wrong_stores(uri: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        read(**{"ottla.remote.storage.uri": uri})
    assert "hush" not in str(caught.value)
    assert "key:secret" not in str(caught.value)


def test_wrong_topic_ids() -> None:
    with pytest.raises(OptionError, match=r"ottla.topic.ids=7: expected ids of 22 characters"):
        read(**{"ottla.topic.ids": "7"})
