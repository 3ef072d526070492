"""Ids and reserved names, and the text form of Kafka's UUIDs.

A UUID is its 16 bytes on the wire: hashing and comparing bytes costs a fraction of what `uuid.UUID`
objects cost, and every fetch does it. Text is base64url without padding, as every Kafka tool
prints it.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NewType

NodeId = NewType("NodeId", int)
Uuid = NewType("Uuid", bytes)

NO_UUID = Uuid(bytes(16))
"""All zero: "no topic id" on the wire, never the id of anything."""

METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
"""The reserved id of `__cluster_metadata` (Uuid.METADATA_TOPIC_ID)."""

METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, REMOTE_LOG_METADATA_TOPIC})

NO_LEADER = -1
NO_OFFSET = -1
NO_EPOCH = -1
NO_PRODUCER_ID = -1

EPOCH_MAX = 2**31 - 1
"""The largest possible leader epoch, for a bound that excludes nothing."""


def uuid_text(uuid: Uuid) -> str:
    """Return the 22 characters by which Kafka's tools name this UUID."""
    assert len(uuid) == 16
    return urlsafe_b64encode(uuid)[:22].decode("ascii")


def parse_uuid(text: str) -> Uuid:
    """Return the UUID that `text` names; raise ValueError where it is not 22 base64url letters."""
    if len(text) != 22:
        raise ValueError(f"{text!r} is not a UUID: expected 22 base64url characters")
    try:
        raw = urlsafe_b64decode(text + "==")
    except ValueError as error:
        raise ValueError(f"{text!r} is not a UUID: {error}") from None
    if len(raw) != 16 or uuid_text(Uuid(raw)) != text:
        raise ValueError(f"{text!r} is not a UUID: expected 22 base64url characters")
    return Uuid(raw)
