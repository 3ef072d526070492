"""Requests about topics that may be on their way out: asked of a broker, answered by an error."""

import time

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID
from ottla.client.connection import Connection
from ottla.records.builder import encode_batch
from ottla.wire.messages import alter_partition_reassignments as move_wire
from ottla.wire.messages import create_partitions as grow_wire
from ottla.wire.messages import elect_leaders as elect_wire
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import incremental_alter_configs as config_wire
from ottla.wire.messages import list_offsets as offsets_wire
from ottla.wire.messages import list_partition_reassignments as moves_wire
from ottla.wire.messages import offset_commit as commit_wire
from ottla.wire.messages import produce as produce_wire

from . import raw
from .deletions import PATIENCE_SECONDS, Made, Site

LONG_MS = 600_000


def fetch(site: Site, made: Made, node: int, version: int, max_wait_ms: int = 0) -> Error:
    """Ask a broker for a record that is not there yet."""
    partition = fetch_wire.FetchPartition(
        partition=0, fetch_offset=1, partition_max_bytes=1_000_000
    )
    topic = fetch_wire.FetchTopic(
        topic=made.name if version < 13 else "",
        topic_id=made.id if version >= 13 else NO_UUID,
        partitions=(partition,),
    )
    request = fetch_wire.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=(topic,))
    port = raw.port_of(site.cluster, node)
    with Connection("127.0.0.1", port, client_id="test", timeout=5) as broker:
        answer = broker.ask(
            request, fetch_wire.FetchResponse, timeout=PATIENCE_SECONDS, version=version
        )
    return Error(answer.error_code or answer.responses[0].partitions[0].error_code)


def produce_by_id(site: Site, made: Made, node: int) -> Error:
    data = produce_wire.PartitionProduceData(index=0, records=b"")
    topic = produce_wire.TopicProduceData(topic_id=made.id, partition_data=(data,))
    request = produce_wire.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))
    answer = site.ask(request, produce_wire.ProduceResponse, node=node, version=13)
    return Error(answer.responses[0].partition_responses[0].error_code)


def produce_and_wait(site: Site, made: Made, node: int, version: int) -> Error:
    """Append a record with the topic's word; wait for its replicas as long as it takes."""
    batch = encode_batch([(None, made.word, (), int(time.time() * 1000))])
    topic = produce_wire.TopicProduceData(
        name=made.name if version < 13 else "",
        topic_id=made.id if version >= 13 else NO_UUID,
        partition_data=(produce_wire.PartitionProduceData(index=0, records=batch),),
    )
    request = produce_wire.ProduceRequest(acks=-1, timeout_ms=LONG_MS, topic_data=(topic,))
    port = raw.port_of(site.cluster, node)
    with Connection("127.0.0.1", port, client_id="test", timeout=5) as broker:
        answer = broker.ask(
            request, produce_wire.ProduceResponse, timeout=PATIENCE_SECONDS, version=version
        )
    return Error(answer.responses[0].partition_responses[0].error_code)


def commit_offset(site: Site, made: Made, node: int, version: int) -> Error:
    """Commit an offset for a group of its own."""
    partition = commit_wire.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    topic = commit_wire.OffsetCommitRequestTopic(
        name=made.name if version < 10 else "",
        topic_id=made.id if version >= 10 else NO_UUID,
        partitions=(partition,),
    )
    request = commit_wire.OffsetCommitRequest(group_id="late", topics=(topic,))
    answer = site.ask(request, commit_wire.OffsetCommitResponse, node=node, version=version)
    return Error(answer.topics[0].partitions[0].error_code)


def offset_of(site: Site, made: Made, node: int) -> Error:
    partition = offsets_wire.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = offsets_wire.ListOffsetsTopic(name=made.name, partitions=(partition,))
    request = offsets_wire.ListOffsetsRequest(replica_id=-1, topics=(topic,))
    answer = site.ask(request, offsets_wire.ListOffsetsResponse, node=node)
    return Error(answer.topics[0].partitions[0].error_code)


def grow(site: Site, name: str, count: int) -> Error:
    topic = grow_wire.CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = grow_wire.CreatePartitionsRequest(
        topics=(topic,), timeout_ms=30_000, validate_only=False
    )
    return Error(site.ask(request, grow_wire.CreatePartitionsResponse).results[0].error_code)


def move(site: Site, name: str, replicas: tuple[int, ...]) -> Error:
    partition = move_wire.ReassignablePartition(partition_index=0, replicas=replicas)
    topic = move_wire.ReassignableTopic(name=name, partitions=(partition,))
    request = move_wire.AlterPartitionReassignmentsRequest(topics=(topic,))
    answer = site.ask(request, move_wire.AlterPartitionReassignmentsResponse)
    assert answer.error_code == Error.NONE
    return Error(answer.responses[0].partitions[0].error_code)


def moves(site: Site) -> set[str]:
    """Return the topics of which partitions are under way to other replicas."""
    request = moves_wire.ListPartitionReassignmentsRequest(topics=None)
    answer = site.ask(request, moves_wire.ListPartitionReassignmentsResponse)
    assert answer.error_code == Error.NONE
    return {topic.name for topic in answer.topics}


def elect(site: Site, *names: str) -> dict[str, Error]:
    """Ask for the preferred leaders of topics' first partitions."""
    asked = tuple(elect_wire.TopicPartitions(topic=name, partitions=(0,)) for name in names)
    request = elect_wire.ElectLeadersRequest(topic_partitions=asked)
    answer = site.ask(request, elect_wire.ElectLeadersResponse)
    assert answer.error_code == Error.NONE
    return {
        each.topic: Error(each.partition_result[0].error_code)
        for each in answer.replica_election_results
    }


def configure(site: Site, name: str, retention_ms: int) -> Error:
    entry = config_wire.AlterableConfig(
        name="retention.ms", config_operation=0, value=str(retention_ms)
    )
    resource = config_wire.AlterConfigsResource(
        resource_type=2, resource_name=name, configs=(entry,)
    )
    request = config_wire.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = site.ask(request, config_wire.IncrementalAlterConfigsResponse)
    return Error(answer.responses[0].error_code)
