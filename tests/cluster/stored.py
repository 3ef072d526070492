"""What lies on a broker's disk: the batches of a partition, read as any Kafka tool would."""

import fnmatch
import os
from contextlib import suppress
from pathlib import Path

from ottla.records.batch import BatchHeader, check_crc, iter_headers
from ottla.records.errors import RecordsError
from ottla.records.record import Record, iter_records
from ottla.testing import Cluster


def segments(cluster: Cluster, topic: str, partition: int = 0, node: int = 1) -> list[Path]:
    """Return a partition's segment files, oldest first."""
    return sorted((cluster.data_dir(node) / f"{topic}-{partition}").glob("*.log"))


def directories_below(root: Path, pattern: str) -> list[Path]:
    """Return the directories below one whose names match; what goes just now may be missing."""
    return [
        Path(parent, name)
        for parent, names, _ in os.walk(root)
        for name in fnmatch.filter(names, pattern)
    ]


def segments_in(directory: Path) -> list[Path]:
    """Return the segment files of a directory, oldest first; none, where it goes in this moment."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return [directory / name for name in sorted(names) if name.endswith(".log")]


def batches(cluster: Cluster, topic: str, partition: int = 0, node: int = 1) -> list[BatchHeader]:
    """Return the headers of all batches of a partition; their checksums are checked."""
    found = []
    for path in segments(cluster, topic, partition, node):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            check_crc(data, position, header)
            found.append(header)
    return found


def last_batches(cluster: Cluster, topic: str, partition: int, node: int) -> list[str]:
    """Describe the batches of a partition's last segment, as far as it is written."""
    found: list[str] = []
    paths = segments(cluster, topic, partition, node)
    with suppress(RecordsError):
        for _, each in iter_headers(paths[-1].read_bytes() if paths else b""):
            found.append(
                f"{each.base_offset} to {each.last_offset}, leader epoch"
                f" {each.partition_leader_epoch}, producer {each.producer_id} epoch"
                f" {each.producer_epoch}, from sequence {each.base_sequence} on"
            )
    return found


def records(cluster: Cluster, topic: str, partition: int = 0, node: int = 1) -> list[Record]:
    """Return all records of a partition."""
    found: list[Record] = []
    for path in segments(cluster, topic, partition, node):
        found += iter_records(path.read_bytes())
    return found
