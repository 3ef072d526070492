"""Administration by each client: topics, configurations, groups, offsets, records, the cluster.

Method: the shared broker. A client that lacks a call is left out of that call's test by `lacks`,
which `test_what_each_client_lacks` holds to a list; nothing is skipped.
"""

from collections.abc import Iterator, Mapping

import pytest

from ottla.base.errors import Error
from ottla.testing import Cluster

from .clients import (
    NAMES,
    Admin,
    Client,
    Closing,
    Message,
    Refused,
    client_of,
    eventually,
    produce,
)
from .conftest import MakeTopic, known, new_name


@pytest.fixture
def admin(client: Client, shared: Cluster) -> Iterator[Admin]:
    with Closing(client.admin(shared.bootstrap)) as opened:
        yield opened


def lacks_of(name: str) -> Mapping[str, str]:
    """Return the calls that a client does not offer, and why."""
    lacks: Mapping[str, str] = client_of(name).Admin.lacks  # type: ignore[attr-defined]
    return lacks


def offering(call: str) -> list[str]:
    """Return the clients that offer a call."""
    return [name for name in NAMES if call not in lacks_of(name)]


def with_group(client: Client, cluster: Cluster, topic: str, offset: int) -> str:
    """Return a new group without members that has committed `offset` in partition 0."""
    group = new_name("admin")
    produce(client, cluster.bootstrap, [Message(topic=topic, value=b"x")] * offset)
    with Closing(client.consumer(cluster.bootstrap, group=group)) as consumer:
        consumer.subscribe([topic])
        count = 0
        while count < offset:
            count += len(consumer.poll(0.2))
        consumer.commit()
    return group


def test_what_each_client_lacks() -> None:
    lacks = {name: sorted(lacks_of(name)) for name in NAMES}
    assert lacks == {
        "confluent": ["delete_group_offset", "log_dirs"],
        "kafka_python": [],
        "aiokafka": ["delete_group", "delete_group_offset", "log_dirs", "set_group_offset"],
    }


def test_a_topic_lives_and_dies(admin: Admin) -> None:
    name = new_name("life")
    admin.create_topic(name, partitions=2, config={"retention.ms": "3600000"})
    eventually(lambda: known(admin, name), what="the topic to be known")
    assert admin.partitions(name) == [0, 1]
    assert name in admin.topics()
    assert admin.topic_config(name)["retention.ms"] == "3600000"
    with pytest.raises(Refused) as refused:
        admin.create_topic(name)
    assert refused.value.code == Error.TOPIC_ALREADY_EXISTS
    admin.grow_topic(name, 5)
    eventually(lambda: admin.partitions(name), lambda found: found == [0, 1, 2, 3, 4])
    for count in (5, 4):
        with pytest.raises(Refused) as refused:
            admin.grow_topic(name, count)
        assert refused.value.code == Error.INVALID_PARTITIONS
    admin.delete_topic(name)
    eventually(lambda: name not in admin.topics(), what="the topic to go")
    with pytest.raises(Refused) as refused:
        admin.partitions(name)
    assert refused.value.code == Error.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(Refused) as refused:
        admin.delete_topic(name)
    assert refused.value.code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_leaves_nothing_to_one_of_its_name(
    admin: Admin, client: Client, shared: Cluster
) -> None:
    name = new_name("again")
    for _ in range(3):
        admin.create_topic(name)
        eventually(lambda: known(admin, name), what="the topic to be known")
        assert produce(client, shared.bootstrap, [Message(topic=name, value=b"x")] * 3) == [0, 1, 2]
        admin.delete_topic(name)
        eventually(lambda: name not in admin.topics(), what="the topic to go")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"replication_factor": 3}, Error.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 0}, Error.INVALID_REPLICATION_FACTOR),
        ({"partitions": 0}, Error.INVALID_PARTITIONS),
        ({"config": {"retention.ms": "soon"}}, Error.INVALID_CONFIG),
        ({"config": {"no.such.config": "1"}}, Error.INVALID_CONFIG),
        ({"config": {"cleanup.policy": "burn"}}, Error.INVALID_CONFIG),
        ({"config": {"compression.type": "rar"}}, Error.INVALID_CONFIG),
    ],
)
def test_impossible_topics_are_refused(
    admin: Admin, options: dict[str, object], error: Error
) -> None:
    name = new_name("impossible")
    with pytest.raises(Refused) as refused:
        admin.create_topic(name, **options)  # type: ignore[arg-type]
    assert refused.value.code == error
    for key in options.get("config", {}):  # type: ignore[attr-defined]
        assert key in refused.value.text
    assert name not in admin.topics()


@pytest.mark.parametrize("name", ["has space", "slash/y", ".", "..", "a" * 250, "ümlaut"])
def test_impossible_names_are_refused(admin: Admin, name: str) -> None:
    with pytest.raises(Refused) as refused:
        admin.create_topic(name)
    assert refused.value.code == Error.INVALID_TOPIC_EXCEPTION


