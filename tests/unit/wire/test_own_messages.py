"""Ottla's own messages keep their bytes: nodes of different releases must understand each other.

Method: one message of each, spelt out byte by byte; nobody else's codec knows them.
"""

from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.wire.codec import decode, encode
from ottla.wire.frames import decode_request_header, encode_request
from ottla.wire.messages import (
    delete_replicas,
    describe_deletions,
    describe_idle_topics,
    disable_remote_topic,
    leader_and_isr,
    report_idle_topics,
    topic_tiering,
    update_metadata,
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
]  # fmt: skip


TIERING = topic_tiering.TopicTieringState(
    tiered_epoch=3, state=2, policy=2, remote_floor_epoch=2, purge_pending=True
)
TIERING_HEX = "914e0d01000000030202000000020100"
"""Its tag, its size, that it is not null, itself."""


@pytest.mark.parametrize(
    ("topic", "version"),
    [
        (leader_and_isr.LeaderAndIsrTopicState, 7),
        (update_metadata.UpdateMetadataTopicState, 8),
    ],
)
def test_a_topics_tiering_state_is_a_tagged_field_of_requests_to_brokers(
    topic: Any, version: int
) -> None:
    def request(tiering: topic_tiering.TopicTieringState | None) -> Any:
        states = (topic(topic_name="t", topic_id=ID, partition_states=(), tiering=tiering),)
        if topic is leader_and_isr.LeaderAndIsrTopicState:
            return leader_and_isr.LeaderAndIsrRequest(
                controller_id=1, controller_epoch=2, topic_states=states, live_leaders=()
            )
        return update_metadata.UpdateMetadataRequest(
            controller_id=1, controller_epoch=2, topic_states=states, live_brokers=()
        )

    with_it = encode(request(TIERING), version).hex()
    without = encode(request(None), version).hex()
    assert with_it == without.replace(
        "0274" + ID_HEX + "0100", "0274" + ID_HEX + "0101" + TIERING_HEX
    )
    assert decode(type(request(None)), bytes.fromhex(with_it), version) == request(TIERING)


@pytest.mark.parametrize(
    ("message", "hexadecimal"), MESSAGES, ids=[type(each).__name__ for each, _ in MESSAGES]
)
def test_golden_bytes(message: object, hexadecimal: str) -> None:
    assert encode(message, 0).hex() == hexadecimal
    assert decode(type(message), bytes.fromhex(hexadecimal), 0) == message


def test_keys_are_far_from_kafka_s_and_travel_like_them() -> None:
    keys = {spec_of(type(message)).key for message, _ in MESSAGES}
    assert keys == {1001, 1002, 1003, 1004, 1005} == {key for key in APIS if key >= 93}
    frame = encode_request(MESSAGES[0][0], 0, 17, "controller")
    header, _ = decode_request_header(frame[4:])
    assert tuple(header) == (1002, 0, 17, "controller")
