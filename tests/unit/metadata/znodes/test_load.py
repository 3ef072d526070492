"""Goal: what is stored becomes an image, and what others changed becomes the change of it.

Method: znodes written as tools and other controllers would, read whole or in part. One that nobody
understands must cost nothing but its own fact.
"""

from dataclasses import replace

import pytest
from immutables import Map

from ottla.base.ids import NO_EPOCH, NO_LEADER, NO_UUID, parse_uuid
from ottla.metadata.brokers import Endpoint
from ottla.metadata.delta import replay
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.topics import DIRECTORY_LOST, DIRECTORY_MIGRATING, partition_record
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.load import Loaded, Snapshot, id_of, observed
from ottla.metadata.znodes.partition_state import StateZnode, decode_state, encode_state
from ottla.metadata.znodes.topic import Assignment, decode_topic, encode_topic
from ottla.metadata.znodes.write import topic_rewrites

from .clusters import register, three_brokers, topic_of, with_topic
from .tree import EPOCH, Cluster

ID = parse_uuid("RSZ--odYRlSOPGRgukKnAQ")


def observe(cluster: Cluster, snapshot: Snapshot) -> tuple[Loaded, list[Record]]:
    """Follow what others changed."""
    found = observed(cluster.image, cluster.known, snapshot)
    cluster.known = found.known
    cluster.image = replay(cluster.image, found.records, offset=0, epoch=0).image
    return found, list(found.records)


def reread(cluster: Cluster, name: str = "t") -> Snapshot:
    """Read one topic again, with all below it."""
    everything = cluster.tree.snapshot()
    return Snapshot(
        topics={name: everything.topics.get(name)},
        states={key: got for key, got in everything.states.items() if key[0] == name},
        partition_nodes={name: everything.partition_nodes.get(name)},
    )


def led(cluster: Cluster, number: int = 0) -> PartitionImage:
    return topic_of(cluster, "t").partitions[number]


# -- topics ------------------------------------------------------------------------------------


def test_a_topic_without_an_id_gets_one_and_keeps_it() -> None:
    cluster = three_brokers()
    cluster.tree.put(paths.topic("t"), b'{"version":1,"partitions":{"0":[1]}}')
    cluster = Cluster(cluster.tree)
    topic_id = topic_of(cluster, "t").id
    assert topic_of(Cluster(cluster.tree), "t").id == topic_id
    assert cluster.tree.load()[1].to_rewrite == ("t",)
    [write] = topic_rewrites(
        cluster.image,
        cluster.known,
        controller_epoch=EPOCH,
        epoch_version=cluster.tree.epoch_version,
    )
    cluster.done(write)
    cluster.check()
    assert write.records == ()
    assert cluster.known.to_rewrite() == []
    assert decode_topic("t", cluster.tree.nodes[paths.topic("t")].data).topic_id == topic_id


def test_ids_that_follow_from_znodes_look_like_random_ones() -> None:
    ids = [id_of("t", czxid) for czxid in range(2_000)]
    assert len(set(ids)) == len(ids)
    assert NO_UUID not in ids
    assert all(each[6] >> 4 == 4 and each[8] >> 6 == 2 for each in ids)
    assert all(each[0] >> 2 != 62 for each in ids)
    assert id_of("t", 1) != id_of("u", 1)


def test_kafka_12835_an_old_controllers_rewrite_changes_no_id() -> None:
    cluster = with_topic("t", 2)
    before = topic_of(cluster, "t")
    cluster.tree.put(paths.topic("t"), b'{"version":2,"partitions":{"0":[1,2,3],"1":[2,3,1]}}')
    found, records = observe(cluster, reread(cluster))
    assert topic_of(cluster, "t") == before
    assert (records, found.to_rewrite) == ([], ("t",))


