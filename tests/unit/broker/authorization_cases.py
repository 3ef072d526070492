"""What the requests of each API ask the authorizer, and how each denial shows in the response.

The table ASKED was written by hand from Kafka's KafkaApis and ControllerApis.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.base.authorizer import (
    AUTHORIZATION_ERRORS,
    CLUSTER,
    Operation,
    Resource,
    ResourceType,
)
from ottla.broker.ports import Listener
from ottla.wire.messages import (
    abandon_purge,
    alter_configs,
    alter_partition_reassignments,
    commit_segment_copies,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_deletions,
    describe_groups,
    describe_idle_topics,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_remote_log,
    describe_topic_partitions,
    describe_topic_tiering,
    elect_leaders,
    fetch,
    find_coordinator,
    grant_segment_copies,
    heartbeat,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    restore_topic,
    sync_group,
    unregister_broker,
    update_features,
)

from .authorization_harness import (
    A_ID,
    B_ID,
    Question,
    committed,
    made,
    produced,
)

R, W, C, D, A = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
)
DESCRIBE, ACTION = Operation.DESCRIBE, Operation.CLUSTER_ACTION
SEE_CONFIGS, SET_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT = Operation.IDEMPOTENT_WRITE
TOPIC, GROUP, TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
WHOLE = ResourceType.CLUSTER

ASKED: dict[int, set[tuple[Operation, ResourceType]]] = {
    0: {(W, TOPIC), (W, TXN)},
    1: {(R, TOPIC), (ACTION, WHOLE)},
    2: {(DESCRIBE, TOPIC)},
    3: {(DESCRIBE, TOPIC), (C, WHOLE), (C, TOPIC), (DESCRIBE, WHOLE)},
    4: {(ACTION, WHOLE)},
    5: {(ACTION, WHOLE)},
    6: {(ACTION, WHOLE)},
    7: {(ACTION, WHOLE)},
    8: {(R, GROUP), (R, TOPIC)},
    9: {(DESCRIBE, GROUP), (DESCRIBE, TOPIC)},
    10: {(DESCRIBE, GROUP), (DESCRIBE, TXN)},
    11: {(R, GROUP)},
    12: {(R, GROUP)},
    13: {(R, GROUP)},
    14: {(R, GROUP)},
    15: {(DESCRIBE, GROUP)},
    16: {(DESCRIBE, WHOLE), (DESCRIBE, GROUP)},
    18: set(),
    19: {(C, WHOLE), (C, TOPIC), (SEE_CONFIGS, TOPIC)},
    20: {(D, WHOLE), (DESCRIBE, TOPIC), (D, TOPIC)},
    21: {(D, TOPIC)},
    22: {(W, TXN), (IDEMPOTENT, WHOLE), (W, TOPIC)},
    23: {(ACTION, WHOLE), (DESCRIBE, TOPIC)},
    29: {(DESCRIBE, WHOLE)},
    30: {(A, WHOLE)},
    31: {(A, WHOLE)},
    32: {(SEE_CONFIGS, WHOLE), (SEE_CONFIGS, TOPIC), (SEE_CONFIGS, GROUP)},
    33: {(SET_CONFIGS, WHOLE), (SET_CONFIGS, TOPIC), (SET_CONFIGS, GROUP)},
    35: {(DESCRIBE, WHOLE)},
    37: {(A, TOPIC)},
    42: {(D, GROUP)},
    43: {(A, WHOLE)},
    44: {(SET_CONFIGS, WHOLE), (SET_CONFIGS, TOPIC), (SET_CONFIGS, GROUP)},
    45: {(A, WHOLE)},
    46: {(DESCRIBE, WHOLE)},
    47: {(D, GROUP), (R, TOPIC)},
    52: {(ACTION, WHOLE)},
    53: {(ACTION, WHOLE)},
    54: {(ACTION, WHOLE)},
    55: {(DESCRIBE, WHOLE)},
    56: {(ACTION, WHOLE)},
    57: {(A, WHOLE)},
    58: {(ACTION, WHOLE)},
    59: {(ACTION, WHOLE)},
    60: {(DESCRIBE, WHOLE), (A, WHOLE)},
    61: {(R, TOPIC)},
    62: {(ACTION, WHOLE)},
    63: {(ACTION, WHOLE)},
    64: {(A, WHOLE)},
    67: {(ACTION, WHOLE)},
    73: {(ACTION, WHOLE)},
    75: {(DESCRIBE, TOPIC)},
    1001: {(ACTION, WHOLE)},
    1002: {(ACTION, WHOLE)},
    1003: {(DESCRIBE, WHOLE)},
    1004: {(ACTION, WHOLE)},
    1005: {(DESCRIBE, WHOLE)},
    1006: {(DESCRIBE, TOPIC)},
    1007: {(ACTION, WHOLE)},
    1008: {(A, WHOLE)},
    1009: {(DESCRIBE, WHOLE)},
    1010: {(A, WHOLE)},
    1011: {(ACTION, WHOLE)},
    1012: {(ACTION, WHOLE)},
}
"""By API key, from Kafka 4; Ottla's own keys are above 1000."""


