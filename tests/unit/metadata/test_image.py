"""An image is what its records say: image → records → image loses nothing.

Method: hypothesis draws whole images; indexes are checked against the plain contents.
"""

from hypothesis import given, settings

from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import FeatureLevelRecord
from tests.drawn import examples

from .images import clusters


@settings(max_examples=examples(30))
@given(clusters())
def test_image_to_records_to_image(image: ClusterImage) -> None:
    offset, epoch = image.position
    assert replay(EMPTY, image.to_records(), offset=offset, epoch=epoch).image == image


@settings(max_examples=examples(30))
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


@settings(max_examples=examples(30))
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
