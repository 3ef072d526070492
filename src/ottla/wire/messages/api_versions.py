"""ApiVersions (key 18). Source: ApiVersions{Request,Response}.json; KIP-511."""

from ottla.wire.schema import BOOL, INT16, INT32, INT64, STRING, array, field, message, struct_of


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = field(STRING, versions="3+", default="", ignorable=True)
    client_software_version: str = field(STRING, versions="3+", default="", ignorable=True)


@struct_of
class ApiVersion:
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct_of
class SupportedFeatureKey:
    name: str = field(STRING)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


@struct_of
class FinalizedFeatureKey:
    name: str = field(STRING)
    max_version_level: int = field(INT16)
    min_version_level: int = field(INT16)


@message(key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    error_code: int = field(INT16)
    api_keys: tuple[ApiVersion, ...] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, versions="1+", default=0, ignorable=True)
    supported_features: tuple[SupportedFeatureKey, ...] = field(
        array(SupportedFeatureKey), versions="3+", tag=0, default=(), ignorable=True
    )
    finalized_features_epoch: int = field(INT64, versions="3+", tag=1, default=-1, ignorable=True)
    finalized_features: tuple[FinalizedFeatureKey, ...] = field(
        array(FinalizedFeatureKey), versions="3+", tag=2, default=(), ignorable=True
    )
    zk_migration_ready: bool = field(BOOL, versions="3+", tag=3, default=False, ignorable=True)
