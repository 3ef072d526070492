"""A client that sends many kinds of requests, changes nothing, and has a very long timeout.

The timeouts of other clients are shorter than the nodes' limits; this one waits long enough to show
whether a request is ever answered.
"""

from collections.abc import Callable
from random import Random

from ottla.base.ids import NO_UUID
from ottla.testing.sim_clients.client import SimClient
from ottla.testing.sim_clients.dialogue import Dialogue
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_deletions import DescribeDeletionsRequest
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.messages.metadata import MetadataRequest

NOWHERE = "no-such-topic"
PATIENCE_MS = 45_000
LIMIT_MS = 5_000
TOPIC = 2
"""The resource type of a topic in DescribeConfigs."""


def _create() -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=NOWHERE, num_partitions=1, replication_factor=-1, assignments=(), configs=()
    )
    return CreateTopicsRequest(topics=(topic,), timeout_ms=LIMIT_MS, validate_only=True)


def _delete() -> DeleteTopicsRequest:
    topic = DeleteTopicState(name=NOWHERE, topic_id=NO_UUID)
    return DeleteTopicsRequest(topics=(topic,), timeout_ms=LIMIT_MS)


def _reassign() -> AlterPartitionReassignmentsRequest:
    moved = ReassignablePartition(partition_index=0, replicas=None)
    topic = ReassignableTopic(name=NOWHERE, partitions=(moved,))
    return AlterPartitionReassignmentsRequest(topics=(topic,), timeout_ms=LIMIT_MS)


def _grow() -> CreatePartitionsRequest:
    topic = CreatePartitionsTopic(name=NOWHERE, count=2, assignments=None)
    return CreatePartitionsRequest(topics=(topic,), timeout_ms=LIMIT_MS, validate_only=True)


def _elect() -> ElectLeadersRequest:
    wanted = TopicPartitions(topic=NOWHERE, partitions=(0,))
    return ElectLeadersRequest(election_type=0, topic_partitions=(wanted,), timeout_ms=LIMIT_MS)


def _configs() -> DescribeConfigsRequest:
    topic = DescribeConfigsResource(
        resource_type=TOPIC, resource_name=NOWHERE, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=(topic,))


REQUESTS: tuple[tuple[int, Callable[[], object]], ...] = (
    (7, _create),
    (6, _delete),
    (0, lambda: ListPartitionReassignmentsRequest(timeout_ms=LIMIT_MS)),
    (0, lambda: DescribeDeletionsRequest()),
    (0, _reassign),
    (2, _grow),
    (1, _elect),
    (4, _configs),
    (1, lambda: DescribeClusterRequest(include_cluster_authorized_operations=False)),
    (4, lambda: DescribeLogDirsRequest(topics=None)),
    (4, lambda: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)),
    (12, lambda: MetadataRequest(topics=None, allow_auto_topic_creation=False)),
)
"""Versions and requests. None changes anything, except that a producer id is allocated."""


class PatientClient:
    """See the module. `interval_ms`: the mean pause between requests."""

    def __init__(self, client: SimClient, random: Random, *, interval_ms: int) -> None:
        self.client = client
        self._random = random
        self._interval_ms = interval_ms
        self._stopped = False

    def begin(self) -> None:
        """Start sending requests."""
        self.client.run(self._work())

    def stop(self) -> None:
        """Send no further requests."""
        self._stopped = True

    def _work(self) -> Dialogue[None]:
        random, client = self._random, self.client
        while not self._stopped:
            yield 1 + random.randrange(2 * self._interval_ms)
            version, make = random.choice(REQUESTS)
            if not self._stopped:
                client.send(random.choice(client.nodes), make(), version, PATIENCE_MS)
