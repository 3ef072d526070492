"""A machine's folders of replicas: what came, what went, what may come back.

Method: a disk, on which folders are made, renamed and removed; then the power goes.
"""

from random import Random

import pytest

from ottla.base.ids import Uuid
from ottla.log.names import PartitionDirKind, partition_dir_name_with_suffix
from ottla.log.partition_metadata import encode_partition_metadata
from ottla.testing.sim.disk import SimDisk
from ottla.testing.sim.folder_watch import FolderWatch, Replica

TOPIC = Uuid(bytes(15) + b"\x09")
REPLICA = (TOPIC, 0)
DELETED = "/data/" + partition_dir_name_with_suffix("t", 0, "0" * 32, PartitionDirKind.DELETE)


class Machine:
    """A disk and what is told of it."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.disk = SimDisk()
        self.is_own = False
        self.watch = FolderWatch(
            self.disk,
            ("/data", "/more"),
            came=self.came,
            went=self.went,
            is_own=lambda replica: self.is_own,
        )
        self.disk.on_operation = self.watch.used
        for path in ("/data", "/more"):
            self.disk.mkdir(path)
        self.disk.settle()

    def came(self, replica: Replica, path: str) -> None:
        assert replica == REPLICA
        self.told.append(f"+{path}")

    def went(self, replica: Replica, was_own: bool) -> None:
        self.told.append(f"-{replica[1]}{' its own' if was_own else ''}")

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
        told, self.told = self.told, []
        return told


def test_a_folder_comes_and_goes() -> None:
    machine = Machine()
    machine.make("/data/t-0")
    assert machine.take() == ["+/data/t-0"]
    assert machine.take() == []
    machine.disk.rename("/data/t-0", DELETED)
    assert machine.take() == ["-0"]
    machine.disk.rmtree(DELETED)
    assert machine.take() == []


def test_an_id_that_comes_later_is_waited_for() -> None:
    machine = Machine()
    machine.disk.mkdir("/data/t-0")
    assert machine.take() == []
    machine.identify("/data/t-0")
    assert machine.take() == ["+/data/t-0"]


def test_a_folder_that_is_set_aside_as_a_stray_is_told_both_ways() -> None:
    machine = Machine()
    machine.make("/data/t-0")
    machine.take()
    stray = "/data/" + partition_dir_name_with_suffix("t", 0, "0" * 32, PartitionDirKind.STRAY)
    machine.disk.rename("/data/t-0", stray)
    assert machine.take() == [f"+{stray}", "-0"]


def test_one_of_two_folders_is_not_the_last() -> None:
    machine = Machine()
    machine.make("/data/t-0")
    machine.make("/more/t-0")
    machine.take()
    machine.disk.rename("/data/t-0", DELETED)
    assert machine.take() == []


def test_one_that_takes_the_name_at_once_is_another_one() -> None:
    """Else a broker that empties a replica, and begins it anew, would be seen by nobody."""
    machine = Machine()
    machine.make("/data/t-0")
    machine.take()
    machine.disk.rename("/data/t-0", DELETED)
    machine.make("/data/t-0")
    assert machine.take() == ["+/data/t-0", "-0"]
    assert machine.watch.of(REPLICA) == ("/data/t-0",)


@pytest.mark.parametrize("was_own", [False, True])
def test_whose_a_replica_was_counts_when_it_goes(was_own: bool) -> None:
    """A broker that hears of its return a moment later has done nothing wrong."""
    machine = Machine()
    machine.make("/data/t-0")
    machine.take()
    machine.is_own = was_own
    machine.disk.rename("/data/t-0", DELETED)
    machine.is_own = not was_own
    assert machine.take() == ["-0 its own" if was_own else "-0"]


def test_what_is_on_its_way_out_for_good_does_not_come_back() -> None:
    machine = Machine()
    machine.make("/data/t-0")
    assert machine.watch.of(REPLICA) == ("/data/t-0",)
    machine.disk.sync_dir("/data")
    machine.disk.rename("/data/t-0", DELETED)
    # Not yet: a loss of power may take the new name back.
    assert machine.watch.of(REPLICA) == ("/data/t-0",)
    machine.disk.sync_dir("/data")
    assert machine.watch.of(REPLICA) == ()
    assert machine.watch.all() == ((REPLICA, DELETED),)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_loss_of_power_takes_is_nobodys_deed_and_what_it_brings_is_told(seed: int) -> None:
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
