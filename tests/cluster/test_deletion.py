"""KRaft: deletions are proved by controllers on nodes of their own, over every restart of them.

Method: real processes; a broker is frozen, so that what it was ordered to delete is certainly not
done, while controllers die or the whole cluster does. What KAFKA-330 asks for in both modes is in
`test_deletion_cases`.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from ottla.base.errors import Error
from ottla.metadata.deletions import BROKER_DOWN, DeletionState
from ottla.testing import Cluster
from ottla.wire.messages import describe_deletions as ledger_wire
from tests.exposition import Scrape

from .clients import eventually
from .conftest import Kind, NewCluster, revived
from .deletions import CONFIG, PATIENCE_SECONDS, Site, ineligible, site_of
from .ottla_command import ottla

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

GAUGES = (
    "topics_to_delete",
    "replicas_to_delete",
    "topics_ineligible_to_delete",
    "replicas_ineligible_to_delete",
)


@pytest.fixture(scope="module")
def site_of_module() -> Iterator[Site]:
    with Cluster(3, 3, config=CONFIG, metrics=True) as cluster:
        yield Site(cluster, None)


@pytest.fixture
def site(site_of_module: Site) -> Site:
    """Three brokers and three controllers, and all serve."""
    revived(site_of_module.cluster)
    return site_of_module


def gauges(cluster: Cluster, node: int) -> tuple[float, ...]:
    """Return what a controller counts of deletions: Kafka's four gauges, as they are listed."""
    with urlopen(f"http://{cluster.metrics_address(node)}/metrics", timeout=30) as answer:
        found = Scrape(answer.read().decode())
    return tuple(found.value(f"kafka_controller_kafka_controller_{name}_count") for name in GAUGES)


def wait_gauges(cluster: Cluster, node: int, *wanted: float) -> None:
    """Wait until a controller counts this of deletions."""
    eventually(
        lambda: gauges(cluster, node), wanted.__eq__, within=PATIENCE_SECONDS, what="its gauges"
    )


def test_the_active_controller_dies_while_its_order_is_out(site: Site) -> None:
    """The frozen broker had the order in its socket; the next controller gives its own."""
    cluster = site.cluster
    made = site.create("ordered", *[(1, 2, 3)] * 2)
    active = cluster.wait_controller()
    cluster.pause(3)
    assert site.delete("ordered") is Error.NONE
    site.wait_successful(made, 4)
    site.wait_gone(3)
    entry = site.entry_with(made, lambda entry: bool(ineligible(entry)), "the end of its session")
    assert ineligible(entry) == [(3, BROKER_DOWN, (0, 1))]
    wait_gauges(cluster, active, 1, 2, 1, 2)
    cluster.kill(active)
    following = cluster.wait_controller(besides=active)
    wait_gauges(cluster, following, 1, 2, 1, 2)
    cluster.resume(3)
    site.wait_receipt(made)
    wait_gauges(cluster, following, 0, 0, 0, 0)


def test_all_nodes_die_in_the_midst_of_a_deletion(site: Site) -> None:
    """The ledger is what all that are started again know of it; the name has a new topic."""
    cluster = site.cluster
    made = site.create("midst", *[(1, 2, 3)] * 2)
    cluster.kill(3)
    site.wait_gone(3)
    assert site.delete("midst") is Error.NONE
    site.wait_successful(made, 4)
    again = site.create("midst", (1, 2))
    for node in cluster.nodes:
        if node.id != 3:
            cluster.kill(node.id)
    assert {site.broker_of(each) for each in site.directories(made.id)} == {3}
    for node in cluster.nodes:
        cluster.start(node.id)
    cluster.wait_ready()
    site.wait_receipt(made)
    assert site.described("midst").topic_id == again.id
    assert [site.words("midst", 0, each) for each in (1, 2, 3)] == [[again.word]] * 2 + [[]]


def test_the_command_waits_for_the_proof(site: Site) -> None:
    cluster = site.cluster
    made = site.create("watched", (1, 2, 3))
    cluster.kill(3)
    site.wait_gone(3)
    assert site.delete("watched") is Error.NONE
    describe = ("topics", "--bootstrap-server", cluster.bootstrap, "--describe-deletions")
    site.wait_successful(made, 2)
    shown = ottla(*describe, "--topic", "watched")
    assert shown.code == 0, shown.err
    cluster.start(3)
    waited = ottla(*describe, "--topic", "watched", "--wait", "--timeout", "90", timeout=120)
    assert waited.code == 0, waited.err
    entry = site.entry(made)
    assert entry is not None
    assert entry.count(DeletionState.SUCCESSFUL) == 3
    site.check_gone(made)


def test_a_cluster_that_was_formatted_without_a_ledger_deletes_as_before(
    new_cluster: NewCluster,
) -> None:
    with site_of(Kind.COMBINED, new_cluster, 1) as site:
        cluster = site.cluster
        cluster.stop(1)
        format_without_ledger(cluster.data_dir(1))
        cluster.start(1)
        cluster.wait_ready()
        made = site.create("plain", (1,), (1,))
        assert len(site.directories(made.id)) == 2
        assert site.delete("plain") is Error.NONE
        eventually(lambda: site.directories(made.id), [].__eq__, what="no directory")
        answer = site.ask(
            ledger_wire.DescribeDeletionsRequest(topics=()), ledger_wire.DescribeDeletionsResponse
        )
        assert answer.error_code == Error.UNSUPPORTED_VERSION
        assert site.create("plain", (1,)).id != made.id


def format_without_ledger(directory: Path) -> None:
    """Format a stopped node's directory again, at a level without the ledger."""
    lines = (directory / "meta.properties").read_text().splitlines()
    [cluster_id] = [line.partition("=")[2] for line in lines if line.startswith("cluster.id=")]
    shutil.rmtree(directory)
    properties = str(directory.parent / "node.properties")
    ran = ottla(
        *("storage", "format", "--cluster-id", cluster_id, "--config", properties),
        *("--feature", "ottla.version=0"),
    )
    assert ran.code == 0, ran.err
