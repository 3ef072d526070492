"""The disk in memory: what a crash leaves, and how faults strike.

Method: small sequences on one disk; that it otherwise behaves as a real one is checked in
`tests/unit/host/log_dirs/test_disk.py`.
"""

import errno

import pytest

from ottla.testing.disk import OPERATIONS, MemoryDisk


def prepared() -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("/d")
    disk.sync_dir("/")
    return disk


def test_a_crash_forgets_content_and_names_that_were_not_synced() -> None:
    disk = prepared()
    synced = disk.open("/d/synced", create=True)
    synced.append((b"kept",))
    synced.sync()
    synced.append((b" lost",))
    disk.sync_dir("/d")
    disk.open("/d/nameless", create=True).sync()
    disk.crash()
    assert disk.listdir("/d") == ["synced"]
    assert disk.read_bytes("/d/synced") == b"kept"


def test_a_crash_may_keep_part_of_what_was_appended() -> None:
    disk = prepared()
    file = disk.open("/d/a", create=True)
    file.append((b"kept",))
    file.sync()
    file.append((b"lost",))
    disk.sync_dir("/d")
    disk.crash(lambda path, count: 2 if path == "/d/a" and count == 4 else 0)
    assert disk.read_bytes("/d/a") == b"keptlo"


def test_a_crash_undoes_what_was_changed_in_place_and_not_synced() -> None:
    disk = prepared()
    file = disk.open("/d/a", create=True)
    file.append((b"0123456789",))
    file.sync()
    disk.sync_dir("/d")
    file.truncate(3)
    file.write_at(0, b"x")
    disk.crash(lambda path, count: count)
    assert disk.read_bytes("/d/a") == b"0123456789"


def test_a_crash_undoes_renames_and_removals_that_were_not_synced() -> None:
    disk = prepared()
    for name in ("a", "b"):
        disk.write_atomic(f"/d/{name}", name.encode())
    disk.rename("/d/a", "/d/c")
    disk.remove("/d/b")
    disk.crash()
    assert disk.listdir("/d") == ["a", "b"]
    disk.rename("/d/a", "/d/c")
    disk.remove("/d/b")
    disk.sync_dir("/d")
    disk.crash()
    assert disk.listdir("/d") == ["c"]


def test_a_killed_process_loses_nothing_but_its_locks() -> None:
    disk = prepared()
    disk.lock("/d/.lock")
    disk.open("/d/a", create=True).append((b"written",))
    disk.kill()
    assert disk.read_bytes("/d/a") == b"written"
    disk.lock("/d/.lock")


def test_faults_count_match_and_end() -> None:
    disk = prepared()
    fault = disk.fail("append", errno.ENOSPC, path="/d/a", skip=1, times=2, written=2)
    a, b = disk.open("/d/a", create=True), disk.open("/d/b", create=True)
    a.append((b"first",))
    b.append((b"other",))
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            a.append((b"xyz",))
        assert caught.value.errno == errno.ENOSPC
    assert fault.hits == 2
    assert a.size() == 7
    a.append((b"!",))
    assert a.read_at(0, 10) == b"first!y"


def test_any_operation_can_fail() -> None:
    for operation in sorted(OPERATIONS):
        disk = prepared()
        file = disk.open("/d/a", create=True)
        disk.fail(operation)
        acts = {
            "open": lambda disk=disk: disk.open("/d/a"),
            "read_at": lambda file=file: file.read_at(0, 1),
            "append": lambda file=file: file.append((b"x",)),
            "write_at": lambda file=file: file.write_at(0, b"x"),
            "truncate": lambda file=file: file.truncate(0),
            "sync": file.sync,
            "listdir": lambda disk=disk: disk.listdir("/d"),
            "mkdir": lambda disk=disk: disk.mkdir("/e"),
            "rename": lambda disk=disk: disk.rename("/d/a", "/d/b"),
            "remove": lambda disk=disk: disk.remove("/d/a"),
            "rmtree": lambda disk=disk: disk.rmtree("/d"),
            "sync_dir": lambda disk=disk: disk.sync_dir("/d"),
            "read_bytes": lambda disk=disk: disk.read_bytes("/d/a"),
            "write_atomic": lambda disk=disk: disk.write_atomic("/d/a", b""),
        }
        assert set(acts) == OPERATIONS
        with pytest.raises(OSError):
            acts[operation]()
        acts[operation]()


def test_a_full_disk_takes_what_fits_and_refuses() -> None:
    disk = MemoryDisk(capacity=10)
    disk.mkdir("/d")
    file = disk.open("/d/a", create=True)
    file.append((b"01234567",))
    assert disk.free_bytes("/d") == 2
    with pytest.raises(OSError) as caught:
        file.append((b"xyz",))
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 10
    file.truncate(8)
    with pytest.raises(OSError):
        file.write_at(7, b"abcd")
    with pytest.raises(OSError):
        disk.write_atomic("/d/b", b"0123")


def test_operations_and_open_files_are_counted_and_watched() -> None:
    disk = prepared()
    seen: list[tuple[str, str]] = []
    disk.on_operation = lambda operation, path: seen.append((operation, path))
    before = disk.operations
    file = disk.open("/d/a", create=True)
    file.sync()
    assert seen == [("open", "/d/a"), ("sync", "/d/a")]
    assert disk.operations == before + 2
    assert disk.open_files == disk.open_files_max == 1
    file.close()
    assert disk.open_files == 0


def test_corruption_reaches_the_durable_content() -> None:
    disk = prepared()
    disk.write_atomic("/d/a", b"0123")
    disk.corrupt("/d/a", 1, b"xx")
    disk.crash()
    assert disk.read_bytes("/d/a") == b"0xx3"