def test_a_topic_made_anew_is_another_one() -> None:
    cluster = with_topic("t", 2)
    before = topic_of(cluster, "t")
    cluster.tree.drop(paths.topic("t"))
    cluster.tree.put(paths.topic("t"), b'{"version":1,"partitions":{"0":[1]}}')
    cluster = replace_known_czxid(cluster, "t", 1)
    _, records = observe(cluster, reread(cluster))
    assert records[:1] == [RemoveTopicRecord(topic_id=before.id)]
    after = topic_of(cluster, "t")
    assert after.id != before.id
    assert after.partitions[0].leader_epoch == NO_EPOCH


def replace_known_czxid(cluster: Cluster, name: str, czxid: int) -> Cluster:
    """Let the cluster have read the znode before it was made again."""
    known = replace(cluster.known.topics[name], czxid=czxid)
    cluster.known = replace(cluster.known, topics=cluster.known.topics.set(name, known))
    return cluster


def test_a_topic_of_another_id_takes_its_configuration_along() -> None:
    cluster = with_topic("t", 1, {"retention.ms": "5"})
    before = topic_of(cluster, "t")
    cluster.tree.put(paths.topic("t"), encode_topic([(0, Assignment((1,)))], ID))
    _, records = observe(cluster, reread(cluster))
    assert records[:2] == [
        RemoveTopicRecord(topic_id=before.id),
        TopicRecord(name="t", topic_id=ID),
    ]
    assert cluster.image.configs.of(2, "t") == Map({"retention.ms": "5"})
    cluster.check()


def test_a_topic_that_vanished() -> None:
    cluster = with_topic("t", 2)
    cluster.tree.drop(paths.topic("t"))
    _, records = observe(cluster, Snapshot(topics={"t": None}))
    assert [type(each) for each in records] == [RemoveTopicRecord]
    assert "t" not in cluster.known.topics
    assert observe(cluster, Snapshot(topics={"t": None}))[1] == []


def test_partitions_that_a_tool_adds_are_new() -> None:
    cluster = with_topic("t", 1)
    before = led(cluster)
    data = encode_topic(
        [(0, Assignment(before.replicas)), (1, Assignment((3,)))], topic_of(cluster, "t").id
    )
    cluster.tree.put(paths.topic("t"), data)
    _, records = observe(cluster, reread(cluster))
    assert len(records) == 1
    assert led(cluster) == before
    assert led(cluster, 1) == PartitionImage(
        replicas=(3,),
        directories=(DIRECTORY_MIGRATING,),
        isr=(),
        leader=NO_LEADER,
        leader_epoch=NO_EPOCH,
        partition_epoch=NO_EPOCH,
    )
    cluster.check()


def test_replicas_that_a_tool_changes_past_the_controller_stay_what_they_were() -> None:
    """Those that it dropped would be deleted, all copies of the records at once."""
    cluster = with_topic("t", 2)
    before = topic_of(cluster, "t")
    data = b'{"version":1,"partitions":{"0":[3],"1":[2,3,1],"2":[1]}}'
    cluster.tree.put(paths.topic("t"), data)
    found, records = observe(cluster, reread(cluster))
    assert [each.path for each in found.problems] == [paths.topic("t")]
    assert "partitions [0] have other replicas" in found.problems[0].reason
    assert len(records) == 1  # A partition may be added in the same write.
    after = topic_of(cluster, "t")
    assert {**after.partitions}.items() >= {**before.partitions}.items()
    assert after.partitions[2].replicas == (1,)
    assert cluster.known.to_rewrite() == ["t"]
    [write] = topic_rewrites(
        cluster.image,
        cluster.known,
        controller_epoch=EPOCH,
        epoch_version=cluster.tree.epoch_version,
    )
    cluster.done(write)
    cluster.check()
    assert cluster.known.to_rewrite() == []


def test_replicas_that_change_with_the_state_are_the_controllers_own_write() -> None:
    """Its answer was lost, and the whole topic is read to find out what was done."""
    cluster = with_topic("t", 1)
    before = led(cluster)
    target = (*before.replicas[1:], before.replicas[0])
    moved = replace(before, replicas=target)
    data = encode_topic([(0, Assignment(target))], topic_of(cluster, "t").id)
    cluster.tree.put(paths.topic("t"), data)
    state = StateZnode(leader=before.leader, leader_epoch=1, controller_epoch=1, isr=before.isr)
    cluster.tree.put(paths.state("t", 0), encode_state(state))
    snapshot = Snapshot(
        topics={"t": cluster.tree.nodes[paths.topic("t")]},
        states={("t", 0): cluster.tree.nodes[paths.state("t", 0)]},
    )
    found, _ = observe(cluster, snapshot)
    assert (found.problems, found.to_rewrite) == ((), ())
    assert led(cluster).replicas == moved.replicas


