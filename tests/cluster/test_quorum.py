"""Three controllers lose their leader again and again; no acknowledged change is ever lost.

Method: real processes; a thread creates topics through the broker all the while. The leader is
killed, paused or stopped, the others must elect another one and go on, and it comes back. At the
end every topic that was acknowledged is there, and the three logs are equally long.
OTTLA_QUORUM_ROUNDS=10 runs more rounds.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from ottla.base.errors import Error
from ottla.base.ids import METADATA_TOPIC
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.connection import Connection
from ottla.testing.layout import plan_nodes
from ottla.testing.local_cluster import LocalCluster
from ottla.testing.ports import HOST, free_ports
from ottla.wire.messages import create_topics as create_wire
from ottla.wire.messages import describe_quorum as quorum_wire

ROUNDS = int(os.environ.get("OTTLA_QUORUM_ROUNDS", "3"))
DEADLINE_SECONDS = 60.0
UNREACHABLE = (OSError, TimeoutError)


class Quorum:
    """One broker and three controllers on neighbouring ports."""

    def __init__(self, directory: Path) -> None:
        self.plans = plan_nodes(1, 3, a_port_with_neighbours())
        self.engine = LocalCluster(directory, bound=True)
        self.engine.prepare(self.plans, {})

    def leader(self, besides: int = -1) -> quorum_wire.ResponsePartitionData:
        """Return what the controller that leads says of the quorum."""
        asked = quorum_wire.RequestPartitionData(partition_index=0)
        topic = quorum_wire.RequestTopicData(topic_name=METADATA_TOPIC, partitions=(asked,))
        request = quorum_wire.DescribeQuorumRequest(topics=(topic,))

        def look() -> quorum_wire.ResponsePartitionData | None:
            for plan in self.plans[1:]:
                if plan.id == besides:
                    continue
                with suppress(*UNREACHABLE), connected(plan.port) as controller:
                    answer = controller.ask(
                        request, quorum_wire.DescribeQuorumResponse, timeout=2.0
                    )
                    found = answer.topics[0].partitions[0]
                    if found.error_code == Error.NONE and found.high_watermark >= 0:
                        return found
            return None

        return until(look)

    def topics(self) -> set[str]:
        config = ClientConfig(bootstrap=f"{HOST}:{self.plans[0].port}")
        with ClusterClient(config) as client:
            return {topic.name or "" for topic in client.topics()}


def a_port_with_neighbours() -> int:
    """Return a port; those that the layout derives from it are looked at when they are taken."""
    (port,) = free_ports(1)
    return min(port, 60_000)


def connected(port: int) -> Connection:
    return Connection(HOST, port, client_id="test", timeout=2.0)


def until(look: Callable[[], quorum_wire.ResponsePartitionData | None]) -> (
    quorum_wire.ResponsePartitionData
):  # fmt: skip
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(0.05)
    raise AssertionError("no leader in time")


class Writer(threading.Thread):
    """Creates one topic after the other; `acknowledged` holds those that the cluster confirmed."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.acknowledged: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        for number in count():
            while not self.stopping.is_set() and not self._created(f"topic-{number}"):
                self.stopping.wait(0.05)
            if self.stopping.is_set():
                return

    def _created(self, name: str) -> bool:
        topic = create_wire.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        request = create_wire.CreateTopicsRequest(topics=(topic,), timeout_ms=10_000)
        try:
            with connected(self.port) as broker:
                answer = broker.ask(request, create_wire.CreateTopicsResponse, timeout=20.0)
        except UNREACHABLE:
            return False
        if answer.topics[0].error_code not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
            return False
        self.acknowledged.append(name)
        return True

    def wait_for_more(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, "no topic could be created"
            time.sleep(0.02)


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    made = Quorum(tmp_path)
    made.engine.start()
    try:
        made.engine.wait_ready(DEADLINE_SECONDS)
        yield made
    finally:
        made.engine.stop(10.0)


def test_no_acknowledged_change_is_lost_with_its_leader(quorum: Quorum) -> None:
    writer = Writer(quorum.plans[0].port)
    writer.start()
    writer.wait_for_more(5)
    for number in range(ROUNDS):
        old = quorum.leader()
        if number % 3 == 0:
            quorum.engine.kill(old.leader_id)
        elif number % 3 == 1:
            quorum.engine.pause(old.leader_id)
        else:
            quorum.engine.stop(10.0, [old.leader_id])
        new = quorum.leader(besides=old.leader_id)
        assert new.leader_id != old.leader_id
        assert new.leader_epoch > old.leader_epoch
        writer.wait_for_more(5)
        if number % 3 == 1:
            quorum.engine.resume(old.leader_id)
        else:
            quorum.engine.start([old.leader_id])
        quorum.engine.wait_ready(DEADLINE_SECONDS)
    writer.stopping.set()
    writer.join(DEADLINE_SECONDS)
    assert set(writer.acknowledged) <= quorum.topics()

    def all_caught_up() -> quorum_wire.ResponsePartitionData | None:
        found = quorum.leader()
        ends = [voter.log_end_offset for voter in found.current_voters]
        return found if len(ends) == 3 and max(ends) - min(ends) <= 1 else None

    until(all_caught_up)
