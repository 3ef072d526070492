"""Formats log directories as Kafka's tool does, refuses what it refuses, and describes them.

Method: a disk in memory; files are read back with the readers that a starting node uses.
"""

import pytest

from ottla.base.ids import parse_uuid, uuid_text
from ottla.host.log_dirs.storage import (
    FormatResult,
    StorageError,
    bootstrap_records,
    format_storage,
    random_uuid,
    read_bootstrap,
    read_meta_properties,
    storage_info,
)
from ottla.metadata.records import FeatureLevelRecord
from ottla.raft.batches import read_batches

from ..harness import CLUSTER_ID, Dice, Harness

DIRS = ("/a", "/b")


def formatted(harness: Harness, **options: object) -> FormatResult:
    arguments: dict[str, object] = {
        "log_dirs": DIRS,
        "metadata_log_dir": "/a",
        "node_id": 3,
        "cluster_id": CLUSTER_ID,
        "dice": Dice(1),
        "clock": harness.clock,
    }
    return format_storage(harness.disk, **(arguments | options))  # type: ignore[arg-type]


def test_every_log_directory_gets_its_own_id_and_the_same_cluster_and_node() -> None:
    harness = Harness()
    result = formatted(harness)
    assert [each.path for each in result.dirs] == ["/a", "/b"]
    assert result.metadata_version == "4.0-IV3"
    found = [read_meta_properties(harness.disk, path) for path in DIRS]
    assert {(each.version, each.cluster_id, each.node_id) for each in found if each} == {
        (1, CLUSTER_ID, 3)
    }
    assert [each.directory_id for each in found if each] == [e.directory_id for e in result.dirs]
    assert len({each.directory_id for each in result.dirs}) == 2


def test_a_separate_metadata_log_directory_is_formatted_too() -> None:
    harness = Harness()
    result = formatted(harness, metadata_log_dir="/meta")
    assert [each.path for each in result.dirs] == ["/a", "/b", "/meta"]


def test_formatted_log_directories_outlive_a_power_loss_with_their_new_parents() -> None:
    harness = Harness()
    paths = ("/new/disk/a", "/new/disk/b")
    result = formatted(harness, log_dirs=paths, metadata_log_dir="/new/meta")
    harness.crash()
    found = [read_meta_properties(harness.disk, each.path) for each in result.dirs]
    assert [each and each.directory_id for each in found] == [e.directory_id for e in result.dirs]


def test_the_bootstrap_file_holds_the_levels_between_header_and_footer() -> None:
    harness = Harness()
    formatted(harness)
    assert read_bootstrap(harness.disk, "/a") == (
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        FeatureLevelRecord(name="ottla.version", feature_level=3),
    )
    batches = list(read_batches(harness.disk.read_bytes("/a/bootstrap.checkpoint")))
    assert [batch.is_control for batch in batches] == [True, False, True]
    assert [(batch.base_offset, batch.epoch) for batch in batches] == [(0, 0), (1, 0), (4, 0)]


def test_a_feature_may_be_disabled() -> None:
    harness = Harness()
    formatted(harness, features={"eligible.leader.replicas.version": 0, "ottla.version": 0})
    assert read_bootstrap(harness.disk, "/a") == (
        FeatureLevelRecord(name="metadata.version", feature_level=25),
    )


@pytest.mark.parametrize(
    ("features", "output"),
    [
        ({"group.version": 1}, "Unknown feature group.version"),
        ({"metadata.version": 24}, "Unsupported level 24 of metadata.version: expected 25 to 25"),
        ({"eligible.leader.replicas.version": 2}, "expected 0 to 1"),
    ],
)
def test_levels_that_there_are_not_are_refused(features: dict[str, int], output: str) -> None:
    harness = Harness()
    with pytest.raises(StorageError, match=output):
        formatted(harness, features=features)
    assert not harness.disk.exists("/a")


def test_without_a_bootstrap_file_the_usual_records_are_taken() -> None:
    harness = Harness()
    harness.disk.mkdir("/a")
    assert read_bootstrap(harness.disk, "/a") == bootstrap_records()


def test_a_damaged_bootstrap_file_is_refused() -> None:
    harness = Harness()
    formatted(harness)
    data = harness.disk.read_bytes("/a/bootstrap.checkpoint")
    harness.disk.write_atomic("/a/bootstrap.checkpoint", data[:-1])
    with pytest.raises(StorageError, match=r"/a/bootstrap\.checkpoint"):
        read_bootstrap(harness.disk, "/a")


