"""An admin client: creates topics and then makes random changes.

Every request is retried until it succeeds or fails with an error that is not retriable. A deletion
is recorded in the history before it is sent: one that timed out may still happen.

Source: KafkaAdminClient, Kafka 4.0.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.testing.history.history import Progress, TopicAcknowledged
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
    """The admin requests, each a dialogue that returns the final error code.

    Fields: `refusals`: requests that failed, with their errors.
    """

    def __init__(self, client: SimClient) -> None:
        self.client = client
        self.refusals: list[tuple[str, Error]] = []
        self._stopped = False

    def stop(self) -> None:
        """Send no further requests; a dialogue that would send one never continues.

        A change that began later would be under way while the logs are read for the history.
        """
        self._stopped = True

    @property
    def is_stopped(self) -> bool:
        """Tell whether `stop` was called."""
        return self._stopped

    def _unless_stopped(self) -> Dialogue[None]:
        """Continue at once, or never. For each request: a dialogue may sleep across `stop`."""
        if self._stopped:
            yield Pending()

    # -- requests ------------------------------------------------------------------------------

    def create(self, spec: TopicSpec) -> Dialogue[Error]:
        """Create a topic; TOPIC_ALREADY_EXISTS counts as success."""
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
                lambda response: response.topics[0].error_code,
                frozenset({Error.TOPIC_ALREADY_EXISTS}),
                lambda response: self._note_acknowledged(response.topics[0].topic_id, spec.name),
            )
        )

    def create_anew(self, spec: TopicSpec) -> Dialogue[Error]:
        """Create a deleted topic again, once its name is free.

        Over ZooKeeper the deleted topic keeps the name until all its replicas are deleted.
        """
        client = self.client
        for _try in range(TRIES_MAX):
            tried = client.now_ms
            error = yield from self.create(spec)
            there = self._acknowledged(spec.name, tried)
            if not there and error is Error.NONE:
                yield client.refresh()
                there = spec.name in client.ids  # The id of a deleted topic is not learned again.
            if there or error is not Error.NONE:
                return error
            yield PAUSE_MS
        return Error.TOPIC_ALREADY_EXISTS

    def _acknowledged(self, name: str, since_ms: int) -> bool:
        response = self.client.history.topics_acknowledged
        last = response[-1] if response else None
        return (
            last is not None
            and (last.name, last.is_deletion) == (name, False)
            and last.at_ms >= since_ms
        )

    def delete(self, name: str) -> Dialogue[Error]:
        """Delete a topic; UNKNOWN_TOPIC_ID counts as success."""
        topic_id = self.client.ids.get(name)
        if topic_id is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        yield from self._unless_stopped()
        self.client.history.deleted.add(topic_id)
        request = delete_wire.DeleteTopicsRequest(
            topics=(delete_wire.DeleteTopicState(topic_id=topic_id),),
            timeout_ms=CONTROLLER_TIMEOUT_MS,
        )
        error = yield from self._ask(
            f"delete {name}",
            request,
            DELETE_VERSION,
            lambda response: response.responses[0].error_code,
            frozenset({Error.UNKNOWN_TOPIC_ID}),
            lambda _: self._note_acknowledged(topic_id, name, is_deletion=True),
        )
        self.client.forget(name)
        return error

    def _note_acknowledged(self, topic_id: Uuid, name: str, *, is_deletion: bool = False) -> None:
        response = TopicAcknowledged(topic_id, name, is_deletion, self.client.now_ms)
        self.client.history.topics_acknowledged.append(response)

    def grow(self, name: str, count: int) -> Dialogue[Error]:
        """Give a topic `count` partitions in all."""
        topic = grow_wire.CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = grow_wire.CreatePartitionsRequest(
            topics=(topic,), timeout_ms=CONTROLLER_TIMEOUT_MS, validate_only=False
        )
        return (
            yield from self._ask(
                f"grow {name}",
                request,
                GROW_VERSION,
                lambda response: response.results[0].error_code,
            )
        )

    def reassign(
        self, name: str, partition: int, replicas: tuple[int, ...] | None
    ) -> Dialogue[Error]:
        """Move a partition to other brokers; None cancels its move."""
        wanted = reassign_wire.ReassignablePartition(partition_index=partition, replicas=replicas)
        topic = reassign_wire.ReassignableTopic(name=name, partitions=(wanted,))
        request = reassign_wire.AlterPartitionReassignmentsRequest(
            topics=(topic,), timeout_ms=CONTROLLER_TIMEOUT_MS
        )
        return (
            yield from self._ask(
                f"reassign {name}-{partition}",
                request,
                REASSIGN_VERSION,
                lambda response: (
                    response.error_code
                    or (response.responses and response.responses[0].partitions[0].error_code)
                    or 0
                ),
            )
        )

    def elect(self, name: str, partition: int, kind: int = PREFERRED) -> Dialogue[Error]:
        """Elect a partition's leader; ELECTION_NOT_NEEDED counts as success."""
        wanted = elect_wire.TopicPartitions(topic=name, partitions=(partition,))
        request = elect_wire.ElectLeadersRequest(
            election_type=kind, topic_partitions=(wanted,), timeout_ms=CONTROLLER_TIMEOUT_MS
        )
        return (
            yield from self._ask(
                f"elect {name}-{partition}",
                request,
                ELECT_VERSION,
                lambda response: (
                    response.error_code
                    or response.replica_election_results[0].partition_result[0].error_code
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
                lambda response: response.responses[0].error_code,
            )
        )

    def send(
        self, node: int, request: object, version: int, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Dialogue[Any | ApiError]:
        """Send one request to a node; return the response or an error."""
        yield from self._unless_stopped()
        return (yield self.client.send(node, request, version, timeout_ms))

    def _ask(
        self,
        what: str,
        request: object,
        version: int,
        error_of: Callable[[Any], int],
        as_wanted: frozenset[Error] = frozenset(),
        on_done: Callable[[Any], None] = lambda response: None,
    ) -> Dialogue[Error]:
        """Send a request until its error is not retriable.

        `as_wanted`: errors that count as success. `on_done`: called with a successful response.
        """
        client = self.client
        error = Error.REQUEST_TIMED_OUT
        for _try in range(TRIES_MAX):
            answer = yield from self.send(client.any_node(), request, version)
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

    # -- random changes ------------------------------------------------------------------------

    def keep_changing(
        self, steady: TopicSpec, passing: TopicSpec, *, brokers: tuple[int, ...], interval_ms: int
    ) -> Dialogue[None]:
        """Make random changes until stopped.

        `steady` is never deleted: it is reassigned, reconfigured, and gets preferred elections.
        `passing` also gets partitions, and is deleted and created again, often several times in a
        row, each time with another number of partitions.
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
        """Delete a topic by its name, and create it again."""
        yield self.client.refresh()
        yield from self.delete(spec.name)
        yield from self.create_anew(spec)

    def _some(self, brokers: tuple[int, ...], count: int) -> tuple[int, ...]:
        """Return `count` random brokers in random order."""
        left = list(brokers)
        below = self.client.dice.below
        return tuple(left.pop(below(len(left))) for _each in range(min(count, len(left))))
