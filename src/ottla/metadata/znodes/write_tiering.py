"""Topics' tiering states become znodes, in one multi with the configuration that they follow from.

Source: KIP-950; see `tiering` for what the znodes hold.
"""

from collections.abc import Iterable

from ottla.base.ids import Uuid
from ottla.base.zookeeper import Check, Create, Delete, SetData
from ottla.metadata.configs import ResourceType
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord, Record, TopicRecord, TopicTieringRecord
from ottla.metadata.tiering import TopicTiering, tiering_of
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import NO_EXTRA
from ottla.metadata.znodes.known import KnownNode, KnownTiering
from ottla.metadata.znodes.multis import Multis, Need
from ottla.metadata.znodes.tiering import encode_tiered_epoch, encode_tiering
from ottla.metadata.znodes.write_configs import ConfigWriter

REMOVAL = Need(3, 0)
"""What the removal of a topic's state takes, but for the paths."""

_STATE_BYTES_MAX = 200
"""Of the state and the epoch, without restored partitions and fields that Ottla does not know."""


class TieringWriter:
    """The tiering states that one step changes; each is written once a multi."""

    def __init__(self, multis: Multis, before: ClusterImage, configs: ConfigWriter) -> None:
        self._multis = multis
        self._before = before
        self._configs = configs
        self._names: dict[Uuid, str] = {}
        self._restored_bytes: dict[str, int] = {}
        """By topic, of the state with its restored partitions."""
        self._together: dict[str, list[ConfigRecord]] = {}
        """By topic whose state and configuration change in the step: the latter's records."""
        self._tiered: frozenset[str] = frozenset()
        """The topics whose state changes in the step."""
        self._pending: dict[Uuid, TopicTiering] = {}
        multis.on_flush.append(self._write_pending)

    def announce(self, records: Iterable[Record]) -> None:
        """Register what is to be written together."""
        listed = list(records)
        self._names = {each.topic_id: each.name for each in listed if isinstance(each, TopicRecord)}
        states = [tiering_of(each) for each in listed if isinstance(each, TopicTieringRecord)]
        tiered = {self._name(each.topic_id) for each in states}
        for state in states:
            self._measure(state)
        self._tiered = frozenset(tiered)
        for each in listed if tiered else ():
            if not isinstance(each, ConfigRecord) or each.resource_type != ResourceType.TOPIC:
                continue
            if each.resource_name in tiered:
                self._together.setdefault(each.resource_name, []).append(each)

    def _measure(self, tiering: TopicTiering) -> None:
        if tiering.restored:
            name = self._name(tiering.topic_id)
            size = len(encode_tiering(tiering))
            self._restored_bytes[name] = max(size, self._restored_bytes.get(name, 0))

    def need_with_topic(self, name: str) -> Need:
        """Return what a new topic's state takes, with its configuration; 0 where it has none.

        They are in the multi that creates the topic. Where the controller dies after it, the topic
        is whole: a restored one begins where its remote segments end, and never at offset 0.
        """
        if name not in self._tiered:
            return Need(0, 0)
        return self._need_of_both(name, self._together.get(name, []))

    def make_room_for_both(self, record: ConfigRecord | TopicTieringRecord) -> None:
        """Begin another multi where this one has no room for a topic's state and configuration.

        For the first record of either; the others follow it.
        """
        if isinstance(record, TopicTieringRecord):
            name = self._name(record.topic_id)
        elif record.resource_type == ResourceType.TOPIC and record.resource_name in self._together:
            name = record.resource_name
        else:
            return
        listed = self._together.pop(name, [])
        self._multis.make_room(paths.tiering(name), lambda: self._need_of_both(name, listed))

    def _need_of_both(self, name: str, listed: list[ConfigRecord]) -> Need:
        state, config = self._need(name), self._configs.need_of_all(listed)
        return Need(state.operations + config.operations, state.data_bytes + config.data_bytes)

    def take(self, record: TopicTieringRecord) -> None:
        """Plan a topic's state; there must be room for it."""
        self._plan(tiering_of(record))
        self._multis.record(record)

    def rewrite(self, topic_id: Uuid) -> None:
        """Plan to write a topic's znodes as they should be."""
        tiering = self._before.tiering.get(topic_id)
        if tiering is not None:
            name = self._name(topic_id)
            self._measure(tiering)
            self._multis.make_room(paths.tiering(name), lambda: self._need(name))
            self._plan(tiering)

    def _plan(self, tiering: TopicTiering) -> None:
        if tiering.topic_id not in self._pending:
            self._multis.reserve(self._need(self._name(tiering.topic_id)))
        self._pending[tiering.topic_id] = tiering

    def need_of_removal(self, name: str) -> Need:
        """Return what the removal of a topic's state takes."""
        if self._known(name) is None:
            return Need(0, 0)
        return Need(REMOVAL.operations, 3 * len(paths.tiered_epoch(name)))

    def remove(self, name: str) -> None:
        """Delete the znodes of a topic that is removed; there must be room for it."""
        known = self._known(name)
        if known is None:
            return
        for path, node in _nodes(name, known):
            if node is not None:
                self._multis.add(Delete(path))
        self._multis.add(Delete(paths.tiering(name)), is_fact=False)

    def _need(self, name: str) -> Need:
        """Return the most that a state takes, with the check of its topic."""
        known = self._known(name) or KnownTiering()
        extra = 0 if known.state is None else len(repr(known.state.extra)) * 2
        state_bytes = _STATE_BYTES_MAX + self._restored_bytes.get(name, 0)
        return Need(4, 4 * len(paths.tiered_epoch(name)) + state_bytes + extra)

    def _name(self, topic_id: Uuid) -> str:
        topic = self._before.topics.by_id(topic_id)
        return self._names[topic_id] if topic is None else topic.name

    def _known(self, name: str) -> KnownTiering | None:
        topic = self._multis.known.topics.get(name)
        return None if topic is None else topic.tiering

    def _write_pending(self) -> None:
        for topic_id, tiering in self._pending.items():
            name = self._name(topic_id)
            # By now the name may be another topic's.
            version = self._multis.known.topics[name].version
            self._multis.add_reserved(Check(paths.topic(name), version), is_fact=False)
            known = self._known(name)
            if known is None:
                self._multis.add_reserved(Create(paths.tiering(name)), is_fact=False)
                known = KnownTiering()
            extra = NO_EXTRA if known.state is None else known.state.extra
            datas = (encode_tiered_epoch(tiering), encode_tiering(tiering, extra))
            for (path, node), data in zip(_nodes(name, known), datas, strict=True):
                self._multis.add_reserved(
                    Create(path, data) if node is None else SetData(path, data, node.version)
                )
        self._pending = {}


def _nodes(name: str, known: KnownTiering) -> tuple[tuple[str, KnownNode | None], ...]:
    return (
        (paths.tiered_epoch(name), known.epoch),
        (paths.tiering_state(name), known.state),
    )
