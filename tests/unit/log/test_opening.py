"""Opening one log by itself. Method: a new directory, an existing one, one that fails."""

import pytest

from ottla.log.dirs.partition_metadata import decode_partition_metadata
from tests.unit.log.support import DIRECTORY, TOPIC_ID, Environment, append, batch


def test_a_new_log_names_its_topic() -> None:
    env = Environment()
    log = env.open()
    data = env.disk.read_bytes(f"{DIRECTORY}/partition.metadata")
    assert decode_partition_metadata(data) == TOPIC_ID == log.topic_id
    assert (log.name, log.directory) == ("topic-0", DIRECTORY)
    assert "topic-0" in repr(log)


def test_an_old_one_keeps_its_file() -> None:
    env = Environment()
    append(env.open(), batch())
    env.disk.write_atomic(f"{DIRECTORY}/partition.metadata", b"as it was")
    assert env.open().log_end_offset == 1
    assert env.disk.read_bytes(f"{DIRECTORY}/partition.metadata") == b"as it was"


def test_watermarks_are_held_within_the_log() -> None:
    env = Environment()
    append(env.open(), batch(3))
    assert env.open(high_watermark=99).high_watermark == 3
    assert env.open(high_watermark=2).high_watermark == 2
    assert env.open(log_start_offset=2).high_watermark == 2


def test_a_disk_that_fails() -> None:
    for count in range(8):
        env = Environment()
        env.disk.fail(skip=count)
        with pytest.raises(OSError):
            env.open()
        env.disk.faults.clear()
        assert append(env.open(), batch()) == 0
