"""What only one client's administration offers, on three brokers: quorum, producers, members.

Method: the library itself, since there is nothing to compare; what the cluster does not serve
must be refused before anything is sent, which each library does by ApiVersions.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.errors import IncompatibleBrokerVersion, NoError, UnknownMemberIdError

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka import admin as kafka_admin
from ottla.testing import Cluster

from .clients import Closing, Message, client_of, eventually, produce
from .conftest import BROKERS, CONTROLLER, new_name, new_topic

PARTITIONS = 6
TIME_MS = 1_700_000_000_000


@pytest.fixture
def topic(trio: Cluster) -> str:
    """A topic with a record of a known time in each of six partitions."""
    name = new_topic(trio.bootstrap, "details", PARTITIONS)
    messages = [
        Message(topic=name, partition=each, value=b"x", timestamp_ms=TIME_MS + each)
        for each in range(PARTITIONS)
    ]
    produce(client_of("kafka_python"), trio.bootstrap, messages, idempotent=True)
    return name


@pytest.fixture
def admin(trio: Cluster) -> Iterator[Any]:
    with Closing(KafkaAdminClient(bootstrap_servers=trio.bootstrap)) as opened:
        yield opened


@pytest.fixture
def confluent_admin(trio: Cluster) -> Any:
    return AdminClient({"bootstrap.servers": trio.bootstrap, "log_level": 0})


def test_the_quorum_and_its_observers(admin: Any, trio: Cluster) -> None:
    if trio.zookeeper_connect is not None:
        with pytest.raises(IncompatibleBrokerVersion):
            admin.describe_metadata_quorum()
        return
    (partition,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
    assert partition["leader_id"] == CONTROLLER
    assert [each["replica_id"] for each in partition["current_voters"]] == [CONTROLLER]
    observers = {each["replica_id"]: each["log_end_offset"] for each in partition["observers"]}
    assert set(observers) == set(BROKERS)
    assert 0 < partition["high_watermark"] <= partition["current_voters"][0]["log_end_offset"]


def test_features(admin: Any, trio: Cluster) -> None:
    features = admin.describe_features()
    if trio.zookeeper_connect is not None:
        assert not any(level["finalized"] for level in features.values())
    else:
        assert features["metadata.version"]["finalized"] == (25, 25)  # 4.0-IV3


def test_producers_of_a_partition(admin: Any, topic: str) -> None:
    partition = KafkaPythonPartition(topic, 0)
    (producer,) = admin.describe_producers([partition])[partition].active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 0)
    assert producer.last_timestamp == TIME_MS


def test_partitions_are_spread_over_the_brokers(
    admin: Any, confluent_admin: Any, topic: str
) -> None:
    partitions = admin.describe_topic_partitions([topic])["topics"][0]["partitions"]
    leaders = [each["leader_id"] for each in partitions]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    assert [each["replica_nodes"] for each in partitions] == [[leader] for leader in leaders]
    assert [each["isr_nodes"] for each in partitions] == [[leader] for leader in leaders]
    (future,) = confluent_admin.describe_topics(TopicCollection([topic])).values()
    assert [each.leader.id for each in future.result(30).partitions] == leaders


def test_offsets_of_many_partitions(admin: Any, confluent_admin: Any, topic: str) -> None:
    every = [KafkaPythonPartition(topic, each) for each in range(PARTITIONS)]
    latest = admin.list_partition_offsets(dict.fromkeys(every, kafka_admin.OffsetSpec.LATEST))
    assert [latest[each].offset for each in every] == [1] * PARTITIONS
    newest = admin.list_partition_offsets(
        dict.fromkeys(every, kafka_admin.OffsetSpec.MAX_TIMESTAMP)
    )
    assert [(newest[each].offset, newest[each].timestamp) for each in every] == [
        (0, TIME_MS + each.partition) for each in every
    ]
    asked = {
        ConfluentPartition(topic, 0): OffsetSpec.latest(),
        ConfluentPartition(topic, 1): OffsetSpec.earliest(),
        ConfluentPartition(topic, 2): OffsetSpec.max_timestamp(),
        ConfluentPartition(topic, 3): OffsetSpec.for_timestamp(TIME_MS + 4),
    }
    found = {
        partition.partition: future.result(30).offset
        for partition, future in confluent_admin.list_offsets(asked).items()
    }
    assert found == {0: 1, 1: 0, 2: 0, 3: -1}


def test_members_are_described_and_removed(admin: Any, topic: str, trio: Cluster) -> None:
    group, client = new_name("members"), client_of("kafka_python")
    consumer = client.consumer(trio.bootstrap, group=group, instance="fixed")
    with Closing(consumer):
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.2) or consumer.assignment(), what="an assignment")
        found = admin.describe_groups([group])[group]
        (member,) = found["members"]
        assert (found["group_state"], member["group_instance_id"]) == ("Stable", "fixed")
        assert member["client_host"] == "/127.0.0.1"
        (assigned,) = member["member_assignment"]["assigned_partitions"]
        assert (assigned["topic"], len(assigned["partitions"])) == (topic, PARTITIONS)
        assert group in {each["group_id"] for each in admin.list_groups(states_filter=["stable"])}
        assert admin.list_groups(states_filter=["dead"]) == []
    # Static members do not leave when they close (KIP-345); an admin can make them.
    nobody = kafka_admin.MemberToRemove(member_id="nobody")
    assert set(admin.remove_group_members(group, [nobody]).values()) == {UnknownMemberIdError}
    fixed = kafka_admin.MemberToRemove(group_instance_id="fixed")
    assert set(admin.remove_group_members(group, [fixed]).values()) == {NoError}
    assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    partition = KafkaPythonPartition(topic, 0)
    admin.reset_group_offsets(group, {partition: kafka_admin.OffsetSpec.LATEST})
    assert admin.list_group_offsets(group)[group][partition].offset == 1


def test_what_is_not_served_is_refused_by_the_clients(
    admin: Any, confluent_admin: Any, topic: str
) -> None:
    with pytest.raises(IncompatibleBrokerVersion):
        admin.list_transactions()
    with pytest.raises(IncompatibleBrokerVersion):
        admin.describe_user_scram_credentials()
    with pytest.raises(KafkaException) as raised:
        confluent_admin.describe_user_scram_credentials().result(30)
    assert raised.value.args[0].code() == KafkaError._UNSUPPORTED_FEATURE
