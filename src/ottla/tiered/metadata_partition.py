"""Which partition of `__remote_log_metadata` has the records of a user partition.

Source: RemoteLogMetadataTopicPartitioner; Utils.murmur2, Arrays.hashCode, Long.hashCode.
"""

from struct import unpack
from typing import Final

from ottla.base.ids import Uuid

_MASK: Final = 0xFFFF_FFFF
_MURMUR2_SEED: Final = 0x9747_B28C
_MURMUR2_M: Final = 0x5BD1_E995


def metadata_partition(topic_id: Uuid, partition: int, count: int) -> int:
    """Return the partition, 0 to `count` - 1, for one partition of a topic."""
    assert count > 0
    hashed = murmur2(_hash(topic_id, partition).to_bytes(4, "big"))
    return (hashed & 0x7FFF_FFFF) % count


def murmur2(data: bytes) -> int:
    """Return the 32 bits of Kafka's hash, without a sign."""
    hashed = _MURMUR2_SEED ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MURMUR2_M & _MASK
        word = (word ^ word >> 24) * _MURMUR2_M & _MASK
        hashed = hashed * _MURMUR2_M & _MASK ^ word
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MURMUR2_M & _MASK
    hashed = (hashed ^ hashed >> 13) * _MURMUR2_M & _MASK
    return hashed ^ hashed >> 15


def _hash(topic_id: Uuid, partition: int) -> int:
    """Java's Objects.hash(least significant bits, most significant bits, partition)."""
    most, least = unpack(">QQ", topic_id)
    hashed = 1
    for element in (_hash_of_long(least), _hash_of_long(most), partition):
        hashed = (hashed * 31 + element) & _MASK
    return hashed


def _hash_of_long(bits: int) -> int:
    return (bits ^ bits >> 32) & _MASK
