"""What Ottla cannot do is refused by name; a file that only spells out defaults passes.

Method: a table of properties as real files have them.
"""

import pytest

from ottla.metadata.unsupported import is_ignored, is_listed, refusal


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("authorizer.class.name", "org.apache.kafka.X", "without access control"),
        ("ssl.keystore.location", "/a.jks", "PLAINTEXT"),
        ("sasl.enabled.mechanisms", "PLAIN", "PLAINTEXT"),
        ("listener.name.internal.ssl.keystore.location", "/a", "one listener"),
        ("zookeeper.set.acl", "true", "without ACLs"),
        ("zookeeper.ssl.keystore.location", "/a.jks", "without TLS"),
        ("zookeeper.metadata.migration.enable", "true", "stays with ZooKeeper"),
        ("follower.fetch.last.tiered.offset.enable", "true", "all that its leader has on disk"),
        ("client.quota.callback.class", "a.B", "quotas"),
        ("create.topic.policy.class.name", "a.B", "Java class"),
        ("metric.reporters", "a.B", "Java class"),
        ("group.share.enable", "true", "share groups"),
        ("eligible.leader.replicas.enable", "true", "not supported yet"),
    ],
)
def test_refused(name: str, value: str, text: str) -> None:
    reason = refusal(name, value)
    assert reason is not None
    assert text in reason
    assert is_listed(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", ""),
        ("authorizer.class.name", " "),
        ("follower.fetch.last.tiered.offset.enable", "false"),
        ("eligible.leader.replicas.enable", "false"),
        ("zookeeper.ssl.client.enable", "false"),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"),
    ],
)
def test_harmless_values_pass(name: str, value: str) -> None:
    assert refusal(name, value) is None


@pytest.mark.parametrize("name", ["rsm.config.dir", "rlmm.config.producer.acks"])
def test_what_kafka_passes_to_its_plugins_is_ignored(name: str) -> None:
    assert is_ignored(name)
    assert refusal(name, "x") is None
    assert not is_listed(name)


def test_other_names_are_not_its_business() -> None:
    assert refusal("num.partitions", "x") is None
    assert not is_listed("num.partitions")
