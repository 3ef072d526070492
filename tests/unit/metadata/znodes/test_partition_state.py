"""Goal: a partition's state is read and written as Kafka 3.9 does.

Method: data that Kafka wrote, and what cannot be meant.
"""

import pytest
from immutables import Map

from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.partition_state import StateZnode, decode_state, encode_state

WRITTEN = b'{"version":1,"leader":2,"leader_epoch":5,"controller_epoch":7,"isr":[2,1]}'
STATE = StateZnode(leader=2, leader_epoch=5, controller_epoch=7, isr=(2, 1))


def test_it_is_written_as_it_was_read() -> None:
    assert decode_state("t", 0, WRITTEN) == STATE
    assert encode_state(STATE) == WRITTEN


def test_kafkas_own_order_of_fields_is_read() -> None:
    data = b'{"controller_epoch":7,"leader":2,"version":1,"leader_epoch":5,"isr":[2,1]}'
    assert decode_state("t", 0, data) == STATE


def test_a_recovery_is_written_only_while_it_lasts() -> None:
    data = WRITTEN[:-1] + b',"leader_recovery_state":1}'
    state = decode_state("t", 0, data)
    assert state.leader_recovery_state == 1
    assert encode_state(state) == data
    assert decode_state("t", 0, WRITTEN[:-1] + b',"leader_recovery_state":0}') == STATE


def test_broker_epochs_are_kept_by_id() -> None:
    data = WRITTEN[:-1] + b',"ottla_broker_epochs":{"1":70,"2":9}}'
    state = decode_state("t", 0, data)
    assert state.broker_epochs == Map({2: 9, 1: 70})
    assert encode_state(state) == data
    none_known = WRITTEN[:-1] + b',"ottla_broker_epochs":{}}'
    assert decode_state("t", 0, none_known).broker_epochs == Map()
    assert encode_state(decode_state("t", 0, none_known)) == none_known
    assert decode_state("t", 0, WRITTEN).broker_epochs is None


def test_unknown_fields_survive() -> None:
    data = WRITTEN[:-1] + b',"era":{"x":1}}'
    assert encode_state(decode_state("t", 0, data)) == data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "expected JSON"),
        (WRITTEN.replace(b'"leader":2,', b""), "leader is missing"),
        (WRITTEN.replace(b"[2,1]", b"[2,null]"), "expected a list of integers"),
        (WRITTEN.replace(b"[2,1]", b'"2,1"'), "expected a list of integers"),
        (WRITTEN.replace(b":5,", b":-1,"), "expected 0 or more"),
        (WRITTEN.replace(b":5,", b":5.0,"), "expected an integer"),
        (WRITTEN[:-1] + b',"leader_recovery_state":2}', "expected 0 or 1"),
        (WRITTEN[:-1] + b',"ottla_broker_epochs":[1]}', "expected an object"),
        (WRITTEN[:-1] + b',"ottla_broker_epochs":{"a":1}}', "expected a decimal number"),
        (WRITTEN[:-1] + b',"ottla_broker_epochs":{"1":"2"}}', "expected an integer"),
    ],
)
def test_what_cannot_be_meant_names_the_path_and_what_was_expected(
    data: bytes, expected: str
) -> None:
    with pytest.raises(ZnodeError, match="/brokers/topics/t/partitions/3/state: ") as caught:
        decode_state("t", 3, data)
    assert expected in caught.value.reason
