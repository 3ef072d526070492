"""The partition of `__remote_log_metadata`: what Kafka's RemoteLogMetadataTopicPartitioner answers.

The values are Kafka 4.3.1's own, for random topic ids; those for murmur2 are of Kafka's UtilsTest.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.tiered.metadata_partition import metadata_partition, murmur2


@pytest.mark.parametrize(
    ("topic_id", "partition", "count", "expected"),
    [
        ("0102030405060708090a0b0c0d0e0f10", 3, 50, 37),
        ("bb1ad57319b89cd868fb0e6f684df992", 54, 50, 32),
        ("0946b8f0552cf1e5a8ab85dcf7bed9d5", 148, 50, 49),
        ("0190e5722719b812f6b55bba28da1b7e", 162, 50, 46),
        ("5e76f39d81a8e924dd4d72731db004fb", 102, 50, 2),
        ("65ad3780e9f9789858f6f13d28ca7a36", 74, 7, 2),
        ("8dd7aee3f27b5db1e9340cfbefe49da9", 189, 1, 0),
    ],
)
def test_kafkas_answers(topic_id: str, partition: int, count: int, expected: int) -> None:
    assert metadata_partition(Uuid(bytes.fromhex(topic_id)), partition, count) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2(text: bytes, expected: int) -> None:
    assert murmur2(text) == expected % 2**32


def test_partitions_of_a_topic_spread() -> None:
    # Sequential partitions of one topic must not share a few partitions of the metadata topic.
    topic_id = Uuid(bytes(range(1, 17)))
    assert len({metadata_partition(topic_id, each, 50) for each in range(200)}) > 40
