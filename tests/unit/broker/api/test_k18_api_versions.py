"""ApiVersions lists each client's APIs: more of them to Ottla's own clients.

Method: the handler with the real table of APIs; what is told on which listener is test_dispatch's.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.api.base import Context
from ottla.broker.api.k18_api_versions import handle
from ottla.broker.dispatch import advertised, load_apis
from ottla.broker.ports import Connection, Listener
from ottla.metadata.image import EMPTY
from ottla.wire.frames import RequestHeader
from ottla.wire.messages.api_versions import ApiVersionsRequest

TABLE = load_apis()


class Node:
    """The node as the handler uses it."""

    image = EMPTY
    supported_features: Mapping[str, tuple[int, int]] = {}

    def advertised(self, listener: Listener, *, to_ottla: bool = False) -> Mapping[int, range]:
        return advertised(TABLE, listener, to_ottla=to_ottla)


def names(name: str, version: int) -> set[int]:
    """Return the keys that are listed to a client of that name."""
    ctx = Context(
        header=RequestHeader(18, version, 1, "test"),
        connection=Connection("1", Listener.CLIENT, "PLAINTEXT", "localhost", 1),
        now_ms=0,
        monotonic_ms=0,
        node=cast(Any, Node()),
        broker_or_none=cast(Any, SimpleNamespace()),
    )
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    if version < 3:
        request = ApiVersionsRequest()
    answer = handle(ctx, request)
    assert answer.error_code == 0
    return {each.api_key for each in answer.api_keys}


@pytest.mark.parametrize("name", ["apache-kafka-java", "librdkafka", "ottlas", "Ottla"])
def test_other_clients_see_kafkas_keys_only(name: str) -> None:
    assert max(names(name, 3)) < 1000
    assert max(names(name, 0)) < 1000, "a version without the client's name"


def test_ottlas_clients_see_ottlas_keys_too() -> None:
    more = names("ottla", 4) - names("librdkafka", 4)
    assert 1003 in more
    assert min(more) >= 1000
