"""What is written into znodes happens, whether by `ottla ... --zookeeper` or by any client.

Method: three brokers; topics, configurations, moves, elections and deletions are asked for by
znodes alone, in the forms of old tools too, and what comes of it is seen by clients, in the
znodes and on the brokers' disks. Each test has a topic of its own. What tools write while no
broker lives is tested in `test_tools.py`, deletions while brokers die in `test_deletion.py`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.metadata.znodes import paths
from ottla.testing import Cluster
from ottla.testing.zookeeper_server import ZooKeeperServer

from ..ottla_command import ottla
from .operating import PATIENCE_SECONDS, Operator, operating, until

pytestmark = [pytest.mark.cluster, pytest.mark.drawn(11)]

CONFIG = {
    "zookeeper.session.timeout.ms": "2000",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.segment.delete.delay.ms": "500",
}
TOPIC_ID = "AAECAwQFRgeICQoLDA0ODw"


@pytest.fixture(scope="module")
def operator(zookeeper: ZooKeeperServer) -> Iterator[Operator]:
    """A cluster for all tests of this file; each leaves it with all brokers up."""
    with (
        Cluster(3, zookeeper=f"{zookeeper.connect}/acting", config=CONFIG) as cluster,
        operating(cluster) as made,
    ):
        yield made


def reassignment(*moves: tuple[str, int, list[int]]) -> dict[str, object]:
    listed = [{"topic": name, "partition": number, "replicas": to} for name, number, to in moves]
    return {"version": 1, "partitions": listed}


def election(*partitions: tuple[str, int]) -> dict[str, object]:
    listed = [{"topic": name, "partition": number} for name, number in partitions]
    return {"version": 1, "partitions": listed}


def gone(operator: Operator, path: str) -> None:
    until(lambda: operator.stat(path) is None, f"the end of {path}")


# -- topics --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "more"), [("old", {}), ("with-id", {"topic_id": TOPIC_ID})])
def test_a_topic_s_znode_makes_it(operator: Operator, name: str, more: dict[str, str]) -> None:
    """Version 1, as before 2.4; without an id, it gets one, and the znode has it."""
    operator.place(name, {0: [1, 2, 3], 1: [2]}, **more, later={"x": 1})
    assert [operator.produce(name, each) for each in (0, 0, 1)] == [None] * 3
    assert [operator.consume(name, each) for each in (0, 1)] == [2, 1]
    until(lambda: operator.json(paths.topic(name)).get("topic_id"), "an id")
    found = operator.json(paths.topic(name))
    assert found["topic_id"] == more.get("topic_id", found["topic_id"])
    assert found["later"] == {"x": 1}
    kept = operator.cluster.data_dir(2) / f"{name}-1" / "partition.metadata"
    assert found["topic_id"] in kept.read_text()


def test_a_topic_is_created_grown_and_configured_by_commands(operator: Operator) -> None:
    operator.run(
        "topics", "--create", "--topic", "made", "--partitions", "1", "--replication-factor", "3",
        "--config", "max.message.bytes=2000",
    )  # fmt: skip
    until(lambda: operator.stat(paths.state("made", 0)))
    operator.cluster.wait_in_sync("made", PATIENCE_SECONDS)
    assert operator.produce("made", size=100) is None
    refused = operator.produce("made", size=3_000)
    assert refused is not None
    assert refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
    operator.run("topics", "--alter", "--topic", "made", "--partitions", "3")
    until(lambda: operator.stat(paths.state("made", 2)))
    operator.cluster.wait_in_sync("made", PATIENCE_SECONDS)
    assert [operator.produce("made", each) for each in (1, 2)] == [None, None]
    operator.run("configs", "--alter", "--topic", "made", "--delete-config", "max.message.bytes")
    until(lambda: operator.produce("made", size=3_000) is None, "the larger size")


def test_kafka_12835_growing_as_an_old_tool_does_changes_no_id(operator: Operator) -> None:
    """The znode is written without the topic's id: the topic stays the one that it was."""
    admin = AdminClient({"bootstrap.servers": operator.cluster.bootstrap})
    admin.create_topics([NewTopic("aged", 1, 3)])["aged"].result(PATIENCE_SECONDS)
    before = operator.json(paths.topic("aged"))
    assert operator.produce("aged") is None
    replicas = before["partitions"]["0"]
    operator.place("aged", {0: replicas, 1: replicas})
    assert operator.produce("aged", 1) is None
    assert operator.consume("aged") == 1
    kept = operator.cluster.data_dir(1) / "aged-1" / "partition.metadata"
    assert before["topic_id"] in kept.read_text()
    until(lambda: operator.json(paths.topic("aged")).get("topic_id") == before["topic_id"])


