"""`partition.metadata`: the topic id that a partition's folder belongs to.

Source: PartitionMetadataFile; KIP-516.
"""

from ottla.base.ids import NO_UUID, Uuid, parse_uuid, uuid_text
from ottla.log.checkpoints import MalformedFile

VERSION = 0


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    """Return the file's content."""
    return f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> Uuid:
    """Return the topic id. Raises: MalformedFile."""
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines())
        version, topic_id = int(fields["version"]), parse_uuid(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise MalformedFile(f"partition.metadata is malformed: {error}") from None
    if version != VERSION:
        raise MalformedFile(f"partition.metadata has version {version}, only {VERSION} is known")
    if topic_id == NO_UUID:
        raise MalformedFile("partition.metadata holds the zero topic id")
    return topic_id
