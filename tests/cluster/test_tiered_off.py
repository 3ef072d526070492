"""Tiered storage is turned off and on again by the commands of KIP-950, in both modes.

Method: three brokers and a directory as the store. The state is what the controller describes; the
store and the local disks are listed; after each change a consumer reads from the earliest offset to
the end, and no offset is missing. A controller dies while a topic is DISABLING.
"""

from collections.abc import Iterator

import pytest

from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.metadata.tiering import TieringState
from ottla.testing import Cluster
from ottla.wire.messages import describe_topic_tiering as wire

from .clients import eventually
from .conftest import Kind, NewCluster, new_name, revived
from .ottla_command import ottla
from .tiered import (
    EARLIEST,
    EARLIEST_LOCAL,
    RECORDS,
    TIERED,
    earliest,
    produce,
    produced,
    read_from,
    remote_segments,
    wait_tiered,
)

pytestmark = [pytest.mark.timeout(300), pytest.mark.forms(1), pytest.mark.drawn(2)]

ENABLE = "remote.storage.enable=true"
RETAIN = "remote.log.disable.policy=retain, remote.storage.enable=false"
DELETE = "remote.log.disable.policy=delete, remote.storage.enable=false"


@pytest.fixture(scope="module", params=[Kind.COMBINED, Kind.ZOOKEEPER], ids=["kraft", "zookeeper"])
def cluster_of_module(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    with new_cluster(request.param, 3, config=TIERED, remote_storage=True, metrics=True) as cluster:
        yield cluster


@pytest.fixture
def cluster(cluster_of_module: Cluster) -> Cluster:
    """Three brokers in either mode, with a store; all of them serve."""
    return revived(cluster_of_module)


def alter(cluster: Cluster, topic: str, added: str) -> tuple[int, str]:
    ran = ottla(
        "configs", "--bootstrap-server", cluster.bootstrap, "--alter", "--entity-type", "topics",
        "--entity-name", topic, "--add-config", added,
    )  # fmt: skip
    return ran.code, ran.err


def described(cluster: Cluster, topic: str) -> wire.DescribedTopicTiering:
    """Return what the controller says of a topic."""
    with ClusterClient(ClientConfig(bootstrap=cluster.bootstrap)) as client:

        def ask() -> wire.DescribedTopicTiering:
            request = wire.DescribeTopicTieringRequest(topics=(topic,))
            answer = client.ask(request, wire.DescribeTopicTieringResponse)
            [found] = answer.topics
            return found

        return client.with_retries(ask, repeatable=True)


def wait_state(cluster: Cluster, topic: str, state: TieringState, epoch: int) -> None:
    def is_there() -> bool:
        found = described(cluster, topic)
        return (found.state, found.tiered_epoch) == (state, epoch)

    eventually(is_there, within=60, what=f"{state.name} in tiered epoch {epoch}")
    assert described(cluster, topic).missing == ()


def read_from_earliest(cluster: Cluster, topic: str, start: int) -> list[bytes]:
    """Read a partition from its earliest offset, which must be this one; there is no gap."""
    assert earliest(cluster, topic, EARLIEST) == start
    return read_from(cluster, topic, start)


def test_delete_gives_up_what_is_remote_and_it_begins_again_while_the_purge_runs(
    cluster: Cluster,
) -> None:
    topic = new_name("deleted")
    values = produced(cluster, topic)
    wait_tiered(cluster, topic)
    start = earliest(cluster, topic, EARLIEST_LOCAL)
    assert start > 0
    assert alter(cluster, topic, DELETE) == (0, "")
    wait_state(cluster, topic, TieringState.DISABLED, 2)
    local = earliest(cluster, topic, EARLIEST)
    assert local == earliest(cluster, topic, EARLIEST_LOCAL)
    assert read_from_earliest(cluster, topic, local) == values[local:]
    eventually(lambda: not remote_segments(cluster, topic), within=60, what="an empty store")
    # It stays pending for minutes: a late write of the store could bring an object back.
    assert described(cluster, topic).purge_pending
    assert alter(cluster, topic, ENABLE) == (0, "")
    wait_state(cluster, topic, TieringState.ENABLED, 3)
    values += produce(cluster, topic, range(RECORDS, RECORDS + 160))
    eventually(lambda: len(remote_segments(cluster, topic)) > 5, within=60, what="new copies")
    assert read_from_earliest(cluster, topic, local) == values[local:]


def test_retain_keeps_what_is_remote_readable_and_copies_go_on_later(cluster: Cluster) -> None:
    topic = new_name("retained")
    values = produced(cluster, topic)
    wait_tiered(cluster, topic)
    assert alter(cluster, topic, RETAIN) == (0, "")
    wait_state(cluster, topic, TieringState.DISABLED, 2)
    copied = len(remote_segments(cluster, topic))  # Up to now a copy could still end.
    values += produce(cluster, topic, range(RECORDS, RECORDS + 160))
    assert read_from_earliest(cluster, topic, 0) == values
    assert len(remote_segments(cluster, topic)) == copied
    code, error = alter(cluster, topic, "cleanup.policy=compact")
    assert code == 1
    assert "may have remote segments" in error
    assert alter(cluster, topic, ENABLE) == (0, "")
    wait_state(cluster, topic, TieringState.ENABLED, 3)
    eventually(
        lambda: len(remote_segments(cluster, topic)) > copied + 5, within=60, what="new copies"
    )
    assert read_from_earliest(cluster, topic, 0) == values


@pytest.mark.parametrize("policy", [RETAIN, DELETE], ids=["retain", "delete"])
def test_the_controller_dies_while_a_topic_is_disabling(cluster: Cluster, policy: str) -> None:
    topic = new_name("failover")
    values = produced(cluster, topic)
    wait_tiered(cluster, topic)
    controller = cluster.wait_controller()
    assert alter(cluster, topic, policy) == (0, "")
    cluster.kill(controller)
    cluster.wait_controller(besides=controller)
    wait_state(cluster, topic, TieringState.DISABLED, 2)
    cluster.start(controller)
    cluster.wait_ready()
    cluster.wait_in_sync(topic)
    start = earliest(cluster, topic, EARLIEST)
    assert (start == 0) == (policy is RETAIN)
    assert read_from_earliest(cluster, topic, start) == values[start:]
