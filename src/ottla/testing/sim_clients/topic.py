"""The settings of a topic of a simulated workload."""

from dataclasses import dataclass, field

from ottla.testing.history.topics import KEEPS_ALL, Promise


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """One topic. `configs`: as CreateTopics takes them. `promise`: what checkers demand of it."""

    name: str
    partitions: int = 1
    replication_factor: int = 3
    configs: dict[str, str] = field(default_factory=dict)
    promise: Promise = KEEPS_ALL
