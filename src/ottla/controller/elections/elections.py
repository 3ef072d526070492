"""Leaders and in-sync replicas when brokers appear or go: records for all partitions concerned.

Every change of one partition is made by `partition_change`; this file selects the partitions that
an event concerns and their targets. An election is unclean only where the topic, the cluster or
the node allows it (unclean.leader.election.enable).
Source: ReplicationControlManager.generateLeaderAndIsrUpdates and its callers,
maybeTriggerUncleanLeaderElectionForLeaderlessPartitions, Kafka 4.0; KIP-966.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ottla.base.ids import NO_LEADER, Uuid
from ottla.base.limits import ELECTIONS_PER_STEP_MAX
from ottla.controller.elections.partition_change import (
    ChangeContext,
    Election,
    PartitionTarget,
    build_change,
    leader_predicate,
)
from ottla.controller.step import Decision, Step
from ottla.metadata.features import elr_enabled
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import PartitionChangeRecord
from ottla.metadata.topic_config import effective_topic_value


@dataclass(frozen=True, slots=True)
class ElectUncleanly:
    """An effect: unclean elections may be allowed now for partitions without a leader."""


class Rules:
    """The change context and the kind of election of each topic, computed once a topic.

    `without`, `plus`: a broker that the step under way takes out, or unfences.
    `requests_may_be_delayed`: see `ChangeContext`; of changes that start a reassignment.
    """

    def __init__(
        self,
        image: ClusterImage,
        config: NodeConfig,
        *,
        without: int | None = None,
        plus: int | None = None,
        requests_may_be_delayed: bool = False,
    ) -> None:
        self._image = image
        self._config = config
        self._is_acceptable = leader_predicate(image, without=without, plus=plus)
        self._elr_enabled = elr_enabled(image.features)
        self._requests_may_be_delayed = requests_may_be_delayed
        self._contexts: dict[str, ChangeContext] = {}
        self._elections: dict[str, Election] = {}

    def change_context(self, topic_name: str) -> ChangeContext:
        """Return what a change of the topic's partitions depends on."""
        found = self._contexts.get(topic_name)
        if found is None:
            found = self._contexts[topic_name] = ChangeContext(
                is_acceptable=self._is_acceptable,
                min_isr=effective_topic_value(
                    self._image, self._config, topic_name, "min.insync.replicas"
                ),
                elr_enabled=self._elr_enabled,
                requests_may_be_delayed=self._requests_may_be_delayed,
            )
        return found

    def election(self, topic_name: str) -> Election:
        """Return how the topic's partitions get a leader unless a request names the election."""
        found = self._elections.get(topic_name)
        if found is None:
            allowed = effective_topic_value(
                self._image, self._config, topic_name, "unclean.leader.election.enable"
            )
            found = self._elections[topic_name] = Election.UNCLEAN if allowed else Election.ONLINE
        return found


class RulesByLeader:
    """Rules by which a leader in controlled shutdown stays leader until it gives a partition up.

    In ZooKeeper mode a controlled shutdown must leave no partition without a leader; changes of
    other replicas, reassignments and elections do not end that leadership where nobody can take
    over. In KRaft no such broker leads.
    """

    def __init__(
        self,
        image: ClusterImage,
        config: NodeConfig,
        *,
        without: int | None = None,
        requests_may_be_delayed: bool = False,
    ) -> None:
        self._image = image
        self._config = config
        self._without = without
        self._requests_may_be_delayed = requests_may_be_delayed
        self._rules: dict[int | None, Rules] = {}

    def of(self, leader: int) -> Rules:
        """Return the rules for partitions with this leader."""
        broker = self._image.brokers.get(leader)
        stays = leader if broker is not None and broker.in_controlled_shutdown else None
        if stays not in self._rules:
            self._rules[stays] = Rules(
                self._image,
                self._config,
                without=self._without,
                plus=stays,
                requests_may_be_delayed=self._requests_may_be_delayed,
            )
        return self._rules[stays]


def remove_from_isrs(
    image: ClusterImage, config: NodeConfig, broker_id: int, *, unclean: bool = False
) -> Iterator[PartitionChangeRecord]:
    """Yield what changes when a broker must lead nothing and be in no ISR.

    `unclean`: it also lost what it had not flushed, so it is not eligible to lead either.
    """
    rules = Rules(image, config, without=broker_id)
    unclean_shutdown = frozenset({broker_id} if unclean else ())
    for topic, partition_id, partition in partitions(image):
        if broker_id in partition.isr or (unclean and broker_id in partition.elr):
            yield from _without_broker(
                broker_id, topic, partition_id, partition, rules, unclean_shutdown
            )