def test_a_partition_that_a_tool_forgot_loses_nothing(operator: Operator) -> None:
    operator.place("short", {0: [1, 2], 1: [2, 3]})
    assert operator.produce("short", 1) is None
    operator.write(paths.topic("short"), {"version": 1, "partitions": {"0": [1, 2]}})
    until(lambda: "topic_id" in operator.json(paths.topic("short")), "the controller's look")
    assert operator.produce("short", 1) is None
    operator.place("short", {0: [1, 2], 1: [2, 3]})
    assert operator.produce("short", 1) is None
    assert operator.consume("short", 1) == 3


def test_replicas_that_are_edited_past_the_controller_lose_nothing(operator: Operator) -> None:
    """No copy would be left of the old ones: the znode is put back, and the reason is logged."""
    operator.place("edited", {0: [1, 2]})
    assert operator.produce("edited") is None
    until(lambda: "topic_id" in operator.json(paths.topic("edited")))
    before = operator.text(paths.topic("edited"))
    operator.write(paths.topic("edited"), {"version": 1, "partitions": {"0": [3]}})
    until(lambda: operator.text(paths.topic("edited")) == before, "the assignment that was")
    assert operator.logged(f"{paths.topic('edited')}: partitions [0] have other replicas")
    assert operator.produce("edited") is None
    assert operator.consume("edited") == 2
    assert [has_directory(operator, each, "edited-0") for each in (1, 2, 3)] == [True, True, False]


# -- configurations ------------------------------------------------------------------------------


def test_a_configuration_counts_once_it_is_told(operator: Operator) -> None:
    """For all brokers, for one of them, and for a topic: the narrower wins, and goes again."""
    operator.place("sized", {0: [1, 2, 3]})

    def takes(size: int) -> bool:
        refused = operator.produce("sized", size=size)
        assert refused is None or refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
        return refused is None

    limits = (
        ("brokers/<default>", "message.max.bytes", 3_000),
        ("brokers/1", "message.max.bytes", 5_000),
        ("topics/sized", "max.message.bytes", 4_000),
    )
    for entity, name, size in limits:
        operator.write(f"/config/{entity}", {"version": 1, "config": {name: str(size)}})
        operator.notify(entity)
        until(lambda size=size: takes(size - 500) and not takes(size + 500), entity)  # type: ignore[misc]
    for entity, size in (("topics/sized", 5_000), ("brokers/1", 3_000), ("brokers/<default>", 0)):
        operator.client.delete(f"/config/{entity}")
        operator.notify(entity)
        until(lambda size=size: takes(size - 500) if size else takes(9_000), entity)  # type: ignore[misc]


def test_a_segment_s_age_by_command_rolls_segments(operator: Operator) -> None:
    operator.place("rolled", {0: [1]})
    operator.run("configs", "--alter", "--topic", "rolled", "--add-config", "segment.ms=1")

    def segments() -> list[Path]:
        assert operator.produce("rolled") is None
        return list((operator.cluster.data_dir(1) / "rolled-0").glob("*.log"))

    until(lambda: len(segments()) > 2, "another segment")


# -- moves ---------------------------------------------------------------------------------------


def test_replicas_move_and_the_request_goes(operator: Operator) -> None:
    """What nobody knows is passed over; the rest moves, a factor may change."""
    operator.place("moved", {0: [1, 2], 1: [3]})
    assert [operator.produce("moved", each) for each in (0, 1)] == [None, None]
    operator.write(
        paths.REASSIGN_PARTITIONS,
        reassignment(
            ("nobody", 0, [1]), ("moved", 0, [3, 2]), ("moved", 9, [1]), ("moved", 1, [1, 2])
        ),
    )
    gone(operator, paths.REASSIGN_PARTITIONS)
    found = operator.json(paths.topic("moved"))
    assert found["partitions"] == {"0": [3, 2], "1": [1, 2]}
    assert found["adding_replicas"] == found["removing_replicas"] == {}
    assert sorted(operator.json(paths.state("moved", 0))["isr"]) == [2, 3]
    assert [operator.consume("moved", each) for each in (0, 1)] == [1, 1]
    until(lambda: not (operator.cluster.data_dir(1) / "moved-0").exists())
    until(lambda: not (operator.cluster.data_dir(3) / "moved-1").exists())


