"""Kafka's tools of this project against a real broker, as their users run them.

Method: one broker for the file; each test has topics and groups of its own.
"""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ottla.testing import Cluster

from .ottla_command import Ran, ottla, ottla_arguments

pytestmark = [pytest.mark.cluster, pytest.mark.drawn(13)]

Tool = Callable[..., Ran]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(config={"group.initial.rebalance.delay.ms": "0"}) as started:
        yield started


@pytest.fixture
def tool(cluster: Cluster) -> Tool:
    """Run a tool against the broker."""

    def run(name: str, *arguments: str, stdin: str = "") -> Ran:
        return ottla(name, "--bootstrap-server", cluster.bootstrap, *arguments, stdin=stdin)

    return run


def fill(tool: Tool, topic: str, *lines: str) -> None:
    """Create a topic of one partition with these records."""
    assert tool("topics", "--create", "--topic", topic, "--partitions", "1").code == 0
    sent = tool("console-producer", "--topic", topic, stdin="".join(f"{line}\n" for line in lines))
    assert sent == (0, "", "")


def read(tool: Tool, topic: str, count: int, *arguments: str) -> Ran:
    """Consume `count` records from the beginning."""
    return tool(
        "console-consumer", "--topic", topic, "--from-beginning",
        "--max-messages", str(count), "--timeout-ms", "20000", *arguments,
    )  # fmt: skip


def test_topics_from_their_creation_to_their_end(tool: Tool) -> None:
    made = tool("topics", "--create", "--topic", "life", "--config", "retention.ms=1000")
    assert made == (0, "Created topic life.\n", "")
    again = tool("topics", "--create", "--topic", "life")
    assert again.code == 1
    assert "already exists" in again.err
    assert tool("topics", "--create", "--topic", "life", "--if-not-exists") == (0, "", "")
    assert tool("topics", "--alter", "--topic", "life", "--partitions", "2") == (0, "", "")
    described = tool("topics", "--describe", "--topic", "life").out.splitlines()
    assert described[0].startswith("Topic: life\tTopicId: ")
    # The cluster's default of min.insync.replicas is written down when it begins (KIP-966).
    assert described[0].endswith(
        "\tPartitionCount: 2\tReplicationFactor: 1"
        "\tConfigs: min.insync.replicas=1,retention.ms=1000"
    )
    assert described[1:] == [
        f"\tTopic: life\tPartition: {index}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
        for index in (0, 1)
    ]
    topic_id = described[0].split("\t")[1].removeprefix("TopicId: ")
    assert tool("topics", "--describe", "--topic-id", topic_id).out.splitlines() == described
    assert "life" in tool("topics", "--list").out.splitlines()
    assert tool("topics", "--delete", "--topic", "life") == (0, "", "")
    assert "life" not in tool("topics", "--list").out.splitlines()
    assert tool("topics", "--delete", "--topic", "life").code == 1


def test_shrinking_a_topic_is_refused(tool: Tool) -> None:
    tool("topics", "--create", "--topic", "shrinking", "--partitions", "3")
    ran = tool("topics", "--alter", "--topic", "shrinking", "--partitions", "2")
    assert ran.code == 1
    assert ran.err.startswith("ottla topics: topic shrinking: ")
    assert ran.err.endswith("(INVALID_PARTITIONS)\n")


def test_configs_of_topics(tool: Tool) -> None:
    tool("topics", "--create", "--topic", "configured")
    entity = ("--entity-type", "topics", "--entity-name", "configured")
    added = tool("configs", "--alter", *entity, "--add-config",
                 "retention.ms=5,cleanup.policy=[compact,delete]")  # fmt: skip
    assert added == (0, "Completed updating config for topic configured.\n", "")
    shown = tool("configs", "--describe", *entity).out.splitlines()
    assert [line.split(" sensitive=")[0] for line in shown] == [
        "Dynamic configs for topic configured are:",
        "  cleanup.policy=compact,delete",
        "  retention.ms=5",
    ]
    assert tool("configs", "--alter", *entity, "--delete-config", "retention.ms").code == 0
    shown = tool("configs", "--describe", *entity).out.splitlines()
    assert len(shown) == 2
    wrong = tool("configs", "--alter", *entity, "--add-config", "retention.ms=soon")
    assert (wrong.code, wrong.out) == (1, "")
    assert "retention.ms" in wrong.err
    assert "  retention.ms=604800000 " in tool("configs", "--describe", "--all", *entity).out


