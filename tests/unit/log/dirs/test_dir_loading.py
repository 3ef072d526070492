"""What a start does with the partition directories that it finds.

Method: directories of earlier runs of a broker, damaged or foreign ones among them; run with
workers that act at once and with workers that wait.
"""

import pytest

from ottla.log.dirs.dir_loading import DamagedMetadata, Verdict
from ottla.log.dirs.log_dirs import NameTaken
from ottla.log.dirs.partition_metadata import encode_partition_metadata
from ottla.log.dirs.replica_deletion import remove_replicas
from tests.unit.log.node import CONFIG, OTHER_ID, TOKEN, Node, create
from tests.unit.log.support import TOPIC_ID, InlineWorkers, QueuedWorkers, append, batch


@pytest.fixture(params=[InlineWorkers, QueuedWorkers])
def node(request: pytest.FixtureRequest) -> Node:
    return Node(request.param())


def test_each_partition_directory_gets_its_verdict(node: Node) -> None:
    """KAFKA-13127: valid logs stay, strays are moved aside and never deleted."""
    dirs, _ = node.start()
    for topic in ("keep", "stray", "delete"):
        append(create(dirs, topic), batch())
    node.stop(dirs)
    verdicts = {"keep": Verdict.KEEP, "stray": Verdict.STRAY, "delete": Verdict.DELETE}
    dirs, found = node.start(lambda topic, partition, topic_id: verdicts[topic])
    assert [log.name for log in found.logs] == ["keep-0"]
    assert found.strays == (f"stray-0.{TOKEN}-stray",)
    names = {name for path in ("/d1", "/d2") for name in node.disk.listdir(path) if "-0" in name}
    assert names == {"keep-0", f"stray-0.{TOKEN}-stray", f"delete-0.{TOKEN}-delete"}
    node.pass_ms(1_000_000)
    names = {name for path in ("/d1", "/d2") for name in node.disk.listdir(path) if "-0" in name}
    assert names == {"keep-0", f"stray-0.{TOKEN}-stray"}
    node.stop(dirs)
    _, found = node.start()
    assert found.strays == (f"stray-0.{TOKEN}-stray",)


@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_a_directory_without_a_topic_id_is_a_stray(node: Node, damage: str) -> None:
    """KAFKA-16814: a crash can leave no `partition.metadata`."""
    dirs, _ = node.start()
    append(create(dirs), batch())
    node.stop(dirs)
    node.disk.remove("/d1/t-0/partition.metadata")
    if damage == "empty":
        node.disk.write_atomic("/d1/t-0/partition.metadata", b"")
    node.asked.clear()
    dirs, found = node.start()
    assert found.logs == ()
    assert found.strays == (f"t-0.{'0' * 32}-stray",)
    assert node.asked == []
    assert create(dirs).log_end_offset == 0


FIRST, LATER = "00000000000000000000", "00000000000000000007"
MADE = {f"{FIRST}.log": b"", f"{FIRST}.index": b"", f"{FIRST}.timeindex": b""}


@pytest.mark.parametrize("name", ["t-0", f"t-0.{'0' * 32}-stray"])
@pytest.mark.parametrize(
    "files",
    [
        {},
        MADE,
        MADE | {"partition.metadata": b"", ".ottla_untold": b""},
        MADE | {"partition.metadata": bytes(43)},
        MADE | {"partition.metadata": b"vers", "leader-epoch-checkpoint": b"0\n1\n0 0\n"},
        {"partition.metadata.tmp": b"version: 0"},
        {"leader-epoch-checkpoint.tmp": b"0\n", "leader-epoch-checkpoint.tmp.tmp": b"0\n"},
    ],
)
def test_a_directory_with_neither_topic_id_nor_record_is_removed(
    node: Node, name: str, files: dict[str, bytes]
) -> None:
    """A power loss right after a log was created leaves such directories."""
    node.disk.mkdir(f"/d1/{name}")
    for file, data in files.items():
        node.disk.write_atomic(f"/d1/{name}/{file}", data)
    dirs, found = node.start(lambda *_: Verdict.STRAY)
    assert (found.logs, found.strays, node.asked) == ((), (), [])
    log = create(dirs)
    append(log, batch())
    node.pass_ms(1_000)
    assert [each for each in node.disk.listdir("/d1") if each.startswith("t-")] == ["t-0"]
    assert dirs.get("t", 0) is log


