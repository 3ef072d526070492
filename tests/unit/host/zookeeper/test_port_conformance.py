"""Memory, the KRaft log and ZooKeeper keep the guarantees of the metadata port, and agree.

Method: one list of checks over each, and the same histories of real decisions over all three: after
every decision their facts are the same.
"""

from collections.abc import Callable
from random import Random

import pytest

from ottla.base.ids import Uuid
from ottla.base.zookeeper import Create, SetData
from ottla.metadata.configs import ResourceType
from ottla.metadata.delta import ClusterDelta
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.config import encode_config
from ottla.metadata.znodes.notifications import encode_config_change
from ottla.metadata.znodes.topic import Assignment, decode_topic, encode_topic
from tests.metadata_port_checks import CHECKS, TOPICS, History, PortBench

from .port_benches import KraftBench, MemoryBench, ZooKeeperBench

BENCHES = (MemoryBench, KraftBench, ZooKeeperBench)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", BENCHES)
def test_a_back_end_keeps_the_contract(
    check: Callable[[PortBench], None], make: Callable[[], PortBench]
) -> None:
    check(make())


@pytest.mark.parametrize("number", range(20))
def test_the_same_decisions_give_the_same_facts(number: int) -> None:
    in_memory = History(MemoryBench(), number).play(40)
    assert any(facts["topics"] for facts in in_memory)
    assert History(KraftBench(), number).play(40) == in_memory
    assert History(ZooKeeperBench(number), number).play(40) == in_memory


@pytest.mark.parametrize("number", range(20))
def test_histories_over_a_bad_network_end_where_the_znodes_are(number: int) -> None:
    bench = ZooKeeperBench(number)
    history = History(bench, number)
    with bench.losing_answers():
        for _ in range(30):
            history.random.choice(history.MOVES)(history)
    history.check()


class Tools:
    """Old tools that write znodes beside a controller: topics, configurations, deletions."""

    def __init__(self, bench: ZooKeeperBench, number: int) -> None:
        self._sim = bench.sim
        self._random = Random(number)

    def act(self) -> None:
        """Do one operation, without waiting for it; a rejection is another one's turn."""
        name = self._random.choice(TOPICS)
        data = self._sim.data(paths.topic(name))
        actions = [self._configure] + ([self._create] if data is None else [self._grow] * 2)
        self._random.choice(actions)(name, data)

    def _create(self, name: str, _data: bytes | None) -> None:
        assignment = encode_topic([(0, Assignment((1, 2)))], None)
        self._sim.tool.multi((Create(paths.topic(name), assignment),))

    def _grow(self, name: str, data: bytes | None) -> None:
        assert data is not None
        znode = decode_topic(name, data)
        added = (len(znode.partitions), Assignment((2, 3)))
        grown = encode_topic([*znode.partitions.items(), added], znode.topic_id)
        version = self._sim.version(paths.topic(name))
        self._sim.tool.multi((SetData(paths.topic(name), grown, version),))

    def _configure(self, name: str, _data: bytes | None) -> None:
        resource = (int(ResourceType.TOPIC), name)
        data = encode_config({"retention.ms": str(self._random.randint(1, 9))})
        is_there = self._sim.data(paths.config(resource)) is not None
        write = SetData if is_there else Create
        notified = Create(paths.CONFIG_CHANGE, encode_config_change(resource), sequential=True)
        self._sim.tool.multi((write(paths.config(resource), data), notified))


@pytest.mark.parametrize("number", range(20))
def test_histories_beside_tools_end_where_the_znodes_are(number: int) -> None:
    bench = ZooKeeperBench(number)
    history, tools = History(bench, number), Tools(bench, number)
    counts: dict[Uuid, int] = {}

    def never_back(delta: ClusterDelta) -> None:
        for topic in delta.image.topics:
            assert len(topic.partitions) >= counts.get(topic.id, 0), "a topic went back in time"
            counts[topic.id] = len(topic.partitions)

    bench.port.subscribe(never_back)
    for _ in range(40):
        for _ in range(history.random.randint(0, 3)):
            tools.act()
            bench.sim.run(history.random.randint(0, 3))
        history.random.choice(history.MOVES)(history)
    bench.sim.settle()
    history.check()
