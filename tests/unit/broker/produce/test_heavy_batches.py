"""What takes long to examine is examined by a worker, and appended as if it had just come.

Method: a broker whose workers do nothing until told to; batches that are heavy for each reason.
"""

import errno
import mmap
import os
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.broker.api.base import NO_ANSWER
from ottla.broker.ports import CloseConnection
from ottla.log import validation
from ottla.log.validation import INLINE_BYTES_MAX, INLINE_STEPS_MAX
from ottla.metadata.records import ConfigRecord, PartitionChangeRecord, RemoveTopicRecord
from ottla.records.batch import parse_header
from ottla.records.builder import encode_batch, seal
from ottla.records.compression import Codec, compress
from ottla.records.record import check_records
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.broker.harness import START_MS, TOPIC_ID, BrokerHarness, batch

OTHER_ID = Uuid(b"o" * 16)
BOMBS = INLINE_BYTES_MAX.bit_length() + 2
"""After so many halvings nothing is left."""
PRODUCED = {"max.message.bytes": str(8 << 20)}


def of_sizes(count: int, *sizes: int, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    """A batch whose records take turns in size, so that they are walked one by one."""
    rows = [(b"k", bytes(sizes[i % len(sizes)]), (), START_MS) for i in range(count)]
    return encode_batch(rows, codec=codec, **fields)


def many_headers() -> bytes:
    rows = [(b"k", b"v", (("", b""),) * (INLINE_STEPS_MAX + 1), START_MS)]
    return encode_batch(rows, codec=Codec.ZSTD)


HEAVY = {
    "many records": lambda: of_sizes(INLINE_STEPS_MAX + 1, 1, 2),
    "many bytes": lambda: of_sizes(3, INLINE_BYTES_MAX),
    "many bytes, compressed": lambda: of_sizes(3, INLINE_BYTES_MAX, codec=Codec.ZSTD),
    "many headers": many_headers,
}


@pytest.fixture
def harness() -> Iterator[BrokerHarness]:
    harness = BrokerHarness({"message.max.bytes": PRODUCED["max.message.bytes"]})
    harness.add_broker()
    harness.add_topic(partitions=2)
    harness.workers.inline = False
    yield harness
    harness.workers.run()
    assert harness.broker.replicas.batch_work.waiting == 0
    assert harness.broker.replicas._heavy._last == {}


def send(harness: BrokerHarness, *data: bytes, acks: int = 1) -> Pending[Any]:
    """Produce to each partition from 0 on; return the promise of their errors and offsets."""
    partitions = tuple(
        PartitionProduceData(index=index, records=each) for index, each in enumerate(data)
    )
    topic = TopicProduceData(name="t", partition_data=partitions)
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=(topic,))
    return harness.begin(request, 9).map(parts)


def parts(answer: Any) -> Any:
    if answer is None or answer is NO_ANSWER:
        return answer
    found = [part for topic in answer.responses for part in topic.partition_responses]
    return [(part.error_code, part.base_offset) for part in found]


def end_of(harness: BrokerHarness, index: int = 0) -> int:
    log = harness.broker.replicas.partition("t", index).log
    assert log is not None
    return log.log_end_offset


@pytest.mark.parametrize("why", HEAVY)
def test_a_heavy_batch_is_examined_by_a_worker(harness: BrokerHarness, why: str) -> None:
    data = HEAVY[why]()
    answer = send(harness, data)
    assert not answer.done
    assert end_of(harness) == 0
    harness.workers.run()
    assert answer.value == [(Error.NONE, 0)]
    assert end_of(harness) == parse_header(data).record_count


@pytest.mark.parametrize("why", HEAVY)
def test_what_it_finds_is_answered(harness: BrokerHarness, why: str) -> None:
    data = HEAVY[why]()
    header = parse_header(data)
    if header.compression is Codec.NONE:
        # The last record lacks its last byte, which is the number of its headers.
        bad = seal(header, data[61:-1])
    else:
        bad = seal(header._replace(record_count=header.record_count + 1), data[61:])
        bad = seal(parse_header(bad)._replace(last_offset_delta=header.record_count), data[61:])
    answer = send(harness, bad)
    harness.workers.run()
    assert answer.value == [(Error.INVALID_RECORD, -1)]
    assert end_of(harness) == 0


