"""Reads a cluster's znodes: everything, or what may have changed.

Lists are read before their entries, and each is watched from that read on, so that no change in
between is missed. A new topic is read completely: its partitions' states, the parents where a state
is missing, its tiering state, and its config, which tools write before it.

Not done: watches on states and on configs. Only the controller writes the former; changes of the
latter have notifications under `/config/changes`.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, fields, replace
from typing import Final, TypeVar

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.zookeeper import Session, ZkError, ZnodeData
from ottla.host.steps import Steps
from ottla.host.zookeeper.persistent import (
    NumberedChild,
    numbered_children,
    persistent_children,
)
from ottla.host.zookeeper.store.store_reading import (
    Unwatched,
    Watched,
    read_each,
    reading,
    reading_or_none,
)
from ottla.metadata.configs import Resource, ResourceType
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.known import KnownZnodes
from ottla.metadata.znodes.load import Snapshot, TieringNodes
from ottla.metadata.znodes.notifications import changed_resource, decode_config_change
from ottla.metadata.znodes.paths import Kind
from ottla.metadata.znodes.topic import decode_topic

K = TypeVar("K")
V = TypeVar("V")

Read = ZnodeData | None

WITHIN_TOPIC: Final = frozenset(
    {
        Kind.TOPIC,
        Kind.PARTITIONS,
        Kind.PARTITION,
        Kind.STATE,
        Kind.TIERING,
        Kind.TIERED_EPOCH,
        Kind.TIERING_STATE,
    }
)
"""The nodes that are read with their whole topic."""


@dataclass(slots=True, kw_only=True)
class Wanted:
    """What is to be read. Lists include their new entries; `whole_topics`: with all states."""

    broker_list: bool = False
    topic_list: bool = False
    config_list: bool = False
    config_changes: bool = False
    deletion_list: bool = False
    marker_list: bool = False
    feature: bool = False
    producer_ids: bool = False
    brokers: set[int] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    whole_topics: set[str] = field(default_factory=set)
    configs: set[Resource] = field(default_factory=set)
    deletions: set[Uuid] = field(default_factory=set)

    def __bool__(self) -> bool:
        return self != Wanted()

    def add_path(self, path: str) -> None:
        """Add what a node is about; states and parents add their whole topic."""
        place = paths.parse_path(path)
        if place.kind is Kind.BROKER:
            self.brokers.add(place.id)
        elif place.kind in WITHIN_TOPIC:
            self.whole_topics.add(place.name)
        elif place.kind is Kind.CONFIG:
            self.configs.add((place.id, place.name))
        elif place.kind is Kind.DELETION:
            self.deletions.add(paths.deletion_id(place.name))
        elif place.kind is Kind.MARKER:
            self.marker_list = True
        elif place.kind is Kind.FEATURE:
            self.feature = True
        elif place.kind is Kind.PRODUCER_IDS:
            self.producer_ids = True

    def merge(self, other: "Wanted") -> None:
        """Add what another one has."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) | getattr(other, each.name))


def everything() -> Wanted:
    """Return what a new controller reads."""
    return Wanted(
        broker_list=True,
        topic_list=True,
        config_list=True,
        config_changes=True,
        deletion_list=True,
        marker_list=True,
        feature=True,
        producer_ids=True,
    )


def without_touched(snapshot: Snapshot, touched: Set[str]) -> tuple[Snapshot, Wanted]:
    """Return what was read without these paths, and what is to be read again."""
    again = Wanted()

    def keep(read: Mapping[K, V], is_gone: Callable[[K], bool], lost: set[K]) -> dict[K, V]:
        lost |= {key for key in read if is_gone(key)}
        return {key: got for key, got in read.items() if key not in lost}

    dropped = {
        name for name, partition in snapshot.states if paths.state(name, partition) in touched
    }
    tiered = {
        name
        for name in snapshot.tiering
        if not touched.isdisjoint((paths.tiered_epoch(name), paths.tiering_state(name)))
    }
    dropped |= tiered
    topics = keep(snapshot.topics, lambda name: paths.topic(name) in touched, dropped)
    again.whole_topics = dropped & {name for name, _ in snapshot.states} | tiered
    again.topics = dropped - again.whole_topics
    markers = snapshot.marked_for_deletion
    if markers is not None and any(paths.parse_path(path).kind is Kind.MARKER for path in touched):
        markers, again.marker_list = None, True
    feature, producer_ids = snapshot.feature, snapshot.producer_ids
    if feature is not None and paths.FEATURE in touched:
        feature, again.feature = None, True
    if producer_ids is not None and paths.PRODUCER_IDS in touched:
        producer_ids, again.producer_ids = None, True
    untouched = replace(
        snapshot,
        topics=topics,
        states={key: got for key, got in snapshot.states.items() if key[0] not in dropped},
        partition_nodes={
            name: nodes for name, nodes in snapshot.partition_nodes.items() if name not in dropped
        },
        tiering={name: nodes for name, nodes in snapshot.tiering.items() if name not in dropped},
        configs=keep(snapshot.configs, lambda each: paths.config(each) in touched, again.configs),
        deletions=keep(
            snapshot.deletions, lambda each: paths.deletion(each) in touched, again.deletions
        ),
        marked_for_deletion=markers,
        feature=feature,
        producer_ids=producer_ids,
    )
    return untouched, again


