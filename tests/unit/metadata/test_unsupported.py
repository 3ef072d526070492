"""What Ottla cannot do is refused by name; a file that only spells out defaults passes.

Method: a table of properties as real files have them.
"""

import pytest

from ottla.metadata.unsupported import is_listed, refusal


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
        ("remote.log.storage.system.enable", "true", "remote storage"),
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
        ("remote.log.storage.system.enable", "false"),
        ("eligible.leader.replicas.enable", "false"),
        ("zookeeper.ssl.client.enable", "false"),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"),
    ],
)
def test_harmless_values_pass(name: str, value: str) -> None:
    assert refusal(name, value) is None


def test_other_names_are_not_its_business() -> None:
    assert refusal("num.partitions", "x") is None
    assert not is_listed("num.partitions")
