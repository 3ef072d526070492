"""Goal: who decides is read and written as Kafka 3.9 does. Method: data that Kafka wrote."""

import pytest

from ottla.metadata.znodes.controller import (
    ControllerZnode,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from ottla.metadata.znodes.fields import ZnodeError

WRITTEN = b'{"version":2,"brokerid":3,"timestamp":"1719917952299","kraftControllerEpoch":-1}'


def test_it_is_written_as_it_was_read() -> None:
    znode = decode_controller(WRITTEN)
    assert znode == ControllerZnode(broker_id=3, timestamp_ms=1719917952299)
    assert encode_controller(znode) == WRITTEN


def test_version_1_knows_nothing_of_kraft() -> None:
    data = b'{"version":1,"brokerid":3,"timestamp":"1719917952299"}'
    assert decode_controller(data) == ControllerZnode(broker_id=3, timestamp_ms=1719917952299)


def test_a_kraft_controllers_epoch_is_read() -> None:
    assert decode_controller(WRITTEN.replace(b"-1", b"9")).kraft_controller_epoch == 9


def test_the_epoch_is_decimal_text() -> None:
    assert decode_controller_epoch(b"12") == 12
    assert encode_controller_epoch(12) == b"12"
    for data in (b"", b"x", b"1.5", b"\xff"):
        with pytest.raises(ZnodeError, match=r"/controller_epoch: .*expected a decimal number"):
            decode_controller_epoch(data)


@pytest.mark.parametrize("data", [b"", b"3", b'{"version":1}', b'{"version":1,"brokerid":"3"}'])
def test_what_cannot_be_meant_names_the_path(data: bytes) -> None:
    with pytest.raises(ZnodeError, match=r"/controller: .*expected"):
        decode_controller(data)
