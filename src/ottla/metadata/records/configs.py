"""The record of one configuration value. Source: Kafka's ConfigRecord schema, 4.0."""

from ottla.wire.schema import INT8, STRING, field, record


@record(type=4, versions="0")
class ConfigRecord:
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    """None = the override is removed."""