def test_configs_of_brokers(tool: Tool) -> None:
    assert tool("configs", "--describe", "--broker", "1", "--all").out.count("\n") > 100
    added = tool("configs", "--alter", "--broker-defaults", "--add-config", "log.retention.ms=9")
    assert added == (0, "Completed updating default config for brokers in the cluster.\n", "")
    shown = tool("configs", "--describe", "--broker-defaults").out
    assert shown.startswith("Default configs for brokers in the cluster are:\n"
                            "  log.retention.ms=9 ")  # fmt: skip
    gone = tool("configs", "--alter", "--broker-defaults", "--delete-config", "log.retention.ms")
    assert gone.code == 0


def test_records_there_and_back(tool: Tool) -> None:
    fill(tool, "plain", "one", "two", "", "vier")
    ran = read(tool, "plain", 4)
    assert ran == (0, "one\ntwo\n\nvier\n", "Processed a total of 4 messages\n")


def test_keys_headers_and_nulls(tool: Tool) -> None:
    tool("topics", "--create", "--topic", "parsed", "--partitions", "1")
    reading = ("--property", "parse.key=true", "--property", "parse.headers=true",
               "--property", "key.separator=:", "--property", "headers.delimiter=|",
               "--property", "headers.key.separator==",
               "--property", "null.marker=NIL")  # fmt: skip
    sent = tool("console-producer", "--topic", "parsed", *reading,
                "--compression-codec", "zstd", "--sync",
                stdin="h=1,g=NIL|k:v\nNIL|NIL:NIL\n")  # fmt: skip
    assert sent == (0, "", "")
    printing = [word for name in ("key", "headers", "offset", "partition")
                for word in ("--property", f"print.{name}=true")]  # fmt: skip
    ran = read(tool, "parsed", 2, *printing)
    assert ran.out == (
        "Partition:0\tOffset:0\th:1,g:null\tk\tv\nPartition:0\tOffset:1\tNO_HEADERS\tnull\tnull\n"
    )


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression(tool: Tool, codec: str) -> None:
    topic = f"packed-{codec}"
    tool("topics", "--create", "--topic", topic, "--partitions", "1")
    lines = "".join(f"line {number}\n" for number in range(1000))
    sent = tool("console-producer", "--topic", topic, "--compression-codec", codec, stdin=lines)
    assert sent == (0, "", "")
    assert read(tool, topic, 1000).out == lines


def test_one_partition_from_an_offset(tool: Tool) -> None:
    fill(tool, "cut", "a", "b", "c")
    ran = tool("console-consumer", "--topic", "cut", "--partition", "0", "--offset", "1",
               "--max-messages", "2", "--timeout-ms", "20000")  # fmt: skip
    assert ran.out == "b\nc\n"
    ran = tool("console-consumer", "--topic", "cut", "--partition", "0", "--offset", "latest",
               "--timeout-ms", "500")  # fmt: skip
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.endswith("Processed a total of 0 messages\n")


def test_topics_by_regular_expression(tool: Tool) -> None:
    fill(tool, "many-a", "1")
    fill(tool, "many-b", "2")
    ran = tool("console-consumer", "--include", "many-.*", "--from-beginning",
               "--max-messages", "2", "--timeout-ms", "20000")  # fmt: skip
    assert sorted(ran.out.splitlines()) == ["1", "2"]


