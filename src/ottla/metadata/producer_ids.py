"""The producer ids handed out so far. Source: ProducerIdsImage; KIP-730."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    """All ids below `next_producer_id` belong to some broker's block."""

    next_producer_id: int = 0
