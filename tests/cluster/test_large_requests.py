"""Requests that ask for much are worked on in turns: nobody else notices, and memory stays bounded.

Method: a broker of its own; a client that asks for something small fifty times a second, first
alone and then beside the large requests, in the same process and minutes; a bystander that produces
and reads, and watches the broker's memory; the broker's own measure of how late its loop was.
"""

import re
import statistics
import threading
import time
from contextlib import ExitStack
from urllib.request import urlopen

import pytest

from ottla.base.errors import Error
from ottla.base.limits import PRODUCE_ELEMENTS_MAX, REQUEST_ELEMENTS_MAX
from ottla.records.builder import encode_batch
from ottla.testing import Cluster
from ottla.wire.frames import decode_response
from ottla.wire.messages import create_topics, describe_configs
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.registry import response_type
from ottla.wire.schema import spec_of

from .bystander import Bystander
from .large_requests import large_requests
from .raw import answer_to, answered, connect, encoded, framed, header

pytestmark = [pytest.mark.alone, pytest.mark.drawn(5, of="alone")]

MANY = REQUEST_ELEMENTS_MAX - 10
HONEST = 10_000
"""Topics or partitions that a client may well ask for at once."""

WIDE = 5_000
"""Partitions of one topic."""

LATE_SECONDS_MAX = 1.0
"""How much later than beside nobody half of the answers may be on a busy machine; without turns one
such request took up to a minute."""


class SmallRequests:
    """Asks for the versions again and again; `seconds`: what each answer took."""

    def __init__(self, cluster: Cluster) -> None:
        self.seconds: list[float] = []
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "SmallRequests":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _ask(self) -> None:
        with connect(self._cluster) as raw:
            while not self._stop.wait(0.02):
                began = time.monotonic()
                assert answered(raw, encoded(ApiVersionsRequest(), 0)) is not None
                self.seconds.append(time.monotonic() - began)


def quiet_seconds(cluster: Cluster) -> float:
    with SmallRequests(cluster) as small:
        time.sleep(1.0)
    return statistics.quantiles(small.seconds, n=20)[-1]


