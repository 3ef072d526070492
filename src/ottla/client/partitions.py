"""Partitions by name and number."""

from collections.abc import Iterable

TopicPartition = tuple[str, int]
ByBroker = dict[int, list[TopicPartition]]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, both in order."""
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return grouped
