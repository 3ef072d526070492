"""The partition directories of a node: new ones, gone ones, and those that may come back.

Method: a disk on which directories are created, renamed and removed; then a power loss.
"""

from random import Random

import pytest

from ottla.base.ids import Uuid
from ottla.log.dirs.partition_metadata import encode_partition_metadata
from ottla.log.names import PartitionDirKind, partition_dir_name_with_suffix
from ottla.testing.sim.disk import SimDisk
from ottla.testing.sim.watch.partition_dir_watch import Assignment, PartitionDirWatch, Replica

TOPIC = Uuid(bytes(15) + b"\x09")
REPLICA = (TOPIC, 0)
DELETED = "/data/" + partition_dir_name_with_suffix("t", 0, "0" * 32, PartitionDirKind.DELETE)


class Machine:
    """A disk and the events reported of it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.disk = SimDisk()
        self.assignment = Assignment.NOT_OWN
        self.watch = PartitionDirWatch(
            self.disk,
            ("/data", "/more"),
            came=self.came,
            went=self.went,
            assignment=lambda replica: self.assignment,
        )
        self.disk.on_operation = self.watch.used
        for path in ("/data", "/more"):
            self.disk.mkdir(path)
        self.disk.settle()

    def came(self, replica: Replica, path: str) -> None:
        assert replica == REPLICA
        self.events.append(f"+{path}")

    def went(self, replica: Replica, assignment: Assignment) -> None:
        self.events.append(f"-{replica[1]}{' its own' if assignment is Assignment.OWN else ''}")

    def make(self, path: str) -> None:
        self.disk.mkdir(path)
        self.identify(path)

    def identify(self, path: str) -> None:
        file = self.disk.open(f"{path}/partition.metadata", create=True)
        file.append([encode_partition_metadata(TOPIC)])
        file.sync()
        self.disk.sync_dir(path)

    def take(self, *, after_power_loss: bool = False) -> list[str]:
        self.watch.look(after_power_loss=after_power_loss)
        events, self.events = self.events, []
        return events


def test_a_partition_dir_appears_and_disappears() -> None:
    machine = Machine()
    machine.make("/data/t-0")
    assert machine.take() == ["+/data/t-0"]
    assert machine.take() == []
    machine.disk.rename("/data/t-0", DELETED)
    assert machine.take() == ["-0"]
    machine.disk.rmtree(DELETED)
    assert machine.take() == []


def test_a_directory_is_reported_once_its_id_is_written() -> None:
    machine = Machine()
    machine.disk.mkdir("/data/t-0")
    assert machine.take() == []
    machine.identify("/data/t-0")
    assert machine.take() == ["+/data/t-0"]


def test_a_directory_renamed_to_stray_is_reported_as_gone_and_as_new() -> None:
    machine = Machine()
    machine.make("/data/t-0")
    machine.take()
    stray = "/data/" + partition_dir_name_with_suffix("t", 0, "0" * 32, PartitionDirKind.STRAY)
    machine.disk.rename("/data/t-0", stray)
    assert machine.take() == [f"+{stray}", "-0"]


def test_a_replica_with_another_directory_is_not_gone() -> None:
    machine = Machine()
    machine.make("/data/t-0")
    machine.make("/more/t-0")
    machine.take()
    machine.disk.rename("/data/t-0", DELETED)
    assert machine.take() == []


def test_a_directory_recreated_at_once_is_another_one() -> None:
    """Else a broker that deletes a replica and creates it again would not be noticed."""
    machine = Machine()
    machine.make("/data/t-0")
    machine.take()
    machine.disk.rename("/data/t-0", DELETED)
    machine.make("/data/t-0")
    assert machine.take() == ["+/data/t-0", "-0"]
    assert machine.watch.of(REPLICA) == ("/data/t-0",)


@pytest.mark.parametrize("then", [Assignment.OWN, Assignment.NOT_OWN])
def test_the_assignment_at_the_removal_counts(then: Assignment) -> None:
    """A broker whose image assigns it again a moment later has done nothing wrong."""
    machine = Machine()
    machine.make("/data/t-0")
    machine.take()
    machine.assignment = then
    machine.disk.rename("/data/t-0", DELETED)
    machine.assignment = Assignment.NOT_OWN if then is Assignment.OWN else Assignment.OWN
    assert machine.take() == ["-0 its own" if then is Assignment.OWN else "-0"]


def test_a_durable_rename_for_deletion_does_not_come_back() -> None:
    machine = Machine()
    machine.make("/data/t-0")
    assert machine.watch.of(REPLICA) == ("/data/t-0",)
    machine.disk.sync_dir("/data")
    machine.disk.rename("/data/t-0", DELETED)
    # Not yet: a loss of power may undo the rename.
    assert machine.watch.of(REPLICA) == ("/data/t-0",)
    machine.disk.sync_dir("/data")
    assert machine.watch.of(REPLICA) == ()
    assert machine.watch.all() == ((REPLICA, DELETED),)


@pytest.mark.parametrize("seed", range(4))
def test_a_power_loss_reports_restored_directories_only(seed: int) -> None:
    machine = Machine()
    machine.make("/data/t-0")
    machine.take()
    machine.disk.lose_power(Random(seed))
    assert machine.take(after_power_loss=True) == []
    if not machine.disk.exists("/data/t-0"):
        machine.make("/data/t-0")
        assert machine.take() == ["+/data/t-0"]
    machine.disk.sync_dir("/data")
    machine.disk.rename("/data/t-0", DELETED)
    assert machine.take() == ["-0"]
    machine.disk.lose_power(Random(seed))
    back = ["+/data/t-0"] if machine.disk.exists("/data/t-0") else []
    assert machine.take(after_power_loss=True) == back