def test_kafka_6612_partitions_that_were_taken_back_are_gone() -> None:
    cluster = with_topic("t", 3, {"retention.ms": "5"})
    before = topic_of(cluster, "t")
    data = encode_topic([(0, Assignment(led(cluster).replicas))], before.id)
    cluster.tree.put(paths.topic("t"), data)
    observe(cluster, reread(cluster))
    after = topic_of(cluster, "t")
    assert after == replace(before, partitions=Map({0: before.partitions[0]}))
    assert cluster.image.configs.of(2, "t") == Map({"retention.ms": "5"})
    cluster.check()
    # Their states are still there, and go with the topic.
    cluster.write([RemoveTopicRecord(topic_id=after.id)])
    cluster.check()
    assert paths.topic("t") not in cluster.tree.nodes


def test_a_name_that_nobody_understands_is_taken() -> None:
    cluster = with_topic("t", 1)
    cluster.tree.put(paths.topic("bad"), b"garbage")
    cluster.tree.put(paths.topic("good"), b'{"version":1,"partitions":{"0":[1]}}')
    image, loaded = cluster.tree.load()
    assert image.topics.names() == ["good", "t"]
    assert [each.path for each in loaded.problems] == ["/brokers/topics/bad"]
    assert dict(loaded.known.unreadable).keys() == {"bad"}
    cluster = Cluster(cluster.tree)
    with pytest.raises(ZnodeError, match="/brokers/topics/bad: exists and cannot be read"):
        cluster.plan([TopicRecord(name="bad", topic_id=ID)])
    cluster.tree.put(paths.topic("bad"), b'{"version":1,"partitions":{"0":[2]}}')
    observe(cluster, reread(cluster, "bad"))
    assert not cluster.known.unreadable
    assert topic_of(cluster, "bad").partitions[0].replicas == (2,)
    cluster.check()


@pytest.mark.parametrize("copy", ["a", "z"])
def test_a_copy_of_a_topics_znode_does_not_take_its_place(copy: str) -> None:
    """Whether the controller sees it come or finds it, and in whichever order."""
    cluster = with_topic("t", 3)
    before = topic_of(cluster, "t")
    cluster.tree.put(paths.topic(copy), encode_topic([(0, Assignment((1,)))], before.id))
    found, records = observe(cluster, reread(cluster, copy))
    assert records == []
    assert [each.path for each in found.problems] == [paths.topic(copy)]
    assert "topic_id is that of topic t" in found.problems[0].reason
    image, loaded = cluster.tree.load()
    assert list(image.topics) == [before]
    assert [str(each) for each in loaded.problems] == [str(each) for each in found.problems]
    with pytest.raises(ZnodeError, match="exists and cannot be read: topic_id is that of topic t"):
        cluster.plan([TopicRecord(name=copy, topic_id=ID)])
    cluster.tree.put(paths.topic(copy), encode_topic([(0, Assignment((1,)))], ID))
    observe(cluster, reread(cluster, copy))
    assert topic_of(cluster, copy).id == ID
    assert topic_of(cluster, "t") == before
    cluster.check()


def test_a_known_topic_stays_and_is_mended_by_the_next_write() -> None:
    cluster = with_topic("t", 1)
    before = topic_of(cluster, "t")
    cluster.tree.put(paths.topic("t"), b'{"version":3,"partitions":[')
    found, records = observe(cluster, reread(cluster))
    assert [each.path for each in found.problems] == ["/brokers/topics/t"]
    assert records == []
    assert topic_of(cluster, "t") == before
    change = PartitionChangeRecord(topic_id=before.id, partition_id=0, replicas=(3, 2, 1))
    cluster.write([change])
    cluster.check()