class Gathering:
    """Reads what is wanted, over one session. `watched`: sets the watches.

    `state` returns the image and the known znodes of the moment, by which new topics are found.
    """

    def __init__(
        self, watched: Watched | Unwatched, state: Callable[[], tuple[ClusterImage, KnownZnodes]]
    ) -> None:
        self._watched = watched
        self._session: Session = watched.session
        self._state = state
        self._last_change = NumberedChild(-1, "")

    def gather(self, wanted: Wanted) -> Steps[Snapshot]:
        """Read. Raises: ZkError."""
        last_change = self._last_change
        try:
            return (yield from self._gather(wanted))
        except ZkError:
            self._last_change = last_change  # What came since was not taken.
            raise

    def _gather(self, wanted: Wanted) -> Steps[Snapshot]:
        brokers = yield from self._brokers(wanted)
        topics = yield from self._topics(wanted)
        states, partition_nodes, new = yield from self._below_topics(wanted, topics)
        tiering = yield from self._tiering(wanted, topics, states, new)
        # After the topics: the config of a topic is written before it.
        configs = yield from self._config_names(wanted)
        if not wanted.config_list:
            configs |= {(int(ResourceType.TOPIC), name) for name in new}
        markers: frozenset[str] | None = None
        if wanted.marker_list:
            markers = frozenset((yield from self._names(paths.DELETE_TOPICS)))
        return Snapshot(
            brokers=brokers,
            topics=topics,
            states=states,
            partition_nodes=partition_nodes,
            tiering=tiering,
            configs=(yield from self._each(sorted(configs), paths.config, self._session.get)),
            deletions=(yield from self._deletions(wanted)),
            feature=(yield from self._feature(wanted)),
            producer_ids=(yield from self._producer_ids(wanted)),
            marked_for_deletion=markers,
        )

    def _names(self, path: str, *, watch: bool = True) -> Steps[tuple[str, ...]]:
        """Return the names below a node, none where it is not there; one to watch is created."""
        if watch and isinstance(self._watched, Watched):
            return (yield from persistent_children(self._watched, path))
        names = yield from reading_or_none(self._session.children(path))
        return names or ()

    def _each(
        self,
        keys: Iterable[K],
        path_of: Callable[[K], str],
        get: Callable[[str], Pending[ZnodeData | ZkError]],
    ) -> Steps[dict[K, Read]]:
        """Return what each key's node holds, None where it is not there."""
        listed = list(keys)
        found = yield from reading(read_each(listed, lambda key: get(path_of(key))))
        return {key: found.get(key) for key in listed}

    # -- kinds of znodes -----------------------------------------------------------------------

    def _brokers(self, wanted: Wanted) -> Steps[dict[int, Read]]:
        ids = set(wanted.brokers)
        if wanted.broker_list:
            names = yield from self._names(paths.BROKER_IDS)
            ids |= {int(name) for name in names if paths.is_number(name)}
            ids |= set(self._state()[0].brokers)
        found = yield from self._each(sorted(ids), paths.broker, self._watched.get)
        return found

    def _topics(self, wanted: Wanted) -> Steps[dict[str, Read]]:
        names = wanted.topics | wanted.whole_topics
        if wanted.topic_list:
            listed = yield from self._names(paths.TOPICS)
            _, known = self._state()
            # A topic that is watched and not known was read by a read that failed later.
            known_names = {*known.topics, *known.unreadable}
            names |= {
                each
                for each in listed
                if each not in known_names or not self._watched.watches_data(paths.topic(each))
            }
            names |= known_names - set(listed)
        found = yield from self._each(sorted(names), paths.topic, self._watched.get)
        return found

    def _below_topics(
        self, wanted: Wanted, topics: dict[str, Read]
    ) -> Steps[tuple[dict[tuple[str, int], Read], dict[str, frozenset[int] | None], list[str]]]:
        """Read the states that are not known, and the nodes above those that are missing."""
        keys: list[tuple[str, int]] = []
        new: list[str] = []
        _, known = self._state()
        for name, got in topics.items():
            if got is None:
                continue
            before = known.topics.get(name)
            is_known = before is not None and before.czxid in (0, got.stat.czxid)
            if not is_known:
                new.append(name)
            is_whole = not is_known or name in wanted.whole_topics
            keys += [
                (name, partition)
                for partition in _partitions_of(name, got)
                if is_whole or known.state(name, partition) is None
            ]
        states = yield from self._each(keys, lambda key: paths.state(*key), self._session.get)
        incomplete = sorted({name for (name, _), got in states.items() if got is None})
        children = yield from reading(
            read_each(incomplete, lambda name: self._session.children(paths.partitions(name)))
        )
        nodes = {name: _partitions_among(children.get(name)) for name in incomplete}
        return states, nodes, new

    def _tiering(
        self,
        wanted: Wanted,
        topics: Mapping[str, Read],
        states: Mapping[tuple[str, int], Read],
        new: Iterable[str],
    ) -> Steps[dict[str, TieringNodes | None]]:
        """Read the tiering states of topics that are read as a whole.

        A topic whose znode has one child, the one above the states, has none.
        """
        _, known = self._state()
        with_states = {name for (name, _), got in states.items() if got is not None}
        names = []
        for name in sorted(wanted.whole_topics.union(new)):
            got, before = topics.get(name), known.topics.get(name)
            if got is None:
                continue
            is_tiered = before is not None and before.tiering is not None
            if is_tiered or got.stat.cversion > (name in with_states):
                names.append(name)
        below = yield from reading(
            read_each(names, lambda name: self._session.children(paths.tiering(name)))
        )
        listed = list(below)
        epochs = yield from self._each(listed, paths.tiered_epoch, self._session.get)
        found = yield from self._each(listed, paths.tiering_state, self._session.get)
        return {
            name: TieringNodes(epochs[name], found[name]) if name in below else None
            for name in names
        }

    def _config_names(self, wanted: Wanted) -> Steps[set[Resource]]:
        resources = set(wanted.configs)
        if wanted.config_changes:
            resources |= yield from self._changed_configs(wanted.config_list)
        if wanted.config_list:
            for resource_type, type_name in paths.CONFIG_TYPES.items():
                for name in (yield from self._names(f"{paths.CONFIGS}/{type_name}", watch=False)):
                    found = paths.resource(type_name, name)
                    assert found is not None, resource_type
                    resources.add(found)
        return resources

    def _changed_configs(self, all_are_read: bool) -> Steps[set[Resource]]:
        """Return the resources of new notifications."""
        assert isinstance(self._watched, Watched)
        listed = yield from numbered_children(self._watched, paths.CONFIG_CHANGES)
        if all_are_read:
            self._last_change = max((self._last_change, *listed))
        new = [each.name for each in listed if each > self._last_change]
        new_paths = [f"{paths.CONFIG_CHANGES}/{name}" for name in new]
        self._last_change = max((self._last_change, *listed))
        found = yield from reading(read_each(new_paths, self._session.get))
        changed = set()
        for path, got in found.items():
            try:
                resource = changed_resource(decode_config_change(path, got.data))
            except ZnodeError:
                continue  # The config follower logs it.
            if resource is not None:
                changed.add(resource)
        return changed

    def _deletions(self, wanted: Wanted) -> Steps[dict[Uuid, Read]]:
        ids = set(wanted.deletions)
        if wanted.deletion_list:
            for name in (yield from self._names(paths.DELETIONS, watch=False)):
                try:
                    ids.add(paths.deletion_id(name))
                except ValueError:
                    continue  # Not an entry.
        found = yield from self._each(sorted(ids), paths.deletion, self._session.get)
        return found

    def _feature(self, wanted: Wanted) -> Steps[Read]:
        if not wanted.feature:
            return None
        yield from reading(self._watched.exists(paths.FEATURE))
        return (yield from reading_or_none(self._session.get(paths.FEATURE)))

    def _producer_ids(self, wanted: Wanted) -> Steps[Read]:
        if not wanted.producer_ids:
            return None
        return (yield from reading_or_none(self._watched.get(paths.PRODUCER_IDS)))


def read_once(session: Session, wanted: Wanted) -> Steps[Snapshot]:
    """Read what is wanted as if nothing were known, without watches. Raises: ZkError."""
    gathering = Gathering(Unwatched(session), lambda: (EMPTY, KnownZnodes()))
    return gathering.gather(wanted)


def _partitions_of(name: str, got: ZnodeData) -> list[int]:
    try:
        return list(decode_topic(name, got.data).partitions)
    except ZnodeError:
        return []  # Logged when it is turned into records.


def _partitions_among(names: tuple[str, ...] | None) -> frozenset[int] | None:
    if names is None:
        return None
    return frozenset(int(name) for name in names if paths.is_number(name))
