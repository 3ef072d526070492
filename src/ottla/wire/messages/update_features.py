"""UpdateFeatures (key 57). Source: UpdateFeatures{Request,Response}.json."""

from ottla.wire.schema import BOOL, INT8, INT16, INT32, STRING, array, field, message, struct_of


@struct_of
class FeatureUpdateKey:
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    """The new level; 0 = remove the feature."""
    allow_downgrade: bool = field(BOOL, versions="0", default=False)
    upgrade_type: int = field(INT8, versions="1+", default=1)
    """1 = upgrade only, 2 = safe downgrade too, 3 = unsafe downgrade too."""


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int = field(INT32, default=60_000)
    feature_updates: tuple[FeatureUpdateKey, ...] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOL, versions="1+", default=False)


@struct_of
class UpdatableFeatureResult:
    feature: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    results: tuple[UpdatableFeatureResult, ...] = field(
        array(UpdatableFeatureResult), versions="0-1", default=(), ignorable=True
    )