def test_a_formatted_log_directory_is_refused() -> None:
    harness = Harness()
    formatted(harness)
    with pytest.raises(StorageError, match="Log directory /a is already formatted"):
        formatted(harness)


def test_ignoring_formatted_log_directories_formats_the_others() -> None:
    harness = Harness()
    first = formatted(harness, log_dirs=("/a",))
    result = formatted(harness, ignore_formatted=True, dice=Dice(2))
    assert [(each.path, each.skipped) for each in result.dirs] == [("/a", True), ("/b", False)]
    assert result.dirs[0].directory_id == first.dirs[0].directory_id
    again = formatted(harness, ignore_formatted=True, dice=Dice(3))
    assert all(each.skipped for each in again.dirs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster_id": "AAAAAAAAAAAAAAAAAAAAAQ"}, "Invalid cluster.id in: /a"),
        ({"node_id": 4}, "Stored node id 3 doesn't match the configured node id 4"),
    ],
)
def test_log_directories_of_another_cluster_or_node_are_refused(
    options: dict[str, object], message: str
) -> None:
    harness = Harness()
    formatted(harness, log_dirs=("/a",))
    with pytest.raises(StorageError, match=message):
        formatted(harness, ignore_formatted=True, **options)
    assert not harness.disk.exists("/b"), "nothing was written"


@pytest.mark.parametrize("text", ["", "short", "AAAAAAAAAAAAAAAAAAAAAA", "!" * 22, "A" * 23])
def test_an_unsound_cluster_id_is_refused_before_anything_is_written(text: str) -> None:
    harness = Harness()
    with pytest.raises(StorageError, match="does not appear to be a valid UUID"):
        formatted(harness, cluster_id=text)
    assert not harness.disk.exists("/a")


def test_without_a_cluster_id_one_is_made_or_taken_from_what_is_formatted() -> None:
    harness = Harness()
    made = formatted(harness, log_dirs=("/a",), cluster_id=None)
    assert parse_uuid(made.cluster_id)
    joined = formatted(harness, cluster_id=None, ignore_formatted=True, dice=Dice(9))
    assert joined.cluster_id == made.cluster_id


@pytest.mark.parametrize("operation", range(12))
def test_a_crash_while_formatting_leaves_no_half_formatted_directory(operation: int) -> None:
    harness = Harness()
    harness.disk.fail(None, skip=operation, times=None)
    try:
        formatted(harness)
    except OSError:
        harness.disk.crash()
    harness.disk.faults.clear()
    for path in DIRS:
        if harness.disk.is_dir(path) and read_meta_properties(harness.disk, path) is not None:
            assert harness.disk.exists(f"{path}/bootstrap.checkpoint")
    result = formatted(harness, cluster_id=None, ignore_formatted=True, dice=Dice(7))
    assert len(result.dirs) == 2


def test_random_ids_are_version_4_and_never_look_like_an_option() -> None:
    dice = Dice(5)
    for _ in range(500):
        uuid = random_uuid(dice)
        assert uuid[6] >> 4 == 4
        assert uuid[8] >> 6 == 2
        assert not uuid_text(uuid).startswith("-")


def test_info_lists_the_directories() -> None:
    harness = Harness()
    formatted(harness)
    info = storage_info(harness.disk, DIRS, "/a")
    assert info.found == DIRS
    assert [path for path, _ in info.properties] == list(DIRS)
    assert info.problems == ()


def test_info_lists_problems() -> None:
    harness = Harness()
    formatted(harness, log_dirs=("/a",))
    formatted(harness, log_dirs=("/b",), metadata_log_dir="/b", node_id=5, dice=Dice(4))
    harness.disk.mkdir("/empty")
    harness.disk.mkdir("/bad")
    harness.disk.write_atomic("/bad/meta.properties", b"version=1\n")
    harness.disk.mkdir("/broken")
    harness.disk.fail("exists", path="/broken/")
    harness.disk.write_atomic("/file", b"")
    paths = ("/a", "/b", "/empty", "/bad", "/broken", "/file", "/none")
    info = storage_info(harness.disk, paths, "/a")
    assert info.problems == (
        "/empty is not formatted.",
        "/bad/meta.properties: cluster.id was not specified in the version 1 file",
        "/broken/meta.properties: exists failed",
        "/file is not a directory",
        "/none does not exist",
        "the directories disagree on node.id: 3, 5",
    )
