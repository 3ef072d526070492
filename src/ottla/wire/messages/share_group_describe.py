"""ShareGroupDescribe (key 77). Source: ShareGroupDescribe{Request,Response}.json; KIP-932."""

from ottla.base.ids import Uuid
from ottla.wire.schema import BOOL, INT16, INT32, STRING, UUID, array, field, message, struct_of


@message(key=77, versions="1", flexible="1+")
class ShareGroupDescribeRequest:
    group_ids: tuple[str, ...] = field(array(STRING), default=())
    include_authorized_operations: bool = field(BOOL)


@struct_of
class TopicPartitions:
    topic_id: Uuid = field(UUID)
    topic_name: str = field(STRING)
    partitions: tuple[int, ...] = field(array(INT32), default=())


@struct_of
class Assignment:
    topic_partitions: tuple[TopicPartitions, ...] = field(array(TopicPartitions))


@struct_of
class Member:
    member_id: str = field(STRING)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: tuple[str, ...] = field(array(STRING), default=())
    assignment: Assignment = field(Assignment)


@struct_of
class DescribedGroup:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: tuple[Member, ...] = field(array(Member))
    authorized_operations: int = field(INT32, default=-2_147_483_648)


@message(key=77, versions="1", flexible="1+")
class ShareGroupDescribeResponse:
    throttle_time_ms: int = field(INT32, default=0)
    groups: tuple[DescribedGroup, ...] = field(array(DescribedGroup))
