"""A property file becomes a node's configuration, or an error that names all that is wrong.

Method: small files in tables; dynamic values come from an image.
"""

import pytest

from ottla.metadata.config_def import ConfigError
from ottla.metadata.image import EMPTY, ClusterImage, ConfigsImage
from ottla.metadata.node_config import NodeConfig

from .nodes import BROKER, COMBINED, CONTROLLER, node


def image_with(values: dict[tuple[str, str], str]) -> ClusterImage:
    """Return an image with dynamic values by (broker resource's name, property)."""
    configs = ConfigsImage()
    for (resource, name), value in values.items():
        configs = configs.with_value((4, resource), name, value)
    return ClusterImage(configs=configs)


def test_roles_and_ids() -> None:
    combined, broker, controller = node(), node(base=BROKER), node(base=CONTROLLER)
    assert (combined.is_broker, combined.is_controller) == (True, True)
    assert (broker.is_broker, broker.is_controller) == (True, False)
    assert (controller.is_broker, controller.is_controller) == (False, True)
    assert broker.node_id == broker["node.id"] == broker["broker.id"] == 2


def test_values_are_typed_and_default() -> None:
    config = node({"num.partitions": " 6 ", "auto.create.topics.enable": "FALSE"})
    assert config["num.partitions"] == 6
    assert config["auto.create.topics.enable"] is False
    assert config["log.cleanup.policy"] == ("delete",)
    assert config.rack is None
    assert node({"broker.rack": "r1"}).rack == "r1"
    assert "num.partitions" in set(config)


def test_log_dirs() -> None:
    assert node().log_dirs == ("/tmp/kafka-logs",)
    config = node({"log.dirs": " /a , /b ", "log.dir": "/c"})
    assert (config.log_dirs, config.metadata_log_dir) == (("/a", "/b"), "/a")
    assert node({"metadata.log.dir": "/m"}).metadata_log_dir == "/m"


def test_the_id_under_its_older_name() -> None:
    given = {key: value for key, value in BROKER.items() if key != "node.id"}
    assert NodeConfig.parse({**given, "broker.id": "7"}).node_id == 7
    assert node({"broker.id": "2"}, BROKER).node_id == 2


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ({}, "log.retention.ms", 168 * 3_600_000),
        ({"log.retention.hours": "1"}, "log.retention.ms", 3_600_000),
        ({"log.retention.minutes": "2", "log.retention.hours": "1"}, "log.retention.ms", 120_000),
        ({"log.retention.ms": "3", "log.retention.minutes": "2"}, "log.retention.ms", 3),
        ({"log.retention.ms": "-7"}, "log.retention.ms", -1),
        ({"log.retention.hours": "-1"}, "log.retention.ms", -1),
        ({"log.roll.hours": "2"}, "log.roll.ms", 7_200_000),
        ({"log.roll.jitter.hours": "1"}, "log.roll.jitter.ms", 3_600_000),
        ({"log.flush.scheduler.interval.ms": "9"}, "log.flush.interval.ms", 9),
    ],
)
def test_one_property_in_another_s_unit(given: dict[str, str], name: str, expected: int) -> None:
    assert node(given)[name] == expected


def test_remote_storage_needs_a_place() -> None:
    enable, uri = "remote.log.storage.system.enable", "ottla.remote.storage.uri"
    for given in ({enable: "true"}, {enable: "true", uri: " "}):
        with pytest.raises(ConfigError) as caught:
            node(given)
        assert f"must be set where {enable}=true: file:///DIRECTORY" in str(caught.value)
    assert node({enable: "true", uri: "file:///r"})[uri] == "file:///r"
    assert node({enable: "false"})[uri] is None


def test_a_file_for_kafkas_tiered_storage_works_once_it_names_a_place() -> None:
    given = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.example.LocalTieredStorage",
        "remote.log.storage.manager.class.path": "/libs/*",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rsm.config.dir": "/tmp/remote",
        "rsm.config.secret.key": "hidden",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.producer.acks": "all",
        "log.retention.check.interval.ms": "1000",
    }
    config = node({**given, "ottla.remote.storage.uri": "file:///r"})
    assert config["rlmm.config.remote.log.metadata.topic.replication.factor"] == 1
    with pytest.raises(ConfigError, match=r"ottla\.remote\.storage\.uri: must be set") as caught:
        node(given)
    assert "hidden" not in str(caught.value)


def test_all_bad_names_and_values_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        node(
            {
                "log.retentoin.ms": "5",
                "num.partitions": "many",
                "ssl.key.password": "secret",
                "zookeeper.set.acl": "true",
                "completely.else": "1",
            }
        )
    problems = {problem.name: problem for problem in caught.value.problems}
    assert set(problems) == {
        "log.retentoin.ms",
        "num.partitions",
        "ssl.key.password",
        "zookeeper.set.acl",
        "completely.else",
    }
    assert "did you mean log.retention.ms?" in problems["log.retentoin.ms"].reason
    assert problems["num.partitions"].value == "many"
    assert "32-bit integer" in problems["num.partitions"].reason
    assert "without ACLs" in problems["zookeeper.set.acl"].reason
    assert "did you mean" not in problems["completely.else"].reason


