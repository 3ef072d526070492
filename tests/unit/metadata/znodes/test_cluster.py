"""Goal: what there is one of is read and written as Kafka 3.9 does. Method: Kafka's data."""

import pytest
from immutables import Map

from ottla.metadata.znodes.cluster import (
    FeatureZnode,
    ProducerIdBlock,
    decode_cluster_id,
    decode_feature,
    decode_producer_ids,
    encode_cluster_id,
    encode_feature,
    encode_producer_ids,
)
from ottla.metadata.znodes.fields import ZnodeError


def test_the_cluster_id_is_written_as_it_was_read() -> None:
    data = b'{"version":"1","id":"5u0cOTdbRv6g3VsaIWjTGw"}'
    assert decode_cluster_id(data) == "5u0cOTdbRv6g3VsaIWjTGw"
    assert encode_cluster_id("5u0cOTdbRv6g3VsaIWjTGw") == data
    with pytest.raises(ZnodeError, match="/cluster/id: id is missing"):
        decode_cluster_id(b"{}")


def test_features_are_written_as_they_were_read() -> None:
    data = b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}'
    znode = decode_feature(data)
    assert znode == FeatureZnode(enabled=True, levels=Map({"f": 3}))
    assert encode_feature(znode.levels) == data


def test_what_kafka_writes_first_has_no_features() -> None:
    data = b'{"features":{},"version":2,"status":1}'
    assert decode_feature(data) == FeatureZnode(enabled=True)


def test_version_1_and_a_status_of_off() -> None:
    data = (
        b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    )
    assert decode_feature(data) == FeatureZnode(enabled=False, levels=Map({"f": 3}))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"version":3,"status":1,"features":{}}', "expected 1 or 2"),
        (b'{"version":2,"features":{}}', "status is missing"),
        (b'{"version":2,"status":2,"features":{}}', "expected 0 or 1"),
        (b'{"version":2,"status":1,"features":{"f":{}}}', "max_version_level is missing"),
        (b'{"version":2,"status":1,"features":{"f":3}}', "expected its level"),
        (b'{"version":2,"status":1,"features":{"f":{"max_version_level":0}}}', "1 or more"),
    ],
)
def test_features_that_cannot_be_meant(data: bytes, expected: str) -> None:
    with pytest.raises(ZnodeError, match="/feature: ") as caught:
        decode_feature(data)
    assert expected in caught.value.reason


def test_producer_ids_are_written_as_they_were_read() -> None:
    data = b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'
    block = decode_producer_ids(data)
    assert block == ProducerIdBlock(2, 1000, 1999)
    assert encode_producer_ids(block) == data


def test_no_producer_ids_are_allocated_yet() -> None:
    assert decode_producer_ids(b"") is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"version":1,"broker":2,"block_start":1000,"block_end":"1999"}', "expected a string"),
        (b'{"version":1,"broker":2,"block_start":"x","block_end":"1999"}', "a decimal number"),
        (
            b'{"version":1,"broker":2,"block_start":"0","block_end":"' + b"9" * 5_000 + b'"}',
            "a decimal number",
        ),
        (b'{"version":1,"broker":2,"block_start":"2000","block_end":"1999"}', "a block of ids"),
    ],
)
def test_producer_ids_that_cannot_be_meant(data: bytes, expected: str) -> None:
    with pytest.raises(ZnodeError, match="/latest_producer_id_block: ") as caught:
        decode_producer_ids(data)
    assert expected in caught.value.reason
