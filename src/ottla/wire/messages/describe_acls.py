"""DescribeAcls (key 29). Source: DescribeAcls{Request,Response}.json."""

from ottla.wire.schema import INT8, INT16, INT32, STRING, array, field, message, struct_of


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable="0+")
    pattern_type_filter: int = field(INT8, versions="1+", default=3)
    principal_filter: str | None = field(STRING, nullable="0+")
    host_filter: str | None = field(STRING, nullable="0+")
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@struct_of
class AclDescription:
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@struct_of
class DescribeAclsResource:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, versions="1+", default=3)
    acls: tuple[AclDescription, ...] = field(array(AclDescription))


@message(key=29, versions="0-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    resources: tuple[DescribeAclsResource, ...] = field(array(DescribeAclsResource))