def test_light_ones_of_a_request_do_not_wait_for_heavy_ones(harness: BrokerHarness) -> None:
    heavy = HEAVY["many records"]()
    answer = send(harness, heavy, batch("a"))
    assert not answer.done
    assert [end_of(harness, 0), end_of(harness, 1)] == [0, 1]
    harness.workers.run()
    assert answer.value == [(Error.NONE, 0), (Error.NONE, 0)]


def test_all_of_a_request_together_stay_within_the_allowance(harness: BrokerHarness) -> None:
    """Each would be light by itself."""
    half = of_sizes(INLINE_STEPS_MAX * 2 // 3, 1, 2)
    answer = send(harness, half, half)
    assert not answer.done
    assert end_of(harness, 0) > 0
    assert end_of(harness, 1) == 0
    harness.workers.run()
    assert answer.value == [(Error.NONE, 0), (Error.NONE, 0)]


def test_the_bytes_are_kept_though_the_receive_buffer_is_used_again(harness: BrokerHarness) -> None:
    data = bytearray(HEAVY["many records"]())
    replicas = harness.broker.replicas
    found = [(replicas.partition("t", 0), memoryview(data))]
    answer = replicas.append_all(found, acks=1, timeout_ms=1000)
    data[:] = os.urandom(len(data))
    harness.workers.run()
    assert isinstance(answer, Pending)
    assert answer.value[0].error is Error.NONE


def test_it_is_appended_only_where_this_broker_still_leads(harness: BrokerHarness) -> None:
    answer = send(harness, HEAVY["many records"]())
    harness.commit(
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2, replicas=[1, 2], isr=[2])
    )
    harness.workers.run()
    assert answer.value == [(Error.NOT_LEADER_OR_FOLLOWER, -1)]
    assert end_of(harness) == 0


def test_a_topic_that_was_deleted_meanwhile(harness: BrokerHarness) -> None:
    answer = send(harness, HEAVY["many records"]())
    harness.commit(RemoveTopicRecord(topic_id=TOPIC_ID))
    harness.workers.run()
    assert answer.value == [(Error.UNKNOWN_TOPIC_OR_PARTITION, -1)]


def test_a_log_that_went_offline_meanwhile(harness: BrokerHarness) -> None:
    answer = send(harness, HEAVY["many records"]())
    partition = harness.broker.replicas.partition("t", 0)
    harness.broker.replicas.storage_failed(partition, OSError(5, "the disk is gone"))
    harness.workers.run()
    assert answer.value == [(Error.KAFKA_STORAGE_ERROR, -1)]


def test_settings_that_changed_meanwhile_count(harness: BrokerHarness) -> None:
    """It is examined again: records without keys do not get into a topic compacted since."""
    rows = [(None, bytes(1 + i % 2), (), START_MS) for i in range(INLINE_STEPS_MAX + 1)]
    answer = send(harness, encode_batch(rows))
    harness.commit(
        ConfigRecord(resource_type=2, resource_name="t", name="cleanup.policy", value="compact")
    )
    harness.workers.run()
    assert answer.value == [(Error.INVALID_RECORD, -1)]
    assert end_of(harness) == 0


def test_a_producers_batches_keep_their_order_over_connections(harness: BrokerHarness) -> None:
    """Its connection is lost while its batch is examined; it repeats that, and sends the next."""
    first = of_sizes(INLINE_STEPS_MAX + 1, 1, 2, producer_id=7, producer_epoch=0, base_sequence=0)
    count = parse_header(first).record_count
    second = encode_batch(
        [(b"k", b"v", (), START_MS)], producer_id=7, producer_epoch=0, base_sequence=count
    )
    lost = send(harness, first)
    follows = send(harness, second)
    other = send(harness, batch("of somebody else"))
    assert other.value == [(Error.NONE, 0)]
    assert not follows.done
    harness.workers.run()
    assert lost.value == [(Error.NONE, 1)]
    assert follows.value == [(Error.NONE, 1 + count)]
    assert send(harness, second).value == [(Error.NONE, 1 + count)], "a repetition is stored once"


def test_a_small_one_that_is_examined_sooner_still_comes_behind(harness: BrokerHarness) -> None:
    first = of_sizes(INLINE_STEPS_MAX + 1, 1, 2, producer_id=7, producer_epoch=0, base_sequence=0)
    count = parse_header(first).record_count
    second = of_sizes(1, 1, producer_id=7, producer_epoch=0, base_sequence=count)
    answers = [send(harness, first), send(harness, second)]
    harness.workers._waiting.reverse()
    harness.workers.run()
    assert [answer.value for answer in answers] == [[(Error.NONE, 0)], [(Error.NONE, count)]]


