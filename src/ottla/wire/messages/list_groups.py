"""ListGroups (key 16). Source: ListGroups{Request,Response}.json; KIP-518, KIP-848."""

from ottla.wire.schema import INT16, INT32, STRING, array, field, message, struct_of


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: tuple[str, ...] = field(array(STRING), versions="4+", default=())
    types_filter: tuple[str, ...] = field(array(STRING), versions="5+", default=())


@struct_of
class ListedGroup:
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, versions="4+", default="", ignorable=True)
    group_type: str = field(STRING, versions="5+", default="", ignorable=True)


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = field(INT32, versions="1+", default=0, ignorable=True)
    error_code: int = field(INT16)
    groups: tuple[ListedGroup, ...] = field(array(ListedGroup))
