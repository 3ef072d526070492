"""Kafka's properties that Ottla knows and does not support: refused by name, with the reason.

A value that is Ottla's behaviour anyway is accepted, so that files which set defaults work.
"""

from collections.abc import Mapping
from typing import Final

_SECURITY = "is not supported yet: Ottla supports PLAINTEXT only, without access control"
_ZOOKEEPER = "is not supported yet: Ottla connects to ZooKeeper without TLS and without ACLs"
_MIGRATION = "is not supported: a cluster stays with ZooKeeper, or with KRaft"
_JAVA = "names a Java class, which a node without a JVM cannot load"
_REMOVED = "is not a property any more: Kafka 4.0 removed it"
_SHARE = "is not supported: Ottla has no share groups"
_QUOTA = "is not supported yet: Ottla enforces no quotas so far"

NAMES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "authorizer.class.name": (_SECURITY, ("",)),
    "security.providers": (_SECURITY, ("",)),
    "principal.builder.class": (
        _JAVA,
        ("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",),
    ),
    "connections.max.reauth.ms": (_SECURITY, ("0",)),
    "super.users": (_SECURITY, ("",)),
    "allow.everyone.if.no.acl.found": (_SECURITY, ("true",)),
    "client.quota.callback.class": (_QUOTA, ("",)),
    "leader.replication.throttled.rate": (_QUOTA, ("9223372036854775807",)),
    "follower.replication.throttled.rate": (_QUOTA, ("9223372036854775807",)),
    "replica.alter.log.dirs.io.max.bytes.per.second": (_QUOTA, ("9223372036854775807",)),
    "create.topic.policy.class.name": (_JAVA, ("",)),
    "alter.config.policy.class.name": (_JAVA, ("",)),
    "metric.reporters": (_JAVA, ("", "org.apache.kafka.common.metrics.JmxReporter")),
    "kafka.metrics.reporters": (_JAVA, ("",)),
    "auto.include.jmx.reporter": (_REMOVED, ("true", "false")),
    "eligible.leader.replicas.enable": ("is not supported yet", ("false",)),
    "max.connection.creation.rate": (_QUOTA, ("2147483647",)),
    "control.plane.listener.name": (_REMOVED, ("",)),
    "log.message.format.version": (_REMOVED, ()),
    "log.message.timestamp.difference.max.ms": (_REMOVED, ("9223372036854775807",)),
    "log.message.downconversion.enable": (_REMOVED, ("true", "false")),
    "offsets.commit.required.acks": (_REMOVED, ("-1",)),
    "zookeeper.clientCnxnSocket": (_JAVA, ("", "org.apache.zookeeper.ClientCnxnSocketNIO")),
    "zookeeper.metadata.migration.enable": (_MIGRATION, ("false",)),
    "zookeeper.metadata.migration.min.batch.size": (_MIGRATION, ("200",)),
    "zookeeper.set.acl": (_ZOOKEEPER, ("false",)),
    "zookeeper.ssl.client.enable": (_ZOOKEEPER, ("false",)),
    "zookeeper.ssl.crl.enable": (_ZOOKEEPER, ("false",)),
    "zookeeper.ssl.ocsp.enable": (_ZOOKEEPER, ("false",)),
    "zookeeper.ssl.endpoint.identification.algorithm": (_ZOOKEEPER, ("HTTPS",)),
    "zookeeper.ssl.protocol": (_ZOOKEEPER, ("TLSv1.2",)),
    "unstable.api.versions.enable": ("is not supported: no unstable API is served", ("false",)),
    "unstable.feature.versions.enable": (
        "is not supported: no unstable feature is there",
        ("false",),
    ),
    "transaction.two.phase.commit.enable": ("is not supported (KIP-939)", ("false",)),
    "group.coordinator.new.enable": (_REMOVED, ("true",)),
    "config.providers": (_JAVA, ("",)),
    "group.share.enable": (_SHARE, ("false",)),
    "group.share.persister.class.name": (
        _JAVA,
        ("org.apache.kafka.server.share.persister.DefaultStatePersister",),
    ),
    "controller.quorum.auto.join.enable": (
        "is not supported: the voters are those of controller.quorum.voters",
        ("false",),
    ),
    "cordoned.log.dirs": ("is not supported yet: new replicas go to all log directories", ("",)),
    "follower.fetch.last.tiered.offset.enable": (
        "is not supported yet: a new follower fetches all that its leader has on disk",
        ("false",),
    ),
}
"""Name → why it is refused, and the values that pass."""

PREFIXES: Final = (
    ("zookeeper.ssl.", _ZOOKEEPER),
    ("sasl.", _SECURITY),
    ("ssl.", _SECURITY),
    ("listener.name.", "sets a property of one listener, which Ottla does not support yet"),
    ("delegation.token.", _SECURITY),
    ("password.encoder.", _SECURITY),
    ("config.providers.", _JAVA),
)


IGNORED: Final = (
    "remote.log.index.file.cache.ttl.ms",
    "remote.log.manager.follower.thread.pool.size",
    "rlmm.config.",
    "rsm.config.",
)
"""Names, and prefixes of what Kafka passes to the Java plugins of remote storage: accepted without
an effect, so that a file written for Kafka works. The values may be secrets, and are not shown."""


def refusal(name: str, value: str) -> str | None:
    """Return why a property is refused; None where it is accepted, or not listed here."""
    if name in NAMES:
        reason, harmless = NAMES[name]
        return None if value.strip() in harmless else reason
    for prefix, reason in PREFIXES:
        if name.startswith(prefix):
            return reason
    return None


def is_listed(name: str) -> bool:
    """Tell whether this module knows the name, whatever its value."""
    return name in NAMES or any(name.startswith(prefix) for prefix, _ in PREFIXES)


def is_ignored(name: str) -> bool:
    """Tell whether an undefined property is accepted without an effect."""
    return name.startswith(IGNORED)
