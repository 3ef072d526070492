"""The quorum's responses on the wire: Fetch, FetchSnapshot and DescribeQuorum, field by field.

Method: a real controller over a disk in memory; requests as other implementations send them,
wrong ones included, each through the codec.
"""

from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID, Uuid
from ottla.base.pending import Pending, nothing
from ottla.broker.api import k55_describe_quorum, k59_fetch_snapshot
from ottla.host.kraft.quorum_server import QuorumServer
from ottla.raft.batches import read_batches
from ottla.raft.snapshots import decode_snapshot
from ottla.wire.codec import decode, encode
from ottla.wire.messages import describe_quorum as describe_wire
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import fetch_snapshot as snapshot_wire
from tests.unit.host.harness import CLUSTER_ID, START_MS, Harness, a_connection
from tests.unit.host.quorum_harness import Controller, a_topic


def running(topics: int = 0) -> Controller:
    controller = Controller(Harness())
    controller.harness.workers.run()
    for number in range(1, topics + 1):
        controller.write(a_topic(number))
        controller.harness.workers.run()
    return controller


def fetch_request(
    offset: int = 0,
    epoch: int = 0,
    *,
    leader_epoch: int = 1,
    topic: str = METADATA_TOPIC,
    topic_id: Uuid = METADATA_TOPIC_ID,
    partition: int = 0,
    cluster_id: str | None = CLUSTER_ID,
    replica: int = 5,
    wait_ms: int = 0,
    version: int = 17,
    bytes_max: int = 1 << 20,
) -> fetch_wire.FetchRequest:
    requested = fetch_wire.FetchPartition(
        partition=partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        partition_max_bytes=bytes_max,
    )
    named: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {"topic": topic}
    replica_fields: dict[str, Any] = (
        {"replica_state": fetch_wire.ReplicaState(replica_id=replica)}
        if version >= 15
        else {"replica_id": replica}
    )
    return fetch_wire.FetchRequest(
        cluster_id=cluster_id,
        max_wait_ms=wait_ms,
        min_bytes=0,
        topics=(fetch_wire.FetchTopic(partitions=(requested,), **named),),
        **replica_fields,
    )


def fetched(controller: Controller, version: int = 17, **fields: Any) -> fetch_wire.FetchResponse:
    request = fetch_request(version=version, **fields)
    answer = controller.serve(request, version)
    response = answer.value if isinstance(answer, Pending) else answer
    assert isinstance(response, fetch_wire.FetchResponse)
    return response


def partition_of(response: fetch_wire.FetchResponse) -> fetch_wire.PartitionData:
    assert response.error_code == 0
    ((partition,),) = [topic.partitions for topic in response.responses]
    return partition


# -- Fetch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [12, 13, 15, 17])
def test_records_in_every_version_of_kraft(version: int) -> None:
    controller = running(topics=2)
    response = fetched(controller, version)
    partition = partition_of(response)
    batches = list(read_batches(bytes(partition.records)))  # type: ignore[arg-type]
    assert [batch.base_offset for batch in batches] == [0, 1, 2, 3]
    assert (partition.error_code, partition.high_watermark, partition.log_start_offset) == (0, 4, 0)
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
    topic = response.responses[0]
    expected = (METADATA_TOPIC_ID, "") if version >= 13 else (bytes(16), METADATA_TOPIC)
    assert (topic.topic_id, topic.topic) == expected


def test_only_whole_batches_and_at_least_one() -> None:
    controller = running(topics=5)
    partition = partition_of(fetched(controller, bytes_max=1))
    (batch,) = read_batches(bytes(partition.records))  # type: ignore[arg-type]
    assert batch.base_offset == 0


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "another"}, Error.INCONSISTENT_CLUSTER_ID),
        ({"epoch": -1}, Error.INVALID_REQUEST),
        ({"leader_epoch": -1}, Error.INVALID_REQUEST),
    ],
)
def test_refusals_of_the_whole_request(fields: dict[str, Any], error: Error) -> None:
    response = fetched(running(), **fields)
    assert (response.error_code, response.responses) == (error, ())


