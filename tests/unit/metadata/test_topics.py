"""Topics are found by id and by name, and none leaves a trace when it goes.

Method: hypothesis draws whole images; small cases by hand. Changes by records: `test_delta.py`.
"""

from hypothesis import given, settings
from immutables import Map

from ottla.base.ids import NO_UUID
from ottla.metadata.image import ClusterImage, TopicImage, TopicsImage
from ottla.metadata.topics import DIRECTORY_MIGRATING, partition_of, partition_record
from tests.drawn import examples

from .images import HERE, ID, OTHER, PARTITION, THERE, clusters


@settings(max_examples=examples(30))
@given(clusters())
def test_collisions_are_names_with_the_same_metric_name(image: ClusterImage) -> None:
    names = image.topics.names()
    for name in names:
        alike = {each for each in names if each.replace(".", "_") == name.replace(".", "_")}
        assert set(image.topics.collisions(name)) == alike - {name}


def test_a_removed_topic_leaves_no_trace_in_any_index() -> None:
    topics = TopicsImage().with_topic(TopicImage(name="a.b", id=ID))
    assert topics.collisions("a_b") == ("a.b",)
    both = topics.with_topic(TopicImage(name="a_b", id=OTHER))
    assert both.collisions("a.b") == ("a_b",)
    assert both.without(OTHER) == topics
    assert topics.without(ID) == TopicsImage()
    assert topics.by_name("a_b") is None
    assert topics.by_id(NO_UUID) is None


def test_many_partitions_come_in_order() -> None:
    from tests.unit.metadata.test_delta import PARTITION

    topic = TopicImage(name="t", id=ID, partitions=Map(dict.fromkeys(range(5000), PARTITION)))
    assert [number for number, _ in topic.in_order()] == list(range(5_000))


def test_a_partition_of_before_log_dirs_had_ids() -> None:
    record = partition_record(ID, 0, PARTITION)
    old = type(record)(
        topic_id=ID, partition_id=0, replicas=record.replicas, isr=record.isr, leader=1
    )
    assert partition_of(old).directories == (DIRECTORY_MIGRATING,) * 2


def test_the_directory_of_a_replica() -> None:
    assert [PARTITION.directory(each) for each in PARTITION.replicas] == [HERE, THERE]


def test_a_partition_is_set_without_touching_the_others() -> None:
    topic = TopicImage(name="t", id=ID, partitions=Map({0: PARTITION}))
    grown = topic.with_partition(1, PARTITION)
    assert (len(topic.partitions), len(grown.partitions)) == (1, 2)
