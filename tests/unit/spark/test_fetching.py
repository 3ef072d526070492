"""Fetches must reach the leader, name topics by id where they can, and end in time.

Method: a fake broker on a socket that has moved, lost or renamed the requested topic.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.client.cluster import ClusterClient
from ottla.records.builder import encode_batch
from ottla.records.record import iter_records
from ottla.spark.errors import ClusterError
from ottla.spark.fetching import OutOfRange, PartitionFetcher
from ottla.spark.splits import Split
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.metadata import MetadataRequest
from tests.unit.spark.fake_broker import DROP, ID, TOPIC, FakeBroker

BATCH = encode_batch([(None, b"v%d" % number, (), 5) for number in range(3)])


def fetcher(client: ClusterClient, topic_id: Uuid = ID, timeout_ms: int = 5000) -> PartitionFetcher:
    split = Split(TOPIC, topic_id, 0, 0, 6, False)
    return PartitionFetcher(
        client, split, read_committed=False, fetch_bytes=100, timeout_ms=timeout_ms
    )


def values(records: memoryview) -> list[bytes | None]:
    return [record.value for record in iter_records(bytes(records))]


@pytest.mark.parametrize(("versions", "named"), [((4, 12), True), ((4, 17), False)])
def test_topics_are_named_by_id_where_possible(versions: tuple[int, int], named: bool) -> None:
    with FakeBroker(versions={1: versions}) as broker, ClusterClient(broker.options()) as client:
        broker.logs[0].append(BATCH)
        assert values(fetcher(client).fetch(1).records) == [b"v0", b"v1", b"v2"]
        request = broker.received[-1]
        assert isinstance(request, FetchRequest)
        (topic,) = request.topics
        assert (topic.topic, topic.topic_id) == ((TOPIC, NO_UUID) if named else ("", ID))


@pytest.mark.parametrize("fault", [DROP, Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH])
def test_leaders_may_move(fault: int) -> None:
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:
        broker.logs[0].append(BATCH)
        broker.faults[FetchRequest].extend([fault, fault])
        assert len(values(fetcher(client).fetch(0).records)) == 3
        assert broker.count(MetadataRequest) == 3  # The leader is looked up each time.


def test_offsets_outside_of_the_log() -> None:
    with (
        FakeBroker() as broker,
        ClusterClient(broker.options()) as client,
        pytest.raises(OutOfRange),
    ):
        fetcher(client).fetch(1)


def test_a_re_created_topic() -> None:
    with FakeBroker() as broker, ClusterClient(broker.options(retry_s=0.001)) as client:
        broker.logs[0].append(BATCH)
        broker.topic_id = Uuid(b"j" * 16)
        with pytest.raises(ClusterError) as caught:
            fetcher(client).fetch(0)
        assert caught.value.code == Error.UNKNOWN_TOPIC_ID


def test_no_records_in_time() -> None:
    with (
        FakeBroker() as broker,
        ClusterClient(broker.options()) as client,
        pytest.raises(ClusterError, match=r"no records within 1 ms .*pollTimeoutMs"),
    ):
        fetcher(client, timeout_ms=1).fetch(0)
