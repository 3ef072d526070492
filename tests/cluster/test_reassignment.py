"""Partitions move while they are written to: nothing is lost, and no producer is told of it.

Method: four brokers in either mode, idempotent producers with acks=all on a topic that the
`ottla` command moves, grows, shrinks and cancels the moving of; brokers and the controller die in
the middle. Then all that was acknowledged is read, each message once, and the replicas' .log
files are compared byte for byte. A move is held in its middle by a target that does not run. Some
of the moves are played, drawn by the commit; `make soak` plays them all.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from kafka.errors import UnknownTopicOrPartitionError

from kafka import KafkaAdminClient, TopicPartition
from ottla.base.errors import Error
from ottla.client.connection import Connection
from ottla.testing import Cluster
from ottla.testing.readiness import known_brokers
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

from .clients import Closing, Message, client_of, eventually, produce, read
from .conftest import (
    CONTROLLER,
    QUICK_FENCING,
    Kind,
    NewCluster,
    has_own_controller,
    new_name,
    revived,
)
from .ottla_command import ottla
from .workload import Workload

pytestmark = [pytest.mark.timeout(300), pytest.mark.forms(1)]  # More than a workload's patience.

story = pytest.mark.drawn(2)
"""What one run plays a part of; the simulator plays such moves at every moment."""

PARTITIONS = 3
NODES = (1, 2, 3, 4)
Ids = tuple[int, ...]
T = TypeVar("T")


@pytest.fixture(scope="module", params=[Kind.SEPARATE, Kind.ZOOKEEPER], ids=lambda kind: kind.value)
def four_of_module(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    # Leaders move only where a test says so: a new controller balances them after five seconds.
    config = QUICK_FENCING | {
        "replica.lag.time.max.ms": "3000",
        "auto.leader.rebalance.enable": "false",
    }
    with new_cluster(request.param, 4, controllers=1, config=config) as cluster:
        yield cluster


@pytest.fixture
def four(four_of_module: Cluster) -> Cluster:
    """Four brokers that serve."""
    return revived(four_of_module)


def command(cluster: Cluster, *arguments: str) -> str:
    """Run an `ottla` command that must succeed; return what it printed."""
    name, *rest = arguments
    ran = ottla(name, "--bootstrap-server", cluster.bootstrap, *rest)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def assigned(cluster: Cluster, test: str, *replicas: Ids, **config: str) -> str:
    """Create a topic with these replicas of each partition."""
    topic = new_name(test)
    lists = ",".join(":".join(map(str, each)) for each in replicas)
    more = [f"--config={key.replace('_', '.')}={value}" for key, value in config.items()]
    command(cluster, "topics", "--create", "--topic", topic, "--replica-assignment", lists, *more)
    eventually(lambda: cluster.partitions(topic), bool, what=f"{topic} to be known")
    cluster.wait_in_sync(topic)
    return topic


def plan(directory: Path, topic: str, replicas: Mapping[int, Ids]) -> str:
    """Write a reassignment file; return its path."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": list(each)}
        for number, each in replicas.items()
    ]
    path = directory / "moves.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def start(cluster: Cluster, path: str) -> None:
    out = command(cluster, "reassign-partitions", "--execute", "--reassignment-json-file", path)
    assert "Successfully started partition reassignment" in out


def finish(cluster: Cluster, path: str) -> None:
    """Wait until --verify calls every partition completed."""
    arguments = ("--verify", "--reassignment-json-file", path, "--preserve-throttles")
    count = Path(path).read_text().count('"partition":')
    out = eventually(
        lambda: command(cluster, "reassign-partitions", *arguments),
        lambda out: out.count("is completed.") == count,
        within=60,
        what="the end of the reassignment",
    )
    assert "in progress" not in out


def move(cluster: Cluster, directory: Path, topic: str, replicas: Mapping[int, Ids]) -> None:
    path = plan(directory, topic, replicas)
    start(cluster, path)
    finish(cluster, path)