def test_a_fetch_of_two_partitions_is_refused() -> None:
    controller = running()
    one = fetch_request().topics[0]
    request = fetch_wire.FetchRequest(max_wait_ms=0, min_bytes=0, topics=(one, one))
    assert controller.serve(request, 17).error_code == Error.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "fields", "error"),
    [
        (17, {"topic_id": Uuid(b"\x09" * 16)}, Error.UNKNOWN_TOPIC_ID),
        (17, {"partition": 1}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (12, {"topic": "orders"}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (17, {"leader_epoch": 0}, Error.FENCED_LEADER_EPOCH),
        (17, {"leader_epoch": 2}, Error.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_refusals_of_the_partition(version: int, fields: dict[str, Any], error: Error) -> None:
    partition = partition_of(fetched(running(), version, **fields))
    assert partition.error_code == error


def test_a_client_without_cluster_id_is_served() -> None:
    assert partition_of(fetched(running(), cluster_id=None)).error_code == 0


def test_a_diverging_log_gets_the_end_offset() -> None:
    partition = partition_of(fetched(running(topics=1), offset=9, epoch=1))
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (1, 3)
    assert partition.snapshot_id.end_offset == -1
    assert bytes(partition.records) == b""  # type: ignore[arg-type]


def test_a_delayed_fetch_is_answered_by_the_next_commit_or_its_deadline() -> None:
    controller = running()
    first = controller.serve(fetch_request(2, 1, wait_ms=500), 17)
    assert isinstance(first, Pending)
    assert not first.done
    controller.write(a_topic(1))
    controller.harness.workers.run()
    (batch,) = read_batches(bytes(partition_of(first.value).records))  # type: ignore[arg-type]
    assert batch.base_offset == 2
    second = controller.serve(fetch_request(3, 1, wait_ms=500), 17)
    controller.harness.advance(499)
    assert not second.done
    controller.harness.advance(1)
    assert bytes(partition_of(second.value).records) == b""  # type: ignore[arg-type]


def test_a_closed_connection_leaves_no_delayed_fetch() -> None:
    controller = running()
    connection = a_connection()
    answers = [controller.serve(fetch_request(2, 1, wait_ms=500), 17, connection) for _ in range(3)]
    connection.closed.complete(None)
    server = controller.log.quorum
    assert isinstance(server, QuorumServer)
    assert (server._waiting, server._of_connection) == ({}, {})
    controller.write(a_topic(1))
    controller.harness.advance(1_000)
    assert not any(answer.done for answer in answers)


def test_a_long_connection_has_one_listener() -> None:
    controller = running()
    connection = a_connection()
    for _ in range(50):
        controller.serve(fetch_request(2, 1, wait_ms=5), 17, connection)
        controller.harness.advance(10)
    assert len(connection.closed._listeners) == 1


def test_a_stopped_controller_answers_broker_not_available() -> None:
    controller = running()
    parked = controller.serve(fetch_request(2, 1, wait_ms=500), 17)
    controller.log.stop()
    assert partition_of(parked.value).error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert fetched(controller).error_code == Error.BROKER_NOT_AVAILABLE


# -- FetchSnapshot -----------------------------------------------------------------------------


def with_snapshot() -> tuple[Controller, snapshot_wire.SnapshotId]:
    controller = running(topics=20)
    controller.log._snapshotter.take()
    controller.harness.workers.run()
    partition = partition_of(fetched(controller))
    assert bytes(partition.records) == b""  # type: ignore[arg-type]
    response = partition.snapshot_id
    return controller, snapshot_wire.SnapshotId(
        end_offset=response.end_offset, epoch=response.epoch
    )


def piece(
    controller: Controller,
    snapshot: snapshot_wire.SnapshotId,
    position: int = 0,
    *,
    bytes_max: int = 1 << 20,
    leader_epoch: int = 1,
    topic: str = METADATA_TOPIC,
    partition: int = 0,
    cluster_id: str | None = CLUSTER_ID,
) -> snapshot_wire.FetchSnapshotResponse:
    requested = snapshot_wire.RequestPartitionSnapshot(
        partition=partition,
        current_leader_epoch=leader_epoch,
        snapshot_id=snapshot,
        position=position,
    )
    request = snapshot_wire.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=5,
        max_bytes=bytes_max,
        topics=(snapshot_wire.RequestTopicSnapshot(name=topic, partitions=(requested,)),),
    )
    request = decode(type(request), encode(request, 1), 1)
    ctx = controller.harness.context(version=1, key=59, quorum_or_none=controller.log.quorum)
    answer = k59_fetch_snapshot.handle(ctx, request)
    return decode(snapshot_wire.FetchSnapshotResponse, encode(answer, 1), 1)


def only(response: snapshot_wire.FetchSnapshotResponse) -> snapshot_wire.ResponsePartitionSnapshot:
    assert response.error_code == 0
    ((partition,),) = [topic.partitions for topic in response.topics]
    return partition


def test_pieces_of_any_size_make_the_whole_snapshot() -> None:
    controller, snapshot = with_snapshot()
    whole = only(piece(controller, snapshot))
    assert len(bytes(whole.unaligned_records)) == whole.size  # type: ignore[arg-type]
    assert (whole.current_leader.leader_id, whole.current_leader.leader_epoch) == (1, 1)
    assert len(decode_snapshot(bytes(whole.unaligned_records)).values) == 21  # type: ignore[arg-type]
    for size in (1, 7, 100):
        data = b""
        while len(data) < whole.size:
            part = only(piece(controller, snapshot, len(data), bytes_max=size))
            assert (part.position, part.size) == (len(data), whole.size)
            data += bytes(part.unaligned_records)  # type: ignore[arg-type]
        assert data == bytes(whole.unaligned_records)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"position": 1 << 30}, Error.POSITION_OUT_OF_RANGE),
        ({"position": -1}, Error.POSITION_OUT_OF_RANGE),
        ({"bytes_max": 0}, Error.POSITION_OUT_OF_RANGE),
        ({"leader_epoch": 0}, Error.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 5}, Error.UNKNOWN_LEADER_EPOCH),
        ({"topic": "orders"}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 2}, Error.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_refused_pieces(fields: dict[str, Any], error: Error) -> None:
    controller, snapshot = with_snapshot()
    assert only(piece(controller, snapshot, **fields)).error_code == error