def test_without_acknowledgement(harness: BrokerHarness) -> None:
    good = send(harness, HEAVY["many records"](), acks=0)
    data = of_sizes(2 * INLINE_STEPS_MAX, 1, 2)
    bad = send(harness, seal(parse_header(data), data[61:-1] + b"\2"), acks=0)
    harness.workers.run()
    assert good.value is NO_ANSWER
    assert bad.value is None, "which ends the connection"


def test_what_waits_is_bounded(harness: BrokerHarness) -> None:
    data = bytearray(of_sizes(3, INLINE_BYTES_MAX))
    replicas = harness.broker.replicas
    partition = replicas.partition("t", 0)
    answers: list[Any] = []

    def produce_on_and_on() -> None:
        while len(answers) < 100:
            answers.append(replicas.append_all([(partition, data)], acks=1, timeout_ms=1000))

    with pytest.raises(CloseConnection):
        produce_on_and_on()
    assert 8 <= len(answers) <= 12
    harness.workers.run()
    assert [answer.value[0].error for answer in answers] == [Error.NONE] * len(answers)


@pytest.mark.parametrize("recovers", [True, False])
def test_what_there_is_no_memory_for_is_tried_by_a_worker(
    harness: BrokerHarness, recovers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no failure of the disk: the log stays online."""
    data = of_sizes(3, INLINE_BYTES_MAX // 4, codec=Codec.ZSTD)

    def none_left(*_: object) -> mmap.mmap:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", none_left)
        answer = send(harness, data)
        assert not answer.done
        if not recovers:
            harness.workers.run()
    harness.workers.run()
    expected = (Error.NONE, 0) if recovers else (Error.UNKNOWN_SERVER_ERROR, -1)
    assert answer.value == [expected]
    assert send(harness, batch("next")).value == [(Error.NONE, 3 if recovers else 0)]


def test_a_bomb_costs_the_loop_only_what_it_may(harness: BrokerHarness) -> None:
    """It is expanded to the allowance, and no further."""
    bomb = seal(
        parse_header(encode_batch([(b"k", b"v", (), START_MS)], codec=Codec.ZSTD)),
        compress(Codec.ZSTD, bytes(500 << 20)),
    )
    answer = send(harness, bomb)
    assert not answer.done
    harness.workers.run()
    assert answer.value == [(Error.MESSAGE_TOO_LARGE, -1)]
    assert end_of(harness) == 0


def test_bombs_of_one_request_together_cost_no_more_than_two(harness: BrokerHarness) -> None:
    """Each is tried on the loop with half of what the one before it was."""
    bomb = seal(
        parse_header(encode_batch([(b"k", b"v", (), START_MS)], codec=Codec.ZSTD)),
        compress(Codec.ZSTD, bytes(100 << 20)),
    )
    tried: list[int] = []

    def watched(*args: Any, limit: int, **rest: Any) -> Any:
        tried.append(limit)
        return check_records(*args, limit=limit, **rest)

    harness.add_topic("many", OTHER_ID, partitions=BOMBS)
    replicas = harness.broker.replicas
    asked = [(replicas.partition("many", index), bytearray(bomb)) for index in range(BOMBS)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(validation, "check_records", watched)
        answer = replicas.append_all(asked, acks=1, timeout_ms=1000)
    assert isinstance(answer, Pending)
    assert len(tried) == BOMBS
    assert sum(tried) <= 2 * INLINE_BYTES_MAX
    harness.workers.run()
    assert {each.error for each in answer.value} == {Error.MESSAGE_TOO_LARGE}


def test_a_request_with_many_does_not_hold_up_others(harness: BrokerHarness) -> None:
    heavy = HEAVY["many records"]()
    harness.add_topic("many", OTHER_ID, partitions=20)
    replicas = harness.broker.replicas
    asked = [(replicas.partition("many", index), heavy) for index in range(20)]
    many = replicas.append_all(asked, acks=1, timeout_ms=1000, closed=Pending())
    one = replicas.append_all(
        [(replicas.partition("t", 0), heavy)], acks=1, timeout_ms=1000, closed=Pending()
    )
    assert isinstance(many, Pending)
    assert isinstance(one, Pending)
    ran = 0
    while not one.done:
        harness.workers._waiting.pop(0)()
        ran += 1
    assert ran <= 4
    assert not many.done
