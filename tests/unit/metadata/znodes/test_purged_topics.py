"""Goal: a deletion whose purge is pending frees the name, and its marker is not another topic's.

Method: the steps of a tiered topic's deletion, each written to a tree of znodes and read again.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.controller.deletion.delete_topics import TopicReference, delete_topics
from ottla.controller.deletion.deletion_policy import DeletionWork, Replica, decide
from ottla.controller.topics.create_topics import NewTopic, create_topics
from ottla.metadata.deletions import DeletionImage, Remote, header_record
from ottla.metadata.deletions_json import decode_deletion
from ottla.metadata.tiering import TopicTiering, tiering_record
from ottla.metadata.znodes import paths

from ...controller.builders import context
from .clusters import three_brokers
from .tree import Cluster

CONTEXT = context()
"""One for all topics, whose ids differ then."""


def create(cluster: Cluster) -> Uuid:
    """Create the topic, with remote storage."""
    wanted = [NewTopic(name="t", partition_count=2, replication_factor=2)]
    decided = create_topics(cluster.image, wanted, validate_only=False, context=CONTEXT)
    cluster.write(decided.step.records)
    topic_id = cluster.image.topics.id_of("t")
    assert topic_id is not None
    cluster.write([tiering_record(TopicTiering(topic_id=topic_id))])
    return topic_id


def queue(cluster: Cluster, topic_id: Uuid) -> None:
    wanted = [TopicReference(topic_id=topic_id)]
    decided = delete_topics(cluster.image, wanted, context=context(), wall_ms=7, queue=True)
    cluster.write(decided.step.records)


def work(cluster: Cluster, topic_id: Uuid, *, confirmed: bool = False) -> None:
    """Decide once; with all replicas `confirmed` by their brokers."""
    entry = entry_of(cluster, topic_id)
    results = {
        Replica(broker_id, topic_id, number): Error.NONE
        for broker_id, _, numbers in entry.rows()
        for number in (numbers if confirmed else ())
    }
    chosen = DeletionWork(topics=frozenset({topic_id}), results=results)
    cluster.write(decide(cluster.image, chosen, wall_ms=9, marked={"t"}).step.records)
    cluster.check()


def entry_of(cluster: Cluster, topic_id: Uuid) -> DeletionImage:
    found = cluster.image.deletions.of(topic_id)
    assert found is not None
    return found


def is_marked(cluster: Cluster) -> bool:
    return paths.marker("t") in cluster.tree.nodes


@pytest.fixture
def cluster() -> Cluster:
    return three_brokers()


def test_the_name_is_free_while_the_purge_is_pending(cluster: Cluster) -> None:
    old = create(cluster)
    queue(cluster, old)
    assert is_marked(cluster)
    work(cluster, old)
    work(cluster, old, confirmed=True)
    assert cluster.image.topics.by_id(old) is None
    assert not is_marked(cluster)
    stored = decode_deletion(cluster.tree.nodes[paths.deletion(old)].data)
    assert (stored.remote, stored.is_finished) == (Remote.PENDING, False)
    work(cluster, old)
    assert stored == entry_of(cluster, old)  # Nothing is written until the purge ends.

    new = create(cluster)
    assert new != old
    queue(cluster, new)
    assert is_marked(cluster)
    cluster.write([header_record(replace(entry_of(cluster, old), remote=Remote.PURGED))])
    work(cluster, old)
    stored = decode_deletion(cluster.tree.nodes[paths.deletion(old)].data)
    assert (stored.remote, stored.is_finished) == (Remote.PURGED, True)
    assert is_marked(cluster)  # It is the new topic's.
    assert not entry_of(cluster, new).has_begun