def test_groups_from_their_first_offset_to_their_end(tool: Tool) -> None:
    fill(tool, "lagging", "a", "b", "c", "d")
    assert read(tool, "lagging", 3, "--group", "slow").out == "a\nb\nc\n"
    assert "slow" in tool("consumer-groups", "--list").out.splitlines()
    described = tool("consumer-groups", "--describe", "--group", "slow")
    assert described.err == "\nConsumer group 'slow' has no active members.\n"
    blank, heading, row = described.out.splitlines()
    assert blank == ""
    assert heading.split() == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET",
                               "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]  # fmt: skip
    assert row.split() == ["slow", "lagging", "0", "3", "4", "1", "-", "-", "-"]

    planned = tool("consumer-groups", "--reset-offsets", "--group", "slow", "--topic", "lagging",
                   "--shift-by", "-2")  # fmt: skip
    assert planned.out.splitlines()[2].split() == ["slow", "lagging", "0", "1"]
    assert read(tool, "lagging", 1, "--group", "slow").out == "d\n"  # It was but a plan.
    done = tool("consumer-groups", "--reset-offsets", "--group", "slow", "--topic", "lagging:0",
                "--to-offset", "2", "--execute")  # fmt: skip
    assert done.code == 0
    assert read(tool, "lagging", 2, "--group", "slow").out == "c\nd\n"

    forgotten = tool("consumer-groups", "--delete-offsets", "--group", "slow", "--topic", "lagging")
    assert forgotten.out.splitlines() == [
        "Request succeed for deleting offsets with topic lagging group slow",
        "",
        f"{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}",
        f"{'lagging':<30} {'0':<15} {'Successful':<15}",
    ]
    gone = tool("consumer-groups", "--delete", "--group", "slow")
    assert gone.out == "Deletion of requested consumer groups ('slow') was successful.\n"
    assert "slow" not in tool("consumer-groups", "--list").out.splitlines()
    again = tool("consumer-groups", "--describe", "--group", "slow")
    assert again.err == ("ottla consumer-groups: Consumer group 'slow' does not exist.\n")
    assert again.code == 1


def test_every_way_to_reset(tool: Tool, tmp_path: Path) -> None:
    fill(tool, "winding", "a", "b", "c", "d", "e")
    read(tool, "winding", 3, "--group", "winder")

    def reset(*arguments: str) -> int:
        scope = () if "--from-file" in arguments else ("--topic", "winding")
        ran = tool("consumer-groups", "--reset-offsets", "--group", "winder", *scope,
                   *arguments, "--dry-run")  # fmt: skip
        assert ran.code == 0, ran
        return int(ran.out.splitlines()[2].split()[3])

    assert reset("--to-earliest") == 0
    assert reset("--to-latest") == 5
    assert reset("--to-current") == 3
    assert reset("--to-offset", "99") == 5
    assert reset("--shift-by", "1") == 4
    assert reset("--by-duration", "P1D") == 0
    assert reset("--to-datetime", "2001-01-01T00:00:00.000") == 0
    exported = tool("consumer-groups", "--reset-offsets", "--group", "winder", "--all-topics",
                    "--to-offset", "4", "--export", "--dry-run")  # fmt: skip
    assert exported.out == "winding,0,4\n"
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.out)
    assert reset("--from-file", str(plan)) == 4


def test_a_group_with_members(tool: Tool, cluster: Cluster) -> None:
    from confluent_kafka import Consumer

    fill(tool, "busy", "a")
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "workers",
            "client.id": "worker",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["busy"])
    assert consumer.poll(30) is not None
    rows = tool("consumer-groups", "--describe", "--group", "workers", "--members", "--verbose").out
    row = rows.splitlines()[2].split()
    assert (row[0], row[3], row[4], row[5]) == ("workers", "worker", "1", "busy(0)")
    state = tool("consumer-groups", "--describe", "--group", "workers", "--state").out
    assert state.splitlines()[2].split()[-2:] == ["Stable", "1"]
    listed = tool("consumer-groups", "--list", "--state", "stable").out.splitlines()
    assert [line.split() for line in listed[1:]] == [["workers", "Stable"]]
    busy = tool("consumer-groups", "--reset-offsets", "--group", "workers", "--topic", "busy",
                "--to-earliest", "--execute")  # fmt: skip
    assert busy.code == 1
    assert "group workers is Stable" in busy.err
    undead = tool("consumer-groups", "--delete", "--group", "workers")
    assert undead.code == 1
    assert "(NON_EMPTY_GROUP)" in undead.out
    consumer.close()


def test_deleting_records(tool: Tool, tmp_path: Path) -> None:
    fill(tool, "trimmed", "a", "b", "c")
    file = tmp_path / "cut.json"
    cut = {"topic": "trimmed", "partition": 0, "offset": 2}
    file.write_text(json.dumps({"partitions": [cut], "version": 1}))
    ran = tool("delete-records", "--offset-json-file", str(file))
    assert ran.out.splitlines()[-1] == "partition: trimmed-0\tlow_watermark: 2"
    assert read(tool, "trimmed", 1).out == "c\n"