def loop_lag_over(cluster: Cluster, seconds: float) -> int:
    """Return how often the loop was later than that, by the broker's own measure."""
    with urlopen(f"http://{cluster.metrics_address(1)}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r'ottla_loop_lag_seconds_bucket\{le="([^"]+)"\} (\d+)', text)
    total = max(int(count) for _, count in found)
    below = max(int(count) for bound, count in found if float(bound) <= seconds)
    return total - below


LARGE = large_requests(MANY)


@pytest.mark.forms(2)
@pytest.mark.parametrize("name", LARGE)
def test_one_large_request_holds_up_nobody(
    name: str, victim: Cluster, bystander: Bystander
) -> None:
    request, version = LARGE[name]
    quiet = quiet_seconds(victim)
    late_before = loop_lag_over(victim, 1.0)
    with SmallRequests(victim) as small:
        frame = answer_to(victim, encoded(request, version))
    assert frame is not None, "as many as the limit are answered"
    key = spec_of(type(request)).key
    assert key is not None
    _, answer = decode_response(response_type(key), frame, version)
    if name == "DescribeConfigs":
        assert len(answer.results) == 1
        assert answer.results[0].error_code == Error.NONE
    assert max(small.seconds, default=0) < quiet + 3 * LATE_SECONDS_MAX
    assert loop_lag_over(victim, 1.0) == late_before


def test_a_topic_of_many_partitions_holds_up_nobody(victim: Cluster, bystander: Bystander) -> None:
    """To make all its logs in one turn took 1.6 s, and after a deletion of as many 4.4 s."""
    request = create_topics.CreateTopicsRequest(
        topics=(
            create_topics.CreatableTopic(
                name="wide",
                num_partitions=WIDE,
                replication_factor=1,
                assignments=(),
                configs=(),
            ),
        ),
        timeout_ms=60_000,
        validate_only=False,
    )
    quiet = quiet_seconds(victim)
    late_before = loop_lag_over(victim, 1.0)
    with SmallRequests(victim) as small:
        frame = answer_to(victim, encoded(request, 7))
        assert frame is not None
        _, answer = decode_response(create_topics.CreateTopicsResponse, frame, 7)
        assert answer.topics[0].error_code == Error.NONE
        wait_for_leaders(victim, "wide", WIDE)
    assert max(small.seconds) < quiet + 3 * LATE_SECONDS_MAX
    assert loop_lag_over(victim, 1.0) == late_before


def wait_for_leaders(cluster: Cluster, topic: str, partitions: int) -> None:
    """Wait until the broker has taken over a topic that the controller has made."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
    )
    for _ in range(300):
        frame = answer_to(cluster, encoded(request, 9))
        assert frame is not None
        _, answer = decode_response(MetadataResponse, frame, 9)
        if sum(each.leader_id == 1 for each in answer.topics[0].partitions) == partitions:
            return
        time.sleep(0.1)
    raise AssertionError(f"{topic} has no {partitions} leaders")


def test_many_large_requests_on_many_connections(victim: Cluster, bystander: Bystander) -> None:
    """Without turns each held the loop for 50 ms and more, all one after the other."""
    topics = tuple(MetadataRequestTopic(name=f"n{number}") for number in range(HONEST))
    data = encoded(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
    quiet = quiet_seconds(victim)
    late_before = loop_lag_over(victim, 1.0)
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(victim)) for _ in range(60)]
        with SmallRequests(victim) as small:
            for raw in sockets:
                raw.settimeout(60)
                raw.sendall(data)
            for raw in sockets:
                frame = answered(raw, b"")
                assert frame is not None
                _, answer = decode_response(MetadataResponse, frame, 9)
                assert len(answer.topics) == HONEST, "honest large requests still work"
    assert len(small.seconds) > 10
    assert statistics.median(small.seconds) < quiet + LATE_SECONDS_MAX / 4
    assert max(small.seconds) < quiet + 3 * LATE_SECONDS_MAX
    assert loop_lag_over(victim, 1.0) == late_before


def test_more_elements_than_any_client_sends_end_the_connection(
    victim: Cluster, bystander: Bystander
) -> None:
    """Forty million empty strings: neither decoded nor held as objects."""
    count = 20_000_000
    body = count.to_bytes(4, "big") + bytes(2 * count)
    assert answer_to(victim, framed(header(3, 4) + body)) is None


def test_a_produce_to_too_many_partitions_ends_the_connection(
    victim: Cluster, bystander: Bystander
) -> None:
    """It is handled in one turn; ten thousand are answered."""
    frame = answer_to(victim, encoded(produce_to(HONEST), 9))
    assert frame is not None
    _, answer = decode_response(ProduceResponse, frame, 9)
    codes = {each.error_code for each in answer.responses[0].partition_responses}
    assert codes == {Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer_to(victim, encoded(produce_to(PRODUCE_ELEMENTS_MAX), 9)) is None


def produce_to(count: int) -> ProduceRequest:
    records = encode_batch([(None, b"v", (), 5)])
    partitions = tuple(
        PartitionProduceData(index=number, records=records) for number in range(count)
    )
    topics = (TopicProduceData(name="none", partition_data=partitions),)
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics)


def test_small_requests_for_much_work_take_turns(victim: Cluster, bystander: Bystander) -> None:
    """Thousands of requests in a row on one connection let others in between."""
    resource = describe_configs.DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=None
    )
    data = encoded(describe_configs.DescribeConfigsRequest(resources=(resource,)), 4)
    quiet = quiet_seconds(victim)
    with connect(victim) as raw, SmallRequests(victim) as small:
        raw.settimeout(60)
        raw.sendall(data * 1000)
        for _ in range(1000):
            assert answered(raw, b"") is not None
    assert statistics.median(small.seconds) < quiet + LATE_SECONDS_MAX / 4
    assert max(small.seconds) < quiet + 2 * LATE_SECONDS_MAX
