"""Names of files and directories must be Kafka's, and must be parsed exactly.

Method: names written out by hand, and names that only look like ones of ours.
"""

import pytest

from ottla.log import names
from ottla.log.names import PartitionDirKind, PartitionDirName

TOKEN = "0123456789abcdef" * 2


def test_segment_names() -> None:
    assert names.segment_name(42, names.LOG) == "00000000000000000042.log"
    assert names.parse_segment_name("00000000000000000042.timeindex") == (42, ".timeindex")
    assert names.parse_segment_name("09223372036854775807.snapshot") == (2**63 - 1, ".snapshot")


@pytest.mark.parametrize(
    "name",
    [
        "42.log",
        "00000000000000000042",
        "00000000000000000042.log.deleted",
        "00000000000000000042.log.swap",
        "00000000000000000042-0000000003.checkpoint",
        "leader-epoch-checkpoint",
    ],
)
def test_other_file_names_are_not_segments(name: str) -> None:
    assert names.parse_segment_name(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", PartitionDirName("orders", 0, PartitionDirKind.LIVE)),
        ("a.b-c_d-12", PartitionDirName("a.b-c_d", 12, PartitionDirKind.LIVE)),
        ("t-1-2", PartitionDirName("t-1", 2, PartitionDirKind.LIVE)),
        (f"t-3.{TOKEN}-delete", PartitionDirName("t", 3, PartitionDirKind.DELETE)),
        (f"t-3.{TOKEN}-stray", PartitionDirName("t", 3, PartitionDirKind.STRAY)),
        (f"t-3.{TOKEN}-future", PartitionDirName("t", 3, PartitionDirKind.FUTURE)),
        ("lost+found", None),
        ("t-x", None),
        ("-0", None),
        ("remote-log-index-cache", None),
        (f"t.{TOKEN}-delete", None),
        ("recovery-point-offset-checkpoint", None),
        ("t-2147483647", PartitionDirName("t", 2**31 - 1, PartitionDirKind.LIVE)),
        ("t-2147483648", None),
        ("t-00", None),
        ("t-07", None),
        ("t-\N{ARABIC-INDIC DIGIT THREE}", None),
        (f"t-00.{TOKEN}-delete", None),
        (f"t-00.{TOKEN}-stray", None),
        (f"t-01.{TOKEN}-future", None),
    ],
)
def test_partition_directory_names(name: str, expected: PartitionDirName | None) -> None:
    assert names.parse_partition_dir_name(name) == expected


def test_marked_names_fit_a_file_system() -> None:
    topic = "x" * 249
    name = names.partition_dir_name_with_suffix(topic, 4096, TOKEN, PartitionDirKind.DELETE)
    assert len(name) == names.DIR_NAME_BYTES_MAX
    found = names.parse_partition_dir_name(name)
    assert found is not None
    assert found.partition == 4096
    assert topic.startswith(found.topic)
    assert (
        names.partition_dir_name_with_suffix("t", 0, TOKEN, PartitionDirKind.STRAY)
        == f"t-0.{TOKEN}-stray"
    )
    assert names.partition_dir_name("t", 7) == "t-7"
