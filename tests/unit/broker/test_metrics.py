"""What brokers count, and the families made of it: each number moves with what it stands for.

Method: a broker with real logs, asked through its handlers; its families are rendered and read
back strictly. Group counts are tested with the real coordinator, in test_group_service.
"""

from collections import Counter
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.metrics import render
from ottla.base.timers import Timers
from ottla.broker.dispatch import Dispatcher, load_apis
from ottla.broker.metric_families import broker_families, request_families
from ottla.broker.metrics import ApiMetrics, error_finder
from ottla.log.config import LogConfig
from ottla.metadata.records import PartitionChangeRecord, RemoveTopicRecord
from ottla.wire.messages import create_topics, metadata
from ottla.wire.messages import fetch as fetch_wire
from ottla.wire.messages import produce as produce_wire
from tests.exposition import Scrape
from tests.unit.base.scripted_turns import ScriptedTurns

from .harness import TOPIC_ID, BrokerHarness, batch

OUT = "kafka_server_broker_topic_metrics_bytes_out_total"
IN = "kafka_server_broker_topic_metrics_bytes_in_total"
MESSAGES = "kafka_server_broker_topic_metrics_messages_in_total"
FAILED_IN = "kafka_server_broker_topic_metrics_failed_produce_requests_total"
FAILED_OUT = "kafka_server_broker_topic_metrics_failed_fetch_requests_total"
PARKED = "kafka_server_delayed_operation_purgatory_size"


@pytest.fixture
def harness() -> BrokerHarness:
    made = BrokerHarness()
    made.add_broker()
    made.add_topic(partitions=2)
    return made


def scrape(harness: BrokerHarness) -> Scrape:
    return Scrape("".join(render(broker_families(harness.broker))))


def produce(harness: BrokerHarness, data: bytes, index: int = 0, topic: str = "t") -> None:
    partition = produce_wire.PartitionProduceData(index=index, records=data)
    topics = (produce_wire.TopicProduceData(name=topic, partition_data=(partition,)),)
    request = produce_wire.ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    assert harness.begin(request, 9).done


def fetch(harness: BrokerHarness, offset: int, *, min_bytes: int = 1, wait_ms: int = 0) -> Any:
    partition = fetch_wire.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    topics = (fetch_wire.FetchTopic(topic="t", partitions=(partition,)),)
    request = fetch_wire.FetchRequest(
        max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=1 << 20, topics=topics
    )
    return harness.begin(request, 11)


def test_bytes_and_messages_in_and_out(harness: BrokerHarness) -> None:
    data = batch("a", "b", "c")
    produce(harness, data)
    produce(harness, data, index=1)
    found = scrape(harness)
    assert found.value(IN, topic="t") == 2 * len(data)
    assert found.value(MESSAGES, topic="t") == 6
    assert found.value(OUT, topic="t") == 0
    assert fetch(harness, 0).done
    assert scrape(harness).value(OUT, topic="t") == len(data)


def test_a_fetch_that_waits_counts_once(harness: BrokerHarness) -> None:
    data = batch("a")
    produce(harness, data)
    waiting = fetch(harness, 0, min_bytes=len(data) * 2, wait_ms=1_000)
    assert not waiting.done
    found = scrape(harness)
    assert found.value(OUT, topic="t") == 0
    assert found.value(PARKED, delayed_operation="Fetch") == 1
    produce(harness, data)
    assert waiting.done
    found = scrape(harness)
    assert found.value(OUT, topic="t") == 2 * len(data)
    assert found.value(PARKED, delayed_operation="Fetch") == 0


def test_what_fails_counts_as_failed(harness: BrokerHarness) -> None:
    spoilt = bytearray(batch("a"))
    spoilt[-1] ^= 1
    produce(harness, bytes(spoilt))
    produce(harness, batch("a"), topic="nowhere")
    fetch(harness, 99)
    found = scrape(harness)
    assert (found.value(FAILED_IN, topic="t"), found.value(IN, topic="t")) == (1, 0)
    assert found.value(FAILED_OUT, topic="t") == 1
    assert harness.broker.partition_errors.by_key == {
        0: Counter({Error.CORRUPT_MESSAGE: 1, Error.UNKNOWN_TOPIC_OR_PARTITION: 1}),
        1: Counter({Error.OFFSET_OUT_OF_RANGE: 1}),
    }


def test_counters_go_with_their_topic(harness: BrokerHarness) -> None:
    produce(harness, batch("a"))
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert scrape(harness).labels(IN) == set()
    harness.add_topic(topic_id=Uuid(b"u" * 16))
    assert scrape(harness).value(IN, topic="t") == 0
    assert len(scrape(harness).labels(IN)) == 1


def test_partitions_leaders_and_logs(harness: BrokerHarness) -> None:
    data = batch("a", "b")
    produce(harness, data)
    found = scrape(harness)
    prefix = "kafka_server_replica_manager"
    assert found.value(f"{prefix}_partition_count") == 2
    assert found.value(f"{prefix}_leader_count") == 2
    assert found.value(f"{prefix}_offline_replica_count") == 0
    assert found.value(f"{prefix}_under_replicated_partitions") == 0
    assert found.value("kafka_log_log_size_bytes", topic="t", partition="0") == len(data)
    assert found.value("kafka_log_log_log_end_offset", topic="t", partition="0") == 2
    assert found.value("kafka_log_log_num_log_segments", topic="t", partition="1") == 1
    offset = "kafka_server_broker_metadata_metrics_last_applied_record_offset"
    assert found.value(offset) == harness.offset
    harness.commit(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=1, leader=-1))
    found = scrape(harness)
    assert found.value(f"{prefix}_partition_count") == 2
    assert found.value(f"{prefix}_leader_count") == 1


