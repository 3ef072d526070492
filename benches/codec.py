"""Microseconds per message of Ottla's codec, beside kio's and kafka-python's in the same run.

    python benches/codec.py [--seconds 0.1]

Every cell builds the message's objects and encodes them, or decodes header and body. Fetch is
the exception for Ottla, whose answer is a list of chunks: the records are not copied, as a
broker sends them. Believe the ratios of one run, not numbers of different runs.
"""

import argparse
import io
import time
import uuid
import warnings
from collections.abc import Callable
from datetime import timedelta

warnings.simplefilter("ignore", DeprecationWarning)  # Not ours: the other libraries'.

import kio.schema.api_versions.v3.response as kio_api  # noqa: E402
import kio.schema.fetch.v12.response as kio_fetch  # noqa: E402
import kio.schema.metadata.v12.response as kio_metadata  # noqa: E402
import kio.schema.produce.v9.request as kio_produce  # noqa: E402
from kafka.protocol.api_header import RequestHeader as KafkaHeader  # noqa: E402
from kafka.protocol.consumer import FetchResponse as KafkaFetch  # noqa: E402
from kafka.protocol.metadata import ApiVersionsResponse as KafkaApi  # noqa: E402
from kafka.protocol.metadata import MetadataResponse as KafkaMetadata  # noqa: E402
from kafka.protocol.producer import ProduceRequest as KafkaProduce  # noqa: E402
from kio.schema.errors import ErrorCode  # noqa: E402
from kio.schema.request_header.v2.header import RequestHeader as KioHeader  # noqa: E402
from kio.serial import entity_reader, entity_writer  # noqa: E402

from ottla.base.ids import Uuid  # noqa: E402
from ottla.wire.codec import decode  # noqa: E402
from ottla.wire.frames import (  # noqa: E402
    decode_request_header,
    encode_request,
    encode_response,
)
from ottla.wire.messages import api_versions, fetch, metadata, produce  # noqa: E402

PARTITIONS = 100
TOPIC_ID = Uuid(bytes(range(16)))
BATCH = bytes(range(256)) * 64
NODE = "broker-1.example.org"

Cells = dict[str, Callable[[], object]]


def best_us(work: Callable[[], object], seconds: float) -> float:
    """Return the least mean time of a call over short rounds, which load disturbs least."""
    work()
    best = float("inf")
    deadline = time.perf_counter() + seconds * 8
    calls = 1
    while time.perf_counter() < deadline:
        start = time.process_time()
        for _ in range(calls):
            work()
        spent = time.process_time() - start
        if spent < seconds / 4:
            calls *= 2
        else:
            best = min(best, spent / calls)
    return best * 1e6