@pytest.mark.parametrize(
    "files",
    [
        {f"{FIRST}.log": b"\0"},
        {f"{FIRST}.log": b"", f"{LATER}.log": bytes(batch(base_offset=7))},
        {f"{LATER}.log": b""},
        {f"{FIRST}.log": b"", f"{FIRST}.txnindex": b"aborted"},
        {f"{FIRST}.log.deleted": b""},
        {f"{FIRST}.log.swap": bytes(batch())},
        {f"{FIRST}.snapshot": b""},
        {"notes.txt": b""},
        {"below/notes.txt": b"people's"},
        {f"{FIRST}.log/notes.txt": b"people's"},
    ],
)
def test_one_in_which_there_may_be_something_stays(node: Node, files: dict[str, bytes]) -> None:
    for file, data in files.items():
        node.disk.mkdir(f"/d1/t-0/{file}".rpartition("/")[0])
        node.disk.write_atomic(f"/d1/t-0/{file}", data)
    _, found = node.start(lambda *_: Verdict.STRAY)
    node.pass_ms(1_000)
    assert found.strays == (f"t-0.{'0' * 32}-stray",)
    for file, data in files.items():
        assert node.disk.read_bytes(f"/d1/{found.strays[0]}/{file}") == data


DAMAGED = (
    b"garbage",
    b"version: 1\ntopic_id: vPrf8GOdSvuGKTXo8bVbuQ",
    b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
    bytes(40) + b"and more than zeros",
)


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("records", [True, False])
def test_one_whose_metadata_file_is_damaged_is_offline(
    node: Node, damage: bytes, records: bool
) -> None:
    """It was set aside, and an empty log took the name: a replica in sync that had nothing."""
    dirs, _ = node.start()
    log = create(dirs)
    if records:
        append(log, batch())
    node.stop(dirs)
    path = "/d1/t-0/partition.metadata"
    node.disk.write_atomic(path, damage)
    before = node.disk.listdir("/d1/t-0")
    for _ in range(2):
        dirs, found = node.start()
        assert (found.logs, found.strays) == ((), ())
        assert [(type(error), error.filename) for error in found.unusable] == [
            (DamagedMetadata, path)
        ]
        with pytest.raises(NameTaken) as caught:
            create(dirs)
        assert caught.value.filename == path
        assert dirs.dirs[0].is_online
        assert node.disk.listdir("/d1/t-0") == before
        assert node.disk.read_bytes(path) == damage
        node.stop(dirs)
    node.disk.write_atomic(path, encode_partition_metadata(TOPIC_ID))
    dirs, found = node.start()
    assert [log.log_end_offset for log in found.logs] == [1 if records else 0]


def test_one_whose_metadata_file_is_a_directory_is_offline(node: Node) -> None:
    node.disk.mkdir("/d1/t-0/partition.metadata")
    dirs, found = node.start()
    assert [type(error) for error in found.unusable] == [DamagedMetadata]
    with pytest.raises(NameTaken):
        create(dirs)


def test_one_that_is_damaged_when_a_log_is_looked_up_is_left_alone(node: Node) -> None:
    """A directory that appeared after the start, perhaps copied from another machine."""
    dirs, _ = node.start()
    path = "/d1/t-0/partition.metadata"
    node.disk.mkdir("/d1/t-0")
    node.disk.write_atomic(path, b"garbage")
    with pytest.raises(NameTaken) as caught:
        create(dirs)
    assert caught.value.filename == path
    assert node.disk.read_bytes(path) == b"garbage"


@pytest.mark.parametrize("kind", ["stray", "delete"])
def test_a_renamed_directory_is_handled_whatever_its_metadata_file_holds(
    node: Node, kind: str
) -> None:
    name = f"t-0.{TOKEN}-{kind}"
    node.disk.mkdir(f"/d1/{name}")
    node.disk.write_atomic(f"/d1/{name}/partition.metadata", b"garbage")
    dirs, found = node.start()
    node.pass_ms(1_000_000)
    assert found.unusable == ()
    assert (name in node.disk.listdir("/d1")) == (kind == "stray")
    assert create(dirs).log_end_offset == 0


def test_a_deletion_fails_for_a_damaged_metadata_file(node: Node) -> None:
    """It may be the deleted topic's, so the removal must not be reported as complete."""
    node.disk.mkdir("/d1/t-0")
    node.disk.write_atomic("/d1/t-0/partition.metadata", b"garbage")
    dirs, _ = node.start()
    done = remove_replicas(dirs, [(TOPIC_ID, 0), (OTHER_ID, 0)], {TOPIC_ID: "t", OTHER_ID: "u"})
    node.run()
    outcome = done.value
    assert isinstance(outcome[TOPIC_ID, 0], DamagedMetadata)
    assert outcome[OTHER_ID, 0] is None