def test_a_zookeeper_broker_has_no_metadata_offset(harness: BrokerHarness) -> None:
    before = set(scrape(harness).families)
    port: Any = object()  # Only its presence matters.
    harness.broker.zk_metadata = port
    offset = "kafka_server_broker_metadata_metrics_last_applied_record_offset"
    assert before - set(scrape(harness).families) == {offset}


def test_replicas_out_of_sync(harness: BrokerHarness) -> None:
    harness.add_topic("wide", Uuid(b"w" * 16), replicas=(1, 2), min_insync_replicas="2")
    found = scrape(harness)
    assert found.value("kafka_server_replica_manager_under_replicated_partitions") == 1
    assert found.value("kafka_server_replica_manager_under_min_isr_partition_count") == 1


def test_strays_show(harness: BrokerHarness) -> None:
    [directory] = harness.log_dirs.dirs
    assert scrape(harness).value("ottla_log_stray_folders", directory=directory.path) == 0
    harness.log_dirs.get_or_create("x", Uuid(b"1" * 16), 0, LogConfig())
    harness.log_dirs.get_or_create("x", Uuid(b"2" * 16), 0, LogConfig())
    assert scrape(harness).value("ottla_log_stray_folders", directory=directory.path) == 1


def test_a_failed_log_dir_is_counted(harness: BrokerHarness) -> None:
    harness.broker.replicas.on_all_log_dirs_failed = lambda: None
    harness.fail_disk("append")
    produce(harness, batch("a"))
    found = scrape(harness)
    assert found.value("kafka_log_log_manager_offline_log_directory_count") == 1
    assert found.value("kafka_server_replica_manager_offline_replica_count") == 2
    assert found.value(FAILED_IN, topic="t") == 1
    assert found.labels("kafka_log_log_size_bytes") == set()


def test_fetch_sessions(harness: BrokerHarness) -> None:
    prefix = "kafka_server_fetch_session_cache"
    assert scrape(harness).value(f"{prefix}_num_incremental_fetch_sessions") == 0
    partition = fetch_wire.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = (fetch_wire.FetchTopic(topic="t", partitions=(partition,)),)
    request = fetch_wire.FetchRequest(
        max_wait_ms=0, min_bytes=1, session_id=0, session_epoch=0, topics=topics
    )
    assert harness.begin(request, 11).done
    found = scrape(harness)
    assert found.value(f"{prefix}_num_incremental_fetch_sessions") == 1
    assert found.value(f"{prefix}_num_incremental_fetch_partitions_cached") == 1
    assert found.value(f"{prefix}_incremental_fetch_session_evictions_total") == 0


# -- Requests --


def test_requests_by_api() -> None:
    seen, unused = ApiMetrics("Fetch"), ApiMetrics("Produce")
    seen.requests, seen.request_bytes = 2, 70
    seen.local.observe(200_000)
    seen.local.observe(100_000)
    seen.delayed.observe(100_000)
    errors = {"Fetch": Counter({int(Error.OFFSET_OUT_OF_RANGE): 4})}
    found = Scrape("".join(render(request_families([seen, unused], errors))))
    prefix = "kafka_network_request_metrics"
    assert found.value(f"{prefix}_requests_total", request="Fetch") == 2
    assert found.value(f"{prefix}_request_bytes_total", request="Fetch") == 70
    assert found.labels(f"{prefix}_requests_total") == {frozenset({("request", "Fetch")})}
    error = {"request": "Fetch", "error": "OFFSET_OUT_OF_RANGE"}
    assert found.value(f"{prefix}_errors_total", **error) == 4
    assert found.value(f"{prefix}_local_time_seconds_sum", request="Fetch") == 0.0003
    # One is still waiting.
    assert found.value(f"{prefix}_total_time_seconds_sum", request="Fetch") == 0.0002
    assert found.value(f"{prefix}_total_time_seconds_count", request="Fetch") == 1
    seen.late.observe(3_000_000_000)
    found = Scrape("".join(render(request_families([seen], errors))))
    assert found.value(f"{prefix}_total_time_seconds_sum", request="Fetch") == 3.0002
    assert found.value(f"{prefix}_total_time_seconds_count", request="Fetch") == 2


def test_errors_are_found_at_every_depth() -> None:
    find = error_finder(metadata.MetadataResponse)
    assert find is not None
    partitions = tuple(
        metadata.MetadataResponsePartition(
            error_code=code, partition_index=0, leader_id=1, replica_nodes=(), isr_nodes=()
        )
        for code in (0, 5, 5)
    )
    topic = metadata.MetadataResponseTopic(error_code=3, name="t", partitions=partitions)
    errors: Counter[int] = Counter()
    find(metadata.MetadataResponse(brokers=(), topics=(topic,), error_code=41), errors)
    assert errors == {3: 1, 5: 2, 41: 1}


def test_where_no_error_can_be_nothing_is_looked_for() -> None:
    assert error_finder(produce_wire.ProduceResponse, nested=False) is None
    assert error_finder(produce_wire.ProduceResponse) is not None


def test_every_api_counts_errors_of_its_responses() -> None:
    dispatcher = Dispatcher(load_apis(), timers=Timers(), turns=ScriptedTurns())
    without = [each.name for each in dispatcher.metrics.values() if each.find_errors is None]
    assert without == ["Produce"]  # It counts them where it writes them.
    answer = create_topics.CreateTopicsResponse(
        topics=(create_topics.CreatableTopicResult(name="t", error_code=36),)
    )
    dispatcher.metrics[19].answered(answer)
    assert dispatcher.metrics[19].errors == {36: 1}
