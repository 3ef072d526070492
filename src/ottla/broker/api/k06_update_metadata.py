"""UpdateMetadata (key 6): the controller sends this broker the live brokers and the leaders.

Behaviour: the brokers named are all live ones. Partitions that are not named stay as they are.
           A leader of -2 means that the topic is being deleted (KAFKA-1355): it is removed here at
           once, with this broker's replicas of it and the offsets that groups committed.
           A topic that a request of type FULL does not have is removed, too, if the deletion ledger
           has its deletion; a late copy of an older request lacks topics created since.
Epochs:    as LeaderAndIsr.
Versions:  v7 topic ids (KIP-516); v8 KRaft controllers, which do not exist in this mode. Older
           ones, without ids, are not served.
Not done:  nothing.
"""

from collections.abc import Iterable, Iterator

from ottla.base.authorizer import Operation
from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.broker.api.base import BROKERS, NOBODY, NOWHERE, Answer, Api, Context
from ottla.broker.zookeeper.zk_metadata import PartitionName
from ottla.broker.zookeeper.zk_replica_drops import drop_replicas
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import RemoveTopicRecord, TopicRecord
from ottla.wire.messages import update_metadata as wire

API = Api(
    key=6,
    versions=range(7, 9),
    advertised=NOBODY,
    listeners=NOWHERE,
    zookeeper=BROKERS,
    cluster_operation=Operation.CLUSTER_ACTION,
)


def handle(ctx: Context, request: wire.UpdateMetadataRequest) -> Answer:
    """Check the epochs; apply the request."""
    zk_metadata = ctx.broker.zk_metadata
    assert zk_metadata is not None, "served in ZooKeeper mode only"
    error = zk_metadata.facts.check_sender(
        broker_epoch=request.broker_epoch,
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
    )
    if error is Error.NONE:
        had_hidden_partitions = bool(zk_metadata.facts.hidden_partitions)
        records = zk_metadata.facts.update_metadata(zk_metadata.image, request).records
        gone = [record.topic_id for record in records if isinstance(record, RemoveTopicRecord)]
        new = [record.name for record in records if isinstance(record, TopicRecord)]
        drop_replicas(ctx.broker, zk_metadata, records, list(_partitions(zk_metadata.image, gone)))
        if had_hidden_partitions and ctx.broker.remote is not None:
            ctx.broker.remote.topics_completed()
        if request.type == wire.FULL:
            ctx.broker.groups.full_metadata_received()
        if new:
            # For topics without a replica here: DescribeConfigs needs their configuration.
            zk_metadata.read_configs(new)
        if zk_metadata.facts.missing_topics:
            zk_metadata.check_missing_topics()
    return wire.UpdateMetadataResponse(error_code=error)


def _partitions(image: ClusterImage, topic_ids: Iterable[Uuid]) -> Iterator[PartitionName]:
    for topic in map(image.topics.by_id, topic_ids):
        if topic is not None:
            yield from ((topic.name, partition_id) for partition_id in topic.partitions)