# -- states ------------------------------------------------------------------------------------


def test_what_another_wrote_of_a_partition_is_taken_over() -> None:
    cluster = with_topic("t", 2)
    state = StateZnode(leader=2, leader_epoch=9, controller_epoch=9, isr=(2,))
    cluster.tree.put(paths.state("t", 1), encode_state(state))
    got = cluster.tree.nodes[paths.state("t", 1)]
    _, records = observe(cluster, Snapshot(states={("t", 1): got}))
    assert len(records) == 1
    assert (led(cluster, 1).leader, led(cluster, 1).partition_epoch) == (2, 1)
    cluster.check()
    assert observe(cluster, Snapshot(states={("t", 1): got}))[1] == []


def test_kafka_6650_a_state_that_is_gone_leaves_a_new_partition() -> None:
    cluster = with_topic("t", 2)
    cluster.tree.drop(paths.state("t", 0))
    cluster.tree.drop(paths.partition("t", 1))
    cluster.tree.put(paths.marker("t"), b"")
    loaded = cluster.tree.load()[1]
    assert (loaded.problems, loaded.marked) == ((), ("t",))
    cluster = Cluster(cluster.tree)
    for number in (0, 1):
        partition = led(cluster, number)
        assert (partition.leader, partition.isr, partition.leader_epoch) == (-1, (), NO_EPOCH)
    cluster.write([RemoveTopicRecord(topic_id=topic_of(cluster, "t").id)])
    cluster.check()
    assert not any("/t" in path for path in cluster.tree.nodes if "topics/" in path)
    assert paths.marker("t") not in cluster.tree.nodes


def test_a_state_that_nobody_understands_keeps_what_is_known() -> None:
    cluster = with_topic("t", 1)
    before = led(cluster)
    cluster.tree.put(paths.state("t", 0), b"{}")
    found, _ = observe(cluster, reread(cluster))
    assert [each.path for each in found.problems] == [paths.state("t", 0)]
    assert led(cluster) == replace(before, partition_epoch=1)
    # The next write mends it, with epochs that go on.
    change = PartitionChangeRecord(topic_id=topic_of(cluster, "t").id, partition_id=0, leader=2)
    cluster.write([change])
    cluster.check()
    state = decode_state("t", 0, cluster.tree.nodes[paths.state("t", 0)].data)
    assert (state.leader, state.leader_epoch) == (2, 1)


def test_a_state_of_which_nothing_is_known_leaves_nobody_in_sync() -> None:
    cluster = with_topic("t", 2)
    cluster.tree.put(paths.state("t", 0), b"{}")
    good = led(cluster, 1)
    cluster = Cluster(cluster.tree)
    bad = led(cluster)
    assert (bad.leader, bad.isr, bad.leader_epoch, bad.partition_epoch) == (-1, (), 0, 1)
    assert led(cluster, 1) == good


def test_lost_directories_are_in_the_image_alone() -> None:
    cluster = with_topic("t", 1)
    topic, before = topic_of(cluster, "t"), led(cluster)
    directories = tuple(
        DIRECTORY_LOST if each == 2 else DIRECTORY_MIGRATING for each in before.replicas
    )
    lost = replace(before, directories=directories)
    [write] = cluster.write([partition_record(topic.id, 0, lost)])
    assert len(write.operations) == 1
    assert led(cluster) == lost
    cluster.write([PartitionChangeRecord(topic_id=topic.id, partition_id=0, isr=(1, 3))])
    assert observe(cluster, reread(cluster))[1] == []
    assert led(cluster).directory(2) == DIRECTORY_LOST
    assert led(Cluster(cluster.tree)).directory(2) == DIRECTORY_MIGRATING