def copies(cluster: Cluster, topic: str, partition: int) -> dict[int, bytes]:
    """Return the bytes of a partition's log by broker; only brokers that have a directory of it."""
    found = {}
    for node in NODES:
        directory = cluster.data_dir(node) / f"{topic}-{partition}"
        if directory.exists():
            found[node] = b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))
    return found


def check_places(cluster: Cluster, topic: str, replicas: Mapping[int, Ids]) -> None:
    """Wait until each partition is exactly where it should be, with equal bytes."""
    for number, wanted in replicas.items():
        facts = eventually(
            lambda number=number: cluster.partitions(topic)[number],  # type: ignore[misc]
            lambda facts, wanted=wanted: (
                facts.replicas == wanted  # type: ignore[misc]
                and set(facts.isr) == set(wanted)
            ),
            what=f"{topic}-{number} at {wanted}",
        )
        assert facts.leader in wanted
        eventually(
            lambda number=number: copies(cluster, topic, number),  # type: ignore[misc]
            lambda found, wanted=wanted: (
                set(found) == set(wanted)  # type: ignore[misc]
                and len(set(found.values())) == 1
            ),
            what=f"equal logs of {topic}-{number} at {wanted} alone",
        )


def load_of(cluster: Cluster, topic: str, partitions: int = PARTITIONS) -> Workload:
    return Workload(cluster, topic, partitions, enable_idempotence=True)


def check(load: Workload) -> None:
    load.check()
    load.check_once()


def nobody() -> None:
    """Make no client."""


@contextmanager
def held(cluster: Cluster, make: Callable[[], T]) -> Iterator[T]:
    """Ask for a move to broker 4, which can be asked for and cannot join.

    `make`: makes a client that already knows the controller, and gets it when neither broker 4
    is dead and still known, nor the controller frozen: a client takes any broker that it knows
    for its first requests, and reports it when that one does not answer.
    Over ZooKeeper nobody moves to a dead broker, as in Kafka: there it dies when it was asked.
    """
    if cluster.zookeeper_connect is None:
        cluster.kill(4)
        for plan in cluster.brokers[:3]:
            eventually(
                lambda port=plan.port: known_brokers(port),  # type: ignore[misc]
                {1, 2, 3}.__eq__,
                what=f"broker {plan.id} to hear that 4 is fenced",
            )
        yield make()
    else:
        if cluster.wait_controller() == 4:
            cluster.restart(4)
            cluster.wait_controller(besides=4)
        made = make()
        cluster.pause(4)
        yield made
        cluster.kill(4)


def ask_anyway(cluster: Cluster, node: int, topic: str, replicas: Ids | None) -> Error:
    """Reassign partition 0 past the tool, which refuses brokers that do not run."""
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=(ReassignableTopic(name=topic, partitions=(partition,)),)
    )
    host, port = cluster.address(node).split(":")
    with Connection(host, int(port), client_id="test", timeout=5) as broker:
        answer = broker.ask(request, AlterPartitionReassignmentsResponse, timeout=15)
    assert answer.error_code == 0
    return Error(answer.responses[0].partitions[0].error_code)


def test_a_loaded_topic_moves_to_other_brokers(four: Cluster, tmp_path: Path) -> None:
    topic = assigned(four, "moves", (1, 2), (2, 1), (1, 2))
    there: dict[int, Ids] = {0: (3, 4), 1: (4, 3), 2: (2, 3)}
    load = load_of(four, topic)
    with load:
        load.wait_progress()
        move(four, tmp_path, topic, there)
        load.wait_progress()
    check(load)
    check_places(four, topic, there)


@story
def test_it_moves_to_and_fro_without_a_pause(four: Cluster, tmp_path: Path) -> None:
    topic = assigned(four, "to-and-fro", (1, 2), (2, 3), (3, 4))
    places: dict[int, Ids] = {}
    load = load_of(four, topic)
    with load:
        for turn in range(4):
            places = {
                number: (1 + (number + turn) % 4, 1 + (number + turn + 2) % 4)
                for number in range(PARTITIONS)
            }
            move(four, tmp_path, topic, places)
    check(load)
    check_places(four, topic, places)


