"""From records to znodes: the multis that write a step's records.

Each multi checks first that the controller's epoch is still the one of its election (KAFKA-6082),
and is as large as ZooKeeper allows. A step that needs several is split where that is harmless:
the topic's znode with the whole assignment comes first, so that a topic exists, or has its new
partitions, from then on, and a partition whose state did not fit is in state NEW, without a
leader, until the next multi. A change of a partition and of its assignment is never split. A
topic's removal deletes its partitions' states first, its own znode last, and with that its marker
and the receipt. The ledger's rows of its replicas are written before that: a topic is never removed
while the ledger still waits for replicas that have confirmed. A topic's tiering state is in the
multi of its configuration, and a new topic's in the multi that creates it.

Every change of a partition writes its state at the version that is the partition epoch before it:
version and epoch stay equal, and a write by others is detected.
Source: KafkaZkClient, AdminZkClient, ZkPartitionStateMachine, Kafka 3.9.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ottla.base.ids import Uuid
from ottla.base.zookeeper import Result
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
    TopicTieringRecord,
)
from ottla.metadata.znodes.known import KnownZnodes, after_operations
from ottla.metadata.znodes.multis import Multis, Write
from ottla.metadata.znodes.normalise import OBSERVED, normalised
from ottla.metadata.znodes.write_configs import ConfigWriter
from ottla.metadata.znodes.write_ledger import LedgerRecord, LedgerWriter
from ottla.metadata.znodes.write_singles import SinglesWriter
from ottla.metadata.znodes.write_tiering import TieringWriter
from ottla.metadata.znodes.write_topics import TopicWriter


def writes_of(
    before: ClusterImage,
    records: Iterable[Record],
    known: KnownZnodes,
    *,
    controller_epoch: int,
    epoch_version: int,
) -> list[Write]:
    """Return the multis that write a step decided on `before`, in order.

    `epoch_version`: of `/controller_epoch` after this controller's election. The records of
    each multi lead to the image after it. They are the step's, normalised; for a partition whose
    state is written later they have state NEW. Records that no znode holds come with the
    check of the epoch alone.

    Raises: ZnodeError where a fact cannot be written: a topic's name is taken by an invalid znode,
            or a znode would be too large for ZooKeeper.
    """
    listed = list(normalised(records))
    multis = Multis(known, epoch_version)
    configs = ConfigWriter(multis, before)
    tiering = TieringWriter(multis, before, configs)
    tiering.announce(listed)
    topics = TopicWriter(multis, before, configs, tiering, controller_epoch)
    topics.announce(listed)
    ledger = LedgerWriter(multis, before)
    singles = SinglesWriter(multis, before)
    removing: bool | None = None
    for record in _entries_together(listed):
        if isinstance(record, tuple):
            ledger.take(record)
            continue
        if removing is not None and removing != isinstance(record, RemoveTopicRecord):
            # The removed and the created topic of one name must not be in one multi.
            multis.flush()
        removing = isinstance(record, RemoveTopicRecord)
        if isinstance(record, PartitionChangeRecord):
            topics.change(record)
        elif isinstance(record, PartitionRecord):
            topics.partition(record)
        elif isinstance(record, TopicRecord):
            topics.create(record)
        elif isinstance(record, RemoveTopicRecord):
            topics.remove(record, ledger.need_of(record.topic_id))
        elif isinstance(record, ConfigRecord):
            tiering.make_room_for_both(record)
            configs.take(record)
        elif isinstance(record, TopicTieringRecord):
            tiering.make_room_for_both(record)
            tiering.take(record)
        elif isinstance(record, ProducerIdsRecord):
            singles.producer_ids(record)
        elif isinstance(record, FeatureLevelRecord):
            singles.feature(record)
        else:
            assert type(record) in OBSERVED, f"{type(record).__name__} has no znode writer"
            multis.record(record)
    multis.flush()
    return multis.writes


def topic_rewrites(
    image: ClusterImage, known: KnownZnodes, *, controller_epoch: int, epoch_version: int
) -> list[Write]:
    """Return the multis that repair topics' znodes: ids (KIP-516), assignments, tiering states."""
    multis = Multis(known, epoch_version)
    configs = ConfigWriter(multis, image)
    tiering = TieringWriter(multis, image, configs)
    topics = TopicWriter(multis, image, configs, tiering, controller_epoch)
    for name in known.to_rewrite():
        topic_id = image.topics.id_of(name)
        if topic_id is None:
            continue
        stored = known.topics[name]
        if not stored.is_whole:
            topics.rewrite(topic_id)
        if stored.tiering is not None and not stored.tiering.is_whole:
            tiering.rewrite(topic_id)
    multis.flush()
    return multis.writes


def after_write(known: KnownZnodes, write: Write, results: Sequence[Result]) -> KnownZnodes:
    """Return what is known after a multi; `results` are its results."""
    return after_operations(known, write.operations, results)


def _entries_together(
    records: Iterable[Record],
) -> Iterator[Record | tuple[LedgerRecord, ...]]:
    """Yield the records; consecutive ones about one entry of the ledger as one."""
    for topic_id, listed in groupby(records, key=_entry_of):
        if topic_id is None:
            yield from listed
        else:
            yield tuple(each for each in listed if isinstance(each, LedgerRecord))


def _entry_of(record: Record) -> Uuid | None:
    return record.topic_id if isinstance(record, LedgerRecord) else None