def test_log_dirs(tool: Tool, cluster: Cluster) -> None:
    fill(tool, "sized", "some bytes")
    ran = tool("log-dirs", "--describe", "--topic-list", "sized")
    (broker,) = json.loads(ran.out.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["logDir"] == str(cluster.data_dir(1))
    (partition,) = directory["partitions"]
    size = (cluster.data_dir(1) / "sized-0" / f"{0:020d}.log").stat().st_size
    assert partition == {
        "partition": "sized-0", "size": size, "offsetLag": 0, "isFuture": False
    }  # fmt: skip


def test_dumping_what_the_broker_wrote(tool: Tool, cluster: Cluster) -> None:
    fill(tool, "dumped", "some value")
    read(tool, "dumped", 1, "--group", "dumpers")
    log = cluster.data_dir(1) / "dumped-0" / f"{0:020d}.log"
    ran = ottla("dump-log", "--files", str(log), "--print-data-log")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[1] == "Log starting offset: 0"
    assert lines[2].startswith("baseOffset: 0 lastOffset: 0 count: 1 baseSequence: -1 ")
    assert lines[2].endswith(" isvalid: true")
    assert lines[3].endswith(" sequence: -1 headerKeys: [] payload: some value")
    metadata = cluster.data_dir(1) / "__cluster_metadata-0" / f"{0:020d}.log"
    ran = ottla("dump-log", "--files", str(metadata), "--cluster-metadata-decoder")
    assert '{"type":"TOPIC_RECORD","version":0,"data":{"name":"dumped","topicId":' in ran.out
    offsets = sorted(cluster.data_dir(1).glob("__consumer_offsets-*/*.log"))
    ran = ottla("dump-log", "--files", ",".join(map(str, offsets)), "--offsets-decoder")
    key = '{"type":"1","data":{"group":"dumpers","topic":"dumped","partition":0}}'
    assert f"key: {key} payload: " in ran.out


def test_the_console_names_a_broker_that_is_not_there() -> None:
    for name, extra in (("console-producer", ("--max-block-ms", "300")),
                        ("console-consumer", ("--timeout", "0.3"))):  # fmt: skip
        ran = ottla(name, "--bootstrap-server", "127.0.0.1:1", "--topic", "t", *extra)
        assert (ran.code, ran.out) == (1, "")
        expected = f"ottla {name}: no broker answers at 127.0.0.1:1 within 0.3 s: "
        assert ran.err.startswith(expected)
        assert ran.err.endswith("Connection refused\n")


def heed_interrupts() -> None:
    """Undo what a shell does to jobs in the background: their children ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("name", ["console-producer", "console-consumer"])
def test_the_console_can_be_interrupted_while_it_waits_for_a_broker(name: str) -> None:
    """librdkafka's own waiting does not see Ctrl-C before its end, a minute for the producer."""
    arguments = ottla_arguments(name, "--bootstrap-server", "127.0.0.1:1", "--topic", "t")
    if name == "console-consumer":
        arguments += ["--timeout", "60"]
    with subprocess.Popen(
        arguments,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
    ) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "waiting for a broker at 127.0.0.1:1\n"
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(20) == 130
        assert waiting.stderr.read() == ""


def test_records_that_cannot_be_sent_are_named_with_the_reason(tool: Tool) -> None:
    fill(tool, "small")
    sent = tool("console-producer", "--topic", "small", stdin="fits\n" + "x" * 2_000_000 + "\n")
    assert (sent.code, sent.out) == (1, "")
    assert sent.err.startswith("ottla console-producer: line 2 was not sent: ")
    assert sent.err.endswith("(MSG_SIZE_TOO_LARGE)\n")
    assert read(tool, "small", 1).out == "fits\n"
    sent = tool("console-producer", "--topic", "not/a/name", stdin="x\n")
    assert (sent.code, sent.out) == (2, "")
    assert sent.err.startswith("ottla console-producer: --topic not/a/name: the topic's name ")


def test_a_partition_that_is_not_there_is_refused(tool: Tool) -> None:
    fill(tool, "single", "x")
    ran = tool("console-consumer", "--topic", "single", "--partition", "1", "--from-beginning")
    message = "ottla console-consumer: there is no partition single-1: expected 0 to 0\n"
    assert ran == (1, "", message)


def test_offsets_of_partitions(tool: Tool) -> None:
    fill(tool, "measured", "one", "two", "three")
    only = ("--topic", "measured")
    assert tool("get-offsets", *only) == (0, "measured:0:3\n", "")
    tool("topics", "--alter", "--topic", "measured", "--partitions", "2")
    assert tool("get-offsets", *only).out == "measured:0:3\nmeasured:1:0\n"
    assert tool("get-offsets", *only, "--time", "earliest").out == "measured:0:0\nmeasured:1:0\n"
    # An empty partition has no newest record, and none is from the future.
    assert tool("get-offsets", *only, "--time", "max-timestamp").out.startswith("measured:0:")
    assert tool("get-offsets", *only, "--time", "99999999999999").out == ""


def test_groups_of_all_types(tool: Tool) -> None:
    fill(tool, "grouped", "one")
    read(tool, "grouped", 1, "--group", "listed")
    lines = tool("groups", "--list", "--consumer").out.splitlines()
    assert [line.split() for line in lines if line.startswith("listed ")] == [
        ["listed", "Classic", "consumer"]
    ]
    assert "listed" not in tool("groups", "--list", "--share").out


def test_versions_of_apis(tool: Tool, cluster: Cluster) -> None:
    lines = tool("broker-api-versions").out.splitlines()
    assert lines[0] == f"{cluster.bootstrap} (id: 1 rack: null isFenced: false) -> ("
    assert lines[-1] == ")"
    assert any(line.startswith("\tDescribeDeletions(1003): 0 ") for line in lines)


def test_the_performance_of_a_producer_and_a_consumer(tool: Tool) -> None:
    """The counts are those of the log; a throttled producer takes the time that it should."""
    tool("topics", "--create", "--topic", "fast", "--partitions", "2")
    sent = tool(
        "producer-perf-test", "--topic", "fast", "--num-records", "3000", "--record-size", "100",
        "--throughput", "2000", "--warmup-records", "1000", "--command-property", "acks=all",
        "linger.ms=5", "--reporting-interval", "500",
    )  # fmt: skip
    assert (sent.code, sent.err) == (0, "")
    lines = sent.out.splitlines()
    assert lines[0].startswith("Warmup first 1000 records.")
    assert lines[-2].startswith("3000 records sent, ")
    assert lines[-1].startswith("2000 steady state records sent, ")
    rate = float(lines[-2].split(", ")[1].split()[0])
    assert 500 < rate <= 2100
    ends = tool("get-offsets", "--topic", "fast").out.split()
    assert sum(int(line.rpartition(":")[2]) for line in ends) == 3000
    got = tool("consumer-perf-test", "--topic", "fast", "--num-records", "2500")
    assert (got.code, got.err) == (0, "")
    heading, row = (line.split(", ") for line in got.out.splitlines())
    notified = dict(zip(heading, row, strict=True))
    assert notified["data.consumed.in.nMsg"] == "2500"
    assert float(notified["data.consumed.in.MB"]) == pytest.approx(2500 * 100 / 2**20, abs=0.0001)
    short = tool("consumer-perf-test", "--topic", "fast", "--num-records", "9000",
                 "--timeout", "1000", "--hide-header")  # fmt: skip
    assert short.out.startswith("WARNING: Exiting before consuming the expected number of records")
    assert ", 3000, " in short.out.splitlines()[1]


def test_topics_are_described_without_a_controller() -> None:
    with Cluster(brokers=1, controllers=1) as cluster:
        where = ("topics", "--bootstrap-server", cluster.bootstrap)
        assert ottla(*where, "--create", "--topic", "led").code == 0
        before = ottla(*where, "--describe", "--topic", "led")
        assert (before.code, before.err) == (0, "")
        cluster.kill(101)
        ran = ottla(*where, "--describe", "--topic", "led")
        assert (ran.code, ran.out) == (0, before.out)
        assert ran.err.startswith("WARN: reassignments are unknown: ")
        assert ran.err.count("\n") == 1


def test_acls_are_answered_as_without_an_authorizer(cluster: Cluster) -> None:
    """As librdkafka's administration client sees it, which asks what is advertised."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    binding = AclBinding(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    (created,) = admin.create_acls([binding], request_timeout=20).values()
    with pytest.raises(KafkaException, match="No Authorizer is configured") as refused:
        created.result()
    assert refused.value.args[0].code() == KafkaError.SECURITY_DISABLED
