"""The configuration of topics, as a broker says it: DescribeConfigs."""

from collections.abc import Collection
from typing import Final

from ottla.client.cluster import ClusterClient
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

TOPIC_RESOURCE: Final = 2
"""The resource type of a topic."""


def describe_topic_configs(
    client: ClusterClient, topics: Collection[str], names: Collection[str]
) -> tuple[DescribeConfigsResult, ...]:
    """Return a result for each topic, with these properties or an error.

    Raises: ClientError.
    """
    resources = tuple(
        DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=tuple(names)
        )
        for topic in sorted(topics)
    )
    request = DescribeConfigsRequest(resources=resources)
    return client.ask(request, DescribeConfigsResponse).results
