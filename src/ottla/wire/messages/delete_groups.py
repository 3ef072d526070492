"""DeleteGroups (key 42). Source: DeleteGroups{Request,Response}.json."""

from ottla.wire.schema import INT16, INT32, STRING, array, field, message, struct_of


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: tuple[str, ...] = field(array(STRING))


@struct_of
class DeletableGroupResult:
    group_id: str = field(STRING)
    error_code: int = field(INT16)


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: tuple[DeletableGroupResult, ...] = field(array(DeletableGroupResult))
