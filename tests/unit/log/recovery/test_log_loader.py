"""Loading a log after clean and unclean ends.

Method: logs on a disk in memory, damaged in one exact way, opened again. Torn tails are tried at
every byte of the last batch.
"""

from dataclasses import replace

import pytest

from ottla.log import names
from ottla.log.config import LogConfig
from ottla.log.epoch_cache import EpochCache, EpochEntry
from ottla.log.names import segment_name
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_state import ProducerEntry, ProducerState
from ottla.log.recovery.producer_replay import write_snapshot
from ottla.records.batch import iter_headers, restamp
from ottla.records.control import build_marker
from tests.unit.log.support import (
    DIRECTORY,
    Environment,
    QueuedWorkers,
    append,
    batch,
    content,
    offset_for_timestamp,
    produced,
    values,
)

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=200, timestamp_after_max_ms=2**62)


def filled(env: Environment, count: int = 20) -> PartitionLog:
    log = env.open(CONFIG)
    for number in range(count):
        append(log, batch([b"%d" % number] * 2, timestamp=1_000 + number), epoch=number // 8)
    return log


def close(log: PartitionLog) -> None:
    job = log.prepare_close()
    job.run()
    job.release(failed=False)
    log.flushed(job)
    log.close()


def path(base: int, suffix: str) -> str:
    return f"{DIRECTORY}/{segment_name(base, suffix)}"


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def facts(log: PartitionLog) -> tuple[object, ...]:
    """What must come back."""
    return (
        content(log),
        bases(log),
        log.log_end_offset,
        log.epochs.entries,
        log.producer_states(),
        [segment.max_timestamp for segment in log.segments],
        [offset_for_timestamp(log, time) for time in range(990, 1_030, 3)],
        log.aborted_transactions(0, 10**6),
    )


def test_a_clean_log_comes_back_without_reading_its_records() -> None:
    env = Environment()
    log = filled(env)
    expected = facts(log)
    close(log)
    env.disk.crash()
    read: list[str] = []
    env.disk.on_operation = lambda operation, file: (
        read.append(file) if operation == "read_at" else None
    )
    log = env.open(CONFIG, clean=True)
    assert {file.rpartition(".")[2] for file in read} == {"log"}
    assert set(read) == {path(bases(log)[-1], names.LOG)}
    env.disk.on_operation = None
    assert facts(log) == expected
    assert log.recovery_point == log.log_end_offset
    assert append(log, batch()) == 40


@pytest.mark.parametrize("recovery_point", [0, 1, 17, 40, 99])
def test_an_unclean_log_comes_back_from_any_recovery_point(recovery_point: int) -> None:
    env = Environment()
    log = filled(env)
    expected = facts(log)
    log.flush()
    env.disk.crash()
    log = env.open(CONFIG, recovery_point=recovery_point)
    assert facts(log) == expected
    assert log.recovery_point == min(recovery_point, 40)
    assert append(log, batch()) == 40
    log.flush()
    assert log.recovery_point == 41


def test_a_torn_tail_is_cut_at_every_byte_of_the_last_batch() -> None:
    env = Environment()
    log = filled(env, 3)
    sound = log.segments.active.size
    append(log, batch([b"last"]))
    log.flush()
    env.disk.kill()
    whole = env.disk.read_bytes(path(0, names.LOG))
    for size in range(sound, len(whole)):
        env.disk.write_atomic(path(0, names.LOG), whole[:size])
        log = env.open(CONFIG)
        assert log.log_end_offset == 6
        assert env.disk.size(path(0, names.LOG)) == sound
        assert append(log, batch([b"next"])) == 6
        assert values(log)[-1] == (6, b"next")
    env.disk.write_atomic(path(0, names.LOG), whole)
    assert env.open(CONFIG).log_end_offset == 7


def test_a_damaged_batch_ends_the_log_with_all_behind_it() -> None:
    env = Environment()
    log = filled(env, 30)
    kept = bases(log)
    log.flush()
    expected = [pair for pair in values(log) if pair[0] < kept[2] + 2]
    epochs = log.epochs.entries
    second = log.segments[2].position_of(kept[2] + 2)
    assert second is not None
    env.disk.corrupt(path(kept[2], names.LOG), second.position + 70, b"\xff\xff\xff")
    log = env.open(CONFIG)
    assert values(log) == expected
    assert bases(log) == kept[:3]
    assert log.epochs.entries == tuple(
        entry for entry in epochs if entry.start_offset < log.log_end_offset
    )
    left = [name for name in env.names() if name.endswith((".log", ".index", ".snapshot"))]
    assert max(left) < segment_name(kept[3], "")
    assert append(log, batch()) == kept[2] + 2


def test_damage_before_the_recovery_point_is_left_for_readers_to_meet() -> None:
    env = Environment()
    log = filled(env)
    log.flush()
    env.disk.corrupt(path(0, names.LOG), 70, b"\xff")
    assert env.open(CONFIG, recovery_point=40).log_end_offset == 40


@pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX])
@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["missing", "cut", "zeros"])
def test_indexes_are_rebuilt(suffix: str, which: int, clean: bool, damage: str) -> None:
    env = Environment()
    log = filled(env)
    expected = facts(log)
    base = bases(log)[which]
    close(log)
    target = path(base, suffix)
    if damage == "missing":
        env.disk.remove(target)
    elif damage == "cut":
        env.disk.write_atomic(target, env.disk.read_bytes(target)[:-1] or b"x")
    elif which == -1 or not clean:
        # Whole entries of zeros: as Kafka's preallocated indexes are after a crash.
        env.disk.write_atomic(target, env.disk.read_bytes(target) + bytes(24))
    log = env.open(CONFIG, clean=clean)
    assert facts(log) == expected