@story
def test_more_replicas_and_fewer(four: Cluster, tmp_path: Path) -> None:
    topic = assigned(four, "grows", (1,), (2,), (3,), min_insync_replicas="2")
    grown: dict[int, Ids] = {0: (1, 2, 3), 1: (2, 3, 4), 2: (3, 4, 1)}
    shrunk: dict[int, Ids] = {0: (3, 1), 1: (4, 2), 2: (1, 4)}
    load = load_of(four, topic)
    with load:
        move(four, tmp_path, topic, grown)
        load.wait_progress()
        move(four, tmp_path, topic, shrunk)
        load.wait_progress()
    check(load)
    check_places(four, topic, shrunk)


def test_a_move_is_cancelled_in_its_middle(four: Cluster, tmp_path: Path) -> None:
    topic = assigned(four, "cancelled", (1, 2))
    load = load_of(four, topic, 1)
    with load:
        with held(four, nobody):
            assert ask_anyway(four, 1, topic, (3, 4)) is Error.NONE
        # One target joins, the other one cannot.
        eventually(lambda: set(four.partitions(topic)[0].isr), {1, 2, 3}.__eq__, what="3 to join")
        listed = command(four, "reassign-partitions", "--list")
        assert f"{topic}-0: replicas: 3,4,1,2. adding: 3,4. removing: 1,2.\n" in listed
        if has_own_controller(four):
            controller = ("--bootstrap-controller", four.controller_address(CONTROLLER))
            assert ottla("reassign-partitions", *controller, "--list") == (0, listed, "")
        described = command(four, "topics", "--describe", "--topic", topic)
        assert "\tAdding Replicas: 3,4\tRemoving Replicas: 1,2\t" in described
        assert "ReplicationFactor: 2" in described
        load.wait_progress()

        path = plan(tmp_path, topic, {0: (3, 4)})
        arguments = ("--cancel", "--reassignment-json-file", path, "--preserve-throttles")
        cancelled = command(four, "reassign-partitions", *arguments)
        assert f"Successfully cancelled partition reassignment for: {topic}-0\n" in cancelled
        assert ask_anyway(four, 1, topic, None) is Error.NO_REASSIGNMENT_IN_PROGRESS
        load.wait_progress()
        four.start(4)
        four.wait_ready()
    check(load)
    check_places(four, topic, {0: (1, 2)})


@story
def test_a_target_dies_and_comes_back(four: Cluster, tmp_path: Path) -> None:
    topic = assigned(four, "target-dies", (1, 2), (2, 1), (1, 2))
    there: dict[int, Ids] = {0: (3, 4), 1: (4, 3), 2: (3, 1)}
    load = load_of(four, topic)
    with load:
        path = plan(tmp_path, topic, there)
        start(four, path)
        four.kill(3)
        load.wait_progress()
        four.start(3)
        finish(four, path)
        load.wait_progress()
    check(load)
    check_places(four, topic, there)


@story
def test_the_leader_dies_in_the_middle(four: Cluster, tmp_path: Path) -> None:
    topic = assigned(four, "leader-dies", (1, 2, 3), min_insync_replicas="2")
    load = load_of(four, topic, 1)
    with load:
        path = plan(tmp_path, topic, {0: (4, 2, 3)})
        start(four, path)
        four.kill(1)
        load.wait_progress()
        finish(four, path)
        four.start(1)
        four.wait_ready()
    check(load)
    check_places(four, topic, {0: (4, 2, 3)})


@story
def test_the_controller_dies_in_the_middle(four: Cluster, tmp_path: Path) -> None:
    topic = assigned(four, "controller-dies", (1, 2), (2, 1), (1, 2))
    there: dict[int, Ids] = {0: (3, 4), 1: (4, 3), 2: (4, 1)}
    load = load_of(four, topic)
    with load:
        path = plan(tmp_path, topic, there)
        start(four, path)
        controller = four.wait_controller()
        four.kill(controller)
        # A leader that has not received the last change yet goes on once there is a controller.
        four.start(controller)
        load.wait_progress()
        four.wait_ready()
        finish(four, path)
        load.wait_progress()
    check(load)
    check_places(four, topic, there)


