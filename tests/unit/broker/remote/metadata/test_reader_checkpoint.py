"""A checkpoint comes back as it was written, or not at all.

Method: round trips of drawn checkpoints; every single changed byte and every cut must be noticed.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.broker.remote.metadata.reader_checkpoint import (
    DIR_NAME,
    CheckpointDamaged,
    CheckpointFiles,
    ReaderCheckpoint,
    UserState,
    decode_checkpoint,
    encode_checkpoint,
)
from ottla.testing.disk import Fault, MemoryDisk
from tests.unit.broker.harness import LOG_DIR, FakeWorkers

TOPIC = Uuid(b"m" * 16)
STATES = st.dictionaries(
    st.tuples(st.binary(min_size=16, max_size=16).map(Uuid), st.integers(0, 1_000)),
    st.tuples(st.integers(5, 10), st.binary(max_size=50)).map(lambda each: UserState(*each)),
    max_size=5,
)


def checkpoint(states: dict[tuple[Uuid, int], UserState], partition: int = 3) -> ReaderCheckpoint:
    return ReaderCheckpoint(
        topic_id=TOPIC,
        partition=partition,
        offset=5,
        epoch=-1,
        end_offset=10,
        end_epoch=2,
        states=states,
    )


SOME = checkpoint({(Uuid(b"u" * 16), 1): UserState(7, b"state"), (TOPIC, 2): UserState(5, b"")})


@given(STATES)
def test_round_trip(states: dict[tuple[Uuid, int], UserState]) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint(states))) == checkpoint(states)


def test_every_changed_byte_and_every_cut_is_noticed() -> None:
    data = encode_checkpoint(SOME)
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for damaged in (changed, data[:at]):
            with pytest.raises(CheckpointDamaged):
                decode_checkpoint(damaged)
    with pytest.raises(CheckpointDamaged):
        decode_checkpoint(data + b"x")


def files(disk: MemoryDisk) -> CheckpointFiles:
    return CheckpointFiles(disk=disk, workers=FakeWorkers(), log_dir=LOG_DIR)


def test_a_file_is_read_for_its_own_partition_and_topic_only() -> None:
    disk = MemoryDisk()
    assert files(disk).write(SOME).value
    assert files(disk).read(TOPIC, 3).value == SOME
    assert files(disk).read(TOPIC, 4).value is None
    assert files(disk).read(Uuid(b"n" * 16), 3).value is None
    assert files(disk).remove(3).done
    assert files(disk).read(TOPIC, 3).value is None


def test_a_failed_write_leaves_the_former_file() -> None:
    disk = MemoryDisk()
    files(disk).write(SOME)
    disk.faults.append(Fault(operation="write_atomic", path=f"{LOG_DIR}/{DIR_NAME}"))
    assert not files(disk).write(checkpoint({})).value
    disk.faults.clear()
    assert files(disk).read(TOPIC, 3).value == SOME
