"""Producer ids and finalized features: each is one znode of the cluster."""

from ottla.base.zookeeper import Create, Operation, SetData
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import FeatureLevelRecord, ProducerIdsRecord
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.cluster import ProducerIdBlock, encode_feature, encode_producer_ids
from ottla.metadata.znodes.fields import NO_EXTRA, ZnodeError
from ottla.metadata.znodes.known import KnownNode
from ottla.metadata.znodes.multis import Multis, Need


class SinglesWriter:
    """The changes of these znodes in one step."""

    def __init__(self, multis: Multis, before: ClusterImage) -> None:
        self._multis = multis
        self._features = dict(before.features)
        self._next_producer_id = before.producer_ids.next_producer_id

    def producer_ids(self, record: ProducerIdsRecord) -> None:
        """Plan a block: from the first free id before to the first one after.

        Raises: ZnodeError where the free ids are unknown: a block could be allocated twice, and the
                records of its second owner would count as the first one's.
        """
        known = self._multis.known.producer_ids
        if known is not None and known.fault is not None and self._next_producer_id == 0:
            raise ZnodeError(paths.PRODUCER_IDS, known.fault)
        block = ProducerIdBlock(
            record.broker_id,
            self._next_producer_id,
            record.next_producer_id - 1,
            NO_EXTRA if known is None else known.extra,
        )
        self._next_producer_id = record.next_producer_id
        self._write(paths.PRODUCER_IDS, encode_producer_ids(block), known)
        self._multis.record(record)

    def feature(self, record: FeatureLevelRecord) -> None:
        """Plan the level of one feature."""
        known = self._multis.known.feature
        if record.feature_level:
            self._features[record.name] = record.feature_level
        else:
            self._features.pop(record.name, None)
        extra = NO_EXTRA if known is None else known.extra
        self._write(paths.FEATURE, encode_feature(self._features, extra), known)
        self._multis.record(record)

    def _write(self, path: str, data: bytes, known: KnownNode | None) -> None:
        operation: Operation = Create(path, data)
        if known is not None:
            operation = SetData(path, data, known.version)
        self._multis.make_room(path, lambda: Need(1, len(path) + len(data)))
        self._multis.add(operation)
