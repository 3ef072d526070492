"""A node opens log directories that are its own and not locked, and deletes on evidence only.

Method: a disk in memory with formatted log directories; images made from records.
"""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.base.ids import Uuid, uuid_text
from ottla.host.log_dirs.node_dirs import NodeDirs, StartError, open_node_dirs
from ottla.host.log_dirs.storage import format_storage
from ottla.host.node_ports import NodePorts
from ottla.host.steps import drive_async
from ottla.log import names
from ottla.log.dirs.checkpoints import encode_clean_shutdown, encode_offsets
from ottla.log.dirs.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    encode_meta_properties,
)
from ottla.log.dirs.partition_metadata import encode_partition_metadata
from ottla.metadata.deletions import (
    NOT_FINISHED,
    DeletionRecord,
    DeletionState,
    ForgetDeletionRecord,
    Policy,
    ReplicaStatus,
    replicas_record,
)
from ottla.metadata.delta import replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.node_config import NodeConfig
from ottla.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
    TopicTieringRecord,
)

from ..harness import CLUSTER_ID, Dice, Harness

PROPERTIES = {
    "process.roles": "broker",
    "node.id": "3",
    "listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "log.dirs": "/a,/b",
}
KEPT, MOVED, UNKNOWN = (Uuid(bytes([value]) * 16) for value in (1, 2, 3))


def formatted(harness: Harness, **properties: str) -> NodeConfig:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    config = NodeConfig.parse(PROPERTIES | given)
    format_storage(
        harness.disk,
        log_dirs=config.log_dirs,
        metadata_log_dir=config.metadata_log_dir,
        node_id=config.node_id,
        cluster_id=CLUSTER_ID,
        dice=Dice(1),
        clock=harness.clock,
        ignore_formatted=True,
    )
    return config


def opened(harness: Harness, config: NodeConfig) -> NodeDirs:
    return open_node_dirs(config, ports_of(harness))


def ports_of(harness: Harness, boot_id: str = "") -> NodePorts:
    return cast(
        NodePorts,
        SimpleNamespace(
            disk=harness.disk,
            clock=harness.clock,
            dice=Dice(2),
            timers=harness.timers,
            workers=harness.workers,
            boot_id=boot_id,
        ),
    )


def test_log_directories_are_opened_once_and_again_after_close() -> None:
    harness = Harness()
    config = formatted(harness)
    node_dirs = opened(harness, config)
    assert node_dirs.cluster_id == CLUSTER_ID
    assert len(node_dirs.directory_ids) == 2
    assert node_dirs.previous_broker_epoch == -1
    with pytest.raises(StartError, match=r"Failed to acquire lock on file \.lock in /a"):
        opened(harness, config)
    node_dirs.close()
    opened(harness, config).close()


def test_an_unformatted_log_directory_names_the_remedy() -> None:
    harness = Harness()
    config = NodeConfig.parse(PROPERTIES)
    with pytest.raises(StartError, match="ottla storage format"):
        opened(harness, config)


def test_another_nodes_log_directory_is_refused_and_not_kept_locked() -> None:
    harness = Harness()
    formatted(harness)
    other = NodeConfig.parse(PROPERTIES | {"node.id": "4"})
    with pytest.raises(StartError, match="4"):
        opened(harness, other)
    opened(harness, NodeConfig.parse(PROPERTIES)).close()


@pytest.mark.parametrize(
    ("epochs", "previous"), [((7, 7), 7), ((7, 5), 5), ((7, None), -1), ((None, None), -1)]
)
def test_the_last_clean_shutdown_counts_if_every_log_directory_has_its_epoch(
    epochs: tuple[int | None, ...], previous: int
) -> None:
    harness = Harness()
    config = formatted(harness)
    for path, epoch in zip(config.log_dirs, epochs, strict=True):
        if epoch is not None:
            content = encode_clean_shutdown(epoch)
            harness.disk.write_atomic(f"{path}/{names.CLEAN_SHUTDOWN}", content)
    node_dirs = opened(harness, config)
    assert node_dirs.previous_broker_epoch == previous
    node_dirs.close()


def test_a_metadata_log_that_cannot_be_opened_leaves_nothing_locked() -> None:
    harness = Harness()
    config = formatted(harness)
    harness.disk.write_atomic("/a/__cluster_metadata-0", b"a file where the directory should be")
    with pytest.raises(StartError, match="/a/__cluster_metadata-0"):
        opened(harness, config)
    harness.disk.remove("/a/__cluster_metadata-0")
    opened(harness, config).close()


