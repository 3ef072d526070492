"""The configuration of a topic's logs on a broker: the topic's properties, and the broker's own."""

from typing import Any, Final

from ottla.metadata.image import ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.topic_config import effective_topic_config, follow_tiering

LOG_PROPERTIES: Final = (
    "producer.id.expiration.ms",
    "transaction.max.timeout.ms",
    "ottla.record.validation",
)
"""Broker properties, not topic properties, that a log needs."""


def log_values(image: ClusterImage, config: NodeConfig, topic: str) -> dict[str, Any]:
    """Return the typed values for `LogConfig.of`, as the topic's tiering state allows them."""
    values = effective_topic_config(image, config, topic)
    dynamic = config.dynamic(image)
    follow_tiering(
        values,
        has_remote_log=image.has_remote_log(topic),
        copies=image.copies_segments(topic),
    )
    return {**values, **{name: dynamic[name] for name in LOG_PROPERTIES}}
