"""The topics in a consumer's subscription: the one thing a coordinator reads of members' metadata.

Source: ConsumerProtocolSubscription.json. Version 0 (version, topics, user data) is a prefix of
every later version, so only it is read.
"""

import struct

CONSUMER_PROTOCOL = "consumer"
"""The protocol type of consumers; Connect's workers and schema registries use others."""

_int16 = struct.Struct(">h").unpack_from
_version_and_count = struct.Struct(">hi").unpack_from


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics that one member subscribes to; None where the bytes are not readable."""
    try:
        version, count = _version_and_count(metadata)
        if version < 0 or count < 0:
            return None
        position = 6
        topics = set()
        for _ in range(count):
            (length,) = _int16(metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
