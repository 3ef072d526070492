"""Goal: whatever the deciders decide and whoever dies between two multis, what is stored is what
the controller's image says, and the image is what the records say.

Method: histories of real decisions over a tree of znodes, with multis of a few operations only, so
that everything that can be split is. After each decision the tree is loaded and compared; what
others write is followed by reading only what they wrote, and compared with loading all.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.ids import NO_EPOCH
from ottla.controller.elections.elections import (
    elect_after_unfencing,
    elect_uncleanly,
    remove_from_isrs,
)
from ottla.controller.elections.new_partitions import bring_online
from ottla.controller.partitions.isr import IsrChange, alter_partition
from ottla.controller.partitions.reassignment import Target, alter_reassignments
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.controller.step import Decision, Step
from ottla.controller.topics.configs import Alteration, alter_configs
from ottla.controller.topics.create_partitions import NewPartitions, create_partitions
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import replay
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import Record, RemoveTopicRecord
from ottla.metadata.znodes import multis, paths
from ottla.metadata.znodes.config import encode_config
from ottla.metadata.znodes.load import Snapshot, observed
from ottla.metadata.znodes.normalise import normalised
from ottla.metadata.znodes.topic import Assignment, encode_topic
from tests.drawn import examples

from ...controller.builders import CountingDice, context
from .clusters import brokers, register
from .tree import Cluster, without_czxids

NAMES = ("a", "b.c", "d_e")
BROKERS = (1, 2, 3, 4)
OPERATIONS_MAX = 14
"""As few as a topic's end, or a partition with its topic's assignment, needs."""


class History:
    """A controller's decisions, and what others do."""

    def __init__(self, dice: int) -> None:
        self.cluster = brokers(len(BROKERS))
        self.context = context({"unclean.leader.election.enable": "true"}, CountingDice(dice))

    @property
    def image(self) -> Any:
        return self.cluster.image

    def take(self, decided: Decision[Any] | Step, count: int | None = None) -> None:
        """Write a decision, or its first multis, after which the controller dies."""
        step = decided.step if isinstance(decided, Decision) else decided
        self.write(step.records, count)

    def write(self, records: Sequence[Record], count: int | None = None) -> None:
        before = self.image
        planned = self.cluster.plan(records)
        writes = self.cluster.write(records, count=count)
        self.cluster.check()
        if len(writes) == len(planned):
            replayed = replay(before, normalised(records), offset=0, epoch=0).image
            assert replace(self.image, position=(0, 0)) == replace(replayed, position=(0, 0))
            return
        dead, self.cluster = self.cluster, Cluster(self.cluster.tree)
        assert self.image == replace(dead.image, position=self.image.position)
        self.take(bring_online(self.image, self.context.config))

    def observe(self, snapshot: Snapshot) -> None:
        """Follow what others wrote."""
        found = observed(self.image, self.cluster.known, snapshot)
        assert not found.problems
        self.cluster.known = found.known
        self.cluster.image = replay(self.image, found.records, offset=0, epoch=0).image
        self.cluster.check()

    def partition(self, draw: st.DrawFn) -> tuple[str, int, PartitionImage] | None:
        """Pick a partition."""
        listed = [(topic.name, *each) for topic in self.image.topics for each in topic.in_order()]
        return draw(st.sampled_from(listed)) if listed else None


def create(history: History, draw: st.DrawFn, count: int | None) -> None:
    wanted = [
        NewTopic(
            name=name,
            partition_count=draw(st.integers(1, 9)),
            replication_factor=draw(st.integers(1, 3)),
            configs=(("retention.ms", "5"),) if draw(st.booleans()) else (),
        )
        for name in draw(st.sets(st.sampled_from(NAMES), min_size=1))
    ]
    if history.image.brokers:
        decided = create_topics(history.image, wanted, validate_only=False, context=history.context)
        history.take(decided, count)


def grow(history: History, draw: st.DrawFn, count: int | None) -> None:
    wanted = [
        NewPartitions(topic.name, len(topic.partitions) + draw(st.integers(1, 8)))
        for topic in history.image.topics
    ]
    decided = create_partitions(history.image, wanted, validate_only=False, context=history.context)
    history.take(decided, count)


def configure(history: History, draw: st.DrawFn, count: int | None) -> None:
    value = draw(st.sampled_from(["1", "2", None]))
    name, resource = draw(
        st.sampled_from(
            [
                *(
                    ("retention.ms", (ResourceType.TOPIC, each.name))
                    for each in history.image.topics
                ),
                ("log.cleaner.threads", (ResourceType.BROKER, "")),
                ("log.retention.ms", (ResourceType.BROKER, "")),
                ("log.cleaner.threads", (ResourceType.BROKER, "1")),
            ]
        )
    )
    change = (name, 1 if value is None else 0, value)
    decided = alter_configs(
        history.image,
        [Alteration((int(resource[0]), resource[1]), (change,))],
        incremental=True,
        validate_only=False,
        context=history.context,
    )
    history.take(decided, count)


