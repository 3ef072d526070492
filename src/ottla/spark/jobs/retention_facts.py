"""What brokers say of topics for a retention report: present settings, log starts, local sizes."""

from collections.abc import Collection
from typing import Final, NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.errors import Refusal, check
from ottla.client.partitions import TopicPartition
from ottla.client.remote_logs import describe_remote_logs
from ottla.client.topic_configs import describe_topic_configs
from ottla.spark.jobs.rules.retention_rules import RETENTION_BYTES, RETENTION_MS, UNLIMITED
from ottla.wire.messages.describe_remote_log import DescribeRemoteLogRequest

PARTITIONS_PER_REQUEST: Final = 500


class BrokerFacts(NamedTuple):
    """A partition as its leader has it."""

    log_start: int
    local_start: int
    local_bytes: int


def present_retention(client: ClusterClient, names: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return retention.ms and retention.bytes of topics. Raises: ClientError, naming a topic."""
    found = {}
    for result in describe_topic_configs(client, names, (RETENTION_MS, RETENTION_BYTES)):
        subject = f"the retention of topic {result.resource_name}"
        check(subject, result.error_code, result.error_message)
        values = {each.name: each.value for each in result.configs}
        found[result.resource_name] = (
            int(values.get(RETENTION_MS) or UNLIMITED),
            int(values.get(RETENTION_BYTES) or UNLIMITED),
        )
    return found


def broker_facts(
    client: ClusterClient, keys: Collection[TopicPartition]
) -> dict[TopicPartition, BrokerFacts]:
    """Return what leaders say of partitions; nothing of brokers that have no tiered storage.

    No segments are asked for, so that it is no use of a topic. Raises: ClientError.
    """
    found: dict[TopicPartition, BrokerFacts] = {}
    if not client.serves(DescribeRemoteLogRequest):
        return found
    for node, led in sorted(client.by_leader(keys).items()):
        for begin in range(0, len(led), PARTITIONS_PER_REQUEST):
            some = led[begin : begin + PARTITIONS_PER_REQUEST]
            response = describe_remote_logs(client, node, some)
            check("", response.error_code, response.error_message)
            for topic in response.topics:
                for row in topic.partitions:
                    if row.error_code:
                        subject = f"{topic.name}-{row.partition}"
                        raise Refusal(subject, row.error_code, row.error_message)
                    found[topic.name, row.partition] = BrokerFacts(
                        row.log_start_offset, row.local_start_offset, row.local_bytes
                    )
    return found
