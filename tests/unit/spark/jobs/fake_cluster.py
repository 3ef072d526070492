"""A fake broker with the metadata of a store, and with a topic that may be deleted."""

from collections.abc import Callable
from typing import Any

from ottla.base.errors import Error
from ottla.base.ids import REMOTE_LOG_METADATA_TOPIC
from ottla.client.cluster import ClientConfig
from ottla.metadata.deletions import Remote
from ottla.records.batch import iter_headers, restamp
from ottla.records.builder import encode_batch
from ottla.tiered.metadata_records import encode
from ottla.wire.messages import describe_deletions as deletions
from ottla.wire.messages import describe_topic_tiering as tiering
from ottla.wire.messages import fetch as fetched
from ottla.wire.messages import list_offsets as offsets
from tests.unit.client.fake_broker import FakeBroker, topic
from tests.unit.tiered.support import TOPIC, TOPIC_ID

from .support import Store


class Cluster:
    """A fake broker with the metadata of a store. `records`: what it serves."""

    def __init__(self, store: Store) -> None:
        self.broker = FakeBroker()
        self.records = list(store.records)
        self.remote: Remote | None = None
        self.log_start = 0
        self.local_start = 60
        self.tiering: tiering.DescribedTopicTiering | None = None
        self.on_log_start: Callable[[], None] = lambda: None
        self.broker.topics = [topic(REMOTE_LOG_METADATA_TOPIC), topic(TOPIC, 4, topic_id=TOPIC_ID)]
        self.broker.answer(offsets.ListOffsetsRequest, self._offsets)
        self.broker.answer(fetched.FetchRequest, self._fetch)
        self.broker.answer(tiering.DescribeTopicTieringRequest, self._tiering)
        self.broker.answer(deletions.DescribeDeletionsRequest, self._deletions)

    @property
    def config(self) -> ClientConfig:
        return ClientConfig(bootstrap=self.broker.address).with_timeout(5)

    def delete_topic(self, remote: Remote | None) -> None:
        """Remove the topic; `remote`: what the ledger says, None = it has no entry."""
        del self.broker.topics[1]
        self.remote = remote

    def _offsets(self, request: Any) -> Any:
        (asked,) = request.topics
        (partition,) = asked.partitions
        if asked.name == TOPIC:
            self.on_log_start()
            found = self.log_start if partition.timestamp == -2 else self.local_start
        else:
            found = 0 if partition.timestamp == -2 else len(self.records)
        answer = offsets.ListOffsetsPartitionResponse(
            partition_index=partition.partition_index, error_code=0, timestamp=-1, offset=found
        )
        rows = (offsets.ListOffsetsTopicResponse(name=asked.name, partitions=(answer,)),)
        return offsets.ListOffsetsResponse(topics=rows)

    def _fetch(self, request: Any) -> Any:
        (asked,) = request.topics
        (partition,) = asked.partitions
        at = partition.fetch_offset
        data = bytearray()
        if at < len(self.records):
            # One that cannot be decoded is skipped, as brokers do.
            values = [encode(each) for each in self.records[at : at + 2]]
            data += encode_batch([(None, value, (), 5) for value in values])
            restamp(data, 0, base_offset=at, leader_epoch=0)
            assert list(iter_headers(data))
        row = fetched.PartitionData(
            partition_index=partition.partition,
            error_code=0,
            high_watermark=len(self.records),
            records=memoryview(bytes(data)),
        )
        answer = fetched.FetchableTopicResponse(
            topic=asked.topic, topic_id=asked.topic_id, partitions=(row,)
        )
        return fetched.FetchResponse(error_code=Error.NONE, responses=(answer,))

    def _tiering(self, request: Any) -> Any:
        found = () if self.tiering is None else (self.tiering,)
        return tiering.DescribeTopicTieringResponse(error_code=0, topics=found)

    def _deletions(self, request: Any) -> Any:
        if self.remote is None:
            return deletions.DescribeDeletionsResponse(error_code=0)
        entry = deletions.DescribedDeletion(
            topic_id=TOPIC_ID,
            name=TOPIC,
            policy=1,
            asked_ms=1,
            finished_ms=2 if self.remote is not Remote.PENDING else -1,
            halted=0,
            remote=int(self.remote),
        )
        return deletions.DescribeDeletionsResponse(error_code=0, deletions=(entry,))
