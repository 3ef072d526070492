"""`/config/<type>/<name>`: the values that were set for a topic or a broker.

A znode without data, as tools leave them, has no values.
Source: ConfigEntityZNode, Kafka 3.9.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from immutables import Map

from ottla.metadata.configs import Resource
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import NO_EXTRA, Extra, parse, shown, written


@dataclass(frozen=True, slots=True)
class ConfigZnode:
    """The content of the znode."""

    values: Map[str, str] = field(default_factory=Map)
    extra: Extra = NO_EXTRA


def decode_config(resource: Resource, data: bytes) -> ConfigZnode:
    """Return a resource's overrides. Raises: ZnodeError."""
    if not data:
        return ConfigZnode()
    fields = parse(paths.config(resource), data)
    fields.number("version", 1)
    values = fields.object("config").values
    for name, value in values.items():
        if not isinstance(value, str):
            raise fields.fail(f"{name} is {shown(value)}: expected a string")
    return ConfigZnode(Map(values), fields.rest())


def encode_config(values: Mapping[str, str], extra: Extra = NO_EXTRA) -> bytes:
    """Return the znode's data."""
    listed = {name: values[name] for name in sorted(values)}
    return written({"version": 1, "config": listed}, extra)
