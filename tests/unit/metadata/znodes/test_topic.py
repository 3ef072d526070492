"""Goal: a topic's znode is read in every version and written as Kafka 3.9 does.

Method: data as Kafka and its tools have written it, and what cannot be meant. Old controllers
that rewrite a znode are why unknown fields must survive (KAFKA-12835).
"""

import pytest

from ottla.base.ids import Uuid, parse_uuid
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.topic import Assignment, TopicZnode, decode_topic, encode_topic

ID = parse_uuid("RSZ--odYRlSOPGRgukKnAQ")

WRITTEN = (
    b'{"version":3,"partitions":{"0":[1,2],"1":[2,3,4]},"adding_replicas":{"1":[4]},'
    b'"removing_replicas":{"1":[2]},"topic_id":"RSZ--odYRlSOPGRgukKnAQ"}'
)


def again(znode: TopicZnode, topic_id: Uuid | None = None) -> bytes:
    return encode_topic(
        znode.partitions.items(),
        topic_id or znode.topic_id,
        version=znode.version,
        extra=znode.extra,
    )


def test_it_is_written_as_it_was_read() -> None:
    znode = decode_topic("t", WRITTEN)
    assert znode == TopicZnode(
        partitions={0: Assignment((1, 2)), 1: Assignment((2, 3, 4), (4,), (2,))}, topic_id=ID
    )
    assert again(znode) == WRITTEN


def test_kafkas_own_order_of_fields_is_read() -> None:
    # Kafka's fields come in the order of a hash map, another one for each Scala version.
    for data in (
        b'{"removing_replicas":{},"partitions":{"2":[2,1],"1":[1,3],"0":[3,2]},'
        b'"topic_id":"RSZ--odYRlSOPGRgukKnAQ","adding_replicas":{},"version":3}',
        b'{"partitions":{"0":[3,2],"1":[1,3],"2":[2,1]},"topic_id":"RSZ--odYRlSOPGRgukKnAQ",'
        b'"adding_replicas":{},"removing_replicas":{},"version":3}',
        b'{ "topic_id" : "RSZ--odYRlSOPGRgukKnAQ",\n "partitions" : {"1": [1, 3], "0": [3,2], '
        b'"2":[2,1]} ,\t"version": 3 }\n',
    ):
        znode = decode_topic("t", data)
        assert list(znode.partitions.items()) == [
            (0, Assignment((3, 2))),
            (1, Assignment((1, 3))),
            (2, Assignment((2, 1))),
        ]
        assert znode.topic_id == ID


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (b'{"version":1,"partitions":{"0":[1,2]}}', 1),
        (b'{"partitions":{"0":[1,2]}}', 1),
        (
            b'{"version":2,"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{}}',
            2,
        ),
    ],
)
def test_older_versions_have_no_id_and_are_written_as_the_present_one(
    data: bytes, version: int
) -> None:
    znode = decode_topic("t", data)
    assert znode == TopicZnode(partitions={0: Assignment((1, 2))}, version=version)
    assert again(znode, ID) == (
        b'{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{},'
        b'"topic_id":"RSZ--odYRlSOPGRgukKnAQ"}'
    )


def test_kafka_12835_unknown_fields_survive() -> None:
    data = WRITTEN.replace(b'"version":3', b'"version":4')[:-1] + b',"eras":{"0":["x",1.5,null]}}'
    znode = decode_topic("t", data)
    assert dict(znode.extra) == {"eras": {"0": ["x", 1.5, None]}}
    assert again(znode) == data


def test_an_id_of_zeros_is_none() -> None:
    data = b'{"version":3,"partitions":{"0":[1]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}'
    assert decode_topic("t", data).topic_id is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "expected JSON"),
        (b"null", "expected a JSON object"),
        (b"[1]", "expected a JSON object"),
        (b"\xff{}", "expected JSON"),
        (b'{"version":3}', "partitions is missing"),
        (b'{"version":0,"partitions":{"0":[1]}}', "expected 1 or more"),
        (b'{"version":"3","partitions":{"0":[1]}}', "expected an integer"),
        (b'{"version":true,"partitions":{"0":[1]}}', "expected an integer"),
        (b'{"version":3,"partitions":{}}', "without a gap"),
        (b'{"version":3,"partitions":{"0":[1],"2":[1]}}', "without a gap"),
        (b'{"version":3,"partitions":{"1":[1]}}', "without a gap"),
        (b'{"version":3,"partitions":{"x":[1]}}', "expected a decimal number"),
        (b'{"version":3,"partitions":{"0":[]}}', "expected different broker ids"),
        (b'{"version":3,"partitions":{"0":[1,1]}}', "expected different broker ids"),
        (b'{"version":3,"partitions":{"0":[-1]}}', "expected different broker ids"),
        (b'{"version":3,"partitions":{"0":["1"]}}', "expected a list of integers"),
        (b'{"version":3,"partitions":{"0":1}}', "expected a list of integers"),
        (b'{"version":3,"partitions":[[1]]}', "expected an object"),
        (b'{"version":3,"partitions":{"0":[1]},"adding_replicas":[1]}', "expected an object"),
        (b'{"version":3,"partitions":{"0":[1]},"topic_id":"short"}', "topic_id"),
        (b'{"version":3,"partitions":{"0":[1]},"topic_id":7}', "expected a string"),
    ],
)
def test_what_cannot_be_meant_names_the_path_and_what_was_expected(
    data: bytes, expected: str
) -> None:
    with pytest.raises(ZnodeError, match="/brokers/topics/t: ") as caught:
        decode_topic("t", data)
    assert expected in caught.value.reason


def test_what_was_found_is_shown_cut() -> None:
    with pytest.raises(ZnodeError) as caught:
        decode_topic("t", b'{"version":3,"partitions":"' + b"x" * 10_000 + b'"}')
    assert len(str(caught.value)) < 200
