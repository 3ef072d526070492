"""UpdateMetadata (key 6): the controller tells this broker who is there and who leads what.

Behaviour: the brokers named are all that live. Partitions that are not named stay as they are.
           A leader of -2 says that the topic goes (KAFKA-1355): it is gone here from then on,
           with the replicas that this broker has of it and the offsets that groups committed.
           What a request of type FULL does not name goes, too, if the deletion ledger knows that
           it has begun to; a late copy of an older request does not name what was made since.
Epochs:    as LeaderAndIsr.
Versions:  v7 topic ids (KIP-516); v8 KRaft controllers, which there are none of here. Older ones,
           without ids, are not served.
Not done:  authorization.
"""

from collections.abc import Iterable, Iterator

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.broker.api.base import BROKERS, NOBODY, NOWHERE, Answer, Api, Context
from ottla.broker.zk_metadata import PartitionName
from ottla.broker.zk_replica_drops import drop_replicas
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import RemoveTopicRecord, TopicRecord
from ottla.wire.messages import update_metadata as wire

API = Api(
    key=6,
    versions=range(7, 9),
    advertised=NOBODY,
    listeners=NOWHERE,
    zookeeper=BROKERS,
    acl="cluster:cluster-action",
)


def handle(ctx: Context, request: wire.UpdateMetadataRequest) -> Answer:
    """Check who tells; take it over."""
    zk_metadata = ctx.broker.zk_metadata
    assert zk_metadata is not None, "served where brokers are told by requests only"
    error = zk_metadata.facts.check_sender(
        broker_epoch=request.broker_epoch,
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
    )
    if error is Error.NONE:
        records = zk_metadata.facts.update_metadata(zk_metadata.image, request).records
        gone = [record.topic_id for record in records if isinstance(record, RemoveTopicRecord)]
        new = [record.name for record in records if isinstance(record, TopicRecord)]
        drop_replicas(ctx.broker, zk_metadata, records, list(_partitions(zk_metadata.image, gone)))
        if request.type == wire.FULL:
            ctx.broker.groups.full_metadata_received()
        if new:
            # Those without a replica here: whoever describes them is told how they are configured.
            zk_metadata.read_configs(new)
        if zk_metadata.facts.missing_topics:
            zk_metadata.check_missing_topics()
    return wire.UpdateMetadataResponse(error_code=error)


def _partitions(image: ClusterImage, topic_ids: Iterable[Uuid]) -> Iterator[PartitionName]:
    for topic in map(image.topics.by_id, topic_ids):
        if topic is not None:
            yield from ((topic.name, partition_id) for partition_id in topic.partitions)
