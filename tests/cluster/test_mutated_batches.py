"""What a broker has stored is read by real clients to its end, whatever was sent to it.

Method: a few hundred batches with something wrong in them are sent over a raw connection, each
behind a sound one; three clients read the topic to its end, and must agree. The unit tests send
thousands to a log in memory.
"""

import time
from collections import Counter

import pytest

from ottla.base.errors import Error
from ottla.client.connection import Connection
from ottla.testing import Cluster
from ottla.wire.messages.produce import ProduceResponse
from tests.mutations import mutated

from . import stored
from .bystander import Bystander
from .clients import NAMES, client_of, read_partition
from .conftest import new_topic
from .raw import PRODUCE_VERSION, SECONDS, port_of, produce_request

COUNT = 300


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_clients_read_all_that_is_stored(policy: str, victim: Cluster) -> None:
    topic = new_topic(victim.bootstrap, "mutated", 1, cleanup_policy=policy)
    outcomes: Counter[int] = Counter()
    with (
        Bystander(victim),
        Connection("127.0.0.1", port_of(victim), client_id="test", timeout=SECONDS) as broker,
    ):
        for name, data in mutated(23, COUNT, int(time.time() * 1000)):
            answer = broker.ask(
                produce_request(topic, data),
                ProduceResponse,
                timeout=SECONDS,
                version=PRODUCE_VERSION,
            )
            error = answer.responses[0].partition_responses[0].error_code
            assert error != Error.UNKNOWN_SERVER_ERROR, name
            outcomes[error] += 1
    assert outcomes[Error.NONE] > 30
    assert outcomes[Error.INVALID_RECORD] > 50
    kept = stored.records(victim, topic)
    expected = [(each.offset, each.key, each.value) for each in kept]
    assert [each.offset for each in kept] == list(range(len(kept)))
    for name in NAMES:
        found = read_partition(client_of(name), victim.bootstrap, topic, len(kept))
        assert [(each.offset, each.key, each.value) for each in found] == expected, name
