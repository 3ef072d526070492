"""The metrics of topics whose tiered storage is turned off, from the image, in both modes."""

from collections.abc import Iterator
from typing import Final

from ottla.base.metrics import Family, gauge
from ottla.metadata.image import ClusterImage
from ottla.metadata.tiering import TieringState

PREFIX: Final = "ottla_controller_topics"


def tiering_gauges(image: ClusterImage) -> Iterator[Family]:
    """Yield how many topics wait for acknowledgements, and how many for the end of a purge."""
    states = tuple(image.tiering.values())
    yield gauge(
        f"{PREFIX}_disabling_count",
        "Topics whose tiered storage is turned off and not acknowledged by all brokers yet.",
        sum(each.state is TieringState.DISABLING for each in states),
    )
    yield gauge(
        f"{PREFIX}_purge_pending_count",
        "Existing topics that may have dead remote segments in the object store.",
        sum(each.purge_pending for each in states),
    )
