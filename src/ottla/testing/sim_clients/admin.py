"""An administrator: makes topics and then keeps changing the cluster, as its dice say.

Every change is asked for until it is done or refused for a reason that asking again cannot mend.
What it asks for is written down before it is sent: a deletion that timed out may happen yet.

Source: KafkaAdminClient, Kafka 4.0.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.testing.history import Progress, TopicAcknowledged
from ottla.testing.sim_clients.client import SimClient
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.testing.sim_clients.topic import TopicSpec
from ottla.wire.messages import alter_partition_reassignments as reassign_wire
from ottla.wire.messages import create_partitions as grow_wire
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import delete_topics as delete_wire
from ottla.wire.messages import elect_leaders as elect_wire
from ottla.wire.messages import incremental_alter_configs as configs_wire

CREATE_VERSION, DELETE_VERSION, GROW_VERSION = 7, 6, 3
REASSIGN_VERSION, ELECT_VERSION, CONFIGS_VERSION = 0, 2, 1
TOPIC_RESOURCE, SET = 2, 0
PREFERRED = 0

REQUEST_TIMEOUT_MS = 5_000
CONTROLLER_TIMEOUT_MS = 4_000
PAUSE_MS = 250

AGAIN = frozenset(
    {
        Error.NETWORK_EXCEPTION,
        Error.REQUEST_TIMED_OUT,
        Error.NOT_CONTROLLER,
        Error.LEADER_NOT_AVAILABLE,
        Error.INVALID_REPLICATION_FACTOR,  # Too few brokers are up now.
        Error.BROKER_NOT_AVAILABLE,
        Error.INVALID_REPLICA_ASSIGNMENT,
        Error.UNKNOWN_SERVER_ERROR,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.THROTTLING_QUOTA_EXCEEDED,
    }
)
TRIES_MAX = 40


class Admin:
    """The administrator's wishes, each a dialogue that ends with the error code it came to.

    Fields: `refusals`: what was refused for good, by request.
    """

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self.refusals: list[tuple[str, Error]] = []
        self._stopped = False

    def stop(self) -> None:
        """Change nothing further."""
        self._stopped = True

    @property
    def is_stopped(self) -> bool:
        """Tell whether nothing further is to be changed."""
        return self._stopped

    # -- wishes --------------------------------------------------------------------------------

    def create(self, spec: TopicSpec) -> Dialogue[Error]:
        """Create a topic; one that exists already is what was wanted."""
        configs = tuple(
            create_wire.CreatableTopicConfig(name=name, value=value)
            for name, value in sorted(spec.configs.items())
        )
        topic = create_wire.CreatableTopic(
            name=spec.name,
            num_partitions=spec.partitions,
            replication_factor=spec.replication_factor,
            assignments=(),
            configs=configs,
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=CONTROLLER_TIMEOUT_MS)
        self.client.follow(spec.name)
        return (
            yield from self._ask(
                f"create {spec.name}",
                request,
                CREATE_VERSION,
                lambda told: told.topics[0].error_code,
                frozenset({Error.TOPIC_ALREADY_EXISTS}),
                lambda told: self._told(told.topics[0].topic_id, spec.name),
            )
        )

    def create_anew(self, spec: TopicSpec) -> Dialogue[Error]:
        """Create a topic that was deleted, once its name is free.

        Over ZooKeeper the deleted one has the name until all its replicas are gone; where that
        takes long somebody else is asked for something first.
        """
        client = self.client
        for _try in range(TRIES_MAX):
            tried = client.now_ms
            error = yield from self.create(spec)
            there = self._acknowledged(spec.name, tried)
            if not there and error is Error.NONE:
                yield client.refresh()
                there = spec.name in client.ids  # What was forgotten is not learned again.
            if there or error is not Error.NONE:
                return error
            yield PAUSE_MS
        return Error.TOPIC_ALREADY_EXISTS

    def _acknowledged(self, name: str, since_ms: int) -> bool:
        told = self.client.history.topics_acknowledged
        last = told[-1] if told else None
        return (
            last is not None
            and (last.name, last.is_deletion) == (name, False)
            and last.at_ms >= since_ms
        )

    def delete(self, name: str) -> Dialogue[Error]:
        """Delete a topic; one that is unknown is gone already."""
        topic_id = self.client.ids.get(name)
        if topic_id is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        self.client.history.deleted.add(topic_id)
        request = delete_wire.DeleteTopicsRequest(
            topics=(delete_wire.DeleteTopicState(topic_id=topic_id),),
            timeout_ms=CONTROLLER_TIMEOUT_MS,
        )
        error = yield from self._ask(
            f"delete {name}",
            request,
            DELETE_VERSION,
            lambda told: told.responses[0].error_code,
            frozenset({Error.UNKNOWN_TOPIC_ID}),
            lambda _: self._told(topic_id, name, is_deletion=True),
        )
        self.client.forget(name)
        return error

    def _told(self, topic_id: Uuid, name: str, *, is_deletion: bool = False) -> None:
        told = TopicAcknowledged(topic_id, name, is_deletion, self.client.now_ms)
        self.client.history.topics_acknowledged.append(told)

    def grow(self, name: str, count: int) -> Dialogue[Error]:
        """Give a topic `count` partitions in all."""
        topic = grow_wire.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = grow_wire.CreatePartitionsRequest(
            topics=(topic,), timeout_ms=CONTROLLER_TIMEOUT_MS, validate_only=False
        )
        return (
            yield from self._ask(
                f"grow {name}", request, GROW_VERSION, lambda told: told.results[0].error_code
            )
        )

    def reassign(
        self, name: str, partition: int, replicas: tuple[int, ...] | None
    ) -> Dialogue[Error]:
        """Move a partition to other brokers; None cancels its move."""
        wish = reassign_wire.ReassignablePartition(partition_index=partition, replicas=replicas)
        topic = reassign_wire.ReassignableTopic(name=name, partitions=(wish,))
        request = reassign_wire.AlterPartitionReassignmentsRequest(
            topics=(topic,), timeout_ms=CONTROLLER_TIMEOUT_MS
        )
        return (
            yield from self._ask(
                f"reassign {name}-{partition}",
                request,
                REASSIGN_VERSION,
                lambda told: (
                    told.error_code
                    or (told.responses and told.responses[0].partitions[0].error_code)
                    or 0
                ),
            )
        )

    def elect(self, name: str, partition: int, kind: int = PREFERRED) -> Dialogue[Error]:
        """Let a partition's leader be elected; not needed is well."""
        wish = elect_wire.TopicPartitions(topic=name, partitions=(partition,))
        request = elect_wire.ElectLeadersRequest(
            election_type=kind, topic_partitions=(wish,), timeout_ms=CONTROLLER_TIMEOUT_MS
        )
        return (
            yield from self._ask(
                f"elect {name}-{partition}",
                request,
                ELECT_VERSION,
                lambda told: (
                    told.error_code
                    or told.replica_election_results[0].partition_result[0].error_code
                ),
                frozenset({Error.ELECTION_NOT_NEEDED}),
            )
        )

    def configure(self, name: str, values: dict[str, str]) -> Dialogue[Error]:
        """Set a topic's configuration."""
        configs = tuple(
            configs_wire.AlterableConfig(name=key, config_operation=SET, value=value)
            for key, value in sorted(values.items())
        )
        resource = configs_wire.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs
        )
        request = configs_wire.IncrementalAlterConfigsRequest(
            resources=(resource,), validate_only=False
        )
        return (
            yield from self._ask(
                f"configure {name}",
                request,
                CONFIGS_VERSION,
                lambda told: told.responses[0].error_code,
            )
        )

    def _ask(
        self,
        what: str,
        request: object,
        version: int,
        error_of: Callable[[Any], int],
        as_wanted: frozenset[Error] = frozenset(),
        on_done: Callable[[Any], None] = lambda told: None,
    ) -> Dialogue[Error]:
        """Ask until there is an answer that asking again would not change.

        `as_wanted`: refusals that say that all is as it should be. `on_done`: called with the
        answer of what was done.
        """
        client = self.client
        error = Error.REQUEST_TIMED_OUT
        for _try in range(TRIES_MAX):
            answer = yield client.send(client.any_node(), request, version, REQUEST_TIMEOUT_MS)
            if isinstance(answer, ApiError):
                error = answer.error
            else:
                error = Error(error_of(answer))
                if error is Error.NONE:
                    on_done(answer)
            if error in as_wanted:
                error = Error.NONE
            if error not in AGAIN:
                break
            yield PAUSE_MS
        if error is Error.NONE:
            client.history.progress.append(Progress("changes of metadata", client.now_ms))
        else:
            self.refusals.append((what, error))
        return error

    # -- a busy life ---------------------------------------------------------------------------

    def keep_changing(
        self, steady: TopicSpec, passing: TopicSpec, *, brokers: tuple[int, ...], interval_ms: int
    ) -> Dialogue[None]:
        """Change this and that until stopped.

        `steady` keeps its records: it is reassigned, reconfigured, and its leaders are moved.
        `passing` is also grown, and deleted and made anew, often several times in a row, each
        time with another number of partitions.
        """
        dice = self.client.dice
        grown = passing.partitions
        while not self._stopped:
            yield 1 + dice.below(2 * interval_ms)
            partition = dice.below(steady.partitions)
            match dice.below(10):
                case 0 | 1:
                    yield from self.elect(steady.name, partition)
                case 2 | 3:
                    yield from self.reassign(
                        steady.name, partition, self._some(brokers, steady.replication_factor)
                    )
                case 4:
                    size = 1_048_588 + 1024 * dice.below(8)
                    yield from self.configure(steady.name, {"max.message.bytes": str(size)})
                case 5:
                    if grown < passing.partitions + 3:
                        grown += 1
                        yield from self.grow(passing.name, grown)
                case 6:
                    target = self._some(brokers, 2 + dice.below(passing.replication_factor - 1))
                    yield from self.reassign(passing.name, 0, target)
                case 7 | 8:
                    for _round in range(1 + dice.below(3)):
                        passing = replace(passing, partitions=1 + dice.below(3))
                        yield from self._replace(passing)
                        grown = passing.partitions
                case _:
                    yield from self.configure(
                        passing.name, {"retention.ms": str(3_600_000 + dice.below(1000))}
                    )

    def _replace(self, spec: TopicSpec) -> Dialogue[None]:
        """Delete what has a topic's name, and make the topic."""
        yield self.client.refresh()
        yield from self.delete(spec.name)
        yield from self.create_anew(spec)

    def _some(self, brokers: tuple[int, ...], count: int) -> tuple[int, ...]:
        """Return `count` brokers in a drawn order."""
        left = list(brokers)
        below = self.client.dice.below
        return tuple(left.pop(below(len(left))) for _each in range(min(count, len(left))))