def test_a_partition_and_its_unknown_fields_survive_a_write() -> None:
    cluster = with_topic("t", 1)
    for path in (paths.topic("t"), paths.state("t", 0), paths.config((2, "t"))):
        data = cluster.tree.nodes[path].data[:-1] + b',"era":[7]}'
        cluster.tree.put(path, data)
    cluster = Cluster(cluster.tree)
    topic_id = topic_of(cluster, "t").id
    config = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5")
    change = PartitionChangeRecord(topic_id=topic_id, partition_id=0, replicas=(3, 2, 1), leader=3)
    cluster.write([config, change])
    cluster.write([change])
    cluster.check()
    for path in (paths.topic("t"), paths.state("t", 0), paths.config((2, "t"))):
        assert cluster.tree.nodes[path].data.endswith(b',"era":[7]}')


# -- brokers -----------------------------------------------------------------------------------


def test_brokers_come_and_go() -> None:
    cluster = three_brokers()
    register(cluster.tree, 4)
    got = cluster.tree.nodes[paths.broker(4)]
    _, records = observe(cluster, Snapshot(brokers={4: got, 1: None}))
    assert [type(each) for each in records] == [UnregisterBrokerRecord, RegisterBrokerRecord]
    assert sorted(cluster.image.brokers) == [2, 3, 4]
    assert cluster.image.brokers[4].epoch == got.stat.czxid
    assert observe(cluster, Snapshot(brokers={4: got, 1: None}))[1] == []


def test_kafka_7235_a_fast_bounce_is_seen() -> None:
    cluster = three_brokers()
    before = cluster.image.brokers[1]
    register(cluster.tree, 1)
    got = cluster.tree.nodes[paths.broker(1)]
    _, records = observe(cluster, Snapshot(brokers={1: got}))
    assert [type(each) for each in records] == [UnregisterBrokerRecord, RegisterBrokerRecord]
    assert cluster.image.brokers[1].epoch > before.epoch


def test_a_broker_that_listens_elsewhere_is_still_on_its_way_out() -> None:
    cluster = three_brokers()
    epoch = cluster.image.brokers[1].epoch
    leaving = BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=epoch, in_controlled_shutdown=1
    )
    [write] = cluster.write([leaving])
    assert len(write.operations) == 1
    path = paths.broker(1)
    cluster.tree.put(path, cluster.tree.nodes[path].data.replace(b"localhost", b"elsewhere"))
    observe(cluster, Snapshot(brokers={1: cluster.tree.nodes[path]}))
    broker = cluster.image.brokers[1]
    assert broker.endpoints == (Endpoint("PLAINTEXT", "elsewhere", 9092),)
    assert (broker.epoch, broker.in_controlled_shutdown) == (epoch, True)


def test_a_registration_that_nobody_understands_is_of_nobody() -> None:
    cluster = three_brokers()
    cluster.tree.drop(paths.broker(1))
    cluster.tree.put(paths.broker(1), b"?")
    image, loaded = cluster.tree.load()
    assert sorted(image.brokers) == [2, 3]
    assert [each.path for each in loaded.problems] == ["/brokers/ids/1"]
    observe(cluster, Snapshot(brokers={1: cluster.tree.nodes[paths.broker(1)]}))
    assert sorted(cluster.image.brokers) == [2, 3]


# -- configurations ------------------------------------------------------------------------------


def test_a_configuration_waits_for_its_topic() -> None:
    cluster = three_brokers()
    config = b'{"version":1,"config":{"retention.ms":"5"}}'
    cluster.tree.put(paths.config((2, "t")), config)
    _, records = observe(
        cluster, Snapshot(configs={(2, "t"): cluster.tree.nodes[paths.config((2, "t"))]})
    )
    assert records == []
    cluster.tree.put(paths.topic("t"), b'{"version":1,"partitions":{"0":[1]}}')
    observe(cluster, reread(cluster))
    assert cluster.image.configs.of(2, "t") == Map({"retention.ms": "5"})
    cluster.check()


def test_what_an_earlier_topic_left_is_no_configuration_of_the_next() -> None:
    cluster = three_brokers()
    cluster.tree.put(paths.config((2, "t")), b'{"version":1,"config":{"retention.ms":"5"}}')
    cluster = Cluster(cluster.tree)
    assert not cluster.image.configs.resources()
    topic = TopicImage(name="t", id=ID)
    cluster.write([TopicRecord(name=topic.name, topic_id=topic.id)])
    data = cluster.tree.nodes[paths.config((2, "t"))].data
    assert data == b'{"version":1,"config":{}}'


