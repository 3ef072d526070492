"""Values of the control records of KRaft logs and snapshots. Source: LeaderChangeMessage.json,
Snapshot{Header,Footer}Record.json, KRaftVersionRecord.json, VotersRecord.json; KIP-853.
"""

from ottla.base.ids import NO_UUID, Uuid
from ottla.wire.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    array,
    field,
    message,
    struct_of,
)


@struct_of
class LeaderChangeMessageVoter:
    voter_id: int = field(INT32)
    voter_directory_id: Uuid = field(UUID, versions="1+", default=NO_UUID)


@message(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    version: int = field(INT16)
    leader_id: int = field(INT32)
    voters: tuple[LeaderChangeMessageVoter, ...] = field(array(LeaderChangeMessageVoter))
    granting_voters: tuple[LeaderChangeMessageVoter, ...] = field(array(LeaderChangeMessageVoter))


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    version: int = field(INT16)
    last_contained_log_timestamp: int = field(INT64)


@message(versions="0", flexible="0+")
class SnapshotFooterRecord:
    version: int = field(INT16)


@message(versions="0", flexible="0+")
class KRaftVersionRecord:
    version: int = field(INT16)
    k_raft_version: int = field(INT16)


@struct_of
class Endpoint:
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


@struct_of
class KRaftVersionFeature:
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


@struct_of
class VotersRecordVoter:
    voter_id: int = field(INT32)
    voter_directory_id: Uuid = field(UUID)
    endpoints: tuple[Endpoint, ...] = field(array(Endpoint))
    k_raft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature)


@message(versions="0", flexible="0+")
class VotersRecord:
    version: int = field(INT16)
    voters: tuple[VotersRecordVoter, ...] = field(array(VotersRecordVoter))
