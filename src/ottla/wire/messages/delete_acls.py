"""DeleteAcls (key 31). Source: DeleteAcls{Request,Response}.json."""

from ottla.wire.schema import INT8, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class DeleteAclsFilter:
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable="0+")
    pattern_type_filter: int = field(INT8, versions="1+", default=3)
    principal_filter: str | None = field(STRING, nullable="0+")
    host_filter: str | None = field(STRING, nullable="0+")
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsRequest:
    filters: tuple[DeleteAclsFilter, ...] = field(array(DeleteAclsFilter))


@struct_of
class DeleteAclsMatchingAcl:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, versions="1+", default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@struct_of
class DeleteAclsFilterResult:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    matching_acls: tuple[DeleteAclsMatchingAcl, ...] = field(array(DeleteAclsMatchingAcl))


@message(key=31, versions="0-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    filter_results: tuple[DeleteAclsFilterResult, ...] = field(array(DeleteAclsFilterResult))
