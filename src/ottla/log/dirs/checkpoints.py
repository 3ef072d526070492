"""Small text files of a log directory: offsets by partition, clean shutdown.

A checkpoint is `version`, the number of entries, then an entry a line, its fields separated by
single spaces. Sources: CheckpointFile, OffsetCheckpointFile, CleanShutdownFileHandler.
"""

import json
from collections.abc import Iterable, Mapping

from ottla.base.ports import Disk
from ottla.log import names
from ottla.log.config import INT64_MAX

VERSION = 0

TopicPartition = tuple[str, int]


class MalformedFile(ValueError):
    """A checkpoint, `meta.properties` or `partition.metadata` file is malformed."""


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    """Return the content of a checkpoint of these entries."""
    entries = list(lines)
    return "\n".join((str(VERSION), str(len(entries)), *entries, "")).encode()


def decode_checkpoint(data: bytes, fields: int) -> list[list[str]]:
    """Return the entries, each split into its `fields`. Raises: MalformedFile."""
    try:
        lines = data.decode().splitlines()
        version, count = int(lines[0]), int(lines[1])
    except (UnicodeDecodeError, IndexError, ValueError):
        raise MalformedFile("no version and count at the start of a checkpoint") from None
    if version != VERSION:
        raise MalformedFile(f"a checkpoint has version {version}, only {VERSION} is known")
    entries = [line.split(" ") for line in lines[2:]]
    if len(entries) != count:
        raise MalformedFile(f"a checkpoint of {count} entries has {len(entries)}")
    for entry in entries:
        if len(entry) != fields:
            raise MalformedFile(f"a checkpoint's entry {' '.join(entry)!r} is not {fields} fields")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of an offset checkpoint, sorted."""
    return encode_checkpoint(
        f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())
    )


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    """Return the offsets by partition. Raises: MalformedFile."""
    found: dict[TopicPartition, int] = {}
    for topic, partition, text in decode_checkpoint(data, 3):
        try:
            key, offset = (topic, int(partition)), int(text)
        except ValueError as error:
            raise MalformedFile(f"an offset checkpoint's entry is no number: {error}") from None
        if not (0 <= key[1] <= names.PARTITION_MAX and 0 <= offset <= INT64_MAX) or key in found:
            entry = f"{topic} {partition} {text}"
            raise MalformedFile(f"an offset checkpoint's entry is impossible, or repeated: {entry}")
        found[key] = offset
    return found


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Return an offset checkpoint's entries; none where the file is missing, or empty.

    Kafka creates it empty. Raises: MalformedFile; OSError.
    """
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return {}
    return decode_offsets(data) if data else {}


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Return the content of the file that proves a clean shutdown (KIP-966)."""
    return json.dumps(
        {"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")
    ).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch at the shutdown; -1 = not in the file."""
    try:
        content = json.loads(data)
    except ValueError:
        return -1
    epoch = content.get("brokerEpoch", -1) if isinstance(content, dict) else -1
    return epoch if isinstance(epoch, int) else -1


def encode_running(broker_epoch: int, boot_id: str) -> bytes:
    """Return the content of `.ottla_running`: the broker epoch and the machine's boot id."""
    return json.dumps(
        {"version": VERSION, "brokerEpoch": broker_epoch, "bootId": boot_id},
        separators=(",", ":"),
    ).encode()


def decode_running(data: bytes, boot_id: str) -> int:
    """Return the epoch of the broker that used the log directory last in this boot; -1 = none.

    Within one boot no write of a process is lost, however the process ended.
    """
    try:
        content = json.loads(data)
    except ValueError:
        return -1
    if not isinstance(content, dict) or not boot_id or content.get("bootId") != boot_id:
        return -1
    epoch = content.get("brokerEpoch", -1)
    return epoch if isinstance(epoch, int) else -1
