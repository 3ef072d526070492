"""DescribeConfigs, and the names of its configuration sources."""

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)

TOPIC = 2
BROKER = 4

DEFAULT_CONFIG = 5
SOURCES = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Kafka's names of configuration sources. Source: DescribeConfigsResponse.ConfigSource."""

_KINDS = {TOPIC: "topic", BROKER: "broker"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One configuration of one resource."""

    name: str
    value: str | None
    source: int
    is_sensitive: bool
    synonyms: tuple[tuple[int, str, str | None], ...]

    @property
    def is_default(self) -> bool:
        """Tell whether the value is the default."""
        return self.source == DEFAULT_CONFIG


def describe(
    client: ClusterClient,
    kind: int,
    names: Sequence[str],
    *,
    synonyms: bool = False,
    is_own: bool = False,
) -> dict[str, list[Entry]]:
    """Return the entries of resources of one kind, sorted by name.

    A broker's entries come from the broker itself: only it knows its static configuration.
    `is_own`: the client is connected to that node already.
    """
    is_node = kind == BROKER and bool(names and names[0])
    node = int(names[0]) if is_node and not is_own else None
    assert not is_node or len(names) == 1
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for name in names
        ),
        include_synonyms=synonyms,
    )
    response = client.ask(request, DescribeConfigsResponse, node=node)
    found = {}
    for result in response.results:
        subject = f"{_KINDS[kind]} {result.resource_name or 'defaults'}"
        check(subject, result.error_code, result.error_message)
        entries = [_entry(each) for each in result.configs]
        found[result.resource_name] = sorted(entries, key=lambda entry: entry.name)
    return found


def _entry(result: DescribeConfigsResourceResult) -> Entry:
    return Entry(
        name=result.name,
        value=result.value,
        source=result.config_source,
        is_sensitive=result.is_sensitive,
        synonyms=tuple((each.source, each.name, each.value) for each in result.synonyms),
    )
