"""A disk that takes no more: the node says so and stops, and what it acknowledged is all there.

Method: the process gets a limit on the size of its files (RLIMIT_FSIZE) while it runs, so that
an append fails half-way with EFBIG, as it would with ENOSPC on a full disk. A new process has no
such limit. Several log directories, of which one fails, are the business of unit tests: the limit
cannot be given to one directory alone.
"""

import threading

import psutil
import pytest

from ottla.testing import Cluster

from . import stored
from .clients import Closing, Message, client_of, eventually, produce
from .conftest import QUICK, new_topic

LIMIT_BYTES = 2 << 20
VALUE_BYTES = 50_000


def start_again_once_dead(cluster: Cluster) -> None:
    eventually(lambda: cluster.state(1) == "dead", what="the node to stop")
    cluster.start(1)


@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_FSIZE"), reason="limits of a process need Linux")
def test_a_full_disk_stops_the_node_and_loses_nothing() -> None:
    with Cluster(brokers=1, config=QUICK) as cluster:
        topic = new_topic(cluster.bootstrap, "full")
        pid = cluster.pid(1)
        assert pid is not None
        psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))
        client = client_of("confluent")
        values = [b"%06d" % number + b"x" * VALUE_BYTES for number in range(100)]
        with Closing(client.producer(cluster.bootstrap, idempotent=True)) as producer:
            for value in values[:10]:
                producer.send([Message(topic=topic, value=value)])
            # The rest does not fit; the producer tries again until the node is back.
            back = threading.Thread(target=start_again_once_dead, args=(cluster,), daemon=True)
            back.start()
            offsets = producer.send(Message(topic=topic, value=value) for value in values[10:])
            back.join(60)
        assert offsets == list(range(10, 100))
        assert "all log directories have failed" in cluster.logs(1)
        assert "Errno 27" in cluster.logs(1)
        cluster.wait_ready()
        assert [each.value for each in stored.records(cluster, topic)] == values
        after = [Message(topic=topic, value=b"after")]
        assert produce(client, cluster.bootstrap, after) == [100]