def test_configurations_change_and_take_effect(
    admin: Admin, client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    assert admin.topic_config(topic)["max.message.bytes"] == "1048588"
    produce(client, shared.bootstrap, [Message(topic=topic, value=b"x" * 5000)])
    admin.set_topic_config(topic, "max.message.bytes", "1000")
    eventually(lambda: admin.topic_config(topic)["max.message.bytes"] == "1000")
    with pytest.raises(Refused) as refused:
        produce(client, shared.bootstrap, [Message(topic=topic, value=b"x" * 5000)])
    assert refused.value.code == Error.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("key", "value"),
    [("retention.ms", "soon"), ("no.such.config", "1"), ("min.insync.replicas", "0")],
)
def test_impossible_configurations_are_refused_by_name(
    admin: Admin, key: str, value: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    before = admin.topic_config(topic)
    with pytest.raises(Refused) as refused:
        admin.set_topic_config(topic, key, value)
    assert refused.value.code == Error.INVALID_CONFIG
    assert admin.topic_config(topic) == before


def test_configurations_of_unknown_topics(admin: Admin) -> None:
    with pytest.raises(Refused) as refused:
        admin.set_topic_config(new_name("unknown"), "retention.ms", "1000")
    assert refused.value.code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_brokers_configuration_is_described(admin: Admin) -> None:
    found = admin.broker_config(1)
    assert found["node.id"] == "1"
    assert found["auto.create.topics.enable"] == "false"
    assert found["num.partitions"] == "1"


def test_the_cluster_is_described(admin: Admin) -> None:
    assert admin.brokers() == {1}
    assert len(admin.cluster_id()) == 22


def test_groups_are_listed_and_described(
    admin: Admin, client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    group = with_group(client, shared, make_topic(), 3)
    assert group in admin.groups()
    assert admin.describe_group(group) == ("Empty", 0)


@pytest.mark.parametrize("name", offering("delete_group"))
def test_groups_are_deleted(name: str, shared: Cluster, make_topic: MakeTopic) -> None:
    client, topic = client_of(name), make_topic()
    group = with_group(client, shared, topic, 3)
    with (
        Closing(client.admin(shared.bootstrap)) as admin,
        Closing(client.consumer(shared.bootstrap, group=group)) as member,
    ):
        member.subscribe([topic])
        eventually(lambda: member.poll(0.1) or member.assignment(), what="an assignment")
        with pytest.raises(Refused) as refused:
            admin.delete_group(group)
        assert refused.value.code == Error.NON_EMPTY_GROUP
        member.close()
        admin.delete_group(group)
        assert group not in admin.groups()
        assert admin.group_offsets(group) == {}
        with pytest.raises(Refused) as refused:
            admin.delete_group(group)
        assert refused.value.code == Error.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("name", offering("set_group_offset"))
def test_offsets_are_listed_and_set(name: str, shared: Cluster, make_topic: MakeTopic) -> None:
    client, topic = client_of(name), make_topic()
    group = with_group(client, shared, topic, 3)
    with Closing(client.admin(shared.bootstrap)) as admin:
        assert admin.group_offsets(group) == {(topic, 0): 3}
        admin.set_group_offset(group, (topic, 0), 1)
        assert admin.group_offsets(group) == {(topic, 0): 1}
        with pytest.raises(Refused) as refused:
            admin.set_group_offset(group, (new_name("unknown"), 0), 1)
        assert refused.value.code == Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", offering("delete_group_offset"))
def test_offsets_are_deleted(name: str, shared: Cluster, make_topic: MakeTopic) -> None:
    client, topic = client_of(name), make_topic()
    group = with_group(client, shared, topic, 3)
    with Closing(client.admin(shared.bootstrap)) as admin:
        admin.delete_group_offset(group, (topic, 0))
        assert admin.group_offsets(group) == {}


@pytest.mark.parametrize("name", offering("log_dirs"))
def test_log_dirs_are_described(name: str, shared: Cluster, make_topic: MakeTopic) -> None:
    client, topic = client_of(name), make_topic(2)
    produce(client, shared.bootstrap, [Message(topic=topic, partition=1, value=b"x" * 1000)])
    with Closing(client.admin(shared.bootstrap)) as admin:
        sizes = admin.log_dirs(1)
    assert sizes[topic, 0] == 0
    assert 1000 < sizes[topic, 1] < 1200


def test_records_are_deleted_up_to_an_offset(
    admin: Admin, client: Client, shared: Cluster, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    produce(client, shared.bootstrap, [Message(topic=topic, value=b"x")] * 10)
    assert admin.delete_records((topic, 0), 4) == 4
    assert admin.delete_records((topic, 0), 2) == 4
    assert admin.delete_records((topic, 0), -1) == 10
    with pytest.raises(Refused) as refused:
        admin.delete_records((topic, 0), 11)
    assert refused.value.code == Error.OFFSET_OUT_OF_RANGE


def test_a_deleted_topic_leaves_the_disk(shared: Cluster, make_topic: MakeTopic) -> None:
    """Its directories are renamed at once, and go after the node's log.segment.delete.delay.ms."""
    topic = make_topic(2)
    client = client_of("confluent")
    produce(client, shared.bootstrap, [Message(topic=topic, value=b"x")])
    directory = shared.data_dir(1)
    assert (directory / f"{topic}-0").is_dir()
    with Closing(client.admin(shared.bootstrap)) as admin:
        admin.delete_topic(topic)
    eventually(lambda: not (directory / f"{topic}-0").exists(), what="the directory to be renamed")
    eventually(
        lambda: [path.name for path in directory.iterdir() if path.name.startswith(topic)],
        lambda left: not left,
        what="the directories to go",
    )
