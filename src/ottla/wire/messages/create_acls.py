"""CreateAcls (key 30). Source: CreateAcls{Request,Response}.json."""

from ottla.wire.schema import INT8, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class AclCreation:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, versions="1+", default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsRequest:
    creations: tuple[AclCreation, ...] = field(array(AclCreation))


@struct_of
class AclCreationResult:
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@message(key=30, versions="0-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: tuple[AclCreationResult, ...] = field(array(AclCreationResult))
