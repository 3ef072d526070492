"""Configurations become znodes, with a notification of each change.

Kafka writes no notification for a new topic, since a broker reads its configuration when the
first partition arrives. One is written here where there are values, which is harmless.
Source: AdminZkClient, KafkaZkClient.setOrCreateEntityConfigs, Kafka 3.9.
"""

from collections.abc import Sequence

from ottla.base.zookeeper import Create, Delete, SetData
from ottla.metadata.configs import Resource
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.config import encode_config
from ottla.metadata.znodes.multis import Multis, Need
from ottla.metadata.znodes.notifications import encode_config_change


class ConfigWriter:
    """The configurations that one step changes; each is written once a multi."""

    def __init__(self, multis: Multis, before: ClusterImage) -> None:
        self._multis = multis
        self._before = before
        self._values: dict[Resource, dict[str, str]] = {}
        self._pending: dict[Resource, bool] = {}
        """What this multi is to write, and whether with a notification."""
        multis.on_flush.append(self._write_pending)

    def take(self, record: ConfigRecord) -> None:
        """Plan the change of one value."""
        resource = (record.resource_type, record.resource_name)
        before = self._before.configs.of(*resource)
        values = self._values.setdefault(resource, dict(before))
        size = _value_bytes(record.name, record.value or "")

        def need() -> Need:
            if resource not in self._pending:
                return Need(2, size + _bytes_of(resource, values))
            return Need(0 if self._pending[resource] else 1, size)

        self._multis.make_room(paths.config(resource), need)
        self._multis.reserve(need())
        self._pending[resource] = True
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        self._multis.record(record)

    def begin(self, resource: Resource) -> None:
        """Plan the configuration of a new topic, without values so far.

        There must be room for it (`need_of`). What an earlier topic of the name may have left
        is overwritten.
        """
        self._values[resource] = {}
        self._multis.reserve(self.need_of(resource))
        self._pending[resource] = False

    def need_of(self, resource: Resource) -> Need:
        """Return what a configuration without values takes."""
        return Need(1, _bytes_of(resource, {}))

    def need_of_all(self, records: Sequence[ConfigRecord]) -> Need:
        """Return the most that changes of one resource take; nothing without records."""
        if not records:
            return Need(0, 0)
        resource = (records[0].resource_type, records[0].resource_name)
        values = self._values.get(resource, dict(self._before.configs.of(*resource)))
        size = sum(_value_bytes(each.name, each.value or "") for each in records)
        return Need(2, size + _bytes_of(resource, values))

    def remove(self, resource: Resource) -> None:
        """Delete a configuration if it exists; there must be room for one operation."""
        self._values[resource] = {}
        if resource in self._multis.known.configs:
            self._multis.add(Delete(paths.config(resource)))

    def _write_pending(self) -> None:
        for resource, notifies in self._pending.items():
            path, known = paths.config(resource), self._multis.known.configs.get(resource)
            values = self._values[resource]
            if known is None:
                self._multis.add_reserved(Create(path, encode_config(values)))
            else:
                data = encode_config(values, known.extra)
                self._multis.add_reserved(SetData(path, data, known.version))
            if notifies:
                change = encode_config_change(resource)
                notification = Create(paths.CONFIG_CHANGE, change, sequential=True)
                self._multis.add_reserved(notification, is_fact=False)
        self._pending = {}


def _bytes_of(resource: Resource, values: dict[str, str]) -> int:
    """Return the most that a configuration and its notification take."""
    listed = sum(_value_bytes(name, value) for name, value in values.items())
    return listed + 8 * len(resource[1]) + 400


def _value_bytes(name: str, value: str) -> int:
    """Return the most that a value takes in JSON, where every letter may need an escape."""
    return 2 * (len(name.encode()) + len(value.encode()) + 16)