def test_an_unknown_snapshot_and_another_cluster() -> None:
    controller, snapshot = with_snapshot()
    unknown = snapshot_wire.SnapshotId(end_offset=snapshot.end_offset, epoch=7)
    assert only(piece(controller, unknown)).error_code == Error.SNAPSHOT_NOT_FOUND
    refused = piece(controller, snapshot, cluster_id="another")
    assert refused.error_code == Error.INCONSISTENT_CLUSTER_ID


def test_a_snapshot_whose_file_cannot_be_read_is_not_found() -> None:
    controller, snapshot = with_snapshot()
    controller.harness.disk.fail("open", path=".checkpoint", times=None)
    assert only(piece(controller, snapshot)).error_code == Error.SNAPSHOT_NOT_FOUND


def test_nothing_of_a_damaged_snapshot_is_sent_and_another_one_is_offered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller, snapshot = with_snapshot()
    (stored,) = controller.storage.snapshots
    path = controller.storage.snapshot_file(stored.id)
    controller.write(a_topic(99))
    controller.harness.workers.run()
    controller.harness.disk.corrupt(path, 200, b"\xff\xff")
    refused = only(piece(controller, snapshot))
    assert refused.error_code == Error.SNAPSHOT_NOT_FOUND
    assert bytes(refused.unaligned_records) == b""  # type: ignore[arg-type]
    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert line.startswith(f"metadata snapshot not sent to replicas: {path}: ")
    controller.harness.workers.run()
    offered = partition_of(fetched(controller)).snapshot_id
    assert offered.end_offset > snapshot.end_offset
    again = snapshot_wire.SnapshotId(end_offset=offered.end_offset, epoch=offered.epoch)
    assert only(piece(controller, again)).error_code == Error.NONE


# -- DescribeQuorum ----------------------------------------------------------------------------


def described(
    controller: Controller, *partitions: tuple[str, int], version: int = 2
) -> describe_wire.DescribeQuorumResponse:
    request = describe_wire.DescribeQuorumRequest(
        topics=tuple(
            describe_wire.RequestTopicData(
                topic_name=topic,
                partitions=(describe_wire.RequestPartitionData(partition_index=index),),
            )
            for topic, index in partitions or [(METADATA_TOPIC, 0)]
        )
    )
    ctx = controller.harness.context(version=version, key=55, quorum_or_none=controller.log.quorum)
    answer = k55_describe_quorum.handle(ctx, request)
    return decode(describe_wire.DescribeQuorumResponse, encode(answer, version), version)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_leader_describes_itself_and_its_observers(version: int) -> None:
    controller = running(topics=2)
    controller.harness.advance(1_000)
    fetched(controller, offset=4, epoch=1, replica=7)
    fetched(controller, offset=2, epoch=1, replica=6)
    controller.harness.advance(500)
    response = described(controller, version=version)
    ((partition,),) = [topic.partitions for topic in response.topics]
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, 4)
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, 4)
    observers = {each.replica_id: each for each in partition.observers}
    assert {key: each.log_end_offset for key, each in observers.items()} == {6: 2, 7: 4}
    if version == 0:
        return
    assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp == START_MS + 1_500
    assert observers[7].last_fetch_timestamp == START_MS + 1_000
    assert observers[7].last_caught_up_timestamp == START_MS + 1_000
    assert observers[6].last_caught_up_timestamp == -1


def test_nodes_come_with_version_2() -> None:
    controller = running()
    quorum = QuorumServer(
        controller.log._driver,
        nothing,
        cluster_id=CLUSTER_ID,
        clock=controller.harness.clock,
        nodes=lambda: {1: (("CONTROLLER", "here", 9093),)},
    )
    controller.log.quorum = quorum
    (node,) = described(controller).nodes
    (listener,) = node.listeners
    assert (node.node_id, listener.name, listener.host, listener.port) == (
        1,
        "CONTROLLER",
        "here",
        9093,
    )
    assert described(controller, version=1).nodes == ()


def test_every_requested_partition_is_answered() -> None:
    response = described(running(), ("orders", 0), (METADATA_TOPIC, 1), (METADATA_TOPIC, 0))
    errors = [topic.partitions[0].error_code for topic in response.topics]
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [unknown, unknown, Error.NONE]
    assert response.topics[0].partitions[0].error_message == unknown.message


def test_only_the_leader_describes_the_quorum() -> None:
    controller = running()
    controller.log.stop()
    ((partition,),) = [topic.partitions for topic in described(controller).topics]
    assert partition.error_code == Error.NOT_LEADER_OR_FOLLOWER
