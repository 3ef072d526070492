"""What `ottla topics --describe` prints, to the tab. The lines are those of kafka-topics.sh."""

from ottla.base.ids import NO_UUID, Uuid
from ottla.cli.configs.configs_client import Entry
from ottla.cli.topics.topic_text import Partition, Reassignment, Report, Topic, describe_lines

DEFAULT, OWN = 5, 1


def entry(name: str, value: str, source: int = OWN) -> Entry:
    return Entry(name, value, source, False, ())


def partition(id: int, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> Partition:
    return Partition(id=id, leader=leader, replicas=(1, 2, 3), isr=isr, elr=(), last_known_elr=())


def topic(*partitions: Partition, **more: object) -> Topic:
    facts: dict[str, object] = {
        "name": "orders",
        "id": Uuid(bytes(range(16))),
        "configs": [entry("min.insync.replicas", "2"), entry("retention.ms", "1", DEFAULT)],
        "reassignments": {},
    }
    return Topic(partitions=partitions, **(facts | more))  # type: ignore[arg-type]


LIVE = {1, 2, 3}


def test_a_topic_and_its_partitions() -> None:
    described = topic(partition(0), partition(1, leader=-1, isr=()))
    assert describe_lines(described, Report(), LIVE) == [
        "Topic: orders\tTopicId: AAECAwQFBgcICQoLDA0ODw\tPartitionCount: 2\t"
        "ReplicationFactor: 3\tConfigs: min.insync.replicas=2",
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\tElr: \t"
        "LastKnownElr: ",
        "\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 1,2,3\tIsr: \tElr: \t"
        "LastKnownElr: ",
    ]


def test_brokers_without_ids_and_eligible_leaders() -> None:
    old = Partition(id=0, leader=1, replicas=(1,), isr=(1,), elr=None, last_known_elr=None)
    assert describe_lines(topic(old, id=NO_UUID, configs=[]), Report(), LIVE) == [
        "Topic: orders\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: ",
        "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: N/A\t"
        "LastKnownElr: N/A",
    ]


def test_a_reassignment_shows_and_does_not_count_as_replicas() -> None:
    moving = topic(partition(0), reassignments={0: Reassignment((3,), (1,))})
    lines = describe_lines(moving, Report(), LIVE)
    assert "\tReplicationFactor: 2\t" in lines[0]
    assert "\tIsr: 1,2,3\tAdding Replicas: 3\tRemoving Replicas: 1\tElr: " in lines[1]


def shown(report: Report, *partitions: Partition) -> list[int]:
    lines = describe_lines(topic(*partitions), report, LIVE)
    return [int(line.split("\t")[2].removeprefix("Partition: ")) for line in lines]


def test_reports_show_only_troubled_partitions_and_no_topic_line() -> None:
    whole = partition(0)
    one_missing = partition(1, isr=(1, 2))
    one_left = partition(2, isr=(1,))
    headless = partition(3, leader=-1, isr=())
    dead_leader = partition(4, leader=9)
    everything = (whole, one_missing, one_left, headless, dead_leader)
    assert shown(Report(under_replicated=True), *everything) == [1, 2, 3]
    assert shown(Report(unavailable=True), *everything) == [3, 4]
    assert shown(Report(under_min_isr=True), *everything) == [2, 3]
    assert shown(Report(at_min_isr=True), *everything) == [1]
    assert shown(Report(at_min_isr=True, unavailable=True), *everything) == [1, 3, 4]


def test_overrides_leave_partitions_and_plain_topics_out() -> None:
    report = Report(overridden_topics=True)
    assert len(describe_lines(topic(partition(0)), report, LIVE)) == 1
    assert describe_lines(topic(partition(0), configs=[]), report, LIVE) == []
