"""A topic is created from what remote storage has of it: with its id, epochs and offsets.

It is one step, so a restore that was interrupted has created the topic, and brokers finish it, or
has changed nothing. In ZooKeeper mode a large step is several writes, of which the first has all
but some partitions' leaders; the next controller elects these in the same epochs. The topic's id is
that in the names of its objects. It is refused where a topic has the name or the id, and where the
deletion ledger has the id: brokers delete what they find of such a topic, and its objects are being
purged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from immutables import Map

from ottla.base.errors import ApiError, Error
from ottla.base.ids import NO_LEADER, NO_UUID, Uuid, uuid_text
from ottla.controller.context import DecisionContext
from ottla.controller.idle import check_ttl
from ottla.controller.step import Decision, Step
from ottla.controller.tiering import tiering_change
from ottla.controller.topics.assignment import assign
from ottla.controller.topics.create_topics import (
    USE_DEFAULT,
    check_new_name,
    check_partition_total,
    new_topic_records,
)
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.tiering import RestoredPartition, TopicTiering, tiering_record
from ottla.metadata.topic_config import validate_topic_configs


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    """A topic to be restored. `partitions`: from 0 on, each once.

    `tiered_epoch`: above that of each remote segment; `floor`: those of it and below are dead.
    """

    name: str
    topic_id: Uuid
    tiered_epoch: int
    floor: int
    configs: Mapping[str, str]
    partitions: tuple[RestoredPartition, ...]
    replication_factor: int = USE_DEFAULT


def restore_topic(
    image: ClusterImage,
    wanted: RestoredTopic,
    *,
    validate_only: bool,
    context: DecisionContext,
) -> Decision[None]:
    """Create a restored topic. Raises: ApiError."""
    _check(image, wanted)
    check_new_name(image, image.topics, wanted.name)
    overrides = dict(wanted.configs)
    validate_topic_configs(overrides, context.config, image)
    check_ttl(image, context.mode, wanted.name, overrides)
    state = tiering_change(image, context, wanted.name, wanted.topic_id, {}, overrides)
    if state is None:
        raise ApiError(Error.INVALID_CONFIG, "A restored topic needs remote.storage.enable=true.")
    factor = wanted.replication_factor
    if factor == 0 or factor < USE_DEFAULT:
        raise ApiError(
            Error.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    assigned = assign(
        image,
        wanted.name,
        first=0,
        count=len(wanted.partitions),
        replication_factor=(
            context.config["default.replication.factor"] if factor == USE_DEFAULT else factor
        ),
        dice=context.dice,
    )
    partitions = zip(wanted.partitions, assigned, strict=True)
    topic = TopicImage(
        name=wanted.name,
        id=wanted.topic_id,
        partitions=Map((each.partition, _led(each, partition)) for each, partition in partitions),
    )
    tiering = TopicTiering(
        topic_id=wanted.topic_id,
        tiered_epoch=wanted.tiered_epoch,
        remote_floor_epoch=wanted.floor,
        restored=wanted.partitions,
    )
    if validate_only:
        return Decision(Step(), None)
    return Decision(Step(tuple(new_topic_records(topic, overrides, tiering_record(tiering)))), None)


def _check(image: ClusterImage, wanted: RestoredTopic) -> None:
    check_partition_total(len(wanted.partitions))
    known = image.topics.by_id(wanted.topic_id)
    if known is not None:
        raise ApiError(
            Error.TOPIC_ALREADY_EXISTS,
            f"Topic '{known.name}' exists with the topic id {uuid_text(wanted.topic_id)}.",
        )
    if image.deletions.of(wanted.topic_id) is not None:
        raise ApiError(
            Error.TOPIC_ALREADY_EXISTS,
            f"The topic id {uuid_text(wanted.topic_id)} is in the deletion ledger: brokers delete"
            " what they find of that topic. It can be restored once its receipt has expired"
            " (ottla.deletion.receipt.retention.ms), or in another cluster.",
        )
    numbers = [each.partition for each in wanted.partitions]
    is_valid = wanted.topic_id != NO_UUID and numbers and numbers == list(range(len(numbers)))
    if not is_valid or not 0 <= wanted.floor < wanted.tiered_epoch:
        raise ApiError(Error.INVALID_REQUEST, "The topic to restore is not described rightly.")
    for each in wanted.partitions:
        if not 0 <= each.log_start_offset <= each.end_offset or each.leader_epoch < 0:
            raise ApiError(
                Error.INVALID_REQUEST,
                f"Partition {each.partition} to restore is not described rightly.",
            )


def _led(restored: RestoredPartition, partition: PartitionImage) -> PartitionImage:
    """Return a partition whose first leader has the restored one's leader epoch."""
    assert partition.leader != NO_LEADER, "an active broker leads each placed partition"
    # A deleted topic of this name may have had larger ones, which clients remember.
    return replace(partition, leader_epoch=max(restored.leader_epoch, partition.leader_epoch))
