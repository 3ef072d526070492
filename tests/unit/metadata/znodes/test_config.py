"""Goal: configurations are read and written as Kafka 3.9 does.

Method: data that Kafka wrote, and what cannot be meant.
"""

import pytest
from immutables import Map

from ottla.metadata.znodes.config import ConfigZnode, decode_config, encode_config
from ottla.metadata.znodes.fields import ZnodeError

TOPIC = (2, "t")
WRITTEN = b'{"version":1,"config":{"cleanup.policy":"compact","retention.ms":"5"}}'


def test_it_is_written_as_it_was_read() -> None:
    znode = decode_config(TOPIC, WRITTEN)
    assert znode == ConfigZnode(Map({"retention.ms": "5", "cleanup.policy": "compact"}))
    assert encode_config(znode.values) == WRITTEN


def test_names_and_values_of_any_letters() -> None:
    data = encode_config({"x": 'ü"\\ \u2028'})
    assert decode_config(TOPIC, data).values["x"] == 'ü"\\ \u2028'


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":1}', b'{"version":1,"config":null}'])
def test_nothing_set(data: bytes) -> None:
    assert decode_config(TOPIC, data) == ConfigZnode()
    assert encode_config({}) == b'{"version":1,"config":{}}'


def test_unknown_fields_survive() -> None:
    data = WRITTEN[:-1] + b',"by":"a tool"}'
    znode = decode_config(TOPIC, data)
    assert encode_config(znode.values, znode.extra) == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"x=1", "expected JSON"),
        (b'{"version":1,"config":["x"]}', "expected an object"),
        (b'{"version":1,"config":{"x":1}}', "x is 1: expected a string"),
        (b'{"version":1,"config":{"x":null}}', "expected a string"),
    ],
)
def test_what_cannot_be_meant_names_the_path_and_what_was_expected(
    data: bytes, expected: str
) -> None:
    with pytest.raises(ZnodeError, match="/config/brokers/<default>: ") as caught:
        decode_config((4, ""), data)
    assert expected in caught.value.reason