def test_the_broker_decides_about_an_empty_directory_with_a_topic_id(node: Node) -> None:
    dirs, _ = node.start()
    create(dirs)
    node.stop(dirs)
    _, found = node.start(lambda *_: Verdict.STRAY)
    assert found.strays == (f"t-0.{TOKEN}-stray",)


def test_strays_are_known_until_they_are_deleted(node: Node) -> None:
    dirs, _ = node.start()
    append(create(dirs), batch())
    dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    stray = f"t-0.{TOKEN}-stray"
    assert [directory.strays for directory in dirs.dirs] == [{stray}, set()]
    node.stop(dirs)
    dirs, _ = node.start()
    assert [directory.strays for directory in dirs.dirs] == [{stray}, set()]
    remove_replicas(dirs, [(TOPIC_ID, 0)])
    node.run()
    assert [directory.strays for directory in dirs.dirs] == [set(), set()]


def test_a_stale_log_of_the_name_gives_way_unharmed(node: Node) -> None:
    """KAFKA-14616, KAFKA-16157: the topic was created again while this broker was away."""
    dirs, _ = node.start()
    old = create(dirs)
    append(old, batch([b"old"]))
    new = dirs.get_or_create("t", OTHER_ID, 0, CONFIG)
    assert new is not old
    assert new.log_end_offset == 0
    assert old.failed
    assert node.disk.exists(f"/d1/t-0.{TOKEN}-stray/00000000000000000000.log")


def test_a_directory_that_was_never_loaded_is_renamed_too(node: Node) -> None:
    dirs, _ = node.start()
    node.disk.mkdir("/d1/t-0")
    node.disk.write_atomic("/d1/t-0/00000000000000000000.log", bytes(batch()))
    log = create(dirs)
    assert log.log_end_offset == 0
    assert f"t-0.{'0' * 32}-stray" in node.disk.listdir("/d1")


def test_files_and_other_directories_are_left_alone(node: Node) -> None:
    for name in ("lost+found", "__cluster_metadata-0", "remote-log-index-cache"):
        node.disk.mkdir(f"/d1/{name}")
    node.disk.write_atomic("/d1/file-0", b"")
    future = f"t-3.{TOKEN}-future"
    node.disk.mkdir(f"/d2/{future}")
    _, found = node.start()
    assert found.logs == ()
    assert found.strays == (future,)
    assert node.disk.exists("/d1/__cluster_metadata-0")


def test_a_partition_in_two_directories_is_a_problem(node: Node) -> None:
    dirs, _ = node.start()
    create(dirs)
    node.stop(dirs)
    node.disk.mkdir("/d2/t-0")
    node.disk.write_atomic(
        "/d2/t-0/partition.metadata", node.disk.read_bytes("/d1/t-0/partition.metadata")
    )
    _, found = node.start()
    assert found.problem is not None
    assert "Duplicate log directories for t-0 are found in both /d1 and /d2" in found.problem


def test_a_copy_beside_a_log_does_not_take_its_place(node: Node) -> None:
    """`cp -a t-0 t-00`: the copy was opened, and what had been acknowledged since was gone."""
    dirs, _ = node.start()
    log = create(dirs)
    append(log, batch(3))
    log.flush()
    node.stop(dirs)
    node.disk.mkdir("/d1/t-00")
    for file in node.disk.listdir("/d1/t-0"):
        node.disk.write_atomic(f"/d1/t-00/{file}", node.disk.read_bytes(f"/d1/t-0/{file}"))
    dirs, _ = node.start()
    append(create(dirs), batch(5))
    node.stop(dirs)
    dirs, found = node.start()
    assert [(each.directory, each.log_end_offset) for each in found.logs] == [("/d1/t-0", 8)]
    assert (found.problem, found.strays) == (None, ())
    remove_replicas(dirs, [(TOPIC_ID, 0)])
    node.run()
    node.pass_ms(1_000)
    assert [each for each in node.disk.listdir("/d1") if each.startswith("t-")] == ["t-00"]


def test_a_partition_with_two_directories_is_a_problem(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second log took the first one's place; two would have written to the same files."""
    dirs, _ = node.start()
    create(dirs)
    node.stop(dirs)
    listdir = node.disk.listdir
    monkeypatch.setattr(node.disk, "listdir", lambda path: sorted([*listdir(path), *listdir(path)]))
    _, found = node.start()
    assert found.problem is not None
    assert "t-0 are found in both /d1/t-0 and /d1/t-0." in found.problem
    assert len(found.logs) == 1