def remove_offline_replicas(
    image: ClusterImage, config: NodeConfig, broker_id: int, directories: frozenset[Uuid]
) -> Iterator[PartitionChangeRecord]:
    """Yield the same for those of a broker's replicas whose log directories went offline."""
    rules = RulesByLeader(image, config, without=broker_id)
    for topic, partition_id, partition in partitions(image):
        if broker_id in partition.isr and partition.directory(broker_id) in directories:
            leader_rules = rules.of(partition.leader)
            yield from _without_broker(
                broker_id, topic, partition_id, partition, leader_rules, frozenset()
            )


def _without_broker(
    broker_id: int,
    topic: TopicImage,
    partition_id: int,
    partition: PartitionImage,
    rules: Rules,
    unclean_shutdown: frozenset[int],
) -> Iterator[PartitionChangeRecord]:
    target = PartitionTarget(
        isr=tuple(each for each in partition.isr if each != broker_id),
        election=rules.election(topic.name),
        unclean_shutdown=unclean_shutdown,
    )
    record = build_change(
        topic.id, partition_id, partition, target, rules.change_context(topic.name)
    )
    if record is not None:
        yield record


def elect_after_unfencing(
    image: ClusterImage, config: NodeConfig, broker_id: int
) -> Iterator[PartitionChangeRecord]:
    """Yield the leaders that leaderless partitions get when a broker is unfenced."""
    rules = Rules(image, config, plus=broker_id)
    for topic, partition_id, partition in partitions(image):
        if partition.leader != NO_LEADER or broker_id not in partition.replicas:
            continue
        target = PartitionTarget(election=rules.election(topic.name))
        record = build_change(
            topic.id, partition_id, partition, target, rules.change_context(topic.name)
        )
        if record is not None:
            yield record


def elect_uncleanly(
    image: ClusterImage, config: NodeConfig, *, limit: int = ELECTIONS_PER_STEP_MAX
) -> Decision[bool]:
    """Elect leaders where there is none and unclean elections are allowed; reply if more remain."""
    rules = Rules(image, config)
    records: list[PartitionChangeRecord] = []
    for topic, partition_id, partition in partitions(image):
        if partition.leader != NO_LEADER or rules.election(topic.name) is not Election.UNCLEAN:
            continue
        if len(records) == limit:
            return Decision(Step(tuple(records), atomic=False), True)
        target = PartitionTarget(election=Election.UNCLEAN)
        record = build_change(
            topic.id, partition_id, partition, target, rules.change_context(topic.name)
        )
        if record is not None:
            records.append(record)
    return Decision(Step(tuple(records), atomic=False), False)


def clear_elr(
    image: ClusterImage, config: NodeConfig, names: Collection[str] | None
) -> Iterator[PartitionChangeRecord]:
    """Yield records that clear the eligible replicas of some topics' partitions, of all where None.

    For a change of min.insync.replicas; `image`: with the new configuration.
    With nobody in sync nothing is committed, nor with fewer in sync than the new minimum; eligible
    replicas stay so there. Kafka clears those too: then one loss of power, of the only
    replica in sync, loses acknowledged records that an eligible one has.
    """
    named = map(image.topics.by_name, sorted(names or ()))
    # Most changes of configurations name one topic of thousands, or none.
    for topic in image.topics if names is None else filter(None, named):
        minimum: int = effective_topic_value(image, config, topic.name, "min.insync.replicas")
        for partition_id, partition in topic.in_order():
            commits = len(partition.isr) >= min(minimum, len(partition.replicas))
            if partition.elr and partition.isr and commits:
                yield PartitionChangeRecord(
                    partition_id=partition_id, topic_id=topic.id, eligible_leader_replicas=()
                )


def elect_after_failover(image: ClusterImage, config: NodeConfig) -> Step:
    """Complete what the previous controller began: it may have died between two batches.

    Its decision for one broker can be larger than a batch, so a partition may have a leader that is
    not active, or none although one could be elected. In ZooKeeper mode brokers may also die while
    there is no controller, and are still in the ISR as last written.
    """
    rules = Rules(image, config)
    records: list[PartitionChangeRecord] = []
    for topic, partition_id, partition in partitions(image):
        if all(map(image.is_active, (partition.leader, *partition.isr))):
            continue
        target = PartitionTarget(
            isr=tuple(each for each in partition.isr if image.is_active(each)),
            election=rules.election(topic.name),
        )
        record = build_change(
            topic.id, partition_id, partition, target, rules.change_context(topic.name)
        )
        if record is not None:
            records.append(record)
    return Step(tuple(records), atomic=False)


def leads_anything(image: ClusterImage, broker_id: int) -> bool:
    """Tell whether a broker leads a partition."""
    return any(
        partition.leader == broker_id
        for topic in image.topics
        for partition in topic.partitions.values()
    )


def partitions(image: ClusterImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """Yield all partitions by topic name and id, but those whose replicas are being deleted."""
    for topic in image.topics:
        if image.deletions.is_being_deleted(topic.id):
            continue
        for partition_id, partition in topic.in_order():
            yield topic, partition_id, partition
