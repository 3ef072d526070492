"""Subscriptions are read as far as topics are concerned, and never trusted.

Method: bytes made by hand after ConsumerProtocolSubscription.json, those that kio makes of the
same schema, and hypothesis for garbage.
"""

import importlib
import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.subscription import subscribed_topics


def subscription(*topics: str, version: int = 0, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    """Return a consumer's metadata."""
    parts = [struct.pack(">hi", version, len(topics))]
    for topic in topics:
        raw = topic.encode()
        parts += [struct.pack(">h", len(raw)), raw]
    return b"".join(parts) + rest


def test_topics_of_every_version() -> None:
    assert subscribed_topics(subscription("a", "ü")) == {"a", "ü"}
    assert subscribed_topics(subscription()) == frozenset()
    later = subscription("a", version=3, rest=b"\xff\xff\xff\xff\0\0\0\0\0\0\0\1\xff\xff")
    assert subscribed_topics(later) == {"a"}


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_bytes_of_an_independent_client(version: int) -> None:
    module = importlib.import_module(f"kio.schema.consumer_protocol_subscription.v{version}.data")
    serial = importlib.import_module("kio.serial")
    fields = {} if version == 0 else {"owned_partitions": ()}
    message = module.ConsumerProtocolSubscription(topics=("a", "topic-2"), user_data=b"u", **fields)
    buffer = io.BytesIO()
    serial.entity_writer(module.ConsumerProtocolSubscription)(buffer, message)
    data = struct.pack(">h", version) + buffer.getvalue()
    assert subscribed_topics(data) == {"a", "topic-2"}


def test_what_cannot_be_read_is_unknown() -> None:
    whole = subscription("topic")
    for length in range(13):
        assert subscribed_topics(whole[:length]) is None
    assert subscribed_topics(struct.pack(">hi", -1, 0)) is None
    assert subscribed_topics(struct.pack(">hi", 0, -1)) is None
    assert subscribed_topics(struct.pack(">hih", 0, 1, -1)) is None
    assert subscribed_topics(struct.pack(">hih", 0, 1, 1) + b"\xff") is None


@given(st.binary(max_size=40))
def test_garbage_raises_nothing(data: bytes) -> None:
    subscribed_topics(data)