def test_a_secret_of_a_refused_property_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        node({"ssl.key.password": "hunter2", "sasl.jaas.config": "password=hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "name", "text"),
    [
        ({"process.roles": ""}, "process.roles", "or zookeeper.connect must be set"),
        ({"process.roles": "broker,broker"}, "process.roles", "twice"),
        ({"process.roles": "brokr"}, "process.roles", "out of broker, controller"),
        ({"node.id": ""}, "node.id", "32-bit integer"),
        ({"node.id": "-1"}, "node.id", "must be set"),
        ({"broker.id": "3"}, "node.id", "same value as broker.id=3"),
        ({"controller.quorum.voters": ""}, "controller.quorum.voters", "must name"),
        (
            {"controller.quorum.voters": "2@localhost:9093"},
            "controller.quorum.voters",
            "must contain node.id=1",
        ),
        (
            {**BROKER, "controller.quorum.voters": "2@localhost:9093"},
            "controller.quorum.voters",
            "must not contain node.id=2",
        ),
        ({"log.retention.ms": "0"}, "log.retention.ms", "at least 1, or -1"),
        ({"log.roll.ms": "0"}, "log.roll.ms", "at least 1"),
        ({"log.dirs": ","}, "log.dirs", "at least one log directory"),
        ({"default.replication.factor": "0"}, "default.replication.factor", "at least 1"),
        ({"log.cleaner.dedupe.buffer.size": "5"}, "log.cleaner.dedupe.buffer.size", "1 MiB"),
        ({"replica.fetch.wait.max.ms": "40000"}, "replica.fetch.wait.max.ms", "socket.timeout"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes", "socket.request"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip", "overrides"),
        ({"group.max.session.timeout.ms": "1"}, "group.min.session.timeout.ms", "group.max"),
        ({"broker.heartbeat.interval.ms": "9000"}, "broker.heartbeat.interval.ms", "below"),
        ({"metadata.log.segment.bytes": "1000"}, "metadata.log.segment.min.bytes", "must not"),
        ({"log.segment.bytes": "1000"}, "log.segment.bytes", "at least 1048576"),
        ({"cleanup.policy": "delete"}, "cleanup.policy", "did you mean log.cleanup.policy?"),
        (
            {"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"},
            "log.cleaner.min.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
        ),
    ],
)
def test_rules(given: dict[str, str], name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        node(given)
    assert name in {problem.name for problem in caught.value.problems}
    assert text in str(caught.value)


def test_bootstrap_servers_in_place_of_voters() -> None:
    config = node(
        {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "a:1,b:2"}
    )
    assert config.quorum_voters == ()
    assert config.quorum_bootstrap_servers == (("a", 1), ("b", 2))


def test_a_file_with_overrides() -> None:
    text = "".join(f"{key}={value}\n" for key, value in COMBINED.items())
    assert NodeConfig.read(text).node_id == 1
    assert NodeConfig.read(text, {"num.partitions": "9"})["num.partitions"] == 9
    with pytest.raises(ConfigError, match=r"property file.*line 1"):
        NodeConfig.read("a=\\u1\n")


def test_dynamic_values_win_and_a_broker_s_own_wins_over_the_default() -> None:
    config = node({"log.retention.ms": "1000", "message.max.bytes": "10"})
    assert config.dynamic(EMPTY) is config
    image = image_with(
        {
            ("", "log.retention.ms"): "2000",
            ("1", "log.retention.ms"): "3000",
            ("2", "log.retention.ms"): "4000",
            ("", "message.max.bytes"): "20",
        }
    )
    changed = config.dynamic(image)
    assert changed["log.retention.ms"] == 3000
    assert changed["message.max.bytes"] == 20
    assert config["log.retention.ms"] == 1000


def test_a_dynamic_value_wins_over_a_coarser_unit_of_the_file() -> None:
    config = node({"log.retention.hours": "1"})
    assert config.dynamic(image_with({("", "log.retention.ms"): "5"}))["log.retention.ms"] == 5
    other = config.dynamic(image_with({("", "message.max.bytes"): "5"}))
    assert other["log.retention.ms"] == 3_600_000


def test_what_a_newer_version_wrote_is_passed_over() -> None:
    image = image_with(
        {("", "unheard.of"): "1", ("", "num.partitions"): "5", ("", "log.segment.bytes"): "x"}
    )
    assert node().dynamic(image) == node()