def test_a_second_request_is_refused_while_one_is_under_way(
    operator: Operator, tmp_path: Path
) -> None:
    """A follower that sleeps holds its move up; once it wakes the move ends."""
    sleeper, other = operator.others()
    leader = operator.controller()
    operator.place("slow", {0: [leader]})
    file = tmp_path / "moves.json"
    file.write_text(json.dumps(reassignment(("slow", 0, [leader, other]))))
    words = ("--zookeeper", operator.connect, "--reassignment-json-file", str(file))
    operator.cluster.pause(sleeper)
    try:
        operator.write(paths.REASSIGN_PARTITIONS, reassignment(("slow", 0, [leader, sleeper])))
        until(lambda: operator.json(paths.topic("slow"))["adding_replicas"] == {"0": [sleeper]})
        assert operator.produce("slow") is None
        ran = ottla("reassign-partitions", "--execute", *words)
        assert (ran.code, "There is an existing assignment running." in ran.err) == (1, True)
    finally:
        operator.cluster.resume(sleeper)
    gone(operator, paths.REASSIGN_PARTITIONS)
    assert operator.json(paths.topic("slow"))["adding_replicas"] == {}
    assert operator.json(paths.state("slow", 0))["isr"] == [leader, sleeper]
    operator.cluster.wait_ready()


def test_requests_that_follow_each_other_at_once_are_all_seen(operator: Operator) -> None:
    """The znode is made again in the moment that it goes, while the controller's watch is used."""
    operator.place("again", {0: [1, 2]})
    for replicas in ([2, 1], [1, 2], [2, 3], [3, 1], [1, 2]):
        operator.write(paths.REASSIGN_PARTITIONS, reassignment(("again", 0, replicas)))
        gone(operator, paths.REASSIGN_PARTITIONS)
        assert operator.json(paths.topic("again"))["partitions"]["0"] == replicas
    for _ in range(20):
        operator.write(paths.PREFERRED_ELECTION, election(("again", 0)))
        gone(operator, paths.PREFERRED_ELECTION)
    assert operator.json(paths.state("again", 0))["leader"] == 1


# -- elections -----------------------------------------------------------------------------------


def test_preferred_leaders_are_elected(operator: Operator) -> None:
    for name in ("led-a", "led-b", "led-c"):
        operator.place(name, {0: [1, 2]})
        assert operator.json(paths.state(name, 0))["leader"] == 1
    names = ("led-a", "led-b", "led-c")
    operator.write(paths.REASSIGN_PARTITIONS, reassignment(*((each, 0, [2, 1]) for each in names)))
    gone(operator, paths.REASSIGN_PARTITIONS)
    assert [operator.json(paths.state(each, 0))["leader"] for each in names] == [1, 1, 1]
    # What nobody knows is passed over.
    operator.write(paths.PREFERRED_ELECTION, election(("nobody", 0), ("led-a", 7), ("led-a", 0)))
    gone(operator, paths.PREFERRED_ELECTION)
    assert [operator.json(paths.state(each, 0))["leader"] for each in names] == [2, 1, 1]
    operator.run(
        "leader-election", "--election-type", "preferred", "--topic", "led-b", "--partition", "0"
    )
    gone(operator, paths.PREFERRED_ELECTION)
    assert [operator.json(paths.state(each, 0))["leader"] for each in names] == [2, 2, 1]
    assert operator.produce("led-b") is None


# -- deletions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nobody", "__consumer_offsets"])
def test_a_marker_of_what_is_not_to_be_deleted_is_removed(operator: Operator, name: str) -> None:
    """An unknown topic, and one that Ottla needs."""
    if name != "nobody" and operator.stat(paths.topic(name)) is None:
        operator.place(name, {0: [1, 2, 3]})
    operator.client.create(paths.marker(name))
    gone(operator, paths.marker(name))
    assert (operator.stat(paths.topic(name)) is None) == (name == "nobody")


def test_topics_that_are_made_and_marked_at_once_go(operator: Operator) -> None:
    """Marker and topic come so close that the controller may hear of the marker first."""
    names = [f"brief-{number}" for number in range(10)]
    for name in names:
        data = b'{"version":1,"partitions":{"0":[1,2,3]}}'
        both = operator.client.transaction()
        both.create(paths.marker(name), b"whatever a tool writes here")
        both.create(paths.topic(name), data)
        assert not any(isinstance(each, Exception) for each in both.commit())
    for name in names:
        gone(operator, paths.marker(name))
        gone(operator, paths.topic(name))
    assert not any(
        has_directory(operator, each, f"{name}-0") for name in names for each in (1, 2, 3)
    )


