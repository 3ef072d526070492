"""Ottla's own messages keep their bytes: nodes of different releases must understand each other.

Method: one message of each, spelt out byte by byte; nobody else's codec knows them.
"""

import pytest

from ottla.base.ids import Uuid
from ottla.wire.codec import decode, encode
from ottla.wire.frames import decode_request_header, encode_request
from ottla.wire.messages import (
    abandon_purge,
    commit_segment_copies,
    delete_replicas,
    describe_deletions,
    describe_idle_topics,
    describe_remote_log,
    describe_topic_tiering,
    disable_remote_topic,
    grant_segment_copies,
    report_idle_topics,
    report_purges,
    restore_topic,
)
from ottla.wire.registry import APIS
from ottla.wire.schema import spec_of

ID = Uuid(bytes(range(16)))
ID_HEX = ID.hex()

EPOCHS = "00000001000000020000000000000003"
"""Controller id, controller epoch, broker epoch."""

MESSAGES: list[tuple[object, str]] = [
    (
        delete_replicas.DeleteReplicasRequest(
            controller_id=1,
            controller_epoch=2,
            broker_epoch=3,
            topics=(delete_replicas.DeleteReplicasTopic(topic_id=ID, partitions=(4, 5)),),
        ),
        EPOCHS + "02" + ID_HEX + "03" "00000004" "00000005" "00" "00",
    ),
    (
        delete_replicas.DeleteReplicasResponse(
            error_code=0,
            topics=(
                delete_replicas.DeleteReplicasTopicResult(
                    topic_id=ID,
                    partitions=(
                        delete_replicas.DeleteReplicasPartitionResult(
                            partition_index=4, error_code=56
                        ),
                    ),
                ),
            ),
        ),
        "0000" "02" + ID_HEX + "02" "00000004" "0038" "00" "00" "00",
    ),
    (
        describe_deletions.DescribeDeletionsRequest(
            topics=(
                describe_deletions.DescribeDeletionsTopic(name="t"),
                describe_deletions.DescribeDeletionsTopic(topic_id=ID),
            ),
            include_receipts=False,
            after=ID,
        ),
        "03" "0274" + "00" * 16 + "00" "00" + ID_HEX + "00" "00" + ID_HEX + "00",
    ),
    (
        describe_deletions.DescribeDeletionsResponse(
            error_code=0,
            deletions=(
                describe_deletions.DescribedDeletion(
                    topic_id=ID,
                    name="t",
                    policy=1,
                    asked_ms=7,
                    finished_ms=-1,
                    halted=2,
                    remote=1,
                    replicas=(
                        describe_deletions.DeletedReplicas(
                            broker_id=3, state=6, reason=2, error=56, partitions=(4,)
                        ),
                    ),
                ),
            ),
            next_after=ID,
        ),
        "0000" "00" "02" + ID_HEX + "0274" "01" "0000000000000007" + "ff" * 8 + "02" "01" "02"
        "00000003" "06" "02" "0038" "02" "00000004" "00" "00" + ID_HEX + "00",
    ),
    (
        report_idle_topics.ReportIdleTopicsRequest(
            broker_id=1,
            broker_epoch=2,
            token=3,
            coordinators=(4,),
            topics=(report_idle_topics.IdleTopic(topic_id=ID, replicas=(5, 6), idle_ms=7),),
        ),
        "00000001" "0000000000000002" "0000000000000003" "02" "00000004"
        "02" + ID_HEX + "03" "00000005" "00000006" "0000000000000007" "00" "00",
    ),
    (
        report_idle_topics.ReportIdleTopicsResponse(error_code=41, token=-1),
        "0029" + "ff" * 8 + "00",
    ),
    (
        describe_idle_topics.DescribeIdleTopicsRequest(topics=("t",)),
        "02" "0274" "00",
    ),
    (
        describe_idle_topics.DescribeIdleTopicsResponse(
            error_code=0,
            topics=(
                describe_idle_topics.DescribedIdleTopic(
                    name="t", topic_id=ID, ttl_ms=1, idle_ms=-1, reason=5, brokers=(6,)
                ),
            ),
        ),
        "0000" "00" "02" "0274" + ID_HEX + "0000000000000001" + "ff" * 8 + "05"
        "02" "00000006" "00" "00",
    ),
    (
        abandon_purge.AbandonPurgeRequest(topic_id=ID, validate_only=True),
        ID_HEX + "01" "00",
    ),
    (
        abandon_purge.AbandonPurgeResponse(
            error_code=0,
            name="t",
            topic_id=ID,
            was_abandoned=True,
            segments_left=4,
            bytes_left=5,
        ),
        "0000" "00" "0274" + ID_HEX + "01" "00000004" "0000000000000005" "00",
    ),
    (
        grant_segment_copies.GrantSegmentCopiesRequest(
            holder=ID,
            lease_ms=2,
            topics=(
                grant_segment_copies.GrantSegmentCopiesTopic(
                    topic_id=ID,
                    partitions=(
                        grant_segment_copies.GrantSegmentCopiesPartition(
                            partition=3, segments_max=4, until_offset=5
                        ),
                    ),
                ),
            ),
        ),
        ID_HEX + "00000002" "02" + ID_HEX + "02" "00000003" "00000004" "0000000000000005"
        "00" "00" "00",
    ),
    (
        grant_segment_copies.GrantSegmentCopiesResponse(
            error_code=0,
            topics=(
                grant_segment_copies.GrantedTopic(
                    topic_id=ID,
                    partitions=(
                        grant_segment_copies.GrantedPartition(
                            partition=1,
                            error_code=2,
                            error_message="m",
                            leader_epoch=3,
                            tiered_epoch=4,
                            end_offset=5,
                            segments_left=6,
                            bytes_left=7,
                            segments=(
                                grant_segment_copies.GrantedSegment(
                                    segment_id=ID,
                                    start_offset=1,
                                    end_offset=2,
                                    size_bytes=3,
                                    max_timestamp_ms=4,
                                    lease_ms=5,
                                    epochs=(
                                        grant_segment_copies.GrantedEpoch(epoch=6, start_offset=7),
                                    ),
                                    leader_epochs=b"e",
                                    producer_snapshot=b"ps",
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        "0000" "00" "02" + ID_HEX + "02"
        "00000001" "0002" "026d" "00000003" "00000004" "0000000000000005" "00000006"
        "0000000000000007" "02" + ID_HEX + "0000000000000001" "0000000000000002"
        "0000000000000003" "0000000000000004" "00000005" "02" "00000006" "0000000000000007" "00"
        "0265" "037073" "00" "00" "00" "00" "00",
    ),
    (
        commit_segment_copies.CommitSegmentCopiesRequest(
            topics=(
                commit_segment_copies.CommitSegmentCopiesTopic(
                    topic_id=ID,
                    partitions=(
                        commit_segment_copies.CommitSegmentCopiesPartition(
                            partition=1,
                            leader_epoch=2,
                            tiered_epoch=3,
                            copies=(
                                commit_segment_copies.CommittedSegmentCopy(
                                    segment_id=ID,
                                    offset_index_bytes=4,
                                    time_index_bytes=5,
                                    failure="f",
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        "02" + ID_HEX + "02" "00000001" "00000002" "00000003" "02" + ID_HEX
        + "0000000000000004" "0000000000000005" "0266" "00" "00" "00" "00",
    ),
    (
        commit_segment_copies.CommitSegmentCopiesResponse(
            error_code=0,
            topics=(
                commit_segment_copies.SegmentCopiesTopicResult(
                    topic_id=ID,
                    partitions=(
                        commit_segment_copies.SegmentCopiesPartitionResult(
                            partition=1,
                            error_code=0,
                            copies=(
                                commit_segment_copies.SegmentCopyResult(
                                    segment_id=ID, error_code=2, is_finished=True
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        "0000" "00" "02" + ID_HEX + "02" "00000001" "0000" "00" "02" + ID_HEX + "0002" "00" "01"
        "00" "00" "00" "00",
    ),
    (
        describe_topic_tiering.DescribeTopicTieringRequest(topics=None),
        "00" "00",
    ),
    (
        describe_topic_tiering.DescribeTopicTieringResponse(
            error_code=0,
            topics=(
                describe_topic_tiering.DescribedTopicTiering(
                    name="t",
                    topic_id=ID,
                    state=2,
                    tiered_epoch=3,
                    policy=2,
                    remote_floor_epoch=1,
                    purge_pending=True,
                    missing=(
                        describe_topic_tiering.MissingAcknowledgement(
                            broker_id=4, is_leader=True, reason=2, error=55, partitions=(5,)
                        ),
                    ),
                    purge_partitions=6,
                    purge_partitions_left=7,
                    purge_segments_left=8,
                    purge_bytes_left=9,
                    purge_error="e",
                    purge_leaderless=(10,),
                ),
            ),
        ),
        "0000" "00" "02" "0274" + ID_HEX + "02" "00000003" "02" "00000001" "01"
        "02" "00000004" "01" "02" "0037" "02" "00000005" "00"
        "00000006" "00000007" "00000008" "0000000000000009" "0265"
        "01" "00" "05" "02" "0000000a" "00",
    ),
    (
        disable_remote_topic.DisableRemoteTopicRequest(
            controller_id=1,
            controller_epoch=2,
            broker_epoch=3,
            topics=(
                disable_remote_topic.DisableRemoteTopicTopic(
                    topic_id=ID,
                    tiered_epoch=6,
                    policy=disable_remote_topic.DELETE,
                    remote_floor_epoch=5,
                    partitions=(4,),
                ),
            ),
        ),
        EPOCHS + "02" + ID_HEX + "00000006" "01" "00000005" "02" "00000004" "00" "00",
    ),
    (
        disable_remote_topic.DisableRemoteTopicResponse(
            error_code=0,
            topics=(
                disable_remote_topic.DisableRemoteTopicTopicResult(
                    topic_id=ID,
                    tiered_epoch=6,
                    partitions=(
                        disable_remote_topic.DisableRemoteTopicPartitionResult(
                            partition_index=4,
                            error_code=0,
                            role=disable_remote_topic.LEADER,
                            leader_epoch=7,
                            log_start_offset=8,
                            remaining_segments=9,
                        ),
                    ),
                ),
            ),
        ),
        "0000" "02" + ID_HEX + "00000006" "02"
        "00000004" "0000" "01" "00000007" "0000000000000008" "00000009" "00" "00" "00",
    ),
    (
        describe_remote_log.DescribeRemoteLogRequest(
            topics=(describe_remote_log.DescribeRemoteLogTopic(name="t", partitions=(1,)),),
            include_segments=True,
        ),
        "02" "0274" "02" "00000001" "00" "01" "00",
    ),
    (
        describe_remote_log.DescribeRemoteLogResponse(
            error_code=0,
            topics=(
                describe_remote_log.RemoteLogTopic(
                    name="t",
                    topic_id=ID,
                    state=1,
                    tiered_epoch=2,
                    policy=0,
                    remote_floor_epoch=0,
                    purge_pending=False,
                    partitions=(
                        describe_remote_log.RemoteLogPartition(
                            partition=3,
                            error_code=0,
                            leader_epoch=4,
                            log_start_offset=5,
                            remote_end_offset=6,
                            local_start_offset=7,
                            log_end_offset=8,
                            high_watermark=9,
                            last_stable_offset=10,
                            remote_bytes=11,
                            remote_segments=1,
                            local_bytes=12,
                            lag_bytes=13,
                            lag_segments=14,
                            last_error="e",
                            segments=(
                                describe_remote_log.RemoteLogSegment(
                                    segment_id=ID,
                                    start_offset=5,
                                    end_offset=6,
                                    leader_epoch=4,
                                    tiered_epoch=2,
                                    max_timestamp_ms=15,
                                    size_bytes=11,
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        "0000" "00" "02" "0274" + ID_HEX + "01" "00000002" "00" "00000000" "00" "02"
        "00000003" "0000" "00" "00000004"
        + "".join(f"{each:016x}" for each in (5, 6, 7, 8, 9, 10, 11))
        + "00000001" + f"{12:016x}" + f"{13:016x}" + "0000000e" "0265" "02" + ID_HEX
        + f"{5:016x}{6:016x}" + "00000004" "00000002" + f"{15:016x}{11:016x}" "00" "00" "00" "00",
    ),
    (
        report_purges.ReportPurgesRequest(
            broker_id=1,
            broker_epoch=2,
            topics=(
                report_purges.PurgedTopic(
                    topic_id=ID,
                    partitions=(
                        report_purges.PurgedPartition(
                            partition=3,
                            floor=4,
                            is_purged=False,
                            segments_left=5,
                            bytes_left=6,
                            last_error="e",
                        ),
                        report_purges.PurgedPartition(partition=7, floor=8, is_purged=True),
                    ),
                ),
            ),
        ),
        "00000001" "0000000000000002" "02" + ID_HEX
        + "03" "00000003" "00000004" "00" "00000005" "0000000000000006" "0265" "00"
        "00000007" "00000008" "01" "ffffffff" "ffffffffffffffff" "00" "00" "00" "00",
    ),
    (
        report_purges.ReportPurgesResponse(
            error_code=0,
            topics=(report_purges.PurgedTopicResult(topic_id=ID, error_code=100),),
        ),
        "0000" "02" + ID_HEX + "0064" "00" "00",
    ),
    (
        restore_topic.RestoreTopicRequest(
            name="t",
            topic_id=ID,
            tiered_epoch=2,
            remote_floor_epoch=1,
            replication_factor=3,
            validate_only=True,
            configs=(restore_topic.RestoreTopicConfig(name="k", value="v"),),
            partitions=(
                restore_topic.RestoreTopicPartition(
                    partition_index=4,
                    leader_epoch=5,
                    log_start_offset=6,
                    end_offset=7,
                    epochs=(restore_topic.RestoreTopicEpoch(epoch=8, start_offset=9),),
                ),
            ),
        ),
        "0274" + ID_HEX + "00000002" "00000001" "0003" "01" "02" "026b" "0276" "00"
        "02" "00000004" "00000005" + f"{6:016x}{7:016x}" + "02" "00000008" + f"{9:016x}"
        + "00" "00" "00",
    ),
    (
        restore_topic.RestoreTopicResponse(error_code=36, error_message="e"),
        "0024" "0265" "00",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "hexadecimal"), MESSAGES, ids=[type(each).__name__ for each, _ in MESSAGES]
)
def test_golden_bytes(message: object, hexadecimal: str) -> None:
    assert encode(message, 0).hex() == hexadecimal
    assert decode(type(message), bytes.fromhex(hexadecimal), 0) == message


def test_keys_are_far_from_kafka_s_and_travel_like_them() -> None:
    keys = {spec_of(type(message)).key for message, _ in MESSAGES}
    assert keys == {*range(1001, 1013)} == {key for key in APIS if key >= 93}
    frame = encode_request(MESSAGES[0][0], 0, 17, "controller")
    header, _ = decode_request_header(frame[4:])
    assert tuple(header) == (1002, 0, 17, "controller")
