"""The options of a stream: the connector's defaults and rules, and ours.

Method: tables of options with their values or with a piece of the message they must give.
"""

import pytest

from ottla.spark.errors import OptionError
from ottla.spark.options import Edge, Offsets, Since
from ottla.spark.streaming.advance import OnRecreate
from ottla.spark.streaming.options import StreamOptions

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def stream(**options: str) -> StreamOptions:
    return StreamOptions.of(BASE | options)


def test_defaults() -> None:
    options = stream()
    assert options.read.starting is Edge.LATEST
    assert options.read.ending is Edge.LATEST
    assert options.read.fail_on_data_loss
    assert (options.offsets_max, options.offsets_min, options.bytes_max) == (None, None, None)
    assert options.delay_ms_max == 15 * 60_000
    assert options.commit_group is None
    assert options.on_recreate is OnRecreate.FAIL


def test_values() -> None:
    options = stream(
        MaxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="100",
        maxBytesPerTrigger="5",
        commitGroup=" g ",
        onRecreate="Restart",
    )
    assert (options.offsets_max, options.offsets_min, options.bytes_max) == (100, 100, 5)
    assert options.commit_group == "g"
    assert options.on_recreate is OnRecreate.RESTART


def test_a_stream_that_may_lose_data_goes_on_with_a_topic_that_was_re_created() -> None:
    assert stream(failOnDataLoss="false").on_recreate is OnRecreate.RESTART
    assert stream(failOnDataLoss="false", onRecreate="fail").on_recreate is OnRecreate.FAIL


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("250", 250),
        ("250ms", 250),
        ("30s", 30_000),
        ("2 min", 120_000),
        ("2m", 120_000),
        ("1H", 3_600_000),
        ("1d", 86_400_000),
        ("0", 0),
    ],
)
def test_durations(text: str, delay_ms: int) -> None:
    assert stream(maxTriggerDelay=text).delay_ms_max == delay_ms


def test_starts() -> None:
    assert stream(startingOffsets="earliest").read.starting is Edge.EARLIEST
    assert stream(startingOffsets="Latest").read.starting is Edge.LATEST
    found = stream(startingOffsets='{"t":{"0":-1,"1":-2,"2":7}}').read.starting
    assert found == Offsets({("t", 0): -1, ("t", 1): -2, ("t", 2): 7})
    assert stream(startingTimestamp="5").read.starting == Since(5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is only for batch queries"),
        ({"endingTimestamp": "5"}, "endingTimestamp is only for batch queries"),
        ({"startingOffsets": "soon"}, "expected earliest, latest or JSON"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "expected earliest, latest or JSON"),
        ({"maxOffsetsPerTrigger": "0"}, "expected an integer from 1"),
        ({"maxBytesPerTrigger": "5MB"}, "expected an integer from 1"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger=9: expected at most maxOffsetsPerTrigger=8",
        ),
        ({"maxTriggerDelay": "soon"}, "expected a duration such as"),
        ({"maxTriggerDelay": "5 weeks"}, "expected a duration such as"),
        ({"maxTriggerDelay": "-5s"}, "expected a duration such as"),
        ({"onRecreate": "skip"}, "expected fail or restart"),
        ({"commitGroup": " "}, "commitGroup is empty"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
    ],
)
def test_wrong_values(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        stream(**options)


def test_a_group_needs_brokers() -> None:
    alone = {"subscribe": "t", "ottla.remote.storage.uri": "file:///mnt/store"}
    assert StreamOptions.of(alone).read.cluster is None
    with pytest.raises(OptionError, match="commitGroup needs brokers"):
        StreamOptions.of(alone | {"commitGroup": "g"})
