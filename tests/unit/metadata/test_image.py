"""An image is what its records say: image → records → image loses nothing.

Method: hypothesis draws whole images; indexes are checked against the plain contents.
"""

from hypothesis import given, settings
from immutables import Map

from ottla.base.ids import NO_UUID
from ottla.metadata.brokers import BrokerImage, Endpoint
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage, ConfigsImage, TopicImage, TopicsImage
from ottla.metadata.records import FeatureLevelRecord

from .images import ID, OTHER, clusters


@settings(max_examples=30)
@given(clusters())
def test_image_to_records_to_image(image: ClusterImage) -> None:
    offset, epoch = image.position
    assert replay(EMPTY, image.to_records(), offset=offset, epoch=epoch).image == image


@settings(max_examples=30)
@given(clusters())
def test_equal_images_write_the_same_records(image: ClusterImage) -> None:
    offset, epoch = image.position
    again = replay(EMPTY, image.to_records(), offset=offset, epoch=epoch).image
    assert list(again.to_records()) == list(image.to_records())


def test_the_metadata_version_is_the_first_record() -> None:
    features = {"aaa": 1, "metadata.version": 25, "zzz": 2}
    records = [FeatureLevelRecord(name=key, feature_level=each) for key, each in features.items()]
    image = replay(EMPTY, records, offset=2, epoch=1).image
    first = next(image.to_records())
    assert first == FeatureLevelRecord(name="metadata.version", feature_level=25)


@settings(max_examples=30)
@given(clusters())
def test_topics_are_found_by_id_and_by_name_and_come_in_order(image: ClusterImage) -> None:
    topics = list(image.topics)
    assert len(image.topics) == len(topics)
    assert [topic.name for topic in topics] == image.topics.names() == sorted(image.topics.names())
    for topic in topics:
        assert image.topics.by_id(topic.id) is topic
        assert image.topics.by_name(topic.name) is topic
        assert image.topics.id_of(topic.name) == topic.id
        assert topic.name in image.topics
        assert [number for number, _ in topic.in_order()] == list(range(len(topic.partitions)))


@settings(max_examples=30)
@given(clusters())
def test_collisions_are_the_names_that_metrics_cannot_tell_apart(image: ClusterImage) -> None:
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


def test_an_emptied_resource_is_forgotten() -> None:
    configs = ConfigsImage().with_value((2, "t"), "a", "1")
    assert dict(configs.of(2, "t")) == {"a": "1"}
    assert configs.with_value((2, "t"), "b", None) is configs
    assert configs.with_value((2, "t"), "a", None) == ConfigsImage()
    assert configs.without((2, "u")) is configs
    assert configs.without((2, "t")) == ConfigsImage()


def test_a_broker_is_found_by_listener_and_active_unless_fenced_or_leaving() -> None:
    endpoint = Endpoint("PLAINTEXT", "localhost", 9092)
    plain = BrokerImage(id=1, epoch=5, incarnation_id=ID, endpoints=(endpoint,), fenced=False)
    assert plain.endpoint("PLAINTEXT") is endpoint
    assert plain.endpoint("OTHER") is None
    leaving = BrokerImage(
        id=2, epoch=5, incarnation_id=ID, endpoints=(), fenced=False, in_controlled_shutdown=True
    )
    fenced = BrokerImage(id=3, epoch=5, incarnation_id=ID, endpoints=())
    assert (plain.active, leaving.active, fenced.active) == (True, False, False)
    image = ClusterImage(brokers=EMPTY.brokers.update({1: plain, 2: leaving, 3: fenced}))
    assert [each for each in range(5) if image.is_active(each)] == [1]
    assert image.broker_ids() == [1, 2, 3]
