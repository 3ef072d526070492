"""Planning's questions must be answered whole, or fail by the name of what is missing.

Method: a fake broker on a socket; what it does not serve must be done without.
"""

import pytest

from ottla.base.errors import Error
from ottla.client.cluster import ClusterClient
from ottla.records.builder import encode_batch
from ottla.spark import lookup
from ottla.spark.errors import ClusterError
from ottla.spark.options import Assign, Pattern, Subscribe
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from tests.unit.spark.fake_broker import TOPIC, FakeBroker


def test_subscriptions() -> None:
    with FakeBroker(partitions=2) as broker, ClusterClient(broker.options()) as client:
        both = [(TOPIC, 0), (TOPIC, 1)]
        assert list(lookup.subscribed(client, Subscribe((TOPIC,)))) == both
        assert list(lookup.subscribed(client, Pattern("[st]"))) == both
        assert list(lookup.subscribed(client, Pattern("tt?x"))) == []
        assert list(lookup.subscribed(client, Assign(((TOPIC, 1),)))) == [(TOPIC, 1)]
        with pytest.raises(ClusterError, match="topic t has no partition 2: it has 2"):
            lookup.subscribed(client, Assign(((TOPIC, 2),)))


def test_topics_that_do_not_exist() -> None:
    with FakeBroker() as broker, ClusterClient(broker.options(retry_s=0.001)) as client:
        for wanted in (Subscribe((TOPIC, "u")), Assign((("u", 0),))):
            with pytest.raises(ClusterError, match=r"topic u: .*UNKNOWN_TOPIC_OR_PARTITION"):
                lookup.subscribed(client, wanted)


def test_offsets() -> None:
    with FakeBroker(partitions=2) as broker, ClusterClient(broker.options()) as client:
        broker.logs[1].append(encode_batch([(None, b"v", (), 5)] * 3))
        broker.logs[1].start = 1
        broker.faults[ListOffsetsRequest].append(Error.NOT_LEADER_OR_FOLLOWER)
        keys = [(TOPIC, 0), (TOPIC, 1)]
        edges = lookup.edges_of(client, keys, read_committed=True, attempts_min=1)
        assert edges == {keys[0]: (0, 0), keys[1]: (1, 3)}
        assert lookup.offsets_at(client, {keys[0]: 1000}) == {keys[0]: None}


def test_optional_lookups() -> None:
    with FakeBroker() as broker, ClusterClient(broker.options()) as client:
        assert lookup.sizes_of(client, [(TOPIC, 0)]) == {}
        assert lookup.never_compacted(client, [TOPIC]) == set()
