"""`meta.properties` of both versions, as Java writes properties.

Method: files as Kafka's tools leave them, escapes, damage, and foreign owners.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import parse_uuid
from ottla.log.dirs.checkpoints import MalformedFile
from ottla.log.dirs.meta_properties import (
    MetaProperties,
    check_meta_properties,
    decode_meta_properties,
    encode_meta_properties,
)

DIRECTORY_ID = parse_uuid("vPrf8GOdSvuGKTXo8bVbuQ")
KRAFT = b"""#
#Fri Oct 25 03:33:01 CEST 2024
node.id=1
directory.id=vPrf8GOdSvuGKTXo8bVbuQ
version=1
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
"""
ZOOKEEPER = b"broker.id = 3\nversion:0\n! a comment\n\ncluster.id=abc\n"


def test_version_1() -> None:
    properties = MetaProperties(
        version=1, cluster_id="MkU3OEVBNTcwNTJENDM2Qg", node_id=1, directory_id=DIRECTORY_ID
    )
    assert decode_meta_properties(KRAFT) == properties
    assert encode_meta_properties(properties) == (
        b"#\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\ndirectory.id=vPrf8GOdSvuGKTXo8bVbuQ\n"
        b"node.id=1\nversion=1\n"
    )


def test_version_0() -> None:
    properties = MetaProperties(version=0, cluster_id="abc", node_id=3)
    assert decode_meta_properties(ZOOKEEPER) == properties
    assert encode_meta_properties(properties) == b"#\nbroker.id=3\ncluster.id=abc\nversion=0\n"
    assert decode_meta_properties(b"") == MetaProperties(version=0)


def test_escapes() -> None:
    data = b"version=0\ncluster.id=a\\=b\\:c\\\\d\n"
    assert decode_meta_properties(data).cluster_id == r"a=b:c\d"
    properties = MetaProperties(version=0, cluster_id=r"a=b:c\d")
    assert b"cluster.id=a\\=b\\:c\\\\d" in encode_meta_properties(properties)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1))
def test_any_cluster_id_round_trips(cluster_id: str) -> None:
    properties = MetaProperties(cluster_id=cluster_id, node_id=1)
    assert decode_meta_properties(encode_meta_properties(properties)) == properties


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version=1\nnode.id=1\n", "cluster.id was not specified"),
        (b"version=1\ncluster.id=a\n", "node.id was not specified"),
        (b"version=2\ncluster.id=a\nnode.id=1\n", "version 2"),
        (b"version=x\n", "malformed"),
        (b"version=1\ncluster.id=a\nnode.id=one\n", "malformed"),
        (b"version=0\ndirectory.id=short\n", "malformed"),
        (b"no separator\n", "malformed"),
        (b"\xff=1\n", "malformed"),
    ],
)
def test_damage(data: bytes, message: str) -> None:
    with pytest.raises(MalformedFile, match=message):
        decode_meta_properties(data)


def test_only_the_owner_may_use_a_directory() -> None:
    properties = decode_meta_properties(KRAFT)
    check_meta_properties("p", properties, node_id=1, cluster_id="MkU3OEVBNTcwNTJENDM2Qg")
    check_meta_properties("p", properties, node_id=1, cluster_id=None)
    check_meta_properties("p", MetaProperties(version=0), node_id=1, cluster_id="x")
    with pytest.raises(ValueError, match=r"Invalid cluster\.id in: p\. Expected other, but read"):
        check_meta_properties("p", properties, node_id=1, cluster_id="other")
    with pytest.raises(ValueError, match="Stored node id 1 doesn't match the configured node id 2"):
        check_meta_properties("p", properties, node_id=2, cluster_id=None)
