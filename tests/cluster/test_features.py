"""A cluster that was formatted without the deletion ledger gets it while it runs, and keeps it.

Method: three combined nodes whose directories are formatted again at `ottla.version` 0. Levels
change by the command and by kafka-python; one broker is dead meanwhile and follows later.
"""

from collections.abc import Iterator

import pytest
from kafka.errors import KafkaError

from kafka import KafkaAdminClient
from ottla.testing import Cluster

from .clients import Closing, eventually
from .conftest import BROKERS, QUICK_FENCING, new_replicated_topic, revived
from .ottla_command import Ran, ottla
from .test_deletion import format_without_ledger

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

LEDGER, ELR = "ottla.version", "eligible.leader.replicas.version"
LATER = 2


@pytest.fixture(scope="module")
def cluster_of_module() -> Iterator[Cluster]:
    with Cluster(3, config=QUICK_FENCING) as cluster:
        cluster.stop()
        for broker in BROKERS:
            format_without_ledger(cluster.data_dir(broker))
        cluster.start()
        cluster.wait_ready()
        yield cluster


@pytest.fixture
def cluster(cluster_of_module: Cluster) -> Cluster:
    """Three combined nodes, and all serve."""
    return revived(cluster_of_module)


def run(cluster: Cluster, command: str, *arguments: str) -> Ran:
    """Run a command against the cluster."""
    return ottla(command, "--bootstrap-server", cluster.bootstrap, *arguments, timeout=120)


def level(cluster: Cluster, feature: str, *, broker: int = 1) -> str:
    """Return the cluster's level of a feature, as one broker knows it."""
    ran = ottla("features", "--bootstrap-server", cluster.address(broker), "describe")
    assert ran.code == 0, ran.err
    rows = [dict(each.split(": ") for each in line.split("\t")) for line in ran.out.splitlines()]
    (found,) = (each["FinalizedVersionLevel"] for each in rows if each["Feature"] == feature)
    return found


def delete(cluster: Cluster, topic: str) -> None:
    ran = run(cluster, "topics", "--delete", "--topic", topic)
    assert ran == (0, "", "")


def limit(cluster: Cluster, topic: str) -> Ran:
    """Let a topic go when nobody uses it."""
    what = ("--entity-type", "topics", "--entity-name", topic)
    return run(cluster, "configs", *what, "--alter", "--add-config", "ottla.topic.ttl.ms=3600000")


def test_a_running_cluster_gets_the_ledger_for_good(cluster: Cluster) -> None:
    unproved = new_replicated_topic(cluster, "unproved", 2)
    proved = new_replicated_topic(cluster, "proved", 2)
    delete(cluster, unproved)
    refused = run(cluster, "topics", "--describe-deletions")
    assert refused.code == 1
    assert "UNSUPPORTED_VERSION" in refused.err
    assert limit(cluster, proved).code == 1
    wish = ("upgrade", "--feature", f"{LEDGER}=1")
    assert run(cluster, "features", *wish, "--dry-run").out == f"{LEDGER} can be upgraded to 1.\n"
    assert level(cluster, LEDGER) == "0"

    away = next(each for each in BROKERS if each != cluster.wait_controller())
    cluster.kill(away)
    assert run(cluster, "features", *wish) == (0, f"{LEDGER} was upgraded to 1.\n", "")
    assert limit(cluster, proved).code == 0
    delete(cluster, proved)
    cluster.start(away)
    receipt = ("--describe-deletions", "--topic", proved)
    waited = run(cluster, "topics", *receipt, "--wait", "--timeout", "90")
    assert waited.code == 0, waited
    assert "6 of 6" in waited.out
    assert run(cluster, "topics", "--describe-deletions", "--topic", unproved).code == 1

    cluster.stop()
    cluster.start()
    cluster.wait_ready()
    assert [level(cluster, LEDGER, broker=each) for each in BROKERS] == ["1"] * 3
    assert "6 of 6" in run(cluster, "topics", *receipt).out
    back = run(cluster, "features", "downgrade", "--feature", f"{LEDGER}=0", "--unsafe")
    assert back.code == 1
    assert f"Could not downgrade {LEDGER} to 0. {LEDGER} cannot go back" in back.out


def test_a_client_of_others_changes_levels(cluster: Cluster) -> None:
    def notified(value: str) -> None:
        eventually(lambda: level(cluster, ELR), value.__eq__, what=f"level {value}")

    with Closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        assert admin.update_features({ELR: ("SAFE_DOWNGRADE", 0)}) == {ELR: "OK"}
        notified("0")
        with pytest.raises(KafkaError, match=f"Level 2 of {ELR} is not supported"):
            admin.update_features({ELR: LATER})
        assert admin.update_features({ELR: 1}, validate_only=True) == {ELR: "OK"}
        assert level(cluster, ELR) == "0"
        assert admin.update_features({ELR: 1}) == {ELR: "OK"}
        notified("1")


def test_controllers_are_asked_without_a_broker(cluster: Cluster) -> None:
    for controller in cluster.controllers:
        address = cluster.controller_address(controller.id)
        asked = ("features", "--bootstrap-controller", address)
        assert f"Feature: {LEDGER}\t" in ottla(*asked, "describe").out
        ran = ottla(*asked, "upgrade", "--feature", f"{ELR}={LATER}")
        assert ran.code == 1
        # The active one answers, whichever was named.
        assert f"Level {LATER} of {ELR} is not supported" in ran.out
