"""One request of many entries of each API that takes such, with its version."""

from typing import Any

from ottla.wire.messages import (
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    join_group,
    list_offsets,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
)

Request = tuple[Any, int]


def large_requests(count: int) -> dict[str, Request]:
    """Return requests of `count` entries by the API's name."""
    names = tuple(f"g{number}" for number in range(count))
    return {
        "DescribeConfigs": _describe_configs(count),
        "Fetch": _fetch(count),
        "OffsetCommit": _offset_commit(count),
        "OffsetFetch": _offset_fetch(count),
        "ListOffsets": _list_offsets(count),
        "DescribeGroups": (describe_groups.DescribeGroupsRequest(groups=names), 5),
        "DeleteTopics": (
            delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=10_000),
            5,
        ),
        "FindCoordinator": (
            find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=names),
            4,
        ),
        "JoinGroup": _join_group(names),
        "CreateTopics": _create_topics(count // 4),
        "IncrementalAlterConfigs": _alter_configs(count // 2),
        "DeleteRecords": _delete_records(count),
        "OffsetForLeaderEpoch": _offset_for_leader_epoch(count),
    }


def _describe_configs(count: int) -> Request:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=None
    )
    return describe_configs.DescribeConfigsRequest(resources=(resource,) * count), 4


def _fetch(count: int) -> Request:
    partitions = tuple(
        fetch.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000)
        for number in range(count)
    )
    topics = (fetch.FetchTopic(topic="none", partitions=partitions),)
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 11


def _offset_commit(count: int) -> Request:
    partitions = tuple(
        offset_commit.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=1, committed_metadata=None
        )
        for number in range(count)
    )
    topics = (offset_commit.OffsetCommitRequestTopic(name="none", partitions=partitions),)
    return offset_commit.OffsetCommitRequest(group_id="g", topics=topics), 8


def _offset_fetch(count: int) -> Request:
    topics = (
        offset_fetch.OffsetFetchRequestTopics(name="none", partition_indexes=tuple(range(count))),
    )
    group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=topics)
    return offset_fetch.OffsetFetchRequest(groups=(group,)), 8


def _list_offsets(count: int) -> Request:
    partitions = tuple(
        list_offsets.ListOffsetsPartition(partition_index=number, timestamp=-1)
        for number in range(count)
    )
    topics = (list_offsets.ListOffsetsTopic(name="none", partitions=partitions),)
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=topics), 7


def _join_group(names: tuple[str, ...]) -> Request:
    return (
        join_group.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=tuple(
                join_group.JoinGroupRequestProtocol(name=name, metadata=b"") for name in names
            ),
        ),
        6,
    )


def _create_topics(count: int) -> Request:
    """Without effect, but with an answer that tells the configuration of each."""
    topics = tuple(
        create_topics.CreatableTopic(
            name=f"large-{number}",
            num_partitions=1,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
        for number in range(count)
    )
    request = create_topics.CreateTopicsRequest(
        topics=topics, timeout_ms=20_000, validate_only=True
    )
    return request, 7


def _alter_configs(count: int) -> Request:
    config = incremental_alter_configs.AlterableConfig(
        name="retention.ms", config_operation=0, value="5"
    )
    resources = tuple(
        incremental_alter_configs.AlterConfigsResource(
            resource_type=2, resource_name=f"none-{number}", configs=(config,)
        )
        for number in range(count)
    )
    return (
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=resources, validate_only=False
        ),
        1,
    )


def _delete_records(count: int) -> Request:
    partitions = tuple(
        delete_records.DeleteRecordsPartition(partition_index=number, offset=0)
        for number in range(count)
    )
    topics = (delete_records.DeleteRecordsTopic(name="none", partitions=partitions),)
    return delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 2


def _offset_for_leader_epoch(count: int) -> Request:
    partitions = tuple(
        offset_for_leader_epoch.OffsetForLeaderPartition(
            partition=number, current_leader_epoch=-1, leader_epoch=0
        )
        for number in range(count)
    )
    topics = (offset_for_leader_epoch.OffsetForLeaderTopic(topic="none", partitions=partitions),)
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4
