"""`ottla topics --describe-deletions` shows a deletion, waits for it and keeps the receipt.

Method: three real brokers, with a controller of their own or over ZooKeeper; topics are deleted
while a broker is down and while all are alive, by the command, which is then asked through each
broker. What the receipt says is looked for on the disks.
"""

import json
import subprocess
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from ottla.testing import Cluster

from .clients import eventually
from .conftest import Kind, new_name, new_replicated_topic
from .ottla_command import Ran, ottla, ottla_arguments
from .stored import directories_below

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.forms(1)]

PATIENCE_SECONDS = 90
PARTITIONS = 3
FOR_LONG = ("--wait", "--timeout", str(PATIENCE_SECONDS))

Entry = dict[str, Any]


def topics(cluster: Cluster, *arguments: str, broker: int | None = None) -> Ran:
    """Run the command against the cluster, or against one broker of it."""
    server = cluster.bootstrap if broker is None else cluster.address(broker)
    return ottla("topics", "--bootstrap-server", server, *arguments, timeout=PATIENCE_SECONDS + 60)


def delete(cluster: Cluster, topic: str) -> None:
    """Delete a topic; the answer means that it is acknowledged."""
    assert topics(cluster, "--delete", "--topic", topic) == (0, "", "")


def entries(ran: Ran, code: int = 0) -> list[Entry]:
    """Return the deletions in an output of JSON."""
    assert ran.code == code, ran
    found: list[Entry] = json.loads(ran.out)["deletions"]
    return found


def described(cluster: Cluster, topic: str, broker: int | None = None) -> list[Entry]:
    """Return all entries of a topic's name."""
    ran = topics(cluster, "--describe-deletions", "--topic", topic, "--json", broker=broker)
    return entries(ran)


Row = tuple[int, str, str | None, tuple[int, ...]]


def rows(entry: Entry) -> set[Row]:
    """Return broker, state, reason and partitions of all rows."""
    return {
        (row["broker"], row["state"], row["reason"], tuple(row["partitions"]))
        for row in entry["replicas"]
    }


def row(broker: int, state: str = "successful", reason: str | None = None) -> Row:
    """Return the row of a broker whose replicas are all equally far."""
    return broker, state, reason, tuple(range(PARTITIONS))


def directories(cluster: Cluster, topic: str) -> list[Path]:
    """Return the directories of a topic's logs on all brokers, but for those renamed away."""
    nodes = [cluster.data_dir(plan.id) for plan in cluster.brokers]
    found = [each for node in nodes for each in directories_below(node, f"{topic}-*")]
    return [each for each in found if not each.name.endswith("-delete")]


def test_a_deletion_that_waits_for_a_broker_is_seen_through_to_its_receipt(trio: Cluster) -> None:
    topic = new_replicated_topic(trio, "watched", PARTITIONS)
    down = next(plan.id for plan in trio.brokers if plan.id != trio.controller)
    others = {plan.id for plan in trio.brokers} - {down}
    trio.kill(down)
    delete(trio, topic)

    waiting = {row(down, "ineligible", "broker down"), *map(row, others)}
    [entry] = eventually(
        lambda: described(trio, topic),
        lambda found: rows(found[0]) == waiting,
        within=PATIENCE_SECONDS,
        what="the dead broker's replicas to be ineligible, the others to be gone",
    )
    assert (entry["topic"], entry["state"], entry["finished_ms"]) == (topic, "under way", None)
    by_id = ("--describe-deletions", "--topic-id", entry["topic_id"])
    for each in others:
        assert described(trio, topic, broker=each) == [entry], "any broker tells the same"
        shown = topics(trio, *by_id, broker=each)
        assert f"  ineligible: broker down  broker {down}" in shown.out
        assert "6 of 9" in shown.out

    late = topics(trio, *by_id, "--wait", "--timeout", "3")
    assert late.code == 1
    assert "ineligible: broker down" in late.out
    assert f"broker {down} is down: start it" in late.err.splitlines()[-1]

    trio.start(down)
    [receipt] = entries(topics(trio, *by_id, *FOR_LONG, "--json"))
    assert receipt["state"] == "finished"
    assert receipt["finished_ms"] >= receipt["asked_ms"] == entry["asked_ms"]
    assert rows(receipt) == {row(plan.id) for plan in trio.brokers}
    assert directories(trio, topic) == [], "the receipt is true"


def test_what_was_just_acknowledged_is_waited_for_and_not_an_older_receipt(trio: Cluster) -> None:
    """Each time the name is created and deleted again, and asked for through any broker."""
    topic = new_name("generations")
    for generation, plan in enumerate(trio.brokers, start=1):
        made = topics(
            trio, "--create", "--topic", topic,
            "--partitions", str(PARTITIONS), "--replication-factor", "3",
        )  # fmt: skip
        assert made.code == 0, made
        trio.wait_in_sync(topic)
        delete(trio, topic)
        ran = topics(
            trio, "--describe-deletions", "--topic", topic, "--json", *FOR_LONG, broker=plan.id
        )
        found = entries(ran)
        assert [each["state"] for each in found] == ["finished"] * generation
        assert len({each["topic_id"] for each in found}) == generation
        assert found == sorted(found, key=lambda each: each["asked_ms"]), "newest last"
        assert rows(found[-1]) == {row(each.id) for each in trio.brokers}
        assert directories(trio, topic) == []


def test_a_wait_outlives_the_controller(trio: Cluster) -> None:
    topic = new_replicated_topic(trio, "outlived", PARTITIONS)
    controller = trio.wait_controller()
    down = next(plan.id for plan in trio.brokers if plan.id != controller)
    trio.kill(down)
    delete(trio, topic)
    asked = ("--describe-deletions", "--topic", topic, "--json", "--wait", "--timeout", "180")
    command = ottla_arguments("topics", "--bootstrap-server", trio.bootstrap, *asked)
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        said = next(line for line in waiting.stderr if "waiting for the end of" in line)
        trio.kill(controller)
        trio.start(controller)
        assert waiting.poll() is None, "it waits on"
        trio.start(down)
        out, err = waiting.communicate(timeout=200)
    [receipt] = entries(Ran(waiting.returncode, out, said + err))
    assert receipt["state"] == "finished"
    assert rows(receipt) == {row(plan.id) for plan in trio.brokers}
    assert directories(trio, topic) == []


@pytest.mark.parametrize("trio_of_session", [Kind.ZOOKEEPER], ids=["zookeeper"], indirect=True)
def test_a_mark_in_zookeeper_is_waited_for_as_well(trio: Cluster) -> None:
    """The controller may not have seen it yet when the wait begins."""
    assert trio.zookeeper_connect is not None
    topic = new_replicated_topic(trio, "marked", PARTITIONS)
    marked = ottla("topics", "--zookeeper", trio.zookeeper_connect, "--delete", "--topic", topic)
    assert marked.code == 0, marked
    ran = topics(trio, "--describe-deletions", "--topic", topic, *FOR_LONG)
    assert ran.code == 0, ran
    assert "finished" in ran.out
    assert directories(trio, topic) == []


def test_what_was_never_deleted_is_no_receipt(trio: Cluster) -> None:
    topic = new_replicated_topic(trio, "alive", PARTITIONS)
    for name, why in ((topic, "the topic exists"), ("nobody", "it was never deleted")):
        ran = topics(trio, "--describe-deletions", "--topic", name)
        assert (ran.code, ran.out) == (1, "")
        assert why in ran.err
