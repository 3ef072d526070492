"""RemoveRaftVoter (key 81). Source: RemoveRaftVoter{Request,Response}.json."""

from ottla.base.ids import Uuid
from ottla.wire.schema import INT16, INT32, STRING, UUID, field, message


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None = field(STRING, nullable="0+")
    voter_id: int = field(INT32)
    voter_directory_id: Uuid = field(UUID)


@message(key=81, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
