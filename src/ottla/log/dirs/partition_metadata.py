"""`partition.metadata`: the topic id of a partition directory.

Source: PartitionMetadataFile; KIP-516.
"""

import string
from typing import Final

from ottla.base.ids import NO_UUID, Uuid, parse_uuid, uuid_text
from ottla.log.dirs.checkpoints import MalformedFile

VERSION = 0

SHOWN_BYTES = 60
"""How much of a malformed file an error shows."""


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    """Return the file's content."""
    return f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()


def is_unwritten(data: bytes) -> bool:
    """Return whether a part of the file, or all of it, was never written to the disk.

    A power loss right after the file was created leaves its beginning, or zeros. Any other invalid
    content is damage.
    """
    whole = len(_FORM)
    fits = all(byte == 0 or _fits(byte, at) for at, byte in enumerate(data[:whole]))
    return fits and not data[whole:].strip(b"\0\n") and (len(data) < whole or 0 in data[:whole])


def _fits(byte: int, at: int) -> bool:
    return byte in _UUID_CHARS if at >= _ID_AT else byte == _FORM[at]


def decode_partition_metadata(data: bytes) -> Uuid:
    """Return the topic id. Raises: MalformedFile."""
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines())
        version, topic_id = int(fields["version"]), parse_uuid(fields["topic_id"])
    except (KeyError, ValueError):
        raise MalformedFile(
            f"expected the lines 'version: {VERSION}' and 'topic_id: <base64 uuid>', "
            f"found {data[:SHOWN_BYTES]!r}"
        ) from None
    if version != VERSION:
        raise MalformedFile(f"partition.metadata has version {version}, only {VERSION} is known")
    if topic_id == NO_UUID:
        raise MalformedFile("partition.metadata holds the zero topic id")
    return topic_id


_FORM: Final = encode_partition_metadata(NO_UUID)
_ID_AT: Final = len(_FORM) - len(uuid_text(NO_UUID))
_UUID_CHARS: Final = frozenset(f"{string.ascii_letters}{string.digits}-_".encode())