def kio_write(message: object) -> bytes:
    """Encode one of kio's messages."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def api_versions_ottla() -> object:
    """Encode an ApiVersions v3 response with 60 keys."""
    keys = tuple(
        api_versions.ApiVersion(api_key=key, min_version=0, max_version=9) for key in range(60)
    )
    return encode_response(api_versions.ApiVersionsResponse(error_code=0, api_keys=keys), 3, 1)


def api_versions_kio() -> object:
    """The same with kio."""
    keys = tuple(kio_api.ApiVersion(api_key=key, min_version=0, max_version=9) for key in range(60))
    return kio_write(
        kio_api.ApiVersionsResponse(
            error_code=ErrorCode(0), api_keys=keys, throttle_time=timedelta(0)
        )
    )


def api_versions_kafka_python() -> object:
    """The same with kafka-python."""
    keys = [
        KafkaApi.ApiVersion(version=3, api_key=key, min_version=0, max_version=9)
        for key in range(60)
    ]
    return KafkaApi(version=3, error_code=0, api_keys=keys).encode(version=3)


def metadata_ottla() -> object:
    """Encode a Metadata v12 response: one topic, 100 partitions on 3 brokers."""
    partitions = tuple(
        metadata.MetadataResponsePartition(
            error_code=0,
            partition_index=index,
            leader_id=1,
            leader_epoch=5,
            replica_nodes=(1, 2, 3),
            isr_nodes=(1, 2, 3),
            offline_replicas=(),
        )
        for index in range(PARTITIONS)
    )
    topic = metadata.MetadataResponseTopic(
        error_code=0, name="orders", topic_id=TOPIC_ID, partitions=partitions
    )
    brokers = tuple(
        metadata.MetadataResponseBroker(node_id=node, host=NODE, port=9092) for node in (1, 2, 3)
    )
    message = metadata.MetadataResponse(
        brokers=brokers, cluster_id="cluster", controller_id=1, topics=(topic,)
    )
    return encode_response(message, 12, 1)


def metadata_kio() -> object:
    """The same with kio."""
    partitions = tuple(
        kio_metadata.MetadataResponsePartition(
            error_code=ErrorCode(0),
            partition_index=index,
            leader_id=1,
            leader_epoch=5,
            replica_nodes=(1, 2, 3),
            isr_nodes=(1, 2, 3),
            offline_replicas=(),
        )
        for index in range(PARTITIONS)
    )
    topic = kio_metadata.MetadataResponseTopic(
        error_code=ErrorCode(0),
        name="orders",
        topic_id=uuid.UUID(bytes=TOPIC_ID),
        partitions=partitions,
    )
    brokers = tuple(
        kio_metadata.MetadataResponseBroker(node_id=node, host=NODE, port=9092)
        for node in (1, 2, 3)
    )
    return kio_write(
        kio_metadata.MetadataResponse(
            throttle_time=timedelta(0),
            brokers=brokers,
            cluster_id="cluster",
            controller_id=1,
            topics=(topic,),
        )
    )


def metadata_kafka_python() -> object:
    """The same with kafka-python."""
    topic_class = KafkaMetadata.MetadataResponseTopic
    partitions = [
        topic_class.MetadataResponsePartition(
            version=12,
            error_code=0,
            partition_index=index,
            leader_id=1,
            leader_epoch=5,
            replica_nodes=(1, 2, 3),
            isr_nodes=(1, 2, 3),
            offline_replicas=(),
        )
        for index in range(PARTITIONS)
    ]
    topic = topic_class(
        version=12,
        error_code=0,
        name="orders",
        topic_id=uuid.UUID(bytes=TOPIC_ID),
        partitions=partitions,
    )
    brokers = [
        KafkaMetadata.MetadataResponseBroker(version=12, node_id=node, host=NODE, port=9092)
        for node in (1, 2, 3)
    ]
    message = KafkaMetadata(
        version=12, brokers=brokers, cluster_id="cluster", controller_id=1, topics=[topic]
    )
    return message.encode(version=12)


def produce_cells() -> Cells:
    """Decode header and body of a Produce v9 request with one batch of 16 KB."""
    part = produce.PartitionProduceData(index=0, records=BATCH)
    topic = produce.TopicProduceData(name="orders", partition_data=(part,))
    request = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=(topic,))
    frame = memoryview(encode_request(request, 9, 1, "producer-1"))[4:]
    read_header, read_body = entity_reader(KioHeader), entity_reader(kio_produce.ProduceRequest)

    def ours() -> object:
        _, offset = decode_request_header(frame)
        return decode(produce.ProduceRequest, frame, 9, offset)

    def kio() -> object:
        header, size = read_header(frame, 0)
        return header, read_body(frame, size)

    def kafka_python() -> object:
        buffer = io.BytesIO(frame)
        KafkaHeader.decode(buffer, flexible=True)
        return KafkaProduce.decode(buffer, version=9)

    return {"ottla": ours, "kio": kio, "kafka-python": kafka_python}


def fetch_ottla() -> object:
    """Encode a Fetch v12 response with one batch of 16 KB."""
    part = fetch.PartitionData(
        partition_index=0, error_code=0, high_watermark=9, last_stable_offset=9, records=BATCH
    )
    topic = fetch.FetchableTopicResponse(topic="orders", partitions=(part,))
    return encode_response(fetch.FetchResponse(session_id=0, responses=(topic,)), 12, 1)


def fetch_kio() -> object:
    """The same with kio."""
    part = kio_fetch.PartitionData(
        partition_index=0,
        error_code=ErrorCode(0),
        high_watermark=9,
        last_stable_offset=9,
        aborted_transactions=None,
        records=BATCH,
    )
    topic = kio_fetch.FetchableTopicResponse(topic="orders", partitions=(part,))
    return kio_write(
        kio_fetch.FetchResponse(
            throttle_time=timedelta(0), error_code=ErrorCode(0), responses=(topic,)
        )
    )


def fetch_kafka_python() -> object:
    """The same with kafka-python."""
    topic_class = KafkaFetch.FetchableTopicResponse
    part = topic_class.PartitionData(
        version=12,
        partition_index=0,
        error_code=0,
        high_watermark=9,
        last_stable_offset=9,
        records=BATCH,
    )
    topic = topic_class(version=12, topic="orders", partitions=[part])
    return KafkaFetch(version=12, responses=[topic]).encode(version=12)


BENCHES: dict[str, Cells] = {
    "encode ApiVersions v3, 60 keys": {
        "ottla": api_versions_ottla,
        "kio": api_versions_kio,
        "kafka-python": api_versions_kafka_python,
    },
    f"encode Metadata v12, {PARTITIONS} partitions": {
        "ottla": metadata_ottla,
        "kio": metadata_kio,
        "kafka-python": metadata_kafka_python,
    },
    "decode Produce v9, 16 KB": produce_cells(),
    "encode Fetch v12, 16 KB": {
        "ottla": fetch_ottla,
        "kio": fetch_kio,
        "kafka-python": fetch_kafka_python,
    },
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Time the codecs.")
    parser.add_argument("--seconds", type=float, default=0.04, help="length of one round")
    seconds = parser.parse_args().seconds
    print(f"{'microseconds of CPU (times Ottla)':<36}{'ottla':>9}{'kio':>18}{'kafka-python':>18}")
    for title, cells in BENCHES.items():
        times = {name: best_us(work, seconds) for name, work in cells.items()}
        line = f"{title:<36}{times['ottla']:>9.1f}"
        for other in ("kio", "kafka-python"):
            line += f"{times[other]:>10.1f} ({times[other] / times['ottla']:>4.1f}x)"
        print(line)


if __name__ == "__main__":
    main()