def on(operation: Operation, type_: ResourceType, name: str) -> Question:
    return operation, Resource(type_, name)


def cluster(operation: Operation) -> Question:
    return operation, CLUSTER


@dataclass(frozen=True)
class Case:
    """A request, and the parts of its response that differ where something is denied.

    `changes`: the new error of each part; None = the part is missing. `keeps`: topics and groups
    that the request must not touch then, "*" = it does nothing at all.
    """

    name: str
    request: Any
    version: int
    denied: tuple[Question, ...]
    changes: Mapping[str, int | None]
    keeps: tuple[str, ...] = ()
    how: Mapping[str, Any] = field(default_factory=dict)


T29, G30, C31, X53 = (int(AUTHORIZATION_ERRORS[type_]) for type_ in (TOPIC, GROUP, WHOLE, TXN))
AB: Any = ({"name": "a"}, {"name": "b"})
AB0: Any = tuple({"name": name, "partitions": ({"partition_index": 0},)} for name in "ab")
ALL_TOPIC = 3576
ALL_GROUP = 3400
ALL_CLUSTER = 8096

PRODUCE = {version: produced("a", "b") for version in (3, 9, 13)}
LISTED = made(
    list_offsets.ListOffsetsRequest,
    replica_id=-1,
    topics=[
        {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in "ab"
    ],
)
FETCHED = made(
    fetch.FetchRequest,
    replica_id=-1,
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=1_000_000,
    topics=[
        {
            "topic": name,
            "topic_id": topic_id,
            "partitions": [{"partition": 0, "partition_max_bytes": 1_000_000}],
        }
        for name, topic_id in (("a", A_ID), ("b", B_ID))
    ],
)
OF_FOLLOWER = made(
    fetch.FetchRequest,
    replica_id=1,
    max_bytes=1_000_000,
    topics=[{"topic": "a", "partitions": [{"partition": 0, "partition_max_bytes": 1_000_000}]}],
)
NAMED = made(
    metadata.MetadataRequest, topics=[*AB, {"name": "new1"}], allow_auto_topic_creation=True
)
BY_ID = made(metadata.MetadataRequest, topics=[{"topic_id": A_ID}, {"topic_id": B_ID}])
EVERY_TOPIC = made(metadata.MetadataRequest, topics=None)
OPERATIONS = made(
    metadata.MetadataRequest,
    topics=AB,
    include_cluster_authorized_operations=True,
    include_topic_authorized_operations=True,
)
COMMITTED = committed("g", "a", "b", offset=5)
OFFSETS = made(
    offset_fetch.OffsetFetchRequest,
    group_id="g",
    topics=[{"name": name, "partition_indexes": [0]} for name in "ab"],
)
ALL_OFFSETS = made(offset_fetch.OffsetFetchRequest, groups=[{"group_id": "g", "topics": None}])
GROUPS_OFFSETS = made(
    offset_fetch.OffsetFetchRequest,
    groups=[
        {
            "group_id": group,
            "topics": [
                {"name": "a", "topic_id": A_ID, "partition_indexes": [0]},
                {"name": "b", "topic_id": B_ID, "partition_indexes": [0]},
            ],
        }
        for group in "gh"
    ],
)
JOIN = made(
    join_group.JoinGroupRequest,
    group_id="g",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=[{"name": "range", "metadata": b""}],
)
CREATED = made(
    create_topics.CreateTopicsRequest,
    topics=[
        {"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("new1", "new2")
    ],
)
DELETED = made(delete_topics.DeleteTopicsRequest, topic_names=("a", "b", "none"), timeout_ms=500)
DELETED_BY_ID = made(
    delete_topics.DeleteTopicsRequest,
    topics=[{"name": None, "topic_id": A_ID}, {"name": None, "topic_id": B_ID}],
    timeout_ms=500,
)
RECORDS = made(
    delete_records.DeleteRecordsRequest,
    topics=[{"name": name, "partitions": [{"partition_index": 0, "offset": 1}]} for name in "ab"],
    timeout_ms=500,
)
EPOCHS = made(
    offset_for_leader_epoch.OffsetForLeaderEpochRequest,
    topics=[
        {"topic": name, "partitions": [{"partition": 0, "current_leader_epoch": -1}]}
        for name in "ab"
    ],
)
RESOURCES: Any = [
    {"resource_type": 2, "resource_name": "a"},
    {"resource_type": 2, "resource_name": "b"},
    {"resource_type": 4, "resource_name": "1"},
    {"resource_type": 32, "resource_name": "g"},
]
CONFIGS = made(describe_configs.DescribeConfigsRequest, resources=RESOURCES)


def altered(request: type) -> Any:
    entry = {"name": "retention.ms", "value": "1000"}
    return made(
        request,
        resources=[
            each
            | {
                "configs": [
                    entry
                    if each["resource_type"] == 2
                    else {"name": "log.retention.ms", "value": "1000"}
                ]
            }
            for each in RESOURCES
        ],
    )


GROWN = made(
    create_partitions.CreatePartitionsRequest,
    topics=[{"name": name, "count": 2, "assignments": None} for name in "ab"],
)
REASSIGNED = made(
    alter_partition_reassignments.AlterPartitionReassignmentsRequest,
    topics=[{"name": "a", "partitions": [{"partition_index": 0, "replicas": (1,)}]}],
)
ELECTED = made(
    elect_leaders.ElectLeadersRequest, topic_partitions=[{"topic": "a", "partitions": [0]}]
)
UNCOMMITTED = made(
    offset_delete.OffsetDeleteRequest, group_id="g",
    topics=[{"name": name, "partitions": [{"partition_index": 0}]} for name in "ab"],
)  # fmt: skip
ACL = made(create_acls.CreateAclsRequest, creations=[{"resource_type": 2, "resource_name": "a"}])
FILTER = made(delete_acls.DeleteAclsRequest, filters=[{"resource_type_filter": 2}])
PRODUCERS = made(
    describe_producers.DescribeProducersRequest,
    topics=[{"name": name, "partition_indexes": [0]} for name in "ab"],
)
REMOTE_LOGS = made(
    describe_remote_log.DescribeRemoteLogRequest,
    topics=[{"name": name, "partitions": [0]} for name in "ab"],
)
PAGED = made(
    describe_topic_partitions.DescribeTopicPartitionsRequest, topics=AB,
    response_partition_limit=10,
)  # fmt: skip
ALL_PAGED = made(
    describe_topic_partitions.DescribeTopicPartitionsRequest, response_partition_limit=10
)
GROUPS_DESCRIBED = made(
    describe_groups.DescribeGroupsRequest, groups=("g", "h"), include_authorized_operations=True
)
NODES = made(
    describe_cluster.DescribeClusterRequest, include_cluster_authorized_operations=True,
    endpoint_type=1,
)  # fmt: skip
CONTROLLER: dict[str, Any] = {"listener": Listener.CONTROLLER}

CASES = [
    *(
        Case(
            f"Produce v{version}", PRODUCE[version], version,
            (on(W, TOPIC, "a"),), {"a-0": T29}, ("a",),
        )
        for version in (3, 9, 13)
    ),
    *(
        Case(f"Fetch v{version}", FETCHED, version, (on(R, TOPIC, "a"),), {"a-0": T29})
        for version in (4, 12, 13, 18)
    ),
    Case("Fetch of a follower", OF_FOLLOWER, 12, (cluster(ACTION),), {"a-0": T29}),
    Case("Fetch from a controller", FETCHED, 12, (cluster(ACTION),), {"": C31}, how=CONTROLLER),
    Case("ListOffsets", LISTED, 5, (on(DESCRIBE, TOPIC, "a"),), {"a-0": T29}),
    Case("Metadata by name", NAMED, 12, (on(DESCRIBE, TOPIC, "a"),), {"a": T29, "a-0": None}),
    Case("Metadata by id", BY_ID, 12, (on(DESCRIBE, TOPIC, "a"),), {"a": T29, "a-0": None}),
    Case("Metadata of all", EVERY_TOPIC, 12, (on(DESCRIBE, TOPIC, "a"),), {"a": None, "a-0": None}),
    Case(
        "Metadata that creates", NAMED, 12, (cluster(C), on(C, TOPIC, "new1")), {"new1": T29}
    ),
    Case("Metadata, CREATE of the topic is enough", NAMED, 12, (cluster(C),), {}),
    Case(
        "Metadata's operations of the cluster", OPERATIONS, 9, (cluster(DESCRIBE),),
        {" cluster_authorized_operations": 0},
    ),
    Case(
        "Metadata's operations", OPERATIONS, 9,
        (on(W, TOPIC, "a"), cluster(A)),
        {
            " cluster_authorized_operations": ALL_CLUSTER - (1 << A),
            "a topic_authorized_operations": ALL_TOPIC - (1 << W),
        },
    ),
    Case(
        "OffsetCommit of the group", COMMITTED, 8, (on(R, GROUP, "g"),), {"a-0": G30, "b-0": G30},
        ("*",),
    ),
    Case("OffsetCommit", COMMITTED, 8, (on(R, TOPIC, "a"),), {"a-0": T29}, ("a",)),
    Case("OffsetCommit by id", COMMITTED, 10, (on(R, TOPIC, "a"),), {"a-0": T29}, ("a",)),
    Case(
        "OffsetFetch of the group", OFFSETS, 7, (on(DESCRIBE, GROUP, "g"),),
        {"": G30, "a-0": G30, "b-0": G30},
    ),
    Case("OffsetFetch", OFFSETS, 7, (on(DESCRIBE, TOPIC, "a"),), {"a-0": T29}),
    Case("OffsetFetch of all", ALL_OFFSETS, 9, (on(DESCRIBE, TOPIC, "a"),), {"g-a-0": None}),
    *(
        Case(
            f"OffsetFetch of groups v{version}", GROUPS_OFFSETS, version,
            (on(DESCRIBE, TOPIC, "a"),), {"g-a-0": T29, "h-a-0": T29},
        )
        for version in (8, 10)
    ),
    Case(
        "OffsetFetch of one group", GROUPS_OFFSETS, 9, (on(DESCRIBE, GROUP, "g"),),
        {"g": G30, "g-a-0": None, "g-b-0": None},
    ),
    Case(
        "FindCoordinator",
        made(find_coordinator.FindCoordinatorRequest, coordinator_keys=("g", "h")), 4,
        (on(DESCRIBE, GROUP, "g"),), {"g": G30},
    ),
    Case(
        "FindCoordinator v3", made(find_coordinator.FindCoordinatorRequest, key="g"),
        3, (on(DESCRIBE, GROUP, "g"),), {"": G30},
    ),
    Case(
        "FindCoordinator of a transaction",
        made(find_coordinator.FindCoordinatorRequest, coordinator_keys=("g", "h"), key_type=1),
        4, (on(DESCRIBE, TXN, "g"),), {"g": X53},
    ),
    Case("JoinGroup", JOIN, 3, (on(R, GROUP, "g"),), {"": G30}, ("*",)),
    Case(
        "Heartbeat", made(heartbeat.HeartbeatRequest, group_id="g", member_id="m"), 4,
        (on(R, GROUP, "g"),), {"": G30},
    ),
    Case(
        "LeaveGroup",
        made(leave_group.LeaveGroupRequest, group_id="g", members=[{"member_id": "m"}]), 4,
        (on(R, GROUP, "g"),), {"": G30},
    ),
    Case(
        "SyncGroup",
        made(sync_group.SyncGroupRequest, group_id="g", protocol_type="c", protocol_name="r"), 5,
        (on(R, GROUP, "g"),), {"": G30},
    ),
    Case(
        "DescribeGroups", GROUPS_DESCRIBED, 5, (on(DESCRIBE, GROUP, "g"),),
        {"g": G30, "g authorized_operations": None},
    ),
    Case(
        "DescribeGroups' operations", GROUPS_DESCRIBED, 5, (on(D, GROUP, "g"),),
        {"g authorized_operations": ALL_GROUP - (1 << D)},
    ),
    Case("CreateTopics", CREATED, 7, (cluster(C), on(C, TOPIC, "new1")), {"new1": T29}, ("new1",)),
    Case("CreateTopics, CREATE of the topic is enough", CREATED, 7, (cluster(C),), {}),
    Case(
        "CreateTopics' configurations", CREATED, 7, (on(SEE_CONFIGS, TOPIC, "new1"),),
        {"new1 topic_config_error_code": T29},
    ),
    Case("DeleteTopics", DELETED, 5, (cluster(D), on(D, TOPIC, "a")), {"a": T29}, ("a",)),
    Case(
        "DeleteTopics of the unseen", DELETED, 5,
        (cluster(D), on(DESCRIBE, TOPIC, "a")), {"a": T29}, ("a",),
    ),
    Case(
        "DeleteTopics of an unseen name", DELETED, 5, (cluster(D), on(DESCRIBE, TOPIC, "none")),
        {"none": T29},
    ),
    Case("DeleteTopics of a name", DELETED, 5, (cluster(D), on(D, TOPIC, "none")), {}),
    Case(
        "DeleteTopics by id", DELETED_BY_ID, 6,
        (cluster(D), on(D, TOPIC, "a")), {"a": T29}, ("a",),
    ),
    Case("DeleteRecords", RECORDS, 2, (on(D, TOPIC, "a"),), {"a-0": T29}, ("a",)),
    Case(
        "OffsetForLeaderEpoch", EPOCHS, 4,
        (cluster(ACTION), on(DESCRIBE, TOPIC, "a")), {"a-0": T29},
    ),
    Case("OffsetForLeaderEpoch of a follower", EPOCHS, 4, (on(DESCRIBE, TOPIC, "a"),), {}),
    Case(
        "DescribeAcls", made(describe_acls.DescribeAclsRequest), 2, (cluster(DESCRIBE),), {"": C31}
    ),
    Case("CreateAcls", ACL, 2, (cluster(A),), {"": C31}),
    Case("DeleteAcls", FILTER, 2, (cluster(A),), {"": C31}),
    Case("DescribeConfigs", CONFIGS, 4, (on(SEE_CONFIGS, TOPIC, "a"),), {"a": T29}),
    Case("DescribeConfigs of a broker", CONFIGS, 4, (cluster(SEE_CONFIGS),), {"1": C31}),
    Case("DescribeConfigs of a group", CONFIGS, 4, (on(SEE_CONFIGS, GROUP, "g"),), {"g": G30}),
    *(
        case
        for name, request, version in (
            ("AlterConfigs", altered(alter_configs.AlterConfigsRequest), 2),
            (
                "IncrementalAlterConfigs",
                altered(incremental_alter_configs.IncrementalAlterConfigsRequest),
                1,
            ),
        )
        for case in (
            Case(name, request, version, (on(SET_CONFIGS, TOPIC, "a"),), {"a": T29}, ("a",)),
            Case(f"{name} of a broker", request, version, (cluster(SET_CONFIGS),), {"1": C31}),
            Case(
                f"{name} of a group", request, version,
                (on(SET_CONFIGS, GROUP, "g"),), {"g": G30},
            ),
        )
    ),
    Case(
        "DescribeLogDirs", made(describe_log_dirs.DescribeLogDirsRequest, topics=None), 4,
        (cluster(DESCRIBE),), {"": C31},
    ),
    Case("CreatePartitions", GROWN, 3, (on(A, TOPIC, "a"),), {"a": T29}, ("a",)),
    Case(
        "DeleteGroups", made(delete_groups.DeleteGroupsRequest, groups_names=("g", "h")), 2,
        (on(D, GROUP, "g"),), {"g": G30}, ("g",),
    ),
    Case("ElectLeaders", ELECTED, 2, (cluster(A),), {"": C31, "a-0": C31}, ("*",)),
    Case("ElectLeaders v0", ELECTED, 0, (cluster(A),), {"a-0": C31}, ("*",)),
    Case(
        "AlterPartitionReassignments", REASSIGNED, 0,
        (cluster(A),), {"": C31, "a-0": None}, ("*",),
    ),
    Case(
        "ListPartitionReassignments",
        made(list_partition_reassignments.ListPartitionReassignmentsRequest, topics=None), 0,
        (cluster(DESCRIBE),), {"": C31},
    ),
    Case(
        "OffsetDelete of the group", UNCOMMITTED, 0,
        (on(D, GROUP, "g"),), {"": G30, "a-0": None, "b-0": None}, ("*",),
    ),
    Case("OffsetDelete", UNCOMMITTED, 0, (on(R, TOPIC, "a"),), {"a-0": T29}, ("a",)),
    Case("DescribeCluster", NODES, 1, (cluster(DESCRIBE),), {" cluster_authorized_operations": 0}),
    Case("DescribeProducers", PRODUCERS, 0, (on(R, TOPIC, "a"),), {"a-0": T29}),
    Case("DescribeRemoteLog", REMOTE_LOGS, 0, (on(DESCRIBE, TOPIC, "a"),), {"a-0": T29}),
    Case(
        "DescribeTopicPartitions", PAGED, 0, (on(DESCRIBE, TOPIC, "a"),),
        {"a": T29, "a topic_authorized_operations": None, "a-0": None},
    ),
    Case(
        "DescribeTopicPartitions of all", ALL_PAGED, 0, (on(DESCRIBE, TOPIC, "a"),),
        {"a": None, "a topic_authorized_operations": None, "a-0": None},
    ),
    Case(
        "UpdateFeatures",
        made(
            update_features.UpdateFeaturesRequest,
            feature_updates=[
                {"feature": "ottla.version", "max_version_level": 1, "upgrade_type": 1}
            ],
        ),
        1, (cluster(A),), {"": C31}, ("*",),
    ),
    Case(
        "UnregisterBroker", made(unregister_broker.UnregisterBrokerRequest, broker_id=9), 0,
        (cluster(A),), {"": C31}, ("*",),
    ),
    Case(
        "DescribeDeletions", made(describe_deletions.DescribeDeletionsRequest), 0,
        (cluster(DESCRIBE),), {"": C31},
    ),
    Case(
        "RestoreTopic", made(restore_topic.RestoreTopicRequest, name="r", topic_id=bytes(16)), 0,
        (cluster(A),), {"": C31}, ("*",),
    ),
    Case(
        "AbandonPurge", made(abandon_purge.AbandonPurgeRequest, topic_id=bytes(16)), 0,
        (cluster(A),), {"": C31},
    ),
    Case(
        "GrantSegmentCopies",
        made(
            grant_segment_copies.GrantSegmentCopiesRequest,
            holder=bytes(16), lease_ms=1, topics=(),
        ),
        0, (cluster(ACTION),), {"": C31},
    ),
    Case(
        "CommitSegmentCopies", made(commit_segment_copies.CommitSegmentCopiesRequest, topics=()), 0,
        (cluster(ACTION),), {"": C31},
    ),
    Case(
        "DescribeIdleTopics", made(describe_idle_topics.DescribeIdleTopicsRequest), 0,
        (cluster(DESCRIBE),), {"": C31},
    ),
    Case(
        "DescribeTopicTiering", made(describe_topic_tiering.DescribeTopicTieringRequest), 0,
        (cluster(DESCRIBE),), {"": C31},
    ),
    Case(
        "DescribeQuorum", made(describe_quorum.DescribeQuorumRequest), 1,
        (cluster(DESCRIBE),), {"": C31},
    ),
]  # fmt: skip
