"""Goal: what tools ask for by znodes is read and written as Kafka 3.9 does.

Method: data as Kafka's tools and people write it.
"""

import pytest

from ottla.metadata.znodes.admin import (
    decode_preferred_election,
    decode_reassignment,
    encode_preferred_election,
    encode_reassignment,
)
from ottla.metadata.znodes.fields import ZnodeError


def test_a_reassignment_is_written_as_it_was_read() -> None:
    data = (
        b'{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]},'
        b'{"topic":"bar","partition":3,"replicas":[]}]}'
    )
    assert decode_reassignment(data) == {("foo", 0): (1, 2), ("bar", 3): ()}
    assert encode_reassignment(decode_reassignment(data)) == data


def test_the_json_that_the_reassignment_tool_prints_is_taken() -> None:
    data = (
        b'{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2],'
        b'"log_dirs":["any","any"]}, {"partition": 0, "topic": "foo", "replicas": [3] }]}\n'
    )
    assert decode_reassignment(data) == {("foo", 0): (3,)}


def test_a_preferred_election_is_written_as_it_was_read() -> None:
    data = b'{"version":1,"partitions":[{"topic":"foo","partition":0},{"topic":"a","partition":1}]}'
    assert decode_preferred_election(data) == (("foo", 0), ("a", 1))
    assert encode_preferred_election(decode_preferred_election(data)) == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"invalid json", "expected JSON"),
        (b"{}", "partitions is missing"),
        (b'{"partitions":{"topic":"foo"}}', "expected a list"),
        (b'{"partitions":["foo-0"]}', "a partition's topic and number"),
        (b'{"partitions":[{"topic":"foo"}]}', "partition is missing"),
        (b'{"partitions":[{"topic":"foo","partition":0}]}', "replicas is missing"),
        (b'{"partitions":[{"topic":"foo","partition":0,"replicas":[null]}]}', "list of integers"),
    ],
)
def test_what_cannot_be_meant_names_the_path_and_what_was_expected(
    data: bytes, expected: str
) -> None:
    with pytest.raises(ZnodeError, match="/admin/reassign_partitions: ") as caught:
        decode_reassignment(data)
    assert expected in caught.value.reason
