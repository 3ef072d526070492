"""The record of one finalized feature. Source: Kafka's FeatureLevelRecord; KIP-584."""

from ottla.wire.schema import INT16, STRING, field, record


@record(type=12, versions="0")
class FeatureLevelRecord:
    name: str = field(STRING)
    feature_level: int = field(INT16)
    """0 = the feature is off."""