@story
def test_the_topic_is_deleted_in_the_middle(four: Cluster) -> None:
    topic = assigned(four, "deleted", (1, 2))
    with held(four, nobody):
        assert ask_anyway(four, 1, topic, (3, 4)) is Error.NONE
    if four.zookeeper_connect is None:
        command(four, "topics", "--delete", "--topic", topic)
        assert topic not in command(four, "reassign-partitions", "--list")
    else:
        # There the topic goes once the move has ended: until then nobody is told that it did.
        deletion = ("topics", "--bootstrap-server", four.bootstrap, "--delete", "--topic", topic)
        assert "REQUEST_TIMED_OUT" in ottla(*deletion, "--timeout", "2").err
        assert topic in command(four, "reassign-partitions", "--list")
    four.start(4)
    four.wait_ready()
    eventually(lambda: copies(four, topic, 0), {}.__eq__, what="the logs to go everywhere")
    again = assigned(four, "deleted-again", (4, 3))
    check_places(four, again, {0: (4, 3)})


def test_groups_move_with_their_offsets(four: Cluster, tmp_path: Path) -> None:
    """The coordinator's partition moves: the group goes on from what it committed."""
    topic = assigned(four, "group", (1, 2))
    client = client_of("confluent")
    messages = [Message(topic=topic, value=b"%d" % number, partition=0) for number in range(20)]
    produce(client, four.bootstrap, messages)
    group = new_name("group")
    with Closing(client.consumer(four.bootstrap, group=group)) as consumer:
        consumer.subscribe([topic])
        assert len(read(consumer, 20)) == 20
        consumer.commit()
    offsets = four.partitions("__consumer_offsets")
    there = {
        number: tuple(sorted(set(NODES) - set(facts.replicas))) for number, facts in offsets.items()
    }
    assert all(there.values()), "no coordinator can move: the test shows nothing"
    move(four, tmp_path, "__consumer_offsets", there)
    with Closing(client.consumer(four.bootstrap, group=group)) as consumer:
        consumer.subscribe([topic])
        produce(client, four.bootstrap, [Message(topic=topic, value=b"next", partition=0)])
        assert [each.value for each in read(consumer, 1)] == [b"next"]


def test_leaders_go_back_to_the_preferred_replica(four: Cluster, tmp_path: Path) -> None:
    """Under load; also by a list in a file, and with what needs no election told apart."""
    topic = assigned(four, "preferred", (1, 2), (2, 1), (1, 2))
    load = load_of(four, topic)
    with load:
        # The order alone changes, so nothing moves and the leaders stay.
        move(four, tmp_path, topic, {0: (2, 1), 1: (2, 1), 2: (2, 1)})
        assert [facts.leader for _, facts in sorted(four.partitions(topic).items())] == [1, 2, 1]
        preferred = ("leader-election", "--election-type", "preferred")
        out = command(four, *preferred, "--topic", topic, "--partition", "0")
        done = "Successfully completed leader election (PREFERRED) for partitions"
        assert out == f"{done} {topic}-0\n"
        path = tmp_path / "elect.json"
        named = [{"topic": topic, "partition": number} for number in range(3)]
        path.write_text(json.dumps({"partitions": named}))
        out = command(four, *preferred, "--path-to-json-file", str(path))
        assert f"{done} {topic}-2\n" in out
        assert f"Valid replica already elected for partitions {topic}-0, {topic}-1\n" in out
        assert topic not in command(four, *preferred, "--all-topic-partitions")
        load.wait_progress()
    check(load)
    eventually(
        lambda: {facts.leader for facts in four.partitions(topic).values()},
        {2}.__eq__,
        what="broker 2 to lead all",
    )


