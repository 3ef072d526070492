"""The dynamic configurations: overrides by resource. Source: ConfigurationsImage, Kafka 4.0."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from immutables import Map

from ottla.metadata.records import ConfigRecord

Resource = tuple[int, str]
"""Resource type and name."""


class ResourceType(IntEnum):
    """What a configuration can belong to (ConfigResource.Type)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


ALL_BROKERS: Final = ""
"""The name of the broker resource whose values are defaults of every broker."""

_NOTHING: Final[Map[str, str]] = Map()


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    """Values that were set, as text; all others have their defaults."""

    _by_resource: Map[Resource, Map[str, str]] = field(default_factory=Map)

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the overrides of one resource, none for an unknown one."""
        return self._by_resource.get((int(resource_type), name), _NOTHING)

    def resources(self) -> list[Resource]:
        """Return the resources that have overrides, in order."""
        return sorted(self._by_resource)

    def __iter__(self) -> Iterator[tuple[Resource, Mapping[str, str]]]:
        for resource in self.resources():
            yield resource, self._by_resource[resource]

    def with_value(self, resource: Resource, name: str, value: str | None) -> "ConfigsImage":
        """Return the image with one value set, or removed where it is None."""
        values = self._by_resource.get(resource, _NOTHING)
        if value is not None:
            return ConfigsImage(self._by_resource.set(resource, values.set(name, value)))
        if name not in values:
            return self
        left = values.delete(name)
        if left:
            return ConfigsImage(self._by_resource.set(resource, left))
        return ConfigsImage(self._by_resource.delete(resource))

    def without(self, resource: Resource) -> "ConfigsImage":
        """Return the image without any value of a resource."""
        if resource not in self._by_resource:
            return self
        return ConfigsImage(self._by_resource.delete(resource))


def config_records(
    resource: Resource,
    before: Mapping[str, str],
    after: Mapping[str, str],
    *,
    rewritten: Collection[str] = (),
) -> list[ConfigRecord]:
    """Return the records that change a resource's values, by name.

    `rewritten`: names with a record also where nothing changes.
    """
    resource_type, resource_name = resource
    return [
        ConfigRecord(
            resource_type=resource_type,
            resource_name=resource_name,
            name=name,
            value=after.get(name),
        )
        for name in sorted({*before, *after, *rewritten})
        if before.get(name) != after.get(name) or name in rewritten
    ]
