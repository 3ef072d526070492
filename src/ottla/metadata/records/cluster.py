"""The records of facts about the whole cluster: configurations, features, producer ids.

`NoOpRecord` is no fact: it lets the committed offset advance.
Source: Kafka's ConfigRecord, FeatureLevelRecord, ProducerIdsRecord; KIP-584, KIP-730, KIP-835.
"""

from ottla.wire.schema import INT8, INT16, INT32, INT64, STRING, field, record


@record(type=4, versions="0")
class ConfigRecord:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    """None = the override is removed."""


@record(type=12, versions="0")
class FeatureLevelRecord:
    name: str = field(STRING)
    feature_level: int = field(INT16)
    """0 = the feature is off."""


@record(type=15, versions="0")
class ProducerIdsRecord:
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    next_producer_id: int = field(INT64)
    """The first id of the next block."""


@record(type=20, versions="0")
class NoOpRecord:
    pass
