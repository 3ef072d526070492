"""UpdateRaftVoter (key 82). Source: UpdateRaftVoter{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, STRING, UINT16, UUID, array, field, message, struct_of


@struct_of
class Listener:
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


@struct_of
class KRaftVersionFeature:
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


@message(key=82, versions="0", flexible="0+")
class UpdateRaftVoterRequest:
    cluster_id: str | None = field(STRING, nullable="0+")
    current_leader_epoch: int = field(INT32)
    voter_id: int = field(INT32)
    voter_directory_id: Uuid = field(UUID)
    listeners: tuple[Listener, ...] = field(array(Listener))
    k_raft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature)


@struct_of
class CurrentLeader:
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)
    host: str = field(STRING)
    port: int = field(INT32)


@message(key=82, versions="0", flexible="0+")
class UpdateRaftVoterResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    current_leader: CurrentLeader = field(
        CurrentLeader, tag=0, default=CurrentLeader(host="", port=0)
    )
