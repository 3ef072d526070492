"""DescribeGroups (key 15). Source: DescribeGroups{Request,Response}.json; KIP-1043."""

from ottla.wire.schema import BOOL, BYTES, INT16, INT32, STRING, array, field, message, struct_of


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: tuple[str, ...] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL, versions="3+", default=False)


@struct_of
class DescribedGroupMember:
    member_id: str = field(STRING)
    group_instance_id: str | None = field(
        STRING, versions="4+", nullable="4+", default=None, ignorable=True
    )
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


@struct_of
class DescribedGroup:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, versions="6+", nullable="6+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: tuple[DescribedGroupMember, ...] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, versions="3+", default=-2_147_483_648)
    """One bit for each AclOperation; the lowest number = not asked for."""


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = field(INT32, versions="1+", default=0, ignorable=True)
    groups: tuple[DescribedGroup, ...] = field(array(DescribedGroup))