def test_an_index_that_runs_ahead_of_its_segment() -> None:
    env = Environment()
    log = filled(env, 4)
    close(log)
    data = env.disk.read_bytes(path(0, names.LOG))
    env.disk.write_atomic(path(0, names.LOG), data[: len(data) // 2])
    log = env.open(CONFIG, clean=True)
    assert log.log_end_offset == 4
    assert values(log) == [(0, b"0"), (1, b"0"), (2, b"1"), (3, b"1")]


def test_producers_come_back_from_snapshot_and_batches() -> None:
    for clean in (True, False):
        for lose in (None, "all", "last", "damaged"):
            env = Environment()
            log = env.open(CONFIG)
            for number in range(20):
                append(log, produced(number % 3, 0, number // 3, size=40))
            expected = log.producer_states()
            close(log)
            found = [name for name in env.names() if name.endswith(".snapshot")]
            assert len(found) > 2
            for name in found if lose == "all" else found[-1:] if lose == "last" else ():
                env.disk.remove(f"{DIRECTORY}/{name}")
            if lose == "damaged":
                for name in found[1:]:
                    env.disk.corrupt(f"{DIRECTORY}/{name}", 8, b"\xff")
            log = env.open(CONFIG, clean=clean, recovery_point=log.log_end_offset)
            states = log.producer_states()
            assert [
                (state.producer_id, state.epoch, state.last_sequence, state.last_offset)
                for state in states
            ] == [
                (state.producer_id, state.epoch, state.last_sequence, state.last_offset)
                for state in expected
            ]
            duplicate = log.append_as_leader(
                bytes(produced(1, 0, 6, size=40)), leader_epoch=0, now_ms=0
            )
            assert duplicate.duplicate
            assert duplicate.first_offset == 19


def stale_snapshot(env: Environment, offset: int) -> str:
    """Leave a snapshot of a former log; return its path. Its producer is 77."""
    former = ProducerState("former", [ProducerEntry(77, 0)])
    return write_snapshot(env.disk, DIRECTORY, offset, former)


def known(log: PartitionLog) -> list[int]:
    return [state.producer_id for state in log.producer_states()]


def test_snapshots_above_the_recovered_segment_are_not_believed() -> None:
    """A power loss has brought them back: they are of records that were truncated."""
    env = Environment()
    log = env.open(CONFIG)
    for number in range(8):
        append(log, produced(number, 0, 0, size=40))
    log.close()
    stale = stale_snapshot(env, 3)
    log = env.open(CONFIG)
    assert not env.disk.exists(stale)
    log.truncate_to(4)
    assert known(log) == [0, 1, 2, 3]


def test_the_snapshots_of_a_log_that_is_gone_are_not_believed() -> None:
    env = Environment()
    env.disk.mkdir(DIRECTORY)
    stale = stale_snapshot(env, 3)
    log = env.open(CONFIG, log_start_offset=5)
    assert not env.disk.exists(stale)
    append(log, produced(1, 0, 0))
    append(log, produced(2, 0, 0))
    log.truncate_to(6)
    assert known(log) == [1]


def test_no_snapshot_is_written_where_the_next_segment_overlaps() -> None:
    """It would have the producers up to the end of its predecessor, too far for its offset."""
    env = Environment()
    log = env.open(CONFIG)
    for number in range(5):
        append(log, produced(number, 0, 0, size=40))
    log.close()
    env.disk.write_atomic(path(3, names.LOG), env.disk.read_bytes(path(0, names.LOG)))
    log = env.open(CONFIG)
    assert bases(log) == [0]
    log.truncate_to(4)
    assert known(log) == [0, 1, 2, 3]


def test_transactions_come_back_open_and_aborted() -> None:
    env = Environment()
    log = env.open(CONFIG)
    for number in range(6):
        append(log, produced(1, 0, number, size=60, transactional=True))
    marker = build_marker(
        committed=False, producer_id=1, producer_epoch=0, coordinator_epoch=2, timestamp=9
    )
    append(log, bytearray(marker), origin="coordinator")
    append(log, produced(2, 0, 0, size=60, transactional=True))
    for _ in range(5):
        append(log, batch(size=60))
    aborted = log.aborted_transactions(0, 99)
    assert [entry.first_offset for entry in aborted] == [0]
    log.flush()
    for clean in (False, True):
        if clean:
            close(log)
        env.disk.crash()
        log = env.open(CONFIG, clean=clean, high_watermark=13)
        assert log.aborted_transactions(0, 99) == aborted
        assert log.last_stable_offset == 7
        assert log.producers.entries[1].coordinator_epoch == 2


@pytest.mark.parametrize("clean", [False, True])
def test_expired_producers_do_not_come_back(clean: bool) -> None:
    """A start knows when a producer wrote from the file that its batch is in, at the latest."""
    env = Environment()
    log = env.open(CONFIG)
    append(log, produced(1, 0, 0))
    log.roll(env.clock.ms)
    env.clock.ms += CONFIG.producer_id_expiration_ms // 2
    append(log, produced(2, 0, 0))
    close(log)
    env.clock.ms += CONFIG.producer_id_expiration_ms // 2 + 1
    assert [state.producer_id for state in env.open(CONFIG, clean=clean).producer_states()] == [2]


@pytest.mark.parametrize("clean", [False, True])
def test_a_producer_of_historic_data_is_known_after_a_start(clean: bool) -> None:
    env = Environment()
    log = env.open(CONFIG)
    data = produced(1, 0, 0, timestamp=env.clock.ms - 365 * 24 * 3_600_000)
    append(log, data)
    close(log)
    log = env.open(CONFIG, clean=clean)
    assert log.expire_producers(env.clock.ms) == 0
    append(log, data)
    assert log.log_end_offset == 1  # The retry of what is there has not landed again.


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "stale", "ahead"])
def test_leader_epochs_come_back(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    env = Environment()
    log = filled(env)
    expected = log.epochs.entries
    assert len(expected) == 3
    log.flush()
    target = f"{DIRECTORY}/{names.LEADER_EPOCHS}"
    if damage == "missing":
        env.disk.remove(target)
    elif damage == "empty":
        env.disk.write_atomic(target, b"")
    elif damage == "garbage":
        env.disk.write_atomic(target, b"0\n2\n0 0\n")
    elif damage == "stale":
        env.disk.write_atomic(target, b"0\n1\n0 0\n")
    else:
        env.disk.write_atomic(target, log.epochs.encode().replace(b"3\n", b"4\n") + b"9 40\n")
    assert env.open(CONFIG).epochs.entries == expected
    assert ("leader-epoch-checkpoint is damaged" in caplog.text) == (damage == "garbage")


def test_a_damaged_file_of_a_truncation_is_logged_and_nothing_is_trusted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = Environment()
    close(filled(env))
    env.disk.write_atomic(f"{DIRECTORY}/{names.TRUNCATION}-1", b"{")
    assert env.open(CONFIG, recovery_point=40).recovery_point == 0
    assert "topic-0: .ottla_truncation is damaged; reading the whole log" in caplog.text


def test_the_log_start_cuts_epochs_and_first_segments_stay() -> None:
    env = Environment()
    close(filled(env))
    log = env.open(CONFIG, clean=True, log_start_offset=17)
    assert log.log_start_offset == 17
    assert log.epochs.entries == ((1, 17), (2, 32))


def test_epochs_come_back_with_a_log_start_that_does() -> None:
    """A process that is killed after DeleteRecords has no checkpoint of the new log start yet."""
    env = Environment()
    log = filled(env)
    expected = log.epochs.entries
    log.advance_high_watermark(40)
    log.delete_records(35)
    log.flush()
    assert log.epochs.entries == ((2, 35),)
    env.disk.kill()
    again = env.open(CONFIG, clean=False, recovery_point=40)
    assert (again.log_start_offset, again.epochs.entries) == (0, expected)
    assert again.epoch_of(0) == 0


def test_epochs_come_back_below_all_that_the_file_has() -> None:
    """After that kill the log is truncated below the deleted records, and the process is killed
    before the file has the epochs that are left."""
    env = Environment(workers=QueuedWorkers())
    log = filled(env)
    expected = tuple(each for each in log.epochs.entries if each.start_offset < 16)
    log.advance_high_watermark(40)
    log.delete_records(35)
    log.flush_now()
    env.disk.kill()
    again = env.open(CONFIG, clean=False, recovery_point=40)
    again.truncate_to(16)
    env.disk.kill()
    found = env.open(CONFIG, clean=False, recovery_point=16)
    assert (found.log_start_offset, found.log_end_offset) == (0, 16)
    assert found.epochs.entries == expected


def test_a_log_that_ends_before_its_start_becomes_empty() -> None:
    for clean in (True, False):
        env = Environment()
        close(filled(env))
        log = env.open(CONFIG, clean=clean, log_start_offset=50)
        assert (log.log_start_offset, log.log_end_offset) == (50, 50)
        assert log.epochs.entries == ()
        assert append(log, batch()) == 50
        assert sorted(name for name in env.names() if name.endswith(".log")) == [
            segment_name(50, ".log")
        ]


def test_an_empty_directory_is_an_empty_log() -> None:
    env = Environment()
    env.disk.mkdir(DIRECTORY)
    for clean in (True, False):
        log = env.open(CONFIG, clean=clean, log_start_offset=7)
        assert (log.log_start_offset, log.log_end_offset) == (7, 7)
        log.close()


def test_a_segment_within_its_predecessor_is_dropped() -> None:
    env = Environment()
    log = filled(env)
    log.flush()
    first = env.disk.read_bytes(path(0, names.LOG))
    env.disk.write_atomic(path(3, names.LOG), first)
    log = env.open(CONFIG)
    assert bases(log) == [0]
    assert log.log_end_offset == bases(log)[0] + len(values(log))


def test_recovery_after_the_crash_of_a_recovery() -> None:
    """Each operation of a recovery fails once; the next recovery must find the same log."""
    env = Environment()
    log = filled(env)
    for number in range(3):
        append(log, produced(5, 0, number), epoch=2)
    log.flush()
    tail = log.segments.active.size
    env.disk.corrupt(path(bases(log)[-1], names.LOG), tail - 3, b"\xff")
    env.disk.remove(path(0, names.OFFSET_INDEX))
    env.disk.crash()
    for count in range(200):
        env.disk.faults.clear()
        env.disk.fail(skip=count)
        try:
            log = env.open(CONFIG)
        except OSError:
            env.disk.crash()
            continue
        break
    else:
        raise AssertionError("recovery never got through")
    assert count > 20
    env.disk.faults.clear()
    assert facts(log) == facts(env.open(CONFIG))
    assert log.log_end_offset == 42


@pytest.mark.parametrize("is_missing", [True, False])
def test_what_lies_behind_a_gap_is_cut_off(is_missing: bool) -> None:
    """A power loss may take an older segment, or its end, and leave what was written later.

    Without the cut the replica has a hole, which nobody notices until it leads.
    """
    env = Environment()
    log = filled(env)
    first, second, third = bases(log)[:3]
    expected = [row for row in values(log) if row[0] < (second if is_missing else third - 2)]
    log.close()
    if is_missing:
        for suffix in names.SEGMENT_SUFFIXES:
            env.disk.remove(path(second, suffix))
    else:
        file = env.disk.open(path(second, names.LOG))
        sizes = [header.size_in_bytes for _, header in iter_headers(file.read_at(0, file.size()))]
        file.truncate(sum(sizes[:-1]))
        file.close()
    log = env.open(CONFIG)
    assert values(log) == expected
    assert bases(log) == ([first] if is_missing else [first, second])
    append(log, batch([b"more"]), epoch=2)
    log.close()
    assert values(env.open(CONFIG))[:-1] == expected


def test_a_followers_segments_have_no_gap_between_them_where_its_batches_have() -> None:
    env = Environment()
    log = env.open(CONFIG)
    offsets = [0, 1, 50, 51, 90, 91, 200, 201]
    for offset in offsets:
        data = bytearray(batch([bytes(250)]))
        restamp(data, 0, base_offset=offset, leader_epoch=0)
        log.append_as_follower(data, now_ms=1)
    assert len(bases(log)) > 2
    log.close()
    log = env.open(CONFIG)
    assert [offset for offset, _ in values(log)] == offsets


# --- epochs that go back ----------------------------------------------------------------


def with_an_old_batch_at_the_end(env: Environment) -> PartitionLog:
    """Return a closed, flushed log: epoch 2 begins at 3, and at 5 a batch of epoch 1 is back."""
    log = env.open(CONFIG)
    for offset, epoch in ((0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 1), (6, 2)):
        data = batch([b"%d" % offset])
        restamp(data, 0, base_offset=offset, leader_epoch=epoch)
        log.append_as_follower(bytes(data), now_ms=0)
    close(log)
    return log


def test_a_batch_of_an_older_epoch_is_cut_off() -> None:
    env = Environment()
    with_an_old_batch_at_the_end(env)
    reopened = env.open(CONFIG)
    assert reopened.log_end_offset == 5
    assert reopened.epochs.entries == ((1, 0), (2, 3))


def test_a_batch_that_is_cut_off_leaves_no_index_entry() -> None:
    """Its offsets and its position are those of the next batches."""
    env = Environment()
    log = with_an_old_batch_at_the_end(env)
    late = batch(50, timestamp=9_000_000)
    restamp(late, 0, base_offset=5, leader_epoch=1)
    env.disk.corrupt(path(0, names.LOG), log.segments.active.size * 5 // 7, bytes(late))
    log = env.open(replace(CONFIG, index_interval_bytes=1))
    assert log.log_end_offset == 5
    assert offset_for_timestamp(log, 9_000_000) is None
    for offset in range(5, 10):
        assert append(log, batch([b"%d" % offset]), epoch=2) == offset
    assert values(log) == [(offset, b"%d" % offset) for offset in range(10)]
    found = log.segments.active.position_of(7)
    assert found is not None
    assert found.position == log.segments.active.size * 7 // 10


@pytest.mark.parametrize("clean", [False, True])
def test_a_batch_of_an_older_epoch_is_truncated_when_the_epochs_are_rebuilt(clean: bool) -> None:
    """Also where all was to be trusted: below the recovery point, and after a clean end."""
    env = Environment()
    with_an_old_batch_at_the_end(env)
    env.disk.remove(f"{DIRECTORY}/{names.LEADER_EPOCHS}")
    reopened = env.open(CONFIG, clean=clean, recovery_point=7)
    assert reopened.log_end_offset == 5
    assert reopened.recovery_point == 5
    assert reopened.epochs.entries == ((1, 0), (2, 3))


def test_epochs_of_before_the_first_segment_refuse_no_records() -> None:
    """The file may have entries of a former log of the directory."""
    env = Environment()
    log = env.open(CONFIG)
    append(log, batch([b"old"]), epoch=3)
    log.flush()
    log.truncate_fully_and_start_at(20)
    epochs = env.disk.open(f"{DIRECTORY}/{names.LEADER_EPOCHS}")
    epochs.truncate(0)
    epochs.append([b"0\n1\n3 0\n"])
    epochs.close()
    append(log, batch([b"new"]), epoch=2)
    log.close()
    assert values(env.open(CONFIG)) == [(20, b"new")]


# --- epochs whose first records were compacted away ---------------------------------------


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([(0, 0), (2, 6)], [(0, 0), (2, 6)]),
        ([(0, 0), (1, 5), (2, 6)], [(0, 0), (1, 5), (2, 6)]),
        ([(0, 0), (1, 3), (2, 6)], [(0, 0), (2, 6)]),
        ([(0, 0), (2, 4)], [(0, 0), (2, 5)]),
        ([(0, 0), (2, 9)], [(0, 0), (2, 5)]),
        ([(0, 0), (1, 6)], [(0, 0), (2, 5)]),
        ([(0, 0)], [(0, 0), (2, 5)]),
    ],
    ids=[
        "known",
        "one without records",
        "one that the batches contradict",
        "too early",
        "too late",
        "another one",
        "behind",
    ],
)
def test_an_epoch_keeps_its_start_offset_when_its_first_records_were_compacted(
    stored: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    """Or a replica that lags could keep what it alone has at these offsets, for good."""
    env = with_gaps()
    entries = EpochCache([EpochEntry(*each) for each in stored])
    env.disk.write_atomic(f"{DIRECTORY}/{names.LEADER_EPOCHS}", entries.encode())
    assert list(env.open(CONFIG).epochs.entries) == expected


@pytest.mark.parametrize("clean", [False, True])
def test_an_epoch_without_an_entry_begins_at_the_earliest_possible_offset(clean: bool) -> None:
    env = with_gaps()
    env.disk.remove(f"{DIRECTORY}/{names.LEADER_EPOCHS}")
    assert env.open(CONFIG, clean=clean).epochs.entries == ((0, 0), (2, 5))


def with_gaps() -> Environment:
    """Return an environment with a closed log: offsets 0, 1 and 4 of epoch 0, 8 and 9 of 2."""
    env = Environment()
    log = env.open(CONFIG)
    for offset, epoch in ((0, 0), (1, 0), (4, 0), (8, 2), (9, 2)):
        data = batch([b"%d" % offset])
        restamp(data, 0, base_offset=offset, leader_epoch=epoch)
        log.append_as_follower(bytes(data), now_ms=0)
    close(log)
    return env


# --- what recovery takes away -----------------------------------------------------------


@pytest.mark.parametrize("is_gap", [False, True])
def test_what_recovery_takes_away_is_gone_from_the_disk(is_gap: bool) -> None:
    """Else it could be back behind what is appended next."""
    env = Environment()
    log = filled(env)
    log.flush()
    third = bases(log)[2]
    log.close()
    if is_gap:
        env.disk.remove(path(third, names.LOG))
    else:
        env.disk.corrupt(path(third, names.LOG), 100, b"\xff")
    found = env.open(CONFIG)
    end, size = found.log_end_offset, found.segments.active.size
    env.disk.crash()
    logs = [name for name in env.names() if name.endswith(names.LOG)]
    assert logs == [segment_name(base, names.LOG) for base in bases(found)]
    assert env.disk.size(f"{DIRECTORY}/{logs[-1]}") == size
    assert env.open(CONFIG).log_end_offset == end


def test_a_cut_that_a_killed_process_left_unsynced_is_synced_before_the_log_is_used() -> None:
    env = Environment()
    log = filled(env)
    log.flush()
    active = log.segments.active
    file = env.disk.open(path(active.base_offset, names.LOG))
    file.truncate(0)  # As a truncation does, whose process dies before its flush.
    file.close()
    log.close()
    env.disk.kill()
    env.open(CONFIG)
    env.disk.crash()
    assert env.disk.size(path(active.base_offset, names.LOG)) == 0


def test_the_snapshots_of_a_recovery_are_durable() -> None:
    """Once the segments before one are deleted, nothing else has their producers, nor what they
    left open: the abort of a transaction would be indexed from its first batch in the local log on,
    and readers would get the batches before."""
    env = Environment()
    log = env.open(CONFIG)
    for number in range(20):
        append(log, produced(number, 0, 0, size=40, transactional=True))
    log.close()
    log = env.open(CONFIG)
    assert len(bases(log)) > 2
    log.flush()
    env.disk.crash()
    log = env.open(CONFIG, recovery_point=20, log_start_offset=bases(log)[2])
    assert log.log_start_offset > 0
    assert known(log) == list(range(20))


def test_a_recovery_below_the_recovery_point_lowers_it_durably() -> None:
    """The next start may find the older checkpoint still."""
    env = Environment()
    log = filled(env)
    log.flush()
    last = bases(log)[-1]
    log.close()
    env.disk.corrupt(path(last, names.LOG), 70, b"\xff")
    log = env.open(CONFIG, recovery_point=40)
    assert log.recovery_point == log.log_end_offset == last
    # That the log ends below its high watermark is to be found by the next start, too.
    assert [limits.high_watermark for limits in log.limits.values()] == [2**63 - 1]
    env.disk.crash()
    assert env.open(CONFIG, recovery_point=40).recovery_point == last


# --- what recovery says -----------------------------------------------------------------


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_recovery_logs_what_a_truncation_lost(caplog: pytest.LogCaptureFixture) -> None:
    env = Environment()
    log = filled(env)
    log.flush()
    second, last_base = bases(log)[1], bases(log)[-1]
    sizes = [segment.size for segment in log.segments]
    log.close()
    env.disk.corrupt(path(second, names.LOG), 70, b"\xff")
    reopened = env.open(CONFIG)
    assert reopened.log_end_offset == second
    assert last_base > second
    (notified,) = warnings(caplog)
    assert notified.startswith(
        f"topic-0: recovery truncated the log at offset {second}: at position 0"
    )
    lost = sum(sizes[1:])
    dropped = len(sizes) - 2
    assert f"at least {40 - second} offsets and {lost} bytes are lost" in notified
    assert f"{dropped} segments dropped; the log ends at offset {second}" in notified


def test_recovery_logs_that_a_log_ended_before_its_start(caplog: pytest.LogCaptureFixture) -> None:
    env = Environment()
    filled(env).close()
    assert env.open(CONFIG, log_start_offset=50).log_end_offset == 50
    (notified,) = warnings(caplog)
    # What lies in segments that are wholly below the log start was deleted, and is not lost.
    assert (
        "truncated the log at offset 32: it ended at 40, before its log start offset 50" in notified
    )
    assert "at least 8 offsets" in notified
    assert "the log ends at offset 50" in notified


def test_recovery_logs_that_no_segment_exists(caplog: pytest.LogCaptureFixture) -> None:
    env = Environment()
    filled(env).close()
    for name in env.names():
        if names.parse_segment_name(name) is not None:
            env.disk.remove(f"{DIRECTORY}/{name}")
    assert env.open(CONFIG, recovery_point=32).log_end_offset == 0
    (notified,) = warnings(caplog)
    assert "no segment exists; at least 32 offsets" in notified


@pytest.mark.parametrize("clean", [False, True])
def test_recovery_logs_nothing_if_nothing_is_lost(
    caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    env = Environment()
    log = filled(env)
    close(log)
    env.open(CONFIG, clean=clean)
    Environment().open(CONFIG)
    assert warnings(caplog) == []