def test_a_topic_that_grows_while_it_waits_to_be_deleted_goes_as_a_whole(
    operator: Operator,
) -> None:
    """KAFKA-6612: the partitions that a tool adds meanwhile leave nothing behind."""
    sleeper = operator.others()[0]
    operator.place("growing", {0: [1, 2, 3]})
    operator.cluster.kill(sleeper)
    try:
        until(lambda: operator.stat(paths.broker(sleeper)) is None)
        operator.run("topics", "--delete", "--topic", "growing")
        until(lambda: not has_directory(operator, operator.controller(), "growing-0"))
        found = operator.json(paths.topic("growing"))
        found["partitions"]["1"] = [1, 2, 3]
        operator.write(paths.topic("growing"), found)
    finally:
        operator.cluster.start(sleeper)
    gone(operator, paths.marker("growing"))
    assert operator.stat(paths.topic("growing")) is None
    operator.cluster.wait_ready()
    directories = [f"growing-{number}" for number in (0, 1)]
    assert not any(
        has_directory(operator, each, name) for name in directories for each in (1, 2, 3)
    )


def test_a_marker_that_no_controller_saw_is_found_by_the_next(operator: Operator) -> None:
    """It is written while the controller is dead, whose replica is waited for."""
    operator.place("unseen", {0: [1, 2, 3]})
    dead, epoch = operator.controller(), operator.epoch()
    operator.cluster.kill(dead)
    try:
        operator.run("topics", "--delete", "--topic", "unseen")
        until(lambda: operator.epoch() > epoch, "another controller")
        alive = [each.id for each in operator.cluster.brokers if each.id != dead]
        until(lambda: not any(has_directory(operator, each, "unseen-0") for each in alive))
        assert operator.stat(paths.marker("unseen"))
        assert operator.stat(paths.topic("unseen"))
    finally:
        operator.cluster.start(dead)
    gone(operator, paths.marker("unseen"))
    assert operator.stat(paths.topic("unseen")) is None
    operator.cluster.wait_ready()
    assert not has_directory(operator, dead, "unseen-0")


def has_directory(operator: Operator, broker_id: int, name: str) -> bool:
    return (operator.cluster.data_dir(broker_id) / name).exists()


def test_markers_are_erased_where_deletions_are_switched_off(zookeeper: ZooKeeperServer) -> None:
    """KAFKA-3175: also those that were there before the controller was."""
    config = CONFIG | {"delete.topic.enable": "false"}
    with (
        Cluster(1, zookeeper=f"{zookeeper.connect}/kept", config=config) as cluster,
        operating(cluster) as operator,
    ):
        operator.place("kept", {0: [1]})
        assert operator.produce("kept") is None
        operator.run("topics", "--delete", "--topic", "kept")
        gone(operator, paths.marker("kept"))
        cluster.stop(1)
        operator.client.create(paths.marker("kept"))
        cluster.start(1)
        gone(operator, paths.marker("kept"))
        cluster.wait_ready()
        assert operator.produce("kept") is None
        assert operator.consume("kept") == 2


# -- the office, and what brokers notify ---------------------------------------------------------


def test_whoever_deletes_the_controller_s_znode_has_another_elected(operator: Operator) -> None:
    """As operators of Kafka do to have everything read again; nothing else changes."""
    operator.place("elected", {0: [1, 2, 3]})
    before, epoch = operator.text(paths.state("elected", 0)), operator.epoch()
    operator.client.delete(paths.CONTROLLER)
    until(lambda: operator.epoch() == epoch + 1)
    operator.place("elected-after", {0: [1, 2, 3]})
    assert operator.json(paths.state("elected-after", 0))["controller_epoch"] == epoch + 1
    assert operator.text(paths.state("elected", 0)) == before
    assert operator.produce("elected") is None


def test_a_state_that_its_leader_wrote_is_taken_over_when_it_says_so(operator: Operator) -> None:
    """As brokers before 2.7 did: they wrote the state, then a notification of it."""
    operator.place("isr", {0: [1, 2, 3]})
    path = paths.state("isr", 0)
    operator.write(path, operator.json(path) | {"isr": [1], "leader_epoch": 1})
    notification = election(("isr", 0))
    operator.client.create(paths.ISR_CHANGE, json.dumps(notification).encode(), sequence=True)
    until(lambda: not operator.client.get_children(paths.ISR_CHANGES))
    # The leader hears of it, and takes back who is in sync. Until it has, brokers still tell that
    # all are.
    until(lambda: operator.stat(path).version > 1)
    operator.cluster.wait_in_sync("isr", PATIENCE_SECONDS)
    assert operator.json(path)["leader_epoch"] == 1
    assert operator.produce("isr") is None


def test_a_broker_whose_folder_failed_is_asked_again(operator: Operator) -> None:
    """Nothing has failed: it answers that all is well, and the notification goes."""
    operator.place("directories", {0: [2, 3]})
    event = b'{"version":1,"broker":2,"event":1}'
    operator.client.create(paths.LOG_DIR_EVENT, event, sequence=True)
    until(lambda: not operator.client.get_children(paths.LOG_DIR_EVENTS))
    assert operator.produce("directories") is None
    assert operator.json(paths.state("directories", 0))["leader_epoch"] == 0
