"""The tools that act through znodes write what old tools wrote, and refuse what these refused.

Method: a real server with the znodes of brokers that are not there, so that nobody but the tools
writes; what they wrote is read with kazoo. What a cluster makes of it is tested in
`test_acting_through_znodes.py`.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from ottla.cli.main import main
from ottla.metadata.brokers import Endpoint
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.broker import BrokerZnode, encode_broker
from ottla.testing.zookeeper_server import ZooKeeperServer


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Tools:
    """`ottla` commands with --zookeeper, and what they left behind."""

    def __init__(self, run: Callable[..., Ran], client: KazooClient, connect: str) -> None:
        self._run = run
        self.client = client
        self.connect = connect

    def __call__(self, command: str, *words: str) -> Ran:
        return self._run(command, "--zookeeper", self.connect, *words)

    def done(self, command: str, *words: str) -> str:
        """Return what a command printed that must succeed."""
        ran = self(command, *words)
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    def refused(self, command: str, *words: str) -> str:
        """Return the reason of a command that must fail."""
        ran = self(command, *words)
        assert ran.code == 1
        return ran.err.strip()

    def json(self, path: str) -> dict[str, object]:
        """Return what a znode holds."""
        content: dict[str, object] = json.loads(self.client.get(path)[0])
        return content


@pytest.fixture
def tools(
    zookeeper: ZooKeeperServer, chroot: str, capsys: pytest.CaptureFixture[str]
) -> Iterator[Tools]:
    """Tools on a cluster of three brokers, by their znodes."""

    def run(*words: str) -> Ran:
        code = main(list(words))
        return Ran(code, *capsys.readouterr())

    client = KazooClient(f"{zookeeper.connect}")
    client.start()
    client.ensure_path(chroot)
    client.chroot = chroot
    for number in (1, 2, 3):
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9091 + number)
        data = encode_broker(BrokerZnode(endpoints=(endpoint,)))
        client.create(paths.broker(number), data, makepath=True)
    try:
        yield Tools(run, client, f"{zookeeper.connect}{chroot}")
    finally:
        client.stop()
        client.close()


def create(tools: Tools, name: str, *words: str) -> None:
    words = words or ("--partitions", "2", "--replication-factor", "2")
    assert tools.done("topics", "--create", "--topic", name, *words) == f"Created topic {name}.\n"


# -- topics


def test_a_topic_is_two_znodes(tools: Tools) -> None:
    create(tools, "t", "--replica-assignment", "1:2,2:3", "--config", "retention.ms=1000")
    topic = tools.json("/brokers/topics/t")
    assert topic.pop("topic_id")
    assert topic == {
        "version": 3,
        "partitions": {"0": [1, 2], "1": [2, 3]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert tools.json("/config/topics/t") == {"version": 1, "config": {"retention.ms": "1000"}}


def test_replicas_are_placed_on_live_brokers(tools: Tools) -> None:
    create(tools, "t", "--partitions", "6", "--replication-factor", "3")
    partitions = tools.json("/brokers/topics/t")["partitions"]
    assert isinstance(partitions, dict)
    assert [sorted(each) for each in partitions.values()] == [[1, 2, 3]] * 6
    assert len({each[0] for each in partitions.values()}) == 3


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--partitions", "1", "--replication-factor", "4"), "larger than available brokers: 3"),
        (("--replica-assignment", "1:9"), "Unknown broker id 9"),
        (("--partitions", "1", "--replication-factor", "1", "--config", "x=1"), "Unknown topic"),
    ],
)
def test_what_cannot_be_created_leaves_nothing(
    tools: Tools, words: tuple[str, ...], reason: str
) -> None:
    assert reason in tools.refused("topics", "--create", "--topic", "t", *words)
    assert not tools.client.exists("/brokers/topics/t")
    assert not tools.client.exists("/config/topics/t")


def test_a_name_that_is_taken_or_collides_is_refused(tools: Tools) -> None:
    create(tools, "t-1")
    words = ("--partitions", "1", "--replication-factor", "1")
    assert tools.refused("topics", "--create", "--topic", "t-1", *words).endswith(
        "Topic 't-1' already exists."
    )
    assert tools.done("topics", "--create", "--topic", "t-1", "--if-not-exists", *words) == ""
    assert tools("topics", "--create", "--topic", "a.b", *words).code == 0
    assert "collides with existing topics: a.b" in tools.refused(
        "topics", "--create", "--topic", "a_b", *words
    )


def test_partitions_are_added_and_unknown_fields_kept(tools: Tools) -> None:
    create(tools, "t", "--replica-assignment", "1:2")
    before = tools.json("/brokers/topics/t")
    tools.client.set("/brokers/topics/t", json.dumps({**before, "later": 7}).encode())
    out = tools.done(
        "topics", "--alter", "--topic", "t", "--partitions", "2", "--replica-assignment", "1:2,3:1"
    )
    assert out.splitlines()[-1] == "Adding partitions succeeded!"
    after = tools.json("/brokers/topics/t")
    assert after == {**before, "partitions": {"0": [1, 2], "1": [3, 1]}, "later": 7}
    assert "would not be an increase" in tools.refused(
        "topics", "--alter", "--topic", "t", "--partitions", "2"
    )


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__remote_log_metadata"])
def test_topics_whose_partition_count_decides_what_is_where_keep_it(
    tools: Tools, topic: str
) -> None:
    tools.done("topics", "--create", "--topic", topic, "--replica-assignment", "1:2")
    before = tools.json(f"/brokers/topics/{topic}")
    assert f"The number of partitions of {topic} cannot be changed" in tools.refused(
        "topics", "--alter", "--topic", topic, "--partitions", "2"
    )
    assert tools.json(f"/brokers/topics/{topic}") == before


def test_topics_are_listed_and_described(tools: Tools) -> None:
    create(tools, "t", "--replica-assignment", "1:2", "--config", "retention.ms=1000")
    state = b'{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":1,"isr":[1]}'
    tools.client.create("/brokers/topics/t/partitions/0/state", state, makepath=True)
    header, partition = tools.done("topics", "--describe").splitlines()
    assert "PartitionCount: 1\tReplicationFactor: 2\tConfigs: retention.ms=1000" in header
    assert "Leader: 1\tReplicas: 1,2\tIsr: 1" in partition
    assert tools.done("topics", "--describe", "--under-replicated-partitions").strip()
    assert tools.done("topics", "--list") == "t\n"
    tools.done("topics", "--delete", "--topic", "t")
    assert tools.done("topics", "--list") == "t - marked for deletion\n"
    assert all(
        line.endswith("\tMarkedForDeletion: true")
        for line in tools.done("topics", "--describe", "--topic", "t").splitlines()
    )


def test_the_messages_of_a_deletion_are_kafka_s_word_for_word(tools: Tools) -> None:
    """Scripts compare them; a refusal bears the command's name before them, as all of `ottla`'s."""
    delete = ("topics", "--delete", "--topic")
    create(tools, "t")
    assert tools(*delete, "t") == Ran(
        0,
        "Topic t is marked for deletion.\n"
        "Note: This will have no impact if delete.topic.enable is not set to true.\n",
        "",
    )
    assert tools.client.get("/admin/delete_topics/t")[0] == b""
    assert tools(*delete, "t") == Ran(0, "Topic t is already marked for deletion.\n", "")
    assert tools(*delete, "other") == Ran(
        1, "", f"ottla topics: Topic other does not exist on ZK path {tools.connect}\n"
    )
    assert tools(*delete, "other", "--if-exists") == Ran(0, "", "")
    words = ("--partitions", "1", "--replication-factor", "1")
    tools("topics", "--create", "--topic", "__consumer_offsets", *words)
    assert tools(*delete, "__consumer_offsets") == Ran(
        1,
        "",
        "ottla topics: Topic __consumer_offsets is a kafka internal topic and is not allowed to be "
        "marked for deletion.\n",
    )
    assert not tools.client.exists("/admin/delete_topics/__consumer_offsets")


def test_a_marker_that_may_not_be_written_is_told_in_kafka_s_words_and_the_reason_after_them(
    tools: Tools,
) -> None:
    create(tools, "t")
    tools.client.ensure_path("/admin")
    tools.client.create("/admin/delete_topics", acl=[make_acl("world", "anyone", read=True)])
    assert tools("topics", "--delete", "--topic", "t") == Ran(
        1,
        "",
        "ottla topics: Error while deleting topic t\n"
        "ZooKeeper refuses /admin/delete_topics/t: it may not be written (NoAuthError)\n",
    )
    assert tools.done("topics", "--list") == "t\n"


# -- configurations


def test_a_configuration_is_written_with_its_notification(tools: Tools) -> None:
    create(tools, "t", "--replica-assignment", "1", "--config", "retention.ms=1")
    out = tools.done(
        "configs", "--alter", "--topic", "t",
        "--add-config", "cleanup.policy=[compact,delete]", "--delete-config", "retention.ms",
    )  # fmt: skip
    assert out == "Completed Updating config for entity: topic 't'.\n"
    assert tools.json("/config/topics/t")["config"] == {"cleanup.policy": "compact,delete"}
    [change] = tools.client.get_children("/config/changes")
    assert change == "config_change_0000000000"
    assert tools.json(f"/config/changes/{change}") == {"version": 2, "entity_path": "topics/t"}
    described = tools.done("configs", "--describe", "--topic", "t")
    assert described == "Configs for topic 't' are cleanup.policy=compact,delete\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--topic", "t", "--add-config", "retention.ms=x"), "retention.ms"),
        (("--topic", "t", "--delete-config", "retention.ms"), "Invalid config(s): retention.ms"),
        (("--topic", "other", "--add-config", "retention.ms=1"), "does not exist on ZK path"),
        (("--broker", "1", "--add-config", "log.retention.ms=1"), "broker 1 is running"),
        (("--broker-defaults", "--add-config", "log.retention.ms=1"), "broker 1 is running"),
    ],
)
def test_what_cannot_be_configured_leaves_nothing(
    tools: Tools, words: tuple[str, ...], reason: str
) -> None:
    create(tools, "t")
    assert reason in tools.refused("configs", "--alter", *words)
    assert not tools.client.exists("/config/changes")


NOTE = (
    "Note: remote storage is turned on or off once the controller has checked this;"
    " 'ottla tier describe' shows the result.\n"
)


def test_remote_storage_is_requested_on_and_off(tools: Tools) -> None:
    words = ("--replica-assignment", "1", "--config", "remote.storage.enable=true")
    out = tools.done("topics", "--create", "--topic", "made", *words)
    assert out == f"Created topic made.\n{NOTE}"
    create(tools, "t", "--replica-assignment", "1")
    alter = ("configs", "--alter", "--topic", "t")
    out = tools.done(*alter, "--add-config", "remote.storage.enable=TRUE")
    assert out == f"Completed Updating config for entity: topic 't'.\n{NOTE}"
    out = tools.done(*alter, "--add-config", "local.retention.bytes=1")
    assert out == "Completed Updating config for entity: topic 't'.\n"
    expected = {"remote.storage.enable": "TRUE", "local.retention.bytes": "1"}
    assert tools.json("/config/topics/t")["config"] == expected
    assert "cannot be compacted" in tools.refused(*alter, "--add-config", "cleanup.policy=compact")
    both = "remote.log.disable.policy=retain,remote.log.delete.on.disable=true"
    assert "contradict each other" in tools.refused(*alter, "--add-config", both)
    assert tools.json("/config/topics/t")["config"] == expected
    off = "remote.log.disable.policy=delete, remote.storage.enable=false"
    out = tools.done(*alter, "--add-config", off)
    assert out == f"Completed Updating config for entity: topic 't'.\n{NOTE}"
    out = tools.done(*alter, "--delete-config", "remote.storage.enable")
    assert out == "Completed Updating config for entity: topic 't'.\n"


def test_a_broker_that_is_down_is_configured(tools: Tools) -> None:
    tools.done("configs", "--alter", "--broker", "9", "--add-config", "log.retention.ms=5")
    assert tools.json("/config/brokers/9")["config"] == {"log.retention.ms": "5"}


# -- moves and elections


def test_a_move_is_asked_for_once(tools: Tools, tmp_path: Path) -> None:
    create(tools, "t", "--replica-assignment", "1:2")
    file = tmp_path / "moves.json"
    wanted = {"topic": "t", "partition": 0, "replicas": [3, 1]}
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    words = ("--reassignment-json-file", str(file))
    out = tools.done("reassign-partitions", "--execute", *words)
    assert '"replicas":[1,2]' in out
    assert out.endswith("Successfully started partition reassignment for t-0\n")
    assert tools.json("/admin/reassign_partitions") == {"version": 1, "partitions": [wanted]}
    assert "t-0 is still in progress" in tools.done("reassign-partitions", "--verify", *words)
    assert tools.refused("reassign-partitions", "--execute", *words).endswith(
        "There is an existing assignment running."
    )
    tools.client.delete("/admin/reassign_partitions")
    verified = tools.done("reassign-partitions", "--verify", *words)
    assert "t-0, but replica set is 1,2 rather than 3,1." in verified
    assert tools("reassign-partitions", "--list").code == 2


def test_preferred_leaders_are_asked_for_once(tools: Tools) -> None:
    create(tools, "t", "--replica-assignment", "1:2,2:1")
    words = ("--election-type", "preferred", "--all-topic-partitions")
    out = tools.done("leader-election", *words)
    assert out == "Successfully started preferred replica election for partitions t-0, t-1\n"
    assert tools.json("/admin/preferred_replica_election") == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}],
    }
    assert "currently in progress" in tools.refused("leader-election", *words)
    unclean = ("--election-type", "unclean", "--topic", "t", "--partition", "0")
    assert tools("leader-election", *unclean).code == 2


# -- the connection


def test_no_server_and_no_chroot_are_said_in_one_line(tools: Tools) -> None:
    run = tools._run
    ran = run("topics", "--zookeeper", f"{tools.connect}/none", "--list")
    assert ran.code == 1
    assert ran.err.count("\n") == 1
    assert "/none does not exist: expected the chroot of a cluster" in ran.err
    ran = run("topics", "--zookeeper", "127.0.0.1:1", "--list", "--timeout", "0.5")
    assert ran == (1, "", "ottla topics: --zookeeper 127.0.0.1:1: "
                          "no ZooKeeper server answers within 0.5 s "
                          "(127.0.0.1:1: connection refused)\n")  # fmt: skip
    assert run("topics", "--zookeeper", "x:1", "--bootstrap-server", "y:1", "--list").code == 2
