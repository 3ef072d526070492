"""A cluster of one broker without a network: what clients are tested against.

It keeps each partition's records, knows each producer's last sequence number, and fails as its
`script` says: a list of what happens to the next requests of a key.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.records.batch import iter_headers, restamp
from ottla.records.record import iter_records
from ottla.testing.history.history import History
from ottla.testing.sim_clients.client import SimClient
from ottla.wire.messages import create_topics, delete_topics, init_producer_id, list_offsets
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import metadata as metadata_wire
from ottla.wire.messages import produce as produce_wire
from ottla.wire.schema import spec_of

NODE = 1
TOPIC = "orders"
TOPIC_ID = Uuid(bytes(15) + b"\x07")
PARTITION = (TOPIC_ID, 0)
PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE, DELETE, INIT = 0, 1, 2, 3, 19, 20, 22

EARLIEST = -2

LOST_BEFORE = "the request is lost"
LOST_AFTER = "the response is lost"


class Steps:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.ms = 0
        self.timers = Timers()

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def run(self, ms: int) -> None:
        end_ms = self.ms + ms
        while (due := self.timers.next_ms()) is not None and due <= end_ms:
            self.ms = max(self.ms, due)
            self.timers.run_due(self.ms)
        self.ms = end_ms


class Turns:
    """Dice that count up."""

    def __init__(self) -> None:
        self._thrown = 0

    def below(self, bound: int) -> int:
        self._thrown += 1
        return self._thrown % bound

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


class FakeCluster:
    """One broker. `log`: the values of partition 0; `script`: results of requests, by key."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.history = History()
        self.log: list[bytes] = []
        self.sequences: dict[tuple[int, int], tuple[int, int]] = {}
        self.script: defaultdict[int, list[object]] = defaultdict(list)
        self.requests: list[object] = []
        self.delay_ms = 5
        self.epoch = 0
        self.leader = NODE
        self.topic_id = TOPIC_ID
        self.topic_error = Error.NONE
        self.high_watermark_lag = 0
        self.next_producer_id = 100
        self.handlers: dict[int, Callable[[Any], Any]] = {
            PRODUCE: self._produce,
            FETCH: self._fetch,
            LIST_OFFSETS: self._list_offsets,
            METADATA: self._metadata,
            CREATE: self._create,
            DELETE: self._delete,
            INIT: self._init,
        }

    def client(self, name: str = "client") -> SimClient:
        return SimClient(
            name,
            port=self,
            nodes=(NODE,),
            timers=self.steps.timers,
            clock=self.steps,
            dice=Turns(),
            history=self.history,
        )

    def send(
        self, to: int, request: object, version: int, timeout_ms: int
    ) -> Pending[Any | ApiError]:
        assert to == NODE
        key = spec_of(type(request)).key
        assert key is not None
        self.requests.append(request)
        answer: Pending[Any | ApiError] = Pending()
        fate = self.script[key].pop(0) if self.script[key] else None
        if isinstance(fate, Error):
            response: Any = self._refusal(request, fate)
        elif fate == LOST_BEFORE:
            response = ApiError(Error.NETWORK_EXCEPTION)
        else:
            response = self.handlers[key](request)
        if fate == LOST_AFTER:
            response = ApiError(Error.NETWORK_EXCEPTION)
        at_ms = self.steps.ms + self.delay_ms
        self.steps.timers.at(at_ms, lambda: answer.complete(response) and None)
        return answer

    def _refusal(self, request: object, error: Error) -> Any:
        match request:
            case produce_wire.ProduceRequest():
                return self._produced(error, -1)
            case create_topics.CreateTopicsRequest():
                result = create_topics.CreatableTopicResult(name=TOPIC, error_code=error)
                return create_topics.CreateTopicsResponse(topics=(result,))
            case fetch_wire.FetchRequest():
                return self._fetched(error, None)
            case init_producer_id.InitProducerIdRequest():
                return init_producer_id.InitProducerIdResponse(error_code=error, producer_epoch=-1)
        raise AssertionError(request)

    # -- handlers ------------------------------------------------------------------------------

    def _produce(self, request: produce_wire.ProduceRequest) -> produce_wire.ProduceResponse:
        ((data,),) = (topic.partition_data for topic in request.topic_data)
        assert data.index == 0
        records = bytearray(bytes(data.records))  # type: ignore[arg-type]
        ((_at, header),) = iter_headers(records)
        if header.producer_id >= 0:
            producer = (header.producer_id, header.producer_epoch)
            next_sequence, _offset = self.sequences.get(producer, (0, -1))
            if header.base_sequence < next_sequence:
                return self._produced(Error.DUPLICATE_SEQUENCE_NUMBER, -1)
            if header.base_sequence > next_sequence:
                return self._produced(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
            self.sequences[producer] = (next_sequence + header.record_count, len(self.log))
        offset = len(self.log)
        self.log += [record.value or b"" for record in iter_records(records)]
        return self._produced(Error.NONE, offset)

    @staticmethod
    def _produced(error: Error, offset: int) -> produce_wire.ProduceResponse:
        partition = produce_wire.PartitionProduceResponse(
            index=0, error_code=error, base_offset=offset
        )
        topic = produce_wire.TopicProduceResponse(
            topic_id=TOPIC_ID, partition_responses=(partition,)
        )
        return produce_wire.ProduceResponse(responses=(topic,))

    def _fetch(self, request: fetch_wire.FetchRequest) -> fetch_wire.FetchResponse:
        from ottla.records.builder import encode_batch

        ((partition,),) = (topic.partitions for topic in request.topics)
        end = len(self.log) - self.high_watermark_lag
        if partition.fetch_offset > len(self.log):
            return self._fetched(Error.OFFSET_OUT_OF_RANGE, None)
        values = self.log[partition.fetch_offset : end]
        data = None
        if values:
            data = bytearray(encode_batch([(None, value, (), 0) for value in values]))
            restamp(data, 0, base_offset=partition.fetch_offset, leader_epoch=self.epoch)
        return self._fetched(Error.NONE, data)

    def _fetched(self, error: Error, records: bytearray | None) -> fetch_wire.FetchResponse:
        data = fetch_wire.PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=len(self.log) - self.high_watermark_lag,
            log_start_offset=0,
            records=records,
        )
        topic = fetch_wire.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(data,))
        return fetch_wire.FetchResponse(responses=(topic,))

    def _list_offsets(
        self, request: list_offsets.ListOffsetsRequest
    ) -> list_offsets.ListOffsetsResponse:
        ((partition,),) = (topic.partitions for topic in request.topics)
        end = len(self.log) - self.high_watermark_lag
        partition = list_offsets.ListOffsetsPartitionResponse(
            partition_index=0, error_code=0, offset=0 if partition.timestamp == EARLIEST else end
        )
        topic = list_offsets.ListOffsetsTopicResponse(name=TOPIC, partitions=(partition,))
        return list_offsets.ListOffsetsResponse(topics=(topic,))

    def _metadata(self, _: metadata_wire.MetadataRequest) -> metadata_wire.MetadataResponse:
        partition = metadata_wire.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=self.leader,
            leader_epoch=self.epoch,
            replica_nodes=(NODE,),
            isr_nodes=(NODE,),
        )
        topic = metadata_wire.MetadataResponseTopic(
            error_code=self.topic_error,
            name=TOPIC,
            topic_id=self.topic_id,
            partitions=() if self.topic_error else (partition,),
        )
        return metadata_wire.MetadataResponse(brokers=(), topics=(topic,))

    @staticmethod
    def _create(_: create_topics.CreateTopicsRequest) -> create_topics.CreateTopicsResponse:
        result = create_topics.CreatableTopicResult(name=TOPIC, topic_id=TOPIC_ID, error_code=0)
        return create_topics.CreateTopicsResponse(topics=(result,))

    @staticmethod
    def _delete(_: delete_topics.DeleteTopicsRequest) -> delete_topics.DeleteTopicsResponse:
        result = delete_topics.DeletableTopicResult(name=None, topic_id=TOPIC_ID, error_code=0)
        return delete_topics.DeleteTopicsResponse(responses=(result,))

    def _init(
        self, _: init_producer_id.InitProducerIdRequest
    ) -> init_producer_id.InitProducerIdResponse:
        self.next_producer_id += 1
        return init_producer_id.InitProducerIdResponse(
            error_code=0, producer_id=self.next_producer_id, producer_epoch=0
        )
