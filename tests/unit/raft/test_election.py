"""`quorum-state` reads and writes as Kafka's FileQuorumStateStore does.

Method: the two examples of its documentation, byte for byte; round trips; damage of every kind.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import NO_UUID, Uuid, parse_uuid
from ottla.raft.election import ElectionState, QuorumStateError, decode_election, encode_election

VERSION_0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
VERSION_1 = (
    b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ",'
    b'"data_version":1}'
)


def test_version_0_has_kafkas_fields_in_kafkas_order() -> None:
    state = ElectionState(epoch=2, leader_id=1, voters=(1,))
    data = encode_election(state)
    assert list(json.loads(data)) == [
        "clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters",
        "data_version",
    ]  # fmt: skip
    assert json.loads(data) == json.loads(VERSION_0)
    assert b"\n" not in data, "Kafka reads one line"


def test_version_1_names_the_voters_directory() -> None:
    state = ElectionState(
        epoch=2, voted_id=1, voted_directory_id=parse_uuid("J8aAPcfLQt2bqs1JT_rMgQ")
    )
    assert json.loads(encode_election(state, 1)) == json.loads(VERSION_1)
    assert decode_election(VERSION_1) == state


def test_what_follows_the_first_line_is_not_read() -> None:
    assert decode_election(VERSION_0 + b"\ngarbage") == decode_election(VERSION_0)


@given(
    st.integers(0, 2**31 - 1),
    st.integers(-1, 5),
    st.integers(-1, 5),
    st.lists(st.integers(0, 9), max_size=4),
)
def test_round_trip(epoch: int, leader_id: int, voted_id: int, voters: list[int]) -> None:
    if leader_id >= 0:
        voted_id = -1
    state = ElectionState(epoch=epoch, leader_id=leader_id, voted_id=voted_id, voters=tuple(voters))
    assert decode_election(encode_election(state)) == state


@given(st.binary(min_size=16, max_size=16))
def test_round_trip_of_version_1(directory_id: bytes) -> None:
    state = ElectionState(epoch=7, voted_id=3, voted_directory_id=Uuid(directory_id))
    assert decode_election(encode_election(state, 1)) == state


def test_the_vote_that_kafka_keeps_beside_its_leader_is_read_over() -> None:
    for content in (VERSION_0, VERSION_1):
        fields = json.loads(content) | {"leaderId": 1, "votedId": 3}
        state = decode_election(json.dumps(fields).encode())
        assert (state.leader_id, state.voted_id, state.voted_directory_id) == (1, -1, NO_UUID)


def test_null_voters_count_as_none() -> None:
    fields = json.loads(VERSION_0) | {"currentVoters": None}
    assert decode_election(json.dumps(fields).encode()).voters == ()
    assert decode_election(VERSION_0).voted_directory_id == NO_UUID


@pytest.mark.parametrize(
    "change",
    [
        {"data_version": 2},
        {"data_version": None},
        {"leaderEpoch": -1},
        {"leaderEpoch": "2"},
        {"leaderEpoch": True},
        {"leaderId": None},
        {"currentVoters": [1]},
        {"currentVoters": [{"voterId": -3}]},
        {"votedDirectoryId": "short"},
    ],
    ids=str,
)
def test_unsound_fields_are_refused(change: dict[str, object]) -> None:
    fields = json.loads(VERSION_0) | change
    with pytest.raises(QuorumStateError):
        decode_election(json.dumps(fields).encode())


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{", b"\xff\xfe", VERSION_0[:-1]])
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(QuorumStateError):
        decode_election(data)


@given(st.integers(0, len(VERSION_0) - 1), st.binary(min_size=1, max_size=1))
def test_one_damaged_byte_never_gives_anything_but_a_state_or_a_refusal(
    position: int, byte: bytes
) -> None:
    damaged = VERSION_0[:position] + byte + VERSION_0[position + 1 :]
    try:
        state = decode_election(damaged)
    except QuorumStateError:
        return
    assert state.epoch >= 0
