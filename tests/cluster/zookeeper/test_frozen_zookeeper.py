"""While ZooKeeper is frozen, every request to the controller is answered within its own limit.

Method: two brokers over a server that is stopped with SIGSTOP; all requests at once, each over a
connection of its own, to the controller's broker and to the other one. A client waits for less than
what any of these requests took while nothing kept its limit: 30 s, or for ever.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.broker.dispatch import load_apis
from ottla.broker.metrics import error_finder
from ottla.broker.ports import Listener
from ottla.client.connection import Connection
from ottla.testing import Cluster
from ottla.wire.registry import response_type

from ...controller_requests import REQUESTS, TOPIC, version_of
from ..clients import Closing, client_of
from ..raw import port_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

CONFIG = {"request.timeout.ms": "5000"}
CLIENT_SECONDS = 25.0
WRITES = {19, 20, 37}
"""What changes something, and says of each part what became of it."""

KEYS = [
    key for key in REQUESTS if Listener.CLIENT in load_apis()[key].api.answers_on(zookeeper=True)
]


def errors(cluster: Cluster, broker: int, key: int) -> set[int]:
    """Send one request; return the error codes of its answer. Raises: TimeoutError."""
    port, response = port_of(cluster, broker), response_type(key)
    with Connection("127.0.0.1", port, client_id="test", timeout=CLIENT_SECONDS) as connection:
        answer: Any = connection.ask(
            REQUESTS[key], response, timeout=CLIENT_SECONDS, version=version_of(key)
        )
    find, found = error_finder(response), Counter[int]()
    assert find is not None
    find(answer, found)
    return set(found)


def test_every_request_is_answered_within_its_limit() -> None:
    with Cluster(brokers=2, zookeeper=True, config=CONFIG) as cluster:
        with Closing(client_of("confluent").admin(cluster.bootstrap)) as admin:
            admin.create_topic(TOPIC, partitions=1, replication_factor=1, config={})
        cluster.wait_in_sync(TOPIC)
        assert cluster.zookeeper is not None
        cluster.zookeeper.pause()
        asked = list(product((1, 2), KEYS))
        with ThreadPoolExecutor(len(asked)) as threads:
            answers = {each: threads.submit(errors, cluster, *each) for each in asked}
        notified = {each: answer.result() for each, answer in answers.items()}
    assert {each: notified[each] for each in product((1, 2), WRITES)} == {
        each: {Error.REQUEST_TIMED_OUT} for each in product((1, 2), WRITES)
    }