def test_a_controller_locks_its_metadata_log_directory_only() -> None:
    harness = Harness()
    config = formatted(
        harness,
        process_roles="controller",
        node_id="1",
        listeners="CONTROLLER://localhost:9093",
        metadata_log_dir="/meta",
    )
    node_dirs = opened(harness, config)
    assert [each.path for each in node_dirs.log_dirs.dirs] == ["/meta"]
    node_dirs.close()


META = f"/b/{names.META_PROPERTIES}"


@pytest.mark.parametrize(
    "found",
    [None, f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=3\n".encode()],
    ids=["an empty disk", "no directory id"],
)
def test_a_log_directory_without_an_id_gets_one_at_the_start(
    found: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a disk that was added or replaced, or formatted by Kafka before 3.7."""
    caplog.set_level("INFO")
    harness = Harness()
    config = formatted(harness)
    others = harness.disk.read_bytes(f"/a/{names.META_PROPERTIES}")
    harness.disk.remove(META)
    if found is not None:
        harness.disk.write_atomic(META, found)
    node_dirs = opened(harness, config)
    assert len(set(node_dirs.directory_ids)) == 2
    given = node_dirs.directory_ids
    written = decode_meta_properties(harness.disk.read_bytes(META))
    assert written == MetaProperties(
        version=1, cluster_id=CLUSTER_ID, node_id=3, directory_id=given[1]
    )
    assert harness.disk.read_bytes(f"/a/{names.META_PROPERTIES}") == others
    assert f"formatted /b with directory id {uuid_text(given[1])}" in caplog.text
    node_dirs.close()
    caplog.clear()
    again = opened(harness, config)
    assert again.directory_ids == given
    assert "formatted" not in caplog.text


def test_an_empty_disk_counts_as_an_unclean_shutdown() -> None:
    harness = Harness()
    config = formatted(harness)
    clean = encode_clean_shutdown(7)
    harness.disk.write_atomic(f"/a/{names.CLEAN_SHUTDOWN}", clean)
    harness.disk.remove(META)
    assert opened(harness, config).previous_broker_epoch == -1


def test_a_new_disk_that_cannot_be_formatted_is_offline() -> None:
    harness = Harness()
    config = formatted(harness)
    harness.disk.remove(META)
    harness.disk.fail("write_atomic", path="/b", number=errno.EROFS)
    node_dirs = opened(harness, config)
    assert [each.path for each in node_dirs.log_dirs.offline_dirs] == ["/b"]
    assert len(node_dirs.directory_ids) == 1


def test_a_new_disk_that_cannot_be_formatted_stops_the_start_if_it_is_the_only_one() -> None:
    harness = Harness()
    config = formatted(harness, log_dirs="/b", metadata_log_dir="/meta")
    harness.disk.remove(META)
    harness.disk.fail("write_atomic", path="/b", number=errno.EROFS)
    with pytest.raises(StartError, match="/b"):
        opened(harness, config)
    opened(harness, config).close()


def test_a_log_directory_of_zookeeper_mode_is_refused_and_stays_as_it_is() -> None:
    harness = Harness()
    config = formatted(harness)
    data = encode_meta_properties(MetaProperties(version=0, cluster_id=CLUSTER_ID, node_id=3))
    harness.disk.write_atomic(META, data)
    with pytest.raises(StartError, match="/b was formatted for ZooKeeper mode"):
        opened(harness, config)
    assert harness.disk.read_bytes(META) == data
    opened(harness, NodeConfig.parse(PROPERTIES | {"log.dirs": "/a"})).close()


def image_of(*topics: tuple[str, Uuid, tuple[int, ...]]) -> ClusterImage:
    records: list[Any] = []
    for name, topic_id, replicas in topics:
        records.append(TopicRecord(name=name, topic_id=topic_id))
        records.append(
            PartitionRecord(
                partition_id=0,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
            )
        )
    return replay(EMPTY, records, offset=10, epoch=1).image


def load(harness: Harness, node_dirs: NodeDirs, image: ClusterImage, config: NodeConfig) -> None:
    """Load logs while the workers run whenever the loop is idle."""

    async def loading() -> None:
        task = asyncio.ensure_future(drive_async(node_dirs.load_logs(image, config)))
        while not task.done():
            await asyncio.sleep(0)
            harness.workers.run()
        task.result()

    asyncio.run(loading())


def put_partition(harness: Harness, path: str, topic_id: Uuid) -> None:
    harness.disk.mkdir(path)
    harness.disk.write_atomic(
        f"{path}/{names.PARTITION_METADATA}", encode_partition_metadata(topic_id)
    )


def test_a_broker_without_remote_storage_does_not_start_beside_topics_that_have_it() -> None:
    tiering = TopicTieringRecord(topic_id=MOVED, state=1, tiered_epoch=1)
    image = image_of(("kept", KEPT, (3,)), ("moved", MOVED, (4,)))
    tiered = replay(image, [tiering], offset=11, epoch=1).image
    harness = Harness()
    config = formatted(harness)
    node_dirs = opened(harness, config)
    with pytest.raises(StartError) as caught:
        load(harness, node_dirs, tiered, config)
    assert str(caught.value) == (
        "remote.log.storage.system.enable=false, and 1 topics have remote storage, the first is"
        " moved: set remote.log.storage.system.enable=true and ottla.remote.storage.uri"
    )
    given_up = replace(tiering, state=3, tiered_epoch=2, policy=2)
    load(harness, node_dirs, replay(image, [given_up], offset=11, epoch=1).image, config)
    node_dirs.close()


def test_nor_does_one_whose_own_logs_lack_what_was_in_remote_storage() -> None:
    """It was down when their remote segments were given up: it has to copy records from its leader,
    or, as the leader, to move the log start. Only brokers with remote storage do."""
    harness = Harness()
    config = formatted(harness)
    put_partition(harness, "/a/kept-0", KEPT)
    harness.disk.open(f"/a/kept-0/{names.segment_name(5, names.LOG)}", create=True).close()
    starts = encode_offsets({("kept", 0): 5})
    harness.disk.write_atomic(f"/a/{names.LOCAL_LOG_STARTS}", starts)
    given_up = TopicTieringRecord(topic_id=KEPT, state=3, tiered_epoch=2, policy=2)
    image = replay(image_of(("kept", KEPT, (3,))), [given_up], offset=11, epoch=1).image
    node_dirs = opened(harness, config)
    with pytest.raises(StartError) as caught:
        load(harness, node_dirs, image, config)
    assert str(caught.value) == (
        "remote.log.storage.system.enable=false, and 1 logs lack records that were in remote"
        " storage, the first is kept-0: set remote.log.storage.system.enable=true and"
        " ottla.remote.storage.uri until the broker has copied them from their leaders"
    )
    node_dirs.close()


def test_a_loaded_log_has_the_topics_remote_storage() -> None:
    harness = Harness()
    config = formatted(
        harness,
        remote_log_storage_system_enable="true",
        ottla_remote_storage_uri="file:///r",
    )
    put_partition(harness, "/a/kept-0", KEPT)
    node_dirs = opened(harness, config)
    tiering = TopicTieringRecord(topic_id=KEPT, state=1, tiered_epoch=1)
    image = replay(image_of(("kept", KEPT, (3,))), [tiering], offset=11, epoch=1).image
    load(harness, node_dirs, image, config)
    [log] = node_dirs.log_dirs.logs()
    assert log.config.remote_storage
    node_dirs.close()


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_log_is_loaded_with_the_brokers_own_properties(is_dynamic: bool) -> None:
    """A start drops the producers that have expired: not by the default, but by what is set."""
    name, week_ms = "producer.id.expiration.ms", 604_800_000
    harness = Harness()
    config = formatted(harness, **({} if is_dynamic else {name: str(week_ms)}))
    put_partition(harness, "/a/kept-0", KEPT)
    node_dirs = opened(harness, config)
    image = image_of(("kept", KEPT, (3,)))
    if is_dynamic:
        value = ConfigRecord(resource_type=4, resource_name="3", name=name, value=str(week_ms))
        image = replay(image, [value], offset=11, epoch=1).image
    load(harness, node_dirs, image, config)
    [log] = node_dirs.log_dirs.logs()
    assert log.config.producer_id_expiration_ms == week_ms
    node_dirs.close()


def test_what_a_start_deletes_stays_on_disk_as_long_as_the_dynamic_delay_says() -> None:
    harness = Harness()
    config = formatted(harness)
    put_partition(harness, "/a/moved-0", MOVED)
    node_dirs = opened(harness, config)
    value = ConfigRecord(
        resource_type=4, resource_name="", name="log.segment.delete.delay.ms", value="1000"
    )
    image = replay(image_of(("moved", MOVED, (4,))), [value], offset=11, epoch=1).image
    load(harness, node_dirs, image, config)
    assert [name for name in harness.disk.listdir("/a") if name.endswith("-delete")]
    harness.advance(1_000)
    assert not [name for name in harness.disk.listdir("/a") if name.endswith("-delete")]
    node_dirs.close()


def test_partition_directories_are_kept_deleted_or_renamed_by_the_image() -> None:
    harness = Harness()
    config = formatted(harness)
    put_partition(harness, "/a/kept-0", KEPT)
    put_partition(harness, "/a/moved-0", MOVED)
    put_partition(harness, "/b/unknown-0", UNKNOWN)
    put_partition(harness, "/b/kept-1", KEPT)
    node_dirs = opened(harness, config)
    load(harness, node_dirs, image_of(("kept", KEPT, (3,)), ("moved", MOVED, (4,))), config)
    assert [log.name for log in node_dirs.log_dirs.logs()] == ["kept-0"]
    found = {name for path in "ab" for name in harness.disk.listdir(f"/{path}") if "-" in name}
    kinds: list[tuple[str, Callable[[str], bool]]] = [
        ("kept-0", lambda name: name == "kept-0"),
        ("unknown-0", lambda name: name.startswith("unknown-0.") and name.endswith("-stray")),
        ("kept-1", lambda name: name == f"kept-1.{KEPT.hex()}-stray"),
    ]
    for topic, matches in kinds:
        assert any(matches(name) for name in found), (topic, found)
    assert "moved-0" not in found
    assert "kept-1" not in found, "the topic has no such partition, by metadata that may be old"
    node_dirs.close()


def deleted_image(*, finished: bool, state: DeletionState) -> ClusterImage:
    """Return an image whose ledger has MOVED, with a replica of this broker or of none."""
    standing = ReplicaStatus(state)
    records: list[Any] = [
        DeletionRecord(
            topic_id=MOVED,
            name="gone",
            policy=Policy.AT_ONCE,
            asked_ms=1,
            halted=0,
            remote=0,
            finished_ms=2 if finished else NOT_FINISHED,
        ),
        replicas_record(MOVED, 3, standing, (0,)),
    ]
    return replay(image_of(("kept", KEPT, (3,))), records, offset=11, epoch=1).image


@pytest.mark.parametrize("state", list(DeletionState))
@pytest.mark.parametrize("finished", [False, True])
def test_what_the_ledger_knows_is_deleted_wherever_and_whatever_it_lies_as(
    finished: bool, state: DeletionState
) -> None:
    """Also after the broker was taken out of the cluster: the receipt is evidence, too.

    A partition that the ledger does not list (it may have grown meanwhile) goes with its topic.
    """
    harness = Harness()
    config = formatted(harness)
    token = MOVED.hex()
    put_partition(harness, "/a/gone-0", MOVED)
    put_partition(harness, "/b/gone-7", MOVED)
    put_partition(harness, f"/b/gone-1.{token}-stray", MOVED)
    put_partition(harness, f"/b/gone-2.{token}-future", MOVED)
    put_partition(harness, "/b/kept-0", KEPT)
    node_dirs = opened(harness, config)
    load(harness, node_dirs, deleted_image(finished=finished, state=state), config)
    found = {name for path in "ab" for name in harness.disk.listdir(f"/{path}") if "-" in name}
    assert {name for name in found if name.startswith("gone")} == {
        f"gone-{number}.{token}-delete" for number in (0, 1, 2, 7)
    }
    assert [log.name for log in node_dirs.log_dirs.logs()] == ["kept-0"]
    node_dirs.close()


def test_a_replica_that_came_back_after_its_receipt_expired_is_kept_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker that was unregistered and returns later than receipts are kept."""
    harness = Harness()
    config = formatted(harness)
    put_partition(harness, "/a/gone-0", MOVED)
    gone = replay(
        deleted_image(finished=True, state=DeletionState.ABANDONED),
        [ForgetDeletionRecord(topic_id=MOVED)],
        offset=12,
        epoch=1,
    ).image
    stray = f"gone-0.{MOVED.hex()}-stray"
    for _ in range(2):
        node_dirs = opened(harness, config)
        load(harness, node_dirs, gone, config)
        assert stray in harness.disk.listdir("/a")
        assert stray in caplog.text
        caplog.clear()
        node_dirs.close()


def test_a_possible_replica_on_a_disk_that_is_not_mounted_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness()
    config = formatted(harness)
    harness.disk.mkdir("/mnt")
    harness.disk.link("/a/kept-0", "/mnt")
    node_dirs = opened(harness, config)
    load(harness, node_dirs, EMPTY, config)
    assert (
        "cannot read or move /a/kept-0 (The link leads to no log): it is left as it is"
        in caplog.text
    )
    assert harness.disk.is_link("/a/kept-0")


def test_a_stray_of_an_existing_topic_is_kept_where_its_replica_may_be() -> None:
    harness = Harness()
    config = formatted(harness)
    stray = f"kept-0.{KEPT.hex()}-stray"
    put_partition(harness, f"/a/{stray}", KEPT)
    node_dirs = opened(harness, config)
    load(harness, node_dirs, image_of(("kept", KEPT, (3,))), config)
    assert stray in harness.disk.listdir("/a")
    node_dirs.close()


def test_a_topic_of_the_same_name_does_not_get_the_old_ones_records() -> None:
    harness = Harness()
    config = formatted(harness)
    put_partition(harness, "/a/again-0", UNKNOWN)
    node_dirs = opened(harness, config)
    load(harness, node_dirs, image_of(("again", KEPT, (3,))), config)
    assert list(node_dirs.log_dirs.logs()) == []
    assert "again-0" not in harness.disk.listdir("/a")
    node_dirs.close()


def run_and_die(harness: Harness, config: NodeConfig, epoch: int, boot_id: str) -> NodeDirs:
    """Have a broker registered with `epoch` in some boot of the machine; then it dies."""
    node_dirs = opened(harness, config)
    node_dirs.log_dirs.note_running(epoch, boot_id)
    harness.workers.run()
    harness.disk.kill()
    return node_dirs


def previous_epoch(harness: Harness, config: NodeConfig, boot_id: str) -> int:
    return after_the_last_process(harness, config, boot_id).previous_broker_epoch


def after_the_last_process(harness: Harness, config: NodeConfig, boot_id: str) -> NodeDirs:
    node_dirs = open_node_dirs(config, ports_of(harness, boot_id))
    node_dirs.close()
    return node_dirs


def test_a_process_that_died_has_lost_nothing_while_the_machine_is_up() -> None:
    harness = Harness()
    config = formatted(harness)
    run_and_die(harness, config, 41, "monday")
    assert previous_epoch(harness, config, "monday") == 41
    assert previous_epoch(harness, config, "tuesday") == -1
    assert previous_epoch(harness, config, "") == -1


def test_a_machine_without_a_boot_id_trusts_no_previous_epoch() -> None:
    harness = Harness()
    config = formatted(harness)
    run_and_die(harness, config, 41, "")
    assert previous_epoch(harness, config, "") == -1


def test_a_log_directory_that_failed_may_have_lost_something() -> None:
    """After a failed sync the system may have dropped pages that were never written."""
    harness = Harness()
    config = formatted(harness)
    node_dirs = opened(harness, config)
    node_dirs.log_dirs.note_running(41, "monday")
    harness.workers.run()
    log_dir = node_dirs.log_dirs.dirs[1]
    harness.disk.fail("write_atomic", path="/b/recovery-point")
    log_dir.checkpoint(names.RECOVERY_POINTS)
    harness.workers.run()
    assert log_dir.error is not None
    harness.disk.kill()
    assert previous_epoch(harness, config, "monday") == -1


def test_a_process_that_fails_while_the_next_one_starts_may_have_lost_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The notes were read before the lock was taken."""
    harness = Harness()
    config = formatted(harness)
    stopping = run_and_die(harness, config, 41, "monday").log_dirs
    lock: Callable[[str], Callable[[], None]] = harness.disk.lock

    def fail_and_lock(path: str) -> Callable[[], None]:
        if stopping.dirs[1].error is None:
            harness.disk.fail("write_atomic", path="/b/recovery-point")
            stopping.dirs[1].checkpoint(names.RECOVERY_POINTS)
            harness.workers.run()
        return lock(path)

    monkeypatch.setattr(harness.disk, "lock", fail_and_lock)
    assert previous_epoch(harness, config, "monday") == -1


@pytest.mark.parametrize("end", ["is killed", "stops", "fails to stop"])
def test_a_disk_that_was_read_only_for_a_while_may_have_lost_something(end: str) -> None:
    """The note in the directory that failed cannot be removed, and is there once it is mounted
    again, in the same boot."""
    harness = Harness()
    config = formatted(harness)
    node_dirs = opened(harness, config)
    load(harness, node_dirs, EMPTY, config)
    log_dirs = node_dirs.log_dirs
    log_dirs.note_running(41, "monday")
    harness.workers.run()
    for operation in ("write_atomic", "remove", "open", "truncate", "sync"):
        harness.disk.fail(operation, number=errno.EROFS, path="/b", times=None)
    if end != "fails to stop":
        log_dirs.dirs[1].checkpoint(names.RECOVERY_POINTS)
        harness.workers.run()
        assert log_dirs.dirs[1].error is not None
        log_dirs.note_running(42, "monday")
        harness.workers.run()
    if end != "is killed":
        stopped = log_dirs.shutdown(42)
        harness.workers.run()
        assert stopped.done
    harness.disk.kill()
    harness.disk.faults.clear()
    assert harness.disk.exists(f"/b/{names.RUNNING}")
    assert previous_epoch(harness, config, "monday") == -1


def test_a_clean_stop_counts_in_every_boot() -> None:
    harness = Harness()
    config = formatted(harness)
    run_and_die(harness, config, 41, "monday")
    for path in ("/a", "/b"):
        harness.disk.write_atomic(f"{path}/{names.CLEAN_SHUTDOWN}", encode_clean_shutdown(42))
    assert previous_epoch(harness, config, "tuesday") == 42


def test_a_damaged_epoch_file_is_ignored() -> None:
    harness = Harness()
    config = formatted(harness)
    run_and_die(harness, config, 41, "monday")
    for damaged in (
        b"",
        b"[]",
        b"{",
        b'{"bootId":"monday"}',
        b'{"bootId":"monday","brokerEpoch":"x"}',
    ):
        harness.disk.write_atomic(f"/a/{names.RUNNING}", damaged)
        assert previous_epoch(harness, config, "monday") == -1


def test_nothing_is_lost_since_the_epoch_of_this_boot_whatever_was_registered_later() -> None:
    harness = Harness()
    config = formatted(harness)
    assert after_the_last_process(harness, config, "monday").previous_broker_epoch == -1
    run_and_die(harness, config, 41, "monday")
    assert after_the_last_process(harness, config, "monday").previous_broker_epoch == 41
    assert after_the_last_process(harness, config, "tuesday").previous_broker_epoch == -1


def test_the_epoch_of_a_clean_shutdown_counts_from_the_next_start_on() -> None:
    """That start may be registered and die before it notes anything itself."""
    harness = Harness()
    config = formatted(harness)
    for path in ("/a", "/b"):
        harness.disk.write_atomic(f"{path}/{names.CLEAN_SHUTDOWN}", encode_clean_shutdown(42))
    first = after_the_last_process(harness, config, "monday")
    assert first.previous_broker_epoch == 42
    harness.disk.kill()
    for path in ("/a", "/b"):
        harness.disk.remove(f"{path}/{names.CLEAN_SHUTDOWN}")
    second = after_the_last_process(harness, config, "monday")
    assert second.previous_broker_epoch == 42
    assert after_the_last_process(harness, config, "tuesday").previous_broker_epoch == -1


def test_a_replica_whose_metadata_file_is_damaged_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness()
    config = formatted(harness)
    harness.disk.mkdir("/a/kept-0")
    harness.disk.write_atomic(f"/a/kept-0/{names.PARTITION_METADATA}", b"garbage")
    node_dirs = opened(harness, config)
    load(harness, node_dirs, EMPTY, config)
    [line] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "/a/kept-0/partition.metadata is damaged (expected the lines" in line.message
    assert "the partition is offline on this broker" in line.message


def test_a_log_directory_that_is_offline_from_the_start_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = Harness()
    config = formatted(harness)
    harness.disk.write_atomic(f"/a/{names.LOG_STARTS}", b"garbage")
    node_dirs = opened(harness, config)
    load(harness, node_dirs, EMPTY, config)
    cause, failure = [each.message for each in caplog.records if each.levelname == "ERROR"]
    assert cause.startswith(f"/a/{names.LOG_STARTS} is damaged (no version and count")
    assert failure.startswith("log directory /a failed: [Errno 74] no version and count")
    assert [each.path for each in node_dirs.log_dirs.online_dirs] == ["/b"]