def test_an_unclean_election_is_made_only_where_asked_for(four: Cluster) -> None:
    topic = assigned(four, "unclean", (3, 4), min_insync_replicas="1")
    produce(client_of("confluent"), four.bootstrap, [Message(topic=topic, value=b"a", partition=0)])
    four.kill(4)
    eventually(lambda: four.partitions(topic)[0].isr, (3,).__eq__, what="4 to leave the ISR")
    produce(client_of("confluent"), four.bootstrap, [Message(topic=topic, value=b"b", partition=0)])
    four.kill(3)
    eventually(lambda: four.partitions(topic)[0].leader, (-1).__eq__, what="3 to be fenced")
    four.start(4)
    # The cluster is not whole, so what can be waited for is that broker 4 serves again.
    arguments = ("--topic", topic, "--partition", "0", "--bootstrap-server", four.address(1))

    def elect(kind: str) -> tuple[int, str]:
        ran = ottla("leader-election", "--election-type", kind, *arguments)
        return ran.code, ran.out

    code, out = elect("preferred")
    assert code == 1
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in out
    assert four.partitions(topic)[0].leader == -1
    eventually(lambda: elect("unclean")[0], (0).__eq__, what="an unclean election of broker 4")
    eventually(lambda: four.partitions(topic)[0].leader, (4).__eq__, what="broker 4 to lead")
    four.start(3)
    four.wait_ready()
    four.wait_in_sync(topic)


def test_another_administrator_moves_lists_and_cancels(four: Cluster) -> None:
    """kafka-python's, which has all three requests."""
    topic = assigned(four, "kafka-python", (1, 2))
    partition, other = TopicPartition(topic, 0), TopicPartition(topic, 7)

    def acquainted() -> KafkaAdminClient:
        admin = KafkaAdminClient(bootstrap_servers=four.address(1))
        admin.list_partition_reassignments()
        return admin

    with held(four, acquainted) as admin:
        notified = admin.alter_partition_reassignments({partition: [3, 4], other: [3]})
    with Closing(admin):
        assert notified == {partition: None, other: UnknownTopicOrPartitionError}
        assert admin.list_partition_reassignments([partition])[partition] == {
            "replicas": [3, 4, 1, 2],
            "adding_replicas": [3, 4],
            "removing_replicas": [1, 2],
        }
        assert admin.alter_partition_reassignments({partition: None}) == {partition: None}
        assert admin.list_partition_reassignments() == {}
        assert admin.alter_partition_reassignments({partition: [2, 1]}) == {partition: None}
        admin.elect_leaders(0, {topic: [0]})
        eventually(lambda: four.partitions(topic)[0].leader, (2).__eq__, what="2 to lead")
    four.start(4)
    four.wait_ready()
    check_places(four, topic, {0: (2, 1)})


def test_troubled_partitions_are_described(four: Cluster) -> None:
    topic = assigned(four, "troubled", (3, 4), (3, 2), min_insync_replicas="2")

    def numbers(report: str) -> list[int]:
        out = command(four, "topics", "--describe", "--topic", topic, f"--{report}-partitions")
        return [int(line.split("\t")[2].removeprefix("Partition: ")) for line in out.splitlines()]

    assert numbers("under-replicated") == numbers("under-min-isr") == numbers("unavailable") == []
    assert numbers("at-min-isr") == [0, 1]
    four.kill(4)
    eventually(lambda: numbers("under-replicated"), [0].__eq__, what="4 to leave the ISR")
    assert numbers("under-min-isr") == [0]
    assert numbers("at-min-isr") == [1]
    assert numbers("unavailable") == []
    four.kill(3)
    eventually(lambda: numbers("unavailable"), [0].__eq__, what="3 to be fenced")
    assert numbers("under-min-isr") == [0, 1]
    described = command(four, "topics", "--describe", "--topic", topic)
    assert "\tPartition: 0\tLeader: none\tReplicas: 3,4\t" in described
    for node in (3, 4):
        four.start(node)
    four.wait_ready()
    eventually(lambda: numbers("under-replicated"), [].__eq__, what="all replicas in sync")