def test_values_that_others_set_change_and_take_away() -> None:
    cluster = with_topic("t", 1, {"retention.ms": "5", "segment.ms": "6"})
    path = paths.config((2, "t"))
    cluster.tree.put(path, b'{"version":1,"config":{"retention.ms":"7","flush.ms":"8"}}')
    _, records = observe(cluster, Snapshot(configs={(2, "t"): cluster.tree.nodes[path]}))
    values = [(each.name, each.value) for each in records if isinstance(each, ConfigRecord)]
    assert values == [("flush.ms", "8"), ("retention.ms", "7"), ("segment.ms", None)]
    cluster.check()
    cluster.tree.put(path, b"no JSON")
    found, records = observe(cluster, Snapshot(configs={(2, "t"): cluster.tree.nodes[path]}))
    assert ([each.path for each in found.problems], records) == ([path], [])
    cluster.tree.drop(path)
    observe(cluster, Snapshot(configs={(2, "t"): None}))
    assert not cluster.image.configs.resources()
    cluster.check()


# -- what there is one of --------------------------------------------------------------------------


def test_features_count_where_they_are_on() -> None:
    cluster = three_brokers()
    path = paths.FEATURE
    on = b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}'
    cluster.tree.put(path, on)
    observe(cluster, Snapshot(feature=cluster.tree.nodes[path]))
    assert cluster.image.features == Map({"f": 3})
    cluster.check()
    cluster.tree.put(path, b"?")
    found, records = observe(cluster, Snapshot(feature=cluster.tree.nodes[path]))
    assert ([each.path for each in found.problems], records) == ([path], [])
    cluster.tree.put(path, on.replace(b'"status":1', b'"status":0'))
    observe(cluster, Snapshot(feature=cluster.tree.nodes[path]))
    assert cluster.image.features == Map()
    cluster.check()


def test_producer_ids_go_on_behind_the_last_block() -> None:
    cluster = three_brokers()
    path = paths.PRODUCER_IDS
    cluster.tree.put(path, b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}')
    observe(cluster, Snapshot(producer_ids=cluster.tree.nodes[path]))
    assert cluster.image.producer_ids.next_producer_id == 2_000
    cluster.check()
    cluster.tree.put(path, b"?")
    found, records = observe(cluster, Snapshot(producer_ids=cluster.tree.nodes[path]))
    assert ([each.path for each in found.problems], records) == ([path], [])
    # Whoever knows where they go on mends the znode.
    cluster.write([ProducerIdsRecord(broker_id=1, next_producer_id=3_000)])
    cluster.check()


def test_no_producer_id_is_given_twice_where_nobody_knows_which_were() -> None:
    """A controller finds garbage: it would begin with the first one again."""
    cluster = three_brokers()
    cluster.tree.put(paths.PRODUCER_IDS, b"?")
    cluster = Cluster(cluster.tree)
    with pytest.raises(ZnodeError, match=paths.PRODUCER_IDS):
        cluster.plan([ProducerIdsRecord(broker_id=1, next_producer_id=1_000)])
    block = b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}'
    cluster.tree.put(paths.PRODUCER_IDS, block)
    observe(cluster, Snapshot(producer_ids=cluster.tree.nodes[paths.PRODUCER_IDS]))
    cluster.write([ProducerIdsRecord(broker_id=1, next_producer_id=3_000)])
    cluster.check()


def test_markers_are_returned_when_they_are_read() -> None:
    cluster = three_brokers()
    found, _ = observe(cluster, Snapshot(marked_for_deletion=frozenset({"b", "a"})))
    assert found.marked == ("a", "b")
    assert observe(cluster, Snapshot())[0].marked == ("a", "b")
    assert observe(cluster, Snapshot(marked_for_deletion=frozenset()))[0].marked == ()