def change_isr(history: History, draw: st.DrawFn, count: int | None) -> None:
    picked = history.partition(draw)
    if picked is None:
        return
    name, number, partition = picked
    leader = history.image.brokers.get(partition.leader)
    topic = history.image.topics.by_name(name)
    if leader is None or topic is None:
        return
    others = [each for each in partition.replicas if each in history.image.brokers]
    isr = [leader.id, *draw(st.sets(st.sampled_from(others))) - {leader.id}]
    changes = [
        IsrChange(
            topic_id=topic.id,
            partition_id=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch + again,
            isr=tuple((each, -1) for each in members),
        )
        for again, members in enumerate((isr, [partition.leader]))
    ]
    decided = alter_partition(
        history.image,
        changes,
        broker_id=leader.id,
        broker_epoch=leader.epoch,
        context=history.context,
    )
    history.take(decided, count)


def reassign(history: History, draw: st.DrawFn, count: int | None) -> None:
    targets = []
    for topic in history.image.topics:
        for number, partition in topic.in_order():
            replicas = draw(
                st.none() | st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True)
            )
            if partition.leader_epoch != NO_EPOCH:
                target = None if replicas is None else tuple(replicas)
                targets.append(Target(topic.name, number, target))
    decided = alter_reassignments(
        history.image, targets, may_change_factor=True, context=history.context
    )
    history.take(decided, count)


def stop(history: History, draw: st.DrawFn, count: int | None) -> None:
    broker_id = draw(st.sampled_from(BROKERS))
    if broker_id not in history.image.brokers:
        return
    history.write(list(remove_from_isrs(history.image, history.context.config, broker_id)), count)
    history.cluster.tree.drop(paths.broker(broker_id))
    history.observe(Snapshot(brokers={broker_id: None}))


def start(history: History, draw: st.DrawFn, count: int | None) -> None:
    broker_id = draw(st.sampled_from(BROKERS))
    register(history.cluster.tree, broker_id)
    got = history.cluster.tree.nodes[paths.broker(broker_id)]
    history.observe(Snapshot(brokers={broker_id: got}))
    history.write(
        list(elect_after_unfencing(history.image, history.context.config, broker_id)), count
    )
    history.take(bring_online(history.image, history.context.config))


def hand_out(history: History, draw: st.DrawFn, count: int | None) -> None:
    for broker in history.image.brokers.values():
        decided = allocate_producer_ids(
            history.image, broker_id=broker.id, broker_epoch=broker.epoch
        )
        history.take(decided, count)


def elect(history: History, draw: st.DrawFn, count: int | None) -> None:
    history.take(elect_uncleanly(history.image, history.context.config), count)


def remove(history: History, draw: st.DrawFn, count: int | None) -> None:
    names = draw(st.sets(st.sampled_from(NAMES)))
    ids = [history.image.topics.id_of(name) for name in sorted(names)]
    history.write([RemoveTopicRecord(topic_id=each) for each in ids if each], count)


def tool_creates(history: History, draw: st.DrawFn, count: int | None) -> None:
    """A tool writes a configuration, then the assignment; then everything is led."""
    name, tree = draw(st.sampled_from(NAMES)), history.cluster.tree
    if paths.topic(name) in tree.nodes:
        return
    tree.put(paths.config((2, name)), encode_config({"retention.ms": "7"}))
    assignment = {
        number: Assignment((1 + number % 4,)) for number in range(draw(st.integers(1, 9)))
    }
    tree.put(paths.topic(name), encode_topic(assignment.items(), None))
    everything = tree.snapshot()
    history.observe(
        Snapshot(
            topics={name: everything.topics[name]},
            states={(name, number): None for number in assignment},
            partition_nodes={name: everything.partition_nodes.get(name)},
            configs={(2, name): everything.configs[2, name]},
        )
    )
    topic = history.image.topics.by_name(name)
    assert topic is not None
    assert all(each.leader_epoch == NO_EPOCH for each in topic.partitions.values())
    history.take(bring_online(history.image, history.context.config), count)


def tool_configures(history: History, draw: st.DrawFn, count: int | None) -> None:
    tree = history.cluster.tree
    for topic in history.image.topics:
        resource = (2, topic.name)
        values = draw(st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), max_size=2))
        tree.put(paths.config(resource), encode_config(values))
        history.observe(Snapshot(configs={resource: tree.nodes[paths.config(resource)]}))


MOVES = (
    create,
    grow,
    configure,
    change_isr,
    reassign,
    stop,
    start,
    hand_out,
    elect,
    remove,
    tool_creates,
    tool_configures,
)


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.integers(0, 9))
def test_what_is_stored_is_what_was_decided(data: st.DataObject, dice: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multis, "ZOOKEEPER_MULTI_OPERATIONS_MAX", OPERATIONS_MAX)
        history = History(dice)
        create(history, data.draw, None)
        for move in data.draw(st.lists(st.sampled_from(MOVES), min_size=3, max_size=12)):
            count = data.draw(st.none() | st.integers(0, 3))
            move(history, data.draw, count)
        assert all(len(each.operations) <= OPERATIONS_MAX for each in history.cluster.writes)
        loaded = history.cluster.tree.load()[1]
        assert without_czxids(loaded.known) == without_czxids(history.cluster.known)
