"""The durable state of elections: Kafka's `quorum-state` file.

One line of JSON. `data_version` 0 is for kraft.version 0, 1 for voters with directory ids. The file
is replaced, durably, before anything is sent or appended that depends on it.

Source: FileQuorumStateStore, QuorumStateData.json, ElectionState; KIP-595, KIP-853.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from ottla.base.ids import NO_UUID, Uuid, parse_uuid, uuid_text

FILE_NAME = "quorum-state"
VERSIONS = range(2)
NOBODY = -1


class QuorumStateError(Exception):
    """The `quorum-state` file is malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionState:
    """The latest known epoch, its leader and this member's vote in it.

    Fields: -1 = nobody (`leader_id`, `voted_id`); an elected leader's epoch keeps no vote.
            `voters` is written by version 0 only, for the reader of the file.
    """

    epoch: int
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory_id: Uuid = NO_UUID
    voters: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.epoch >= 0
        assert self.leader_id == NOBODY or self.voted_id == NOBODY, "a leader ends the vote"


def encode_election(state: ElectionState, version: int = 0) -> bytes:
    """Return the file's content."""
    assert version in VERSIONS
    fields: dict[str, Any] = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
    }
    if version == 0:
        fields = {"clusterId": ""} | fields | {"appliedOffset": 0}
        fields["currentVoters"] = [{"voterId": voter} for voter in state.voters]
    else:
        fields["votedDirectoryId"] = uuid_text(state.voted_directory_id)
    fields["data_version"] = version
    return msgspec.json.encode(fields)


def decode_election(data: bytes) -> ElectionState:
    """Return the state in a file's content. Raises: QuorumStateError where it is malformed."""
    try:
        fields = msgspec.json.decode(data.split(b"\n", 1)[0], type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise QuorumStateError(f"{FILE_NAME} is not JSON: {error}") from None
    version = fields.get("data_version")
    if version not in VERSIONS:
        raise QuorumStateError(f"{FILE_NAME} has data_version {version!r}, expected 0 or 1")
    voters = fields.get("currentVoters") or ()
    directory_id = fields.get("votedDirectoryId")
    try:
        leader_id = _integer(fields, "leaderId", NOBODY)
        voted_id = _integer(fields, "votedId", NOBODY)
        voted_directory_id = NO_UUID if directory_id is None else parse_uuid(directory_id)
        if leader_id != NOBODY:
            # Kafka 4 keeps the vote beside the leader who was elected by it.
            voted_id, voted_directory_id = NOBODY, NO_UUID
        return ElectionState(
            epoch=_integer(fields, "leaderEpoch", 0),
            leader_id=leader_id,
            voted_id=voted_id,
            voted_directory_id=voted_directory_id,
            voters=tuple(_integer(voter, "voterId", 0) for voter in voters),
        )
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        raise QuorumStateError(f"{FILE_NAME} is malformed: {error}") from None


def _integer(fields: dict[str, Any], name: str, least: int) -> int:
    value = fields.get(name)
    if type(value) is not int or value < least:
        raise ValueError(f"{name} is {value!r}")
    return value
