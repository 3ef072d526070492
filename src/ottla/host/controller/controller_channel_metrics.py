"""The metrics of a controller's channels. Source: the MBeans of ControllerChannelManager."""

from collections.abc import Iterator

from ottla.base.metrics import Family, counter, gauge, histogram
from ottla.host.controller.controller_channel import ControllerChannels

PREFIX = "kafka_controller_controller_channel_manager"


def channel_families(channels: ControllerChannels) -> Iterator[Family]:
    """Yield queue sizes, queue times and retries."""
    sizes = channels.queue_sizes()
    yield gauge(
        f"{PREFIX}_total_queue_size",
        "Requests of the controller that wait for brokers.",
        sum(size for _, size in sizes),
    )
    yield gauge(
        f"{PREFIX}_queue_size",
        "Requests of the controller that wait for a broker.",
        [((("broker_id", str(broker_id)),), size) for broker_id, size in sizes],
    )
    counted = sorted(channels.metrics.items())
    yield histogram(
        f"{PREFIX}_request_queue_time_seconds",
        "How long requests waited before they were first sent.",
        [((("broker_id", str(broker_id)),), each.queue_time) for broker_id, each in counted],
    )
    yield counter(
        "ottla_controller_channel_retries_total",
        "Requests that were sent once more, since no answer had come.",
        [((("broker_id", str(broker_id)),), each.retries) for broker_id, each in counted],
    )
