"""The metadata topic on whole brokers: partitions that a broker leads itself, real logs, elections.

Method: three brokers that replicate the topic over the network of `replicas_harness`, each with a
`RemoteLogMetadata`; partitions are led by all of them, so each append and read goes to some leader
locally and to the others over the network, through the real handlers.
"""

from typing import Any, cast

from ottla.base.errors import ApiError
from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC, Uuid
from ottla.base.pending import Pending
from ottla.broker.remote.metadata.metadata_topic import MetadataTopicPorts, RemoteLogMetadata
from ottla.broker.remote.metadata.metadata_topic_creation import MetadataTopicSettings
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.records import PartitionRecord, TopicRecord
from ottla.metadata.topics import DIRECTORY_UNASSIGNED
from ottla.tiered.metadata_partition import metadata_partition
from tests.unit.broker.harness import LOG_DIR, FakeDice, FakeWorkers, config_record
from tests.unit.broker.remote.metadata.metadata_cluster import ProducerIds, started, state_of, user
from tests.unit.broker.replicas_harness import Node, ReplicasHarness
from tests.unit.broker.replicas_network import Peers

METADATA_TOPIC_ID = Uuid(b"m" * 16)
COUNT = 3
USERS = [user(each) for each in range(8)]
assert {metadata_partition(*each, COUNT) for each in USERS} == {0, 1, 2}


class Brokers:
    """Three brokers; broker i is the preferred leader of metadata partition i - 1."""

    def __init__(self) -> None:
        self.harness = ReplicasHarness(3)
        self.producer_ids = ProducerIds()
        self.metadata: dict[int, RemoteLogMetadata] = {}
        for node in self.harness.nodes.values():
            self.attach(node)
        records: list[Any] = [
            TopicRecord(name=REMOTE_LOG_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID)
        ]
        for index in range(COUNT):
            ids = [index + 1, (index + 1) % 3 + 1, (index + 2) % 3 + 1]
            records.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=METADATA_TOPIC_ID,
                    replicas=tuple(ids),
                    isr=tuple(ids),
                    leader=ids[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=(DIRECTORY_UNASSIGNED,) * 3,
                )
            )
        records.append(config_record(REMOTE_LOG_METADATA_TOPIC, "min_insync_replicas", "2"))
        self.harness.commit(*records)
        self.harness.run(100)

    def attach(self, node: Node) -> None:
        broker = node.broker
        metadata = RemoteLogMetadata(
            MetadataTopicSettings(),
            MetadataTopicPorts(
                node_id=node.id,
                replicas=broker.replicas,
                producer_ids=cast(Any, self.producer_ids),
                forwarder=cast(Any, _NoController()),
                peers=Peers(node, node.life),
                disk=node.disk,
                log_dir=LOG_DIR,
                workers=FakeWorkers(),
                clock=self.harness.time,
                timers=node.timers,
                dice=FakeDice(node.id),
            ),
            has_tiered_topics=lambda image: True,
        )
        self.metadata[node.id] = metadata
        apply = broker.apply

        def apply_both(delta: ClusterDelta) -> None:
            apply(delta)
            metadata.apply(delta.image)

        cast(Any, broker).apply = apply_both
        metadata.apply(broker.image)

    def check_agreement(self) -> None:
        for each in USERS:
            logs = [metadata.remote_log(*each) for metadata in self.metadata.values()]
            states = [None if log is None else state_of(log) for log in logs]
            assert states[0] is not None
            assert states == [states[0]] * 3, each


class _NoController:
    """The topic exists soon: its creation is never answered."""

    def call(self, request: Any, *, timeout_ms: int) -> Pending[Any]:
        return Pending()


def append_all(brokers: Brokers, first: int) -> list[Pending[ApiError | None]]:
    """Append a segment for each user partition, from all brokers in turn."""
    ids = [node.id for node in brokers.harness.nodes.values() if node.up]
    return [
        brokers.metadata[ids[at % len(ids)]].append(started(of, first + at))
        for at, of in enumerate(USERS)
    ]


def test_all_brokers_agree_wherever_the_leaders_are() -> None:
    brokers = Brokers()
    for metadata in brokers.metadata.values():
        metadata.assign(USERS)
    brokers.harness.run(1_000)
    answers = append_all(brokers, 0)
    brokers.harness.run(2_000)
    assert [answer.value for answer in answers] == [None] * len(USERS)
    brokers.check_agreement()
    log = brokers.metadata[1].remote_log(*USERS[0])
    assert log is not None
    assert len(log.segments()) == 1


def test_an_append_of_a_leader_is_read_back_without_a_long_poll_between() -> None:
    brokers = Brokers()
    for metadata in brokers.metadata.values():
        metadata.assign(USERS)
    brokers.harness.run(1_000)
    led_here = next(each for each in USERS if metadata_partition(*each, COUNT) == 0)
    answer = brokers.metadata[1].append(started(led_here, 1))
    brokers.harness.run(50)
    assert answer.done


def test_appends_survive_the_death_of_a_leader() -> None:
    brokers = Brokers()
    harness = brokers.harness
    for metadata in brokers.metadata.values():
        metadata.assign(USERS)
    harness.run(1_000)
    before = append_all(brokers, 0)
    harness.nodes[3].kill()
    during = append_all(brokers, 100)
    harness.run(500)
    harness.fence(3)
    harness.run(20_000)
    assert all(answer.done for answer in during)
    # Those of broker 3 itself died with it.
    assert all(answer.value is None for at, answer in enumerate(before) if at % 3 != 2)
    assert [answer.value for answer in during] == [None] * len(USERS)

    harness.nodes[3].start()
    brokers.attach(harness.nodes[3])
    brokers.metadata[3].assign(USERS)
    harness.run(5_000)
    brokers.check_agreement()
