"""Goal: a step that queues topics for deletion is one multi, so an error of it is true of them all.

Method: more topics than one step takes, with the longest names there are, marked or not before.
"""

import pytest

from ottla.base.limits import DELETIONS_QUEUED_PER_STEP_MAX
from ottla.controller.deletion.delete_topics import TopicReference, delete_first, find_topics
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.deletions import SUCCESSFUL, DeletionImage, Policy
from ottla.metadata.deletions_json import encode_deletion
from ottla.metadata.topic_names import NAME_LENGTH_MAX
from ottla.metadata.znodes import paths

from ...controller.builders import context
from .clusters import three_brokers
from .tree import Cluster

NAMES = [f"{number:03}".ljust(NAME_LENGTH_MAX, "x") for number in range(600)]


@pytest.fixture
def cluster() -> Cluster:
    """Return a cluster with all the topics."""
    cluster = three_brokers()
    wanted = [NewTopic(name=each, partition_count=1, replication_factor=1) for each in NAMES]
    decided = create_topics(cluster.image, wanted, validate_only=False, context=context())
    cluster.write(decided.step.records)
    return cluster


def queue_all(cluster: Cluster) -> list[int]:
    """Queue all topics, step by step; return how many each multi queued."""
    found = find_topics(cluster.image, [TopicReference(each) for each in NAMES], context=context())
    taken = []
    while found:
        decided = delete_first(cluster.image, found, wall_ms=2**62, queue=True)
        [write] = cluster.write(decided.step.records)
        assert len(write.records) == len(decided.reply)
        taken.append(len(decided.reply))
        found = found[len(decided.reply) :]
    assert all(cluster.image.is_queued_for_deletion(name) for name in NAMES)
    cluster.check()
    return taken


def test_each_step_is_one_multi(cluster: Cluster) -> None:
    assert queue_all(cluster) == [DELETIONS_QUEUED_PER_STEP_MAX] * 2


def test_so_it_is_where_there_are_markers_or_topics_were_put_back(cluster: Cluster) -> None:
    for name in NAMES[::3]:
        cluster.tree.put(paths.marker(name), b"")
    for name in NAMES[::5]:
        topic_id = cluster.image.topics.id_of(name)
        assert topic_id is not None
        receipt = DeletionImage(
            topic_id=topic_id, name=name, policy=Policy.CLASSIC, asked_ms=1, finished_ms=2
        ).with_status(1, SUCCESSFUL, range(100))
        cluster.tree.put(paths.deletion(topic_id), encode_deletion(receipt))
    cluster = Cluster(cluster.tree)
    assert queue_all(cluster) == [DELETIONS_QUEUED_PER_STEP_MAX] * 2
