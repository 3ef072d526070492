"""Reads the cluster id, and the image with which a broker starts, from ZooKeeper.

From that image the broker knows which partition directories are still its own, and their configs,
as a KRaft broker does from the metadata log. It is not used longer: the controller sends the rest.

Source: KafkaServer.getOrGenerateClusterId, Kafka 3.9.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from ottla.base.ids import Uuid, uuid_text
from ottla.base.ports import Dice
from ottla.base.zookeeper import Create, Session, ZkCode, ZkError, ZnodeData
from ottla.host.log_dirs.storage import random_uuid
from ottla.host.steps import Steps, wait
from ottla.host.zookeeper.persistent import make_persistent
from ottla.host.zookeeper.store.store_gathering import Wanted, read_once
from ottla.host.zookeeper.store.store_reading import reading_or_none
from ottla.metadata.configs import Resource, ResourceType
from ottla.metadata.deletions import DeletionImage, DeletionsImage, Policy, header_record
from ottla.metadata.deletions_json import decode_deletion
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import UnregisterBrokerRecord
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.cluster import decode_cluster_id, encode_cluster_id
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.load import records_of
from ottla.metadata.znodes.topic import decode_topic

log = logging.getLogger(__name__)


def cluster_id_of(session: Session, dice: Dice) -> Steps[str]:
    """Return the id; the first broker of a cluster creates it. Raises: ZkError, ZnodeError."""
    while True:
        found = yield from reading_or_none(session.get(paths.CLUSTER_ID))
        if found is not None:
            return decode_cluster_id(found.data)
        new_id = encode_cluster_id(uuid_text(random_uuid(dice)))
        yield from make_persistent(session, (paths.CLUSTER_ID.rpartition("/")[0],))
        answer = yield from wait(session.multi((Create(paths.CLUSTER_ID, new_id),)))
        # The next read shows whether this or another broker was first.
        if isinstance(answer, ZkError) and answer.code not in REPEATED:
            raise answer


REPEATED = frozenset({ZkCode.NODE_EXISTS, ZkCode.CONNECTION_LOSS})


def read_image(session: Session, node_id: int) -> Steps[ClusterImage]:
    """Return the stored cluster, without this broker itself. Raises: ZkError.

    Of the deletion ledger it has the entries of topics that exist, and that the others are deleted:
    their partition directories are deleted, too.
    """
    snapshot = yield from read_once(
        session, Wanted(broker_list=True, topic_list=True, config_list=True)
    )
    # After the topics: a topic that is deleted meanwhile has an entry.
    deletions, deleted = yield from _read_deletions(session, snapshot.topics)
    loaded = records_of(replace(snapshot, deletions=deletions))
    for problem in loaded.problems:
        log.error("%s", problem)
    receipts = [header_record(_deleted_entry(topic_id)) for topic_id in sorted(deleted)]
    image = replay(EMPTY, (*loaded.records, *receipts), offset=0, epoch=-1).image
    own = image.brokers.get(node_id)
    if own is not None:
        # The znode of a previous process, or of another broker with this id; see `registration`.
        previous = UnregisterBrokerRecord(broker_id=node_id, broker_epoch=own.epoch)
        image = replay(image, (previous,), offset=0, epoch=-1).image
    return image


def without_deleted(image: ClusterImage) -> ClusterImage:
    """Return an image without the topics whose deletion has begun, and without the ledger.

    A broker that starts with it creates no empty log of a replica that it has deleted, and perhaps
    confirmed, before it stopped: no further request would delete that log.
    """
    topics, tiering = image.topics, image.tiering
    for entry in image.deletions:
        if (entry.has_begun or entry.is_finished) and topics.by_id(entry.topic_id) is not None:
            topics = topics.without(entry.topic_id)
            tiering = tiering.delete(entry.topic_id) if entry.topic_id in tiering else tiering
    return replace(image, topics=topics, tiering=tiering, deletions=DeletionsImage())


def _read_deletions(
    session: Session, topics: Mapping[str, ZnodeData | None]
) -> Steps[tuple[Mapping[Uuid, ZnodeData | None], frozenset[Uuid]]]:
    """Return the entries of some topics, and which others have one: receipts can be many.

    An unreadable topic may be any of these others: then none of them is taken as deleted.
    """
    listed = yield from _read_listed(session)
    ids = [_id(name, got) for name, got in topics.items() if got is not None]
    present = {topic_id for topic_id in ids if topic_id is not None}
    found = yield from read_once(session, Wanted(deletions=present & listed))
    is_sure = all(topic_id is not None for topic_id in ids)
    return found.deletions, frozenset(listed - present if is_sure else ())


def _read_listed(session: Session) -> Steps[frozenset[Uuid]]:
    """Return the topics with an entry in the deletion ledger. Raises: ZkError."""
    names = yield from reading_or_none(session.children(paths.DELETIONS))
    listed = (_listed(name) for name in names or ())
    return frozenset(topic_id for topic_id in listed if topic_id is not None)


def read_deleted(session: Session, candidates: frozenset[Uuid]) -> Steps[frozenset[Uuid]]:
    """Return those topics whose deletion has begun, by the ledger. Raises: ZkError.

    A topic that waits for its deletion is served until then.
    """
    listed = yield from _read_listed(session)
    found = yield from read_once(session, Wanted(deletions=set(candidates & listed)))
    return frozenset(
        topic_id for topic_id, got in found.deletions.items() if got is not None and _has_begun(got)
    )


def _has_begun(got: ZnodeData) -> bool:
    try:
        entry = decode_deletion(got.data)
    except ValueError as error:
        log.error("ignoring an invalid entry of the deletion ledger: %s", error)
        return False
    return entry.has_begun or entry.is_finished


def _listed(name: str) -> Uuid | None:
    try:
        return paths.deletion_id(name)
    except ValueError:
        return None  # Not an entry.


def _deleted_entry(topic_id: Uuid) -> DeletionImage:
    """Return the entry of a deleted topic of which nothing else is known."""
    return DeletionImage(
        topic_id=topic_id, name="", policy=Policy.CLASSIC, asked_ms=0, finished_ms=0
    )


def _id(name: str, got: ZnodeData | None) -> Uuid | None:
    try:
        return None if got is None else decode_topic(name, got.data).topic_id
    except ZnodeError:
        return None  # Logged with the other problems.


def topic_resource(name: str) -> Resource:
    """Return a topic's config resource."""
    return (int(ResourceType.TOPIC), name)
