"""One request of each API that the controller decides, for tests that must not forget one.

`LIMIT_MS` is the time of those that say one; the others have the default.
"""

from typing import Any

from ottla.base.ids import NO_UUID, Uuid
from ottla.broker.api.base import RunsOn
from ottla.broker.dispatch import load_apis
from ottla.wire.messages import alter_configs, incremental_alter_configs, update_features
from ottla.wire.messages import alter_partition_reassignments as reassign
from ottla.wire.messages import assign_replicas_to_dirs as assign
from ottla.wire.messages.abandon_purge import AbandonPurgeRequest
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.alter_partition import AlterPartitionRequest
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest
from ottla.wire.messages.controlled_shutdown import ControlledShutdownRequest
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_deletions import DescribeDeletionsRequest
from ottla.wire.messages.describe_idle_topics import DescribeIdleTopicsRequest
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest
from ottla.wire.messages.describe_topic_tiering import DescribeTopicTieringRequest
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.messages.report_idle_topics import ReportIdleTopicsRequest
from ottla.wire.messages.report_purges import ReportPurgesRequest
from ottla.wire.messages.restore_topic import (
    RestoreTopicConfig,
    RestoreTopicPartition,
    RestoreTopicRequest,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest

LIMIT_MS = 1_500
TOPIC_CONFIG = 2
TOPIC = "there"
"""A topic of one partition that is there."""

ID = Uuid(b"i" * 16)

_ALTERED = alter_configs.AlterConfigsResource(
    resource_type=TOPIC_CONFIG, resource_name=TOPIC, configs=()
)
_INCREMENTED = incremental_alter_configs.AlterConfigsResource(
    resource_type=TOPIC_CONFIG, resource_name=TOPIC, configs=()
)
_MOVED = reassign.ReassignableTopic(
    name=TOPIC, partitions=(reassign.ReassignablePartition(partition_index=0, replicas=(2,)),)
)
_NEW = CreatableTopic(
    name="new", num_partitions=1, replication_factor=1, assignments=(), configs=()
)

REQUESTS: dict[int, Any] = {
    19: CreateTopicsRequest(topics=(_NEW,), timeout_ms=LIMIT_MS),
    7: ControlledShutdownRequest(broker_id=1, broker_epoch=1),
    20: DeleteTopicsRequest(
        topics=(DeleteTopicState(name=TOPIC, topic_id=NO_UUID),), timeout_ms=LIMIT_MS
    ),
    33: alter_configs.AlterConfigsRequest(resources=(_ALTERED,), validate_only=False),
    37: CreatePartitionsRequest(
        topics=(CreatePartitionsTopic(name=TOPIC, count=2, assignments=None),),
        timeout_ms=LIMIT_MS,
        validate_only=False,
    ),
    43: ElectLeadersRequest(
        election_type=0,
        topic_partitions=(TopicPartitions(topic=TOPIC, partitions=(0,)),),
        timeout_ms=LIMIT_MS,
    ),
    44: incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=(_INCREMENTED,), validate_only=False
    ),
    45: reassign.AlterPartitionReassignmentsRequest(topics=(_MOVED,), timeout_ms=LIMIT_MS),
    46: ListPartitionReassignmentsRequest(topics=None, timeout_ms=LIMIT_MS),
    55: DescribeQuorumRequest(topics=()),
    56: AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=()),
    57: update_features.UpdateFeaturesRequest(
        feature_updates=(
            update_features.FeatureUpdateKey(
                feature="ottla.version", max_version_level=1, upgrade_type=1
            ),
        ),
        timeout_ms=LIMIT_MS,
    ),
    62: BrokerRegistrationRequest(
        broker_id=77, cluster_id="c", incarnation_id=ID, listeners=(), features=(), rack=None
    ),
    63: BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=1,
        current_metadata_offset=1,
        want_fence=False,
        want_shut_down=False,
    ),
    64: UnregisterBrokerRequest(broker_id=77),
    67: AllocateProducerIdsRequest(broker_id=1, broker_epoch=1),
    73: assign.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=1, directories=()),
    1003: DescribeDeletionsRequest(),
    1008: RestoreTopicRequest(
        name="restored",
        topic_id=ID,
        tiered_epoch=2,
        configs=(RestoreTopicConfig(name="remote.storage.enable", value="true"),),
        partitions=(
            RestoreTopicPartition(
                partition_index=0, leader_epoch=1, log_start_offset=0, end_offset=0, epochs=()
            ),
        ),
    ),
    1004: ReportIdleTopicsRequest(broker_id=1, broker_epoch=1, coordinators=(), topics=()),
    1005: DescribeIdleTopicsRequest(),
    1009: DescribeTopicTieringRequest(),
    1010: AbandonPurgeRequest(topic_id=ID),
    1007: ReportPurgesRequest(broker_id=1, broker_epoch=1, topics=()),
}
"""By API key. The first one writes, so that what only reads waits behind a write."""

FROM_MEMORY = {55}
"""Answered at once, whatever can be written."""


def all_keys() -> set[int]:
    """Return the keys of all APIs that the controller decides."""
    return {key for key, each in load_apis().items() if each.api.runs_on is RunsOn.CONTROLLER}


def version_of(key: int) -> int:
    """Return the newest version of an API that is served."""
    return load_apis()[key].api.versions[-1]


def limit_ms(key: int, default_ms: int) -> int:
    """Return what an answer may take."""
    return LIMIT_MS if hasattr(REQUESTS[key], "timeout_ms") else default_ms
